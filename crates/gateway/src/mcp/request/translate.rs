//! What a server said, in the words of the client's era. Only what the eras say differently is touched; everything
//! else stays as the server wrote it.

use super::ask::raw;
use super::forward::{Output, PassedOn};
use gripfast::wire::patch::{Object, Patch};
use gripfast::wire::results::ResultType;
use gripfast::wire::{Era, codes, schema, tasks};
use gripfast::{CallError, Code, ErrorObject, Fate, RawValue};
use serde_json::json;

/// The result of `method` for a client of this era; `None` if it can stay as it is.
pub(super) fn result(
    era: Era,
    method: &str,
    result: &RawValue,
    passed_on: &PassedOn,
) -> Result<Option<Box<RawValue>>, Box<CallError>> {
    let has = passed_on.answer.members();
    let differs = match era {
        Era::Modern => !has.result_type || method == "resources/read",
        Era::Legacy => has.result_type || has.freshness || has.structured_content,
    };
    if !differs && passed_on.task.is_none() {
        return Ok(None);
    }
    let Ok(object) = Object::parse(result) else { return Ok(None) };
    let patch = match era {
        Era::Modern => renamed_task(&object, passed_on, with_modern_members(method, &object, passed_on)),
        Era::Legacy => {
            if has.input_required {
                let text = "asks for input in a way that this client's protocol version does not have";
                return Err(unspeakable(passed_on, Fate::Refused, text));
            }
            if matches!(ResultType::read(&object), ResultType::Other(kind) if kind == "task") {
                let text = "began a task, which this client did not declare and cannot ask for";
                return Err(unspeakable(passed_on, Fate::Unknown, text));
            }
            let patch = renamed_task(&object, passed_on, without_modern_members(&object));
            match object.get("structuredContent").filter(|content| is_wrapped(method, content, passed_on)) {
                Some(content) => patch.set_owned("structuredContent", schema::wrapped_value(content)),
                None => patch,
            }
        }
    };
    Ok((!patch.is_empty()).then(|| patch.apply(&object)))
}

/// What a server did that there are no words for in the client's era.
fn unspeakable(passed_on: &PassedOn, fate: Fate, what: &str) -> Box<CallError> {
    let server = &passed_on.server;
    Box::new(CallError::new(Code::UpstreamProtocol, server, fate, format!("upstream `{server}` {what}")))
}

/// How an error is put to a client of the other era.
pub(super) enum Translated {
    /// As the server put it.
    AsItIs,
    /// Under another code, with the server's own text and data.
    Code(i64),
    /// As a failure of the call.
    Failure(Box<CallError>),
}

/// The error for a client of this era: codes that mean something in one era only are translated.
pub(super) fn error(era: Era, method: &str, said: &ErrorObject<'_>, passed_on: &PassedOn) -> Translated {
    // The modern era has no code of its own for it; naming the URI tells it from other bad parameters.
    let names_uri =
        || said.data.and_then(|data| Object::parse(data).ok()).is_some_and(|data| data.has("uri"));
    match (era, said.code) {
        (Era::Modern, codes::RESOURCE_NOT_FOUND) => Translated::Code(codes::INVALID_PARAMS),
        (Era::Legacy, codes::INVALID_PARAMS)
            if passed_on.answer.era() == Era::Modern && method == "resources/read" && names_uri() =>
        {
            Translated::Code(codes::RESOURCE_NOT_FOUND)
        }
        (Era::Legacy, codes::MISSING_CLIENT_CAPABILITY) if method == "tools/call" => {
            Translated::Failure(Box::new(missing_ability(&passed_on.server, said)))
        }
        (Era::Legacy, code) if codes::is_modern(code) => Translated::Code(codes::INTERNAL_ERROR),
        (Era::Modern | Era::Legacy, _) => Translated::AsItIs,
    }
}

/// A task under the name that the client uses.
fn renamed_task(result: &Object<'_>, passed_on: &PassedOn, patch: Patch<'static>) -> Patch<'static> {
    match &passed_on.task {
        Some((own, public)) => patch.and(tasks::renamed(result, own, public)),
        None => patch,
    }
}

fn with_modern_members(method: &str, result: &Object<'_>, passed_on: &PassedOn) -> Patch<'static> {
    let mut patch = Patch::new();
    if !result.has("resultType") {
        patch = patch.set_text("resultType", "complete");
    }
    if method == "resources/read" && !result.has("ttlMs") {
        patch = patch.set_owned("ttlMs", raw(&json!(0))).set_text("cacheScope", "private");
    } else if passed_on.private && result.text("cacheScope").is_some_and(|scope| scope == "public") {
        patch = patch.set_text("cacheScope", "private");
    }
    patch
}

fn without_modern_members(result: &Object<'_>) -> Patch<'static> {
    let modern = ["resultType", "ttlMs", "cacheScope"];
    let foreign = modern.into_iter().filter(|member| result.has(member));
    foreign.fold(Patch::new(), |patch, member| patch.remove(member))
}

/// Whether the output of a tool has to be put into an object: the client was told so, or it is nothing that the
/// legacy era knows as output.
fn is_wrapped(method: &str, content: &RawValue, passed_on: &PassedOn) -> bool {
    let foreign = || passed_on.answer.era() == Era::Modern && !content.get().starts_with('{');
    method == "tools/call" && (passed_on.output == Output::Wrapped || foreign())
}

/// A tool that cannot work with this client, in words that a model can act on.
fn missing_ability(server: &str, said: &ErrorObject<'_>) -> CallError {
    let data = said.data.and_then(|data| Object::parse(data).ok());
    let required = data.as_ref().and_then(|data| data.object("requiredCapabilities"));
    let names: Vec<String> = required
        .iter()
        .flat_map(Object::iter)
        .map(|(name, inside)| {
            let modes = Object::parse(inside).ok();
            let modes: Vec<&str> = modes.iter().flat_map(Object::iter).map(|(mode, _)| mode).collect();
            if modes.is_empty() { format!("`{name}`") } else { format!("`{name}` ({})", modes.join(", ")) }
        })
        .collect();
    let what = if names.is_empty() { "a capability".to_owned() } else { names.join(" and ") };
    let text = format!(
        "this tool of `{server}` needs {what} of its client, which this client does not offer; nothing was done \
         (the server said: {})",
        said.message
    );
    CallError::new(Code::InvalidRequest, server, Fate::Refused, text)
        .hint("calling it again will not help; use another tool, or a client that offers it")
}

//! Translates answers of servers into the era of the client. Only members that differ between the eras change;
//! everything else stays as the server wrote it.

use super::dispatch::raw;
use super::forward::{ForwardedAnswer, ToolOutput};
use gripfast::wire::patch::{Object, Patch};
use gripfast::wire::results::ResultType;
use gripfast::wire::{Era, codes, schema, tasks};
use gripfast::{CallError, CallOutcome, Code, ErrorObject, Json, JsonText};
use serde_json::json;

/// Result of `method` for a client of this era; `None` if it is unchanged.
pub(crate) fn result(
    era: Era,
    method: &str,
    result: &Json,
    forwarded: &ForwardedAnswer,
) -> Result<Option<JsonText>, Box<CallError>> {
    let has = forwarded.answer.members();
    let differs = match era {
        Era::Modern => !has.result_type || method == "resources/read",
        Era::Legacy => has.result_type || has.freshness || has.structured_content,
    };
    if !differs && forwarded.task.is_none() {
        return Ok(None);
    }
    let Ok(object) = Object::parse(result) else { return Ok(None) };
    let patch = match era {
        Era::Modern => renamed_task(&object, forwarded, with_modern_members(method, &object, forwarded)),
        Era::Legacy => {
            if has.input_required {
                let text = "requires input in a form that this client's protocol version does not support";
                return Err(untranslatable(forwarded, CallOutcome::Refused, text));
            }
            if matches!(ResultType::read(&object), ResultType::Other(kind) if kind == "task") {
                let text = "started a task, which this client does not support";
                return Err(untranslatable(forwarded, CallOutcome::Unknown, text));
            }
            let patch = renamed_task(&object, forwarded, without_modern_members(&object));
            match object.get("structuredContent").filter(|content| is_wrapped(method, content, forwarded)) {
                Some(content) => patch.set_owned("structuredContent", schema::wrap_value(content)),
                None => patch,
            }
        }
    };
    Ok((!patch.is_empty()).then(|| patch.apply(&object)))
}

/// The pieces of a result for a legacy client, if `resultType` is all that it must not have. This is so for most results
/// of modern servers, and needs no parsing.
pub(crate) fn legacy_pieces<'a>(
    era: Era,
    result: &'a Json,
    forwarded: &ForwardedAnswer,
) -> Option<[&'a str; 2]> {
    let is_simple = era == Era::Legacy && forwarded.task.is_none();
    let (start, end) = forwarded.answer.members().only_modern_part.filter(|_| is_simple)?;
    Some([&result.get()[..start], &result.get()[end..]])
}

/// Error for an answer that cannot be expressed in the era of the client.
fn untranslatable(forwarded: &ForwardedAnswer, outcome: CallOutcome, what: &str) -> Box<CallError> {
    let server = &forwarded.server;
    Box::new(CallError::new(Code::UpstreamProtocol, server, outcome, format!("server `{server}` {what}")))
}

/// Translation of an error to the era of the client.
pub(crate) enum Translated {
    /// Unchanged.
    Unchanged,
    /// Another code, with the server's text and data.
    Code(i64),
    /// A failure of the call.
    Failure(Box<CallError>),
}

/// Translates an error for a client of this era: codes that exist in one era only are replaced.
pub(crate) fn error(
    era: Era,
    method: &str,
    error: &ErrorObject<'_>,
    forwarded: &ForwardedAnswer,
) -> Translated {
    // The modern era has no code for an unknown resource; the member `uri` tells it from other invalid parameters.
    let names_uri =
        || error.data.and_then(|data| Object::parse(data).ok()).is_some_and(|data| data.has("uri"));
    match (era, error.code) {
        (Era::Modern, codes::RESOURCE_NOT_FOUND) => Translated::Code(codes::INVALID_PARAMS),
        (Era::Legacy, codes::INVALID_PARAMS)
            if forwarded.answer.era() == Era::Modern && method == "resources/read" && names_uri() =>
        {
            Translated::Code(codes::RESOURCE_NOT_FOUND)
        }
        (Era::Legacy, codes::MISSING_CLIENT_CAPABILITY) if method == "tools/call" => {
            Translated::Failure(Box::new(missing_capability(&forwarded.server, error)))
        }
        (Era::Legacy, code) if codes::is_modern(code) => Translated::Code(codes::INTERNAL_ERROR),
        (Era::Modern | Era::Legacy, _) => Translated::Unchanged,
    }
}

/// Replaces the task id with the one that the client uses.
fn renamed_task(result: &Object<'_>, forwarded: &ForwardedAnswer, patch: Patch<'static>) -> Patch<'static> {
    match forwarded.task.as_deref() {
        Some((own, public)) => patch.merge(tasks::rename_task(result, own, public)),
        None => patch,
    }
}

fn with_modern_members(method: &str, result: &Object<'_>, forwarded: &ForwardedAnswer) -> Patch<'static> {
    let mut patch = Patch::new();
    if !result.has("resultType") {
        patch = patch.set_text("resultType", "complete");
    }
    if method == "resources/read" && !result.has("ttlMs") {
        patch = patch.set_owned("ttlMs", raw(&json!(0))).set_text("cacheScope", "private");
    } else if forwarded.private && result.text("cacheScope").is_some_and(|scope| scope == "public") {
        patch = patch.set_text("cacheScope", "private");
    }
    patch
}

fn without_modern_members(result: &Object<'_>) -> Patch<'static> {
    let modern = ["resultType", "ttlMs", "cacheScope"];
    let foreign = modern.into_iter().filter(|member| result.has(member));
    foreign.fold(Patch::new(), |patch, member| patch.remove(member))
}

/// Tests if the tool output must be wrapped in an object: it was listed so, or it is not an object, which the legacy
/// era does not allow.
fn is_wrapped(method: &str, content: &Json, forwarded: &ForwardedAnswer) -> bool {
    let foreign = || forwarded.answer.era() == Era::Modern && !content.get().starts_with('{');
    method == "tools/call" && (forwarded.output == ToolOutput::Wrapped || foreign())
}

/// Error for a tool that needs a capability which the client lacks, worded for a model.
fn missing_capability(server: &str, error: &ErrorObject<'_>) -> CallError {
    let data = error.data.and_then(|data| Object::parse(data).ok());
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
        "this tool of server `{server}` needs {what} from its client, which this client does not support; nothing was done \
         (the server said: {})",
        error.message
    );
    CallError::new(Code::InvalidRequest, server, CallOutcome::Refused, text)
        .with_hint("calling it again will not help; use another tool, or a client that supports it")
}

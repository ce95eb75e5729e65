//! The only file that turns outcomes into wire form: results and errors in the client's era, failures as
//! clients and models can read them.

use super::ask::{Fault, Told, raw};
use gripfast::wire::patch::{Object, Patch};
use gripfast::wire::results::ResultType;
use gripfast::wire::{Era, Id, Outcome, codes, envelope};
use gripfast::{Answer, CallError, Code, RawValue};
use serde_json::json;

/// A JSON-RPC response and the HTTP status that goes with it.
pub(crate) struct Response {
    pub(crate) message: Vec<u8>,
    pub(crate) status: u16,
}

/// The response to the request `id` for `method`, in the client's era.
pub(crate) fn respond(era: Era, method: &str, id: Id<'_>, told: Told) -> Response {
    match told {
        Told::Result(result) => Response { message: envelope::response(id, &result), status: 200 },
        Told::Answer(answer) => passed_on(era, method, id, &answer),
        Told::Fault(fault) => error(era, Some(id), &fault),
        Told::Failed(failure) => failed(era, method, id, &failure),
    }
}

/// An error response. In the modern era some codes have statuses of their own; in the legacy one a 404
/// would say that the session is gone.
pub(crate) fn error(era: Era, id: Option<Id<'_>>, fault: &Fault) -> Response {
    let data = fault.data.as_ref().map(raw);
    let message = envelope::error_response(id, fault.code, &fault.message, data.as_deref());
    let status = match (era, fault.code) {
        (Era::Modern, codes::METHOD_NOT_FOUND) => 404,
        (Era::Modern, code) if codes::is_modern(code) => 400,
        (Era::Modern | Era::Legacy, _) => 200,
    };
    Response { message, status }
}

fn passed_on(era: Era, method: &str, id: Id<'_>, answer: &Answer) -> Response {
    let message = match answer.outcome() {
        Outcome::Result(result) => match in_era(era, method, result) {
            Ok(None) => envelope::response(id, result),
            Ok(Some(patched)) => envelope::response(id, &patched),
            Err(fault) => return error(era, Some(id), &fault),
        },
        Outcome::Error(said) => {
            let status = match (era, said.code) {
                (Era::Modern, codes::METHOD_NOT_FOUND) => 404,
                (Era::Modern, code) if codes::is_modern(code) => 400,
                (Era::Modern | Era::Legacy, _) => 200,
            };
            return Response { message: error_in_era(era, method, id, &said, answer.era()), status };
        }
    };
    Response { message, status: 200 }
}

/// Codes that mean something in one era only are translated; everything else passes as it is.
fn error_in_era(
    era: Era,
    method: &str,
    id: Id<'_>,
    said: &gripfast::ErrorObject<'_>,
    said_in: Era,
) -> Vec<u8> {
    // The modern era has no code of its own for it; naming the URI tells it from other bad parameters.
    let names_uri =
        || said.data.and_then(|data| Object::parse(data).ok()).is_some_and(|data| data.get("uri").is_some());
    let translated = match (era, said.code) {
        (Era::Modern, codes::RESOURCE_NOT_FOUND) => Some(codes::INVALID_PARAMS),
        (Era::Legacy, codes::INVALID_PARAMS)
            if said_in == Era::Modern && method == "resources/read" && names_uri() =>
        {
            Some(codes::RESOURCE_NOT_FOUND)
        }
        (Era::Legacy, code) if codes::is_modern(code) => Some(codes::INTERNAL_ERROR),
        (Era::Modern | Era::Legacy, _) => None,
    };
    match translated {
        Some(code) => envelope::error_response(Some(id), code, &said.message, said.data),
        None => envelope::error_passed_on(id, said.raw),
    }
}

/// What the client's era needs beyond what the server's gave; `None` if nothing.
fn in_era(era: Era, method: &str, result: &RawValue) -> Result<Option<Box<RawValue>>, Fault> {
    let Ok(object) = Object::parse(result) else { return Ok(None) };
    match era {
        Era::Modern => {
            let mut patch = Patch::new();
            if object.get("resultType").is_none() {
                patch = patch.set_text("resultType", "complete");
            }
            if method == "resources/read" && object.get("ttlMs").is_none() {
                patch = patch.set_owned("ttlMs", raw(&json!(0))).set_text("cacheScope", "private");
            }
            Ok((!patch.is_empty()).then(|| patch.apply(&object)))
        }
        Era::Legacy => {
            if matches!(ResultType::read(&object), ResultType::InputRequired) {
                let text =
                    "the server asks for input in a way that this client's protocol version does not have";
                return Err(Fault::new(codes::INTERNAL_ERROR, text));
            }
            let modern = ["resultType", "ttlMs", "cacheScope"];
            let foreign = modern.iter().filter(|member| object.get(member).is_some());
            let patch = foreign.fold(Patch::new(), |patch, member| patch.remove(*member));
            Ok((!patch.is_empty()).then(|| patch.apply(&object)))
        }
    }
}

/// A failure, as C01 wants it: in a tool call a result that the model can read, otherwise an error.
fn failed(era: Era, method: &str, id: Id<'_>, failure: &CallError) -> Response {
    let part = failure.machine_part();
    let text = match &failure.hint {
        Some(hint) => format!("{failure}\nhint: {hint}"),
        None => failure.to_string(),
    };
    match (method, failure.code) {
        // Denied things look unknown to clients; the reason is for the operator.
        ("tools/call", Code::UnknownTool | Code::Denied) => {
            let fault = Fault::new(codes::INVALID_PARAMS, "unknown tool");
            error(era, Some(id), &fault)
        }
        ("tools/call", _) => {
            let mut result = json!({
                "content": [{ "type": "text", "text": text }],
                "isError": true,
                "_meta": { "gripfast/failure": part },
            });
            if era == Era::Modern {
                result["resultType"] = "complete".into();
            }
            Response { message: envelope::response(id, &raw(&result)), status: 200 }
        }
        (_, _) => {
            let fault = Fault { code: codes::INTERNAL_ERROR, message: text, data: Some(part) };
            error(era, Some(id), &fault)
        }
    }
}

//! The only file that turns outcomes into wire form: results and errors in the client's era, failures as
//! clients and models can read them. What a server of the other era said is put by `translate`.

use super::ask::{Fault, Told, raw, who_answers};
use super::forward::PassedOn;
use super::translate::{self, Translated};
use gripfast::wire::{Era, Id, Outcome, codes, envelope};
use gripfast::{CallError, Code};
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
        Told::Page(page) => Response { message: page.response(id), status: 200 },
        Told::Answer(answered) => passed_on(era, method, id, &answered),
        Told::Fault(fault) => error(era, Some(id), &fault),
        Told::Failed(failure) => failed(era, method, id, &failure),
    }
}

/// An error response.
pub(crate) fn error(era: Era, id: Option<Id<'_>>, fault: &Fault) -> Response {
    let data = fault.data.as_ref().map(raw);
    let message = envelope::error_response(id, fault.code, &fault.message, data.as_deref());
    Response { message, status: status_of(era, fault.code) }
}

/// In the modern era some codes have statuses of their own; in the legacy one a 404 would say that the session is
/// gone.
fn status_of(era: Era, code: i64) -> u16 {
    match (era, code) {
        (Era::Modern, codes::METHOD_NOT_FOUND) => 404,
        (Era::Modern, code) if codes::is_modern(code) => 400,
        (Era::Modern | Era::Legacy, _) => 200,
    }
}

fn passed_on(era: Era, method: &str, id: Id<'_>, passed_on: &PassedOn) -> Response {
    match passed_on.answer.outcome() {
        Outcome::Result(result) => match translate::result(era, method, result, passed_on) {
            Ok(Some(translated)) => Response { message: envelope::response(id, &translated), status: 200 },
            Ok(None) => Response { message: envelope::response(id, result), status: 200 },
            Err(failure) => failed(era, method, id, &failure),
        },
        Outcome::Error(said) => match translate::error(era, method, &said, passed_on) {
            Translated::Code(code) => {
                let message = envelope::error_response(Some(id), code, &said.message, said.data);
                Response { message, status: status_of(era, code) }
            }
            Translated::Failure(failure) => failed(era, method, id, &failure),
            Translated::AsItIs => {
                let message = envelope::error_passed_on(id, said.raw);
                Response { message, status: status_of(era, said.code) }
            }
        },
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
        ("tools/call", Code::UnknownTool) => {
            let fault = Fault::new(codes::INVALID_PARAMS, "unknown tool");
            error(era, Some(id), &fault)
        }
        // Denied things look unknown to clients; the reason is for the operator.
        (_, Code::Denied) => error(era, Some(id), &Fault::new(codes::INVALID_PARAMS, "unknown")),
        ("tools/call", _) => {
            let mut result = json!({
                "content": [{ "type": "text", "text": text }],
                "isError": true,
                "_meta": if era == Era::Modern { who_answers() } else { json!({}) },
            });
            result["_meta"]["gripfast/failure"] = part;
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

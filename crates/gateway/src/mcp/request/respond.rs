//! The only file that turns outcomes into wire form: results and errors in the era of the client, failures in a form
//! that clients and models can read. Answers of servers of the other era are adapted by `translate`.

use super::dispatch::{RequestOutcome, RpcFault, raw, server_info_meta};
use super::forward::ForwardedAnswer;
use super::translate;
use super::translate::Translated;
use gripfast::wire::{Era, Id, Outcome, codes, envelope};
use gripfast::{CallError, Code};
use serde_json::json;

/// JSON-RPC response and its HTTP status.
pub(crate) struct WireResponse {
    pub(crate) message: Vec<u8>,
    pub(crate) status: u16,
}

/// Response to the request `id` for `method`, in the era of the client.
pub(crate) fn respond(era: Era, method: &str, id: Id<'_>, outcome: RequestOutcome) -> WireResponse {
    match outcome {
        RequestOutcome::Result(result) => {
            WireResponse { message: envelope::response(id, &result), status: 200 }
        }
        RequestOutcome::Page(page) => WireResponse { message: page.response(id), status: 200 },
        RequestOutcome::Answer(answered) => forwarded(era, method, id, &answered),
        RequestOutcome::Fault(fault) => error(era, Some(id), &fault),
        RequestOutcome::Failed(failure) => failed(era, method, id, &failure),
    }
}

/// Error response.
pub(crate) fn error(era: Era, id: Option<Id<'_>>, fault: &RpcFault) -> WireResponse {
    let data = fault.data.as_ref().map(raw);
    let message = envelope::error_response(id, fault.code, &fault.message, data.as_deref());
    WireResponse { message, status: status_of(era, fault.code) }
}

/// HTTP status of an error. In the modern era some codes have their own status; in the legacy era a 404 would mean that
/// the session has ended.
fn status_of(era: Era, code: i64) -> u16 {
    match (era, code) {
        (Era::Modern, codes::METHOD_NOT_FOUND) => 404,
        (Era::Modern, code) if codes::is_modern(code) => 400,
        (Era::Modern | Era::Legacy, _) => 200,
    }
}

fn forwarded(era: Era, method: &str, id: Id<'_>, forwarded: &ForwardedAnswer) -> WireResponse {
    match forwarded.answer.outcome() {
        Outcome::Result(result) => {
            if let Some(pieces) = translate::legacy_pieces(era, result, forwarded) {
                return WireResponse { message: envelope::response_from_pieces(id, &pieces), status: 200 };
            }
            match translate::result(era, method, result, forwarded) {
                Ok(Some(translated)) => {
                    WireResponse { message: envelope::response(id, &translated), status: 200 }
                }
                Ok(None) => WireResponse { message: envelope::response(id, result), status: 200 },
                Err(failure) => failed(era, method, id, &failure),
            }
        }
        Outcome::Error(error_object) => match translate::error(era, method, &error_object, forwarded) {
            Translated::Code(code) => {
                let message =
                    envelope::error_response(Some(id), code, &error_object.message, error_object.data);
                WireResponse { message, status: status_of(era, code) }
            }
            Translated::Failure(failure) => failed(era, method, id, &failure),
            Translated::Unchanged => {
                let message = envelope::forwarded_error(id, error_object.raw);
                WireResponse { message, status: status_of(era, error_object.code) }
            }
        },
    }
}

/// Response to a failed call (behaviour C01): a result that the model can read for a tool call, an error for other
/// methods.
fn failed(era: Era, method: &str, id: Id<'_>, failure: &CallError) -> WireResponse {
    let part = failure.to_json();
    let text = match &failure.hint {
        Some(hint) => format!("{failure}\nhint: {hint}"),
        None => failure.to_string(),
    };
    match (method, failure.code) {
        ("tools/call", Code::UnknownTool) => {
            let fault = RpcFault::new(codes::INVALID_PARAMS, "unknown tool");
            error(era, Some(id), &fault)
        }
        // Denied items look unknown to clients; the reason is for the operator.
        (_, Code::Denied) => error(era, Some(id), &RpcFault::new(codes::INVALID_PARAMS, "unknown")),
        ("tools/call", _) => {
            let mut result = json!({
                "content": [{ "type": "text", "text": text }],
                "isError": true,
                "_meta": if era == Era::Modern { server_info_meta() } else { json!({}) },
            });
            result["_meta"]["gripfast/failure"] = part;
            if era == Era::Modern {
                result["resultType"] = "complete".into();
            }
            WireResponse { message: envelope::response(id, &raw(&result)), status: 200 }
        }
        (_, _) => {
            let fault = RpcFault { code: codes::INTERNAL_ERROR, message: text, data: Some(part) };
            error(era, Some(id), &fault)
        }
    }
}

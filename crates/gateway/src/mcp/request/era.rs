//! In which era a request is asked, from what it says about itself; and what each era does not have.

use super::ask::Fault;
use gripfast::wire::batch::NotABatch;
use gripfast::wire::envelope::{Malformed, Request};
use gripfast::wire::era::{ContextFault, ModernContext};
use gripfast::wire::log::LogLevel;
use gripfast::wire::{Era, ProtocolVersion, codes, nesting};
use serde_json::json;

/// What else says in which era a request is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Around {
    /// Its headers say that it is modern.
    SaysModern,
    /// Nothing, or that it is legacy.
    Silent,
}

/// The era of a request. A modern one has to be whole, and of a version that is spoken here.
pub(super) fn of(request: &Request<'_>, around: Around) -> Result<Era, Fault> {
    match ModernContext::from_params(request.params) {
        Ok(context) if context.version == ProtocolVersion::MODERN => match context.log_level.as_deref() {
            Some(level) if LogLevel::named(level).is_none() => {
                Err(Fault::new(codes::INVALID_PARAMS, format!("`{level}` is not a log level")))
            }
            Some(_) | None => Ok(Era::Modern),
        },
        Ok(context) => Err(unsupported(&context.version)),
        Err(ContextFault::Absent) if around == Around::Silent && request.method != "server/discover" => {
            Ok(Era::Legacy)
        }
        Err(error) => Err(Fault::new(codes::INVALID_PARAMS, error.to_string())),
    }
}

/// Every version that is spoken here, the newest first: what `server/discover` says, and what a client is told that
/// asks in a version that nobody knows.
pub(super) fn spoken() -> Vec<&'static str> {
    const KNOWN: &[ProtocolVersion] = &ProtocolVersion::KNOWN;
    KNOWN.iter().rev().map(ProtocolVersion::as_str).collect()
}

fn unsupported(requested: &ProtocolVersion) -> Fault {
    // A version that begins with `initialize` is spoken here, but not like this; naming it again would lead a client
    // in circles.
    let (message, supported) = if requested.is_known() {
        let text = format!("protocol version {requested} begins with `initialize`");
        (text, vec![ProtocolVersion::MODERN.as_str()])
    } else {
        (format!("protocol version {requested} is not spoken here"), spoken())
    };
    let data = json!({ "supported": supported, "requested": requested.as_str() });
    Fault { code: codes::UNSUPPORTED_PROTOCOL_VERSION, message, data: Some(data) }
}

/// Whether a method belongs to the other era. It is then nothing that a server behind us should be asked on
/// behalf of a client of this one.
pub(super) fn lacks(era: Era, method: &str) -> bool {
    match era {
        Era::Modern => matches!(
            method,
            "ping"
                | "initialize"
                | "logging/setLevel"
                | "resources/subscribe"
                | "resources/unsubscribe"
                | "tasks/result"
                | "tasks/list"
        ),
        // The handshake has happened, or is answered by whoever knows what a session is.
        Era::Legacy => {
            matches!(method, "initialize" | "server/discover" | "subscriptions/listen" | "tasks/update")
        }
    }
}

/// Refuses a message whose arguments are nested more than `limit` levels deep. The envelope and `params` are two levels
/// more.
pub(super) fn not_too_deep(message: &[u8], limit: usize) -> Result<(), Fault> {
    if nesting::exceeds(message, limit.saturating_add(2)) {
        let text = format!("the message is nested more than {limit} levels deep (`gateway.limits.nesting`)");
        return Err(Fault::new(codes::INVALID_REQUEST, text));
    }
    Ok(())
}

/// What is no message: not even JSON, or JSON of another kind.
pub(super) fn unreadable(error: &Malformed) -> Fault {
    let code = match error {
        Malformed::NotJson { .. } => codes::PARSE_ERROR,
        _ => codes::INVALID_REQUEST,
    };
    Fault::new(code, error.to_string())
}

/// The same for a batch.
pub(super) fn unreadable_batch(error: &NotABatch) -> Fault {
    let code = match error {
        NotABatch::NotJson { .. } => codes::PARSE_ERROR,
        _ => codes::INVALID_REQUEST,
    };
    Fault::new(code, error.to_string())
}

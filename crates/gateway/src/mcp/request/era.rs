//! Era detection of a request, and the methods that each era does not have.

use super::dispatch::RpcFault;
use gripfast::wire::batch::BatchError;
use gripfast::wire::envelope::{Malformed, Request};
use gripfast::wire::era::{ContextFault, ModernContext};
use gripfast::wire::log::LogLevel;
use gripfast::wire::{Era, ProtocolVersion, codes, nesting};
use serde_json::json;

/// Era information outside the request itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EraContext {
    /// The headers say that the request is modern.
    Modern,
    /// No information, or legacy.
    Unknown,
}

/// Detects the era of a request. A modern request must have a complete context and a supported version.
pub(crate) fn detect(request: &Request<'_>, era_context: EraContext) -> Result<Era, RpcFault> {
    match ModernContext::from_params(request.params) {
        Ok(context) if context.version == ProtocolVersion::MODERN => match context.log_level.as_deref() {
            Some(level) if LogLevel::from_name(level).is_none() => {
                Err(RpcFault::new(codes::INVALID_PARAMS, format!("`{level}` is not a log level")))
            }
            Some(_) | None => Ok(Era::Modern),
        },
        Ok(context) => Err(unsupported(&context.version)),
        Err(ContextFault::Absent)
            if era_context == EraContext::Unknown && request.method != "server/discover" =>
        {
            Ok(Era::Legacy)
        }
        Err(error) => Err(RpcFault::new(codes::INVALID_PARAMS, error.to_string())),
    }
}

/// All supported protocol versions, newest first: for `server/discover`, and for the error about an unsupported
/// version.
pub(crate) fn supported_versions() -> Vec<&'static str> {
    const KNOWN: &[ProtocolVersion] = &ProtocolVersion::KNOWN;
    KNOWN.iter().rev().map(ProtocolVersion::as_str).collect()
}

fn unsupported(requested: &ProtocolVersion) -> RpcFault {
    // A legacy version is supported, but only after `initialize`; listing it here again would make the client repeat
    // the same request.
    let (message, supported) = if requested.is_known() {
        let text = format!("protocol version {requested} requires `initialize` first");
        (text, vec![ProtocolVersion::MODERN.as_str()])
    } else {
        (format!("unsupported protocol version {requested}"), supported_versions())
    };
    let data = json!({ "supported": supported, "requested": requested.as_str() });
    RpcFault { code: codes::UNSUPPORTED_PROTOCOL_VERSION, message, data: Some(data) }
}

/// Tests if a method only exists in the other era. Such a request is not forwarded to a server.
pub(crate) fn lacks(era: Era, method: &str) -> bool {
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
        // `initialize` of a legacy client is handled by the transport, before this check.
        Era::Legacy => {
            matches!(method, "initialize" | "server/discover" | "subscriptions/listen" | "tasks/update")
        }
    }
}

/// Refuses a message whose arguments are nested deeper than `limit`. The envelope and `params` add two levels.
pub(crate) fn check_depth(message: &[u8], limit: usize) -> Result<(), RpcFault> {
    if nesting::exceeds(message, limit.saturating_add(2)) {
        let text = format!("the message is nested more than {limit} levels deep (`gateway.limits.nesting`)");
        return Err(RpcFault::new(codes::INVALID_REQUEST, text));
    }
    Ok(())
}

/// Error for input that is not a message: not JSON, or not JSON-RPC.
pub(crate) fn parse_fault(error: &Malformed) -> RpcFault {
    let code = match error {
        Malformed::NotJson { .. } => codes::PARSE_ERROR,
        _ => codes::INVALID_REQUEST,
    };
    RpcFault::new(code, error.to_string())
}

/// The same for a batch.
pub(crate) fn batch_fault(error: &BatchError) -> RpcFault {
    let code = match error {
        BatchError::NotJson { .. } => codes::PARSE_ERROR,
        _ => codes::INVALID_REQUEST,
    };
    RpcFault::new(code, error.to_string())
}

//! Responses to requests that are refused before they are parsed: a limit is reached, or the body cannot be read.
//! Overload errors state when to retry.

use super::dispatch::RpcFault;
use super::respond;
use crate::mcp::transport::streamable_http::json_response;
use crate::server::memory;
use crate::server::quota::QuotaExceeded;
use crate::server::request_rate::RateExceeded;
use axum::body::Body;
use axum::response::Response;
use gripfast::wire::{Era, Id, codes};
use http::header::{CONNECTION, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde_json::json;
use std::time::Duration;

/// A limit that is reached.
pub(crate) struct Overload {
    status: StatusCode,
    text: String,
    retry_after: Duration,
}

impl Overload {
    /// `what` exceeds its quota; a plural noun with its verb, such as "sessions are in use".
    pub(crate) fn new(exhausted: QuotaExceeded, what: &str) -> Self {
        let (status, whose) = match exhausted {
            QuotaExceeded::ByClient => (StatusCode::TOO_MANY_REQUESTS, "from this client"),
            QuotaExceeded::ByAll => (StatusCode::SERVICE_UNAVAILABLE, "from all clients together"),
        };
        let text = format!("too many {what} {whose}; try again in a moment");
        Self { status, text, retry_after: Duration::from_secs(1) }
    }

    /// The memory quota for requests and answers is reached.
    pub(crate) fn memory(exhausted: QuotaExceeded) -> Self {
        let text = format!("memory limit reached: {}; try again in a moment", memory::explanation(exhausted));
        Self { text, ..Self::new(exhausted, "") }
    }

    /// A limit of one session is reached.
    pub(crate) fn session(what: &str) -> Self {
        let text = format!("too many {what} in this session; try again in a moment");
        Self { status: StatusCode::TOO_MANY_REQUESTS, text, retry_after: Duration::from_secs(1) }
    }

    /// The client sends too many requests per second.
    pub(crate) fn rate(too_many: RateExceeded) -> Self {
        let text = "too many requests per second from this client (`limits.requests`)".to_owned();
        Self { status: StatusCode::TOO_MANY_REQUESTS, text, retry_after: too_many.retry_after }
    }

    /// The gateway cannot serve the request now, for a reason that is no limit.
    pub(crate) fn unavailable(text: &str, retry_after: Duration) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, text: text.to_owned(), retry_after }
    }

    /// JSON-RPC error for the client.
    pub(crate) fn fault(&self) -> RpcFault {
        let millis = u64::try_from(self.retry_after.as_millis()).unwrap_or(u64::MAX);
        let part = json!({
            "code": "overloaded",
            "server": null,
            "retry_after_ms": millis,
            "outcome": "not_sent",
            "hint": "docs/bounds.md lists the limits and the keys that change them",
        });
        RpcFault { code: codes::INTERNAL_ERROR, message: self.text.clone(), data: Some(part) }
    }
}

/// Response for an overloaded gateway: nothing was done, and the request can be sent again.
pub(crate) fn overloaded(id: Option<Id<'_>>, overload: &Overload) -> Response {
    let body = respond::error(Era::Legacy, id, &overload.fault()).message;
    let mut response = json_response(body.into(), overload.status);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(overload.retry_after.as_secs().max(1)));
    response
}

/// Response to a request above the rate limit. The body was not read, so the id is unknown.
pub(crate) fn too_many_requests(too_many: RateExceeded) -> Response {
    overloaded(None, &Overload::rate(too_many))
}

/// Response after which the connection closes, because the unread rest of the body makes it unusable.
pub(crate) fn closing(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

//! Answers to requests that are not looked into: there is no room for them, or they cannot be read. Each
//! says when it is worth asking again, to people and to programs.

use super::ask::Fault;
use super::http::json_response;
use super::respond;
use crate::memory;
use crate::request_limits::TooMany;
use crate::shares::Exhausted;
use axum::body::Body;
use axum::response::Response;
use gripfast::wire::{Era, Id, codes};
use http::header::{CONNECTION, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde_json::json;
use std::time::Duration;

/// Too much of something.
pub(super) struct Overload {
    status: StatusCode,
    text: String,
    retry_after: Duration,
}

impl Overload {
    /// `what` there is too much of, in the plural.
    pub(super) fn new(exhausted: Exhausted, what: &str) -> Self {
        let (status, whose) = match exhausted {
            Exhausted::ByClient => (StatusCode::TOO_MANY_REQUESTS, "from this client"),
            Exhausted::ByAll => (StatusCode::SERVICE_UNAVAILABLE, "from all clients together"),
        };
        let text = format!("too many {what} {whose}; try again in a moment");
        Self { status, text, retry_after: Duration::from_secs(1) }
    }

    /// Too much memory for requests and answers is in use.
    pub(super) fn of_memory(exhausted: Exhausted) -> Self {
        let text =
            format!("too much is held already: {}; try again in a moment", memory::explained(exhausted));
        Self { text, ..Self::new(exhausted, "") }
    }

    /// For one session, which is one client's.
    pub(super) fn of_session(what: &str) -> Self {
        let text = format!("too many {what} in this session; try again in a moment");
        Self { status: StatusCode::TOO_MANY_REQUESTS, text, retry_after: Duration::from_secs(1) }
    }

    /// For a client that has sent too many requests in a second.
    pub(super) fn too_fast(too_many: TooMany) -> Self {
        let text = "too many requests per second from this client (`limits.requests`)".to_owned();
        Self { status: StatusCode::TOO_MANY_REQUESTS, text, retry_after: too_many.retry_after }
    }

    /// The error that says so.
    pub(super) fn fault(&self) -> Fault {
        let millis = u64::try_from(self.retry_after.as_millis()).unwrap_or(u64::MAX);
        let part = json!({
            "code": "overloaded",
            "server": null,
            "retry_after_ms": millis,
            "outcome": "not_sent",
            "hint": "docs/bounds.md lists the limits and the keys that change them",
        });
        Fault { code: codes::INTERNAL_ERROR, message: self.text.clone(), data: Some(part) }
    }
}

/// There is no room for this request: nothing was done, and it may be sent again.
pub(super) fn overloaded(id: Option<Id<'_>>, overload: &Overload) -> Response {
    let body = respond::error(Era::Legacy, id, &overload.fault()).message;
    let mut response = json_response(body.into(), overload.status);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(overload.retry_after.as_secs().max(1)));
    response
}

/// A request beyond the rate of its client. It was not read, so its id is not known.
pub(crate) fn too_many_requests(too_many: TooMany) -> Response {
    overloaded(None, &Overload::too_fast(too_many))
}

/// What cannot be read leaves the connection in a state that nobody knows: it ends.
pub(super) fn closing(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

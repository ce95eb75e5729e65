//! How the admin API answers: JSON, never to be kept by anybody on the way, and errors that say what to do.

use crate::request_limits::TooMany;
use axum::body::Body;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gripfast::{CallError, Code};
use schemars::JsonSchema;
use serde::Serialize;

/// A body of JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(value).expect("views have text for keys and no values that can fail");
    written(status, "application/json", bytes)
}

/// A body of plain text.
pub(super) fn text(status: StatusCode, text: &'static str) -> Response {
    written(status, "text/plain; charset=utf-8", text)
}

/// A page for a person: a few words.
pub(super) fn page(status: StatusCode, text: String) -> Response {
    let mut response = written(status, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn written(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A request beyond the rate of its client.
pub(crate) fn too_many_requests(too_many: TooMany) -> Response {
    let text = "too many requests per second from this client; try again in a moment";
    let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", text)
        .with_hint("`requests` in the table `gateway.limits` sets the limit; the control socket has none");
    let mut response = refusal.into_response();
    let seconds = too_many.retry_after.as_secs().max(1);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Why a request was not served.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: &'static str,
    text: String,
    hint: Option<String>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        Self { status, code, text: text.into(), hint: None }
    }

    pub(super) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(super) fn without_hint(mut self) -> Self {
        self.hint = None;
        self
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        let status = match error.code {
            Code::UnknownServer => StatusCode::NOT_FOUND,
            // It is known, and as it is configured there is nothing to act on.
            _ => StatusCode::CONFLICT,
        };
        Self { status, code: error.code.word(), text: error.text, hint: error.hint }
    }
}

/// Why a request was not served, as it is written.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Refused")]
pub(super) struct RefusalView<'r> {
    error: ErrorView<'r>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Error")]
struct ErrorView<'r> {
    /// For programs.
    code: &'r str,
    /// For people: what failed and what happens next.
    text: &'r str,
    /// What to do about it.
    hint: Option<&'r str>,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let error = ErrorView { code: self.code, text: &self.text, hint: self.hint.as_deref() };
        let mut response = json(self.status, &RefusalView { error });
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

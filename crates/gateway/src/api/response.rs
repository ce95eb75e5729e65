//! Responses of the admin API: JSON that must not be cached, and errors with a hint.

use super::types::{ErrorView, RefusalView};
use crate::server::request_rate::RateExceeded;
use axum::body::Body;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gripfast::{CallError, Code};
use serde::Serialize;

/// Response with a JSON body.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(value).expect("views have text for keys and no values that can fail");
    build(status, "application/json", bytes)
}

/// Response with plain text.
pub(super) fn text(status: StatusCode, text: &'static str) -> Response {
    build(status, "text/plain; charset=utf-8", text)
}

/// Plain-text page for a browser.
pub(super) fn page(status: StatusCode, text: String) -> Response {
    let mut response = build(status, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn build(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Response to a request beyond the rate limit of its client.
pub(crate) fn too_many_requests(too_many: RateExceeded) -> Response {
    let text = "too many requests per second from this client; try again in a moment";
    let refusal = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", text)
        .with_hint("`gateway.limits.requests` sets the limit; the control socket has no limit");
    let mut response = refusal.into_response();
    let seconds = too_many.retry_after.as_secs().max(1);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Error response of the admin API.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    error: ErrorView,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        Self { status, error: ErrorView { code: code.into(), text: text.into(), hint: None } }
    }

    pub(super) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(super) fn without_hint(mut self) -> Self {
        self.error.hint = None;
        self
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.error.hint = Some(hint.into());
        self
    }
}

impl From<CallError> for ApiError {
    fn from(error: CallError) -> Self {
        let status = match error.code {
            Code::UnknownServer => StatusCode::NOT_FOUND,
            // The server exists, but its config is invalid or it is disabled.
            _ => StatusCode::CONFLICT,
        };
        let CallError { code, text, hint, .. } = error;
        Self { status, error: ErrorView { code: code.as_str().into(), text, hint } }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json(self.status, &RefusalView { error: self.error });
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

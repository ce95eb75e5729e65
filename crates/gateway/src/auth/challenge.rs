//! What somebody is told who was not let in: that something has to be shown, and where to get it.

use super::Stranger;
use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::json;

/// How somebody is asked to show who they are.
#[derive(Debug)]
pub(super) struct Challenge;

impl Challenge {
    pub(super) fn to(&self, stranger: &Stranger) -> Response {
        let (error, text) = match stranger {
            Stranger::ShowsNothing => {
                (None, "this gateway wants `Authorization: Bearer` with a key or a token")
            }
            Stranger::Refused(why) => (Some("invalid_token"), why.as_str()),
        };
        let body = json!({ "error": error.unwrap_or("unauthorized"), "error_description": text });
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        let asked = match error {
            Some(error) => format!("Bearer realm=\"gripfast\", error=\"{error}\""),
            None => "Bearer realm=\"gripfast\"".to_owned(),
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(asked) = HeaderValue::from_str(&asked) {
            headers.insert(WWW_AUTHENTICATE, asked);
        }
        response
    }
}

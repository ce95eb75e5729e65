//! Responses to unauthenticated requests: `WWW-Authenticate` challenges and the OAuth protected resource metadata that
//! tells clients where to log in.

use super::AuthError;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use gripfast::config::JwtConfig;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

/// Challenge of this gateway.
pub(super) struct Challenge {
    /// Base URL of the gateway as clients see it.
    base: String,
    login: Option<Login>,
}

/// Issuer and scopes of accepted tokens.
struct Login {
    issuer: String,
    scopes: Vec<String>,
}

/// Path of the protected resource metadata (RFC 9728), followed by the path of the resource.
const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

impl Challenge {
    pub(super) fn new(base: &str, jwt: Option<&JwtConfig>) -> Self {
        let login = jwt.map(|jwt| Login { issuer: jwt.issuer.clone(), scopes: jwt.scopes.clone() });
        Self { base: base.trim_end_matches('/').to_owned(), login }
    }

    /// Router of the metadata documents. Empty if tokens are not accepted.
    pub(super) fn router(&self) -> Router {
        let Some(login) = &self.login else { return Router::new() };
        [("", "/mcp"), ("/mcp", "/mcp"), ("/sse", "/sse")].into_iter().fold(
            Router::new(),
            |router, (suffix, resource)| {
                let document = self.document(login, resource).to_string();
                let answer = move || {
                    let document = document.clone();
                    async move { json_response(StatusCode::OK, document) }
                };
                router.route(&format!("{METADATA_PATH}{suffix}"), get(answer))
            },
        )
    }

    fn document(&self, login: &Login, resource: &str) -> Value {
        let mut document = json!({
            "resource": format!("{}{resource}", self.base),
            "resource_name": "gripfast",
            "authorization_servers": [login.issuer],
            "bearer_methods_supported": ["header"],
        });
        if !login.scopes.is_empty() {
            document["scopes_supported"] = json!(login.scopes);
        }
        document
    }

    /// The response to an unauthenticated request for `path`.
    pub(super) fn response_to(&self, failure: &AuthError, path: &str) -> Response {
        let (status, error, text) = match failure {
            AuthError::NoCredential => {
                let text = "this gateway requires `Authorization: Bearer` with a key or a token";
                (StatusCode::UNAUTHORIZED, None, text)
            }
            AuthError::Refused { message, .. } => {
                (StatusCode::UNAUTHORIZED, Some("invalid_token"), message.as_str())
            }
            AuthError::InsufficientScope { .. } => {
                let text = "the token lacks a scope that this gateway requires";
                (StatusCode::FORBIDDEN, Some("insufficient_scope"), text)
            }
            AuthError::CannotCheck => {
                let text = "tokens cannot be verified at the moment; try again later";
                (StatusCode::SERVICE_UNAVAILABLE, Some("temporarily_unavailable"), text)
            }
        };
        let body = json!({ "error": error.unwrap_or("unauthorized"), "error_description": text });
        let mut response = json_response(status, body.to_string());
        let headers = response.headers_mut();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("10"));
        } else if let Ok(challenge) = HeaderValue::from_str(&self.www_authenticate(error, path)) {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }

    fn www_authenticate(&self, error: Option<&str>, path: &str) -> String {
        let mut challenge = "Bearer realm=\"gripfast\"".to_owned();
        if let Some(login) = &self.login {
            let suffix = if path == "/mcp" { "/mcp" } else { "/sse" };
            challenge += &format!(", resource_metadata=\"{}{METADATA_PATH}{suffix}\"", self.base);
            if !login.scopes.is_empty() {
                challenge += &format!(", scope=\"{}\"", login.scopes.join(" "));
            }
        }
        if let Some(error) = error {
            challenge += &format!(", error=\"{error}\"");
        }
        challenge
    }
}

fn json_response(status: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

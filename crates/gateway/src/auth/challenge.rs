//! What somebody is told who was not let in: that something has to be shown, and where to get it.

use super::Stranger;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use gripfast::config::JwtConfig;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

/// How somebody is asked to show who they are.
pub(super) struct Challenge {
    /// What clients call the gateway.
    base: String,
    login: Option<Login>,
}

/// Where tokens come from.
struct Login {
    issuer: String,
    scopes: Vec<String>,
}

/// Where clients look for how to log in, followed by the path of what they want to use.
const METADATA: &str = "/.well-known/oauth-protected-resource";

impl Challenge {
    pub(super) fn new(base: &str, jwt: Option<&JwtConfig>) -> Self {
        let login = jwt.map(|jwt| Login { issuer: jwt.issuer.clone(), scopes: jwt.scopes.clone() });
        Self { base: base.trim_end_matches('/').to_owned(), login }
    }

    /// The documents that say where to log in, if there is anywhere to.
    pub(super) fn router(&self) -> Router {
        let Some(login) = &self.login else { return Router::new() };
        [("", "/mcp"), ("/mcp", "/mcp"), ("/sse", "/sse")].into_iter().fold(
            Router::new(),
            |router, (suffix, resource)| {
                let document = self.document(login, resource).to_string();
                let answer = move || {
                    let document = document.clone();
                    async move { written(StatusCode::OK, document) }
                };
                router.route(&format!("{METADATA}{suffix}"), get(answer))
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

    /// The answer to a request for `path` that was not let in.
    pub(super) fn to(&self, stranger: &Stranger, path: &str) -> Response {
        let (status, error, text) = match stranger {
            Stranger::ShowsNothing => {
                let text = "this gateway wants `Authorization: Bearer` with a key or a token";
                (StatusCode::UNAUTHORIZED, None, text)
            }
            Stranger::Refused { why, .. } => (StatusCode::UNAUTHORIZED, Some("invalid_token"), why.as_str()),
            Stranger::LacksScope { .. } => {
                let text = "the token lacks a scope that this gateway wants";
                (StatusCode::FORBIDDEN, Some("insufficient_scope"), text)
            }
            Stranger::CannotCheck => {
                let text = "tokens cannot be checked at the moment; try again in a while";
                (StatusCode::SERVICE_UNAVAILABLE, Some("temporarily_unavailable"), text)
            }
        };
        let body = json!({ "error": error.unwrap_or("unauthorized"), "error_description": text });
        let mut response = written(status, body.to_string());
        let headers = response.headers_mut();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("10"));
        } else if let Ok(asked) = HeaderValue::from_str(&self.asked(error, path)) {
            headers.insert(WWW_AUTHENTICATE, asked);
        }
        response
    }

    fn asked(&self, error: Option<&str>, path: &str) -> String {
        let mut asked = "Bearer realm=\"gripfast\"".to_owned();
        if let Some(login) = &self.login {
            let suffix = if path == "/mcp" { "/mcp" } else { "/sse" };
            asked += &format!(", resource_metadata=\"{}{METADATA}{suffix}\"", self.base);
            if !login.scopes.is_empty() {
                asked += &format!(", scope=\"{}\"", login.scopes.join(" "));
            }
        }
        if let Some(error) = error {
            asked += &format!(", error=\"{error}\"");
        }
        asked
    }
}

fn written(status: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

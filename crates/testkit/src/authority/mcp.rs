//! The MCP server that takes the authority's tokens: legacy, without sessions, and as small as a server can be.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, LOCATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{Books, axum_json};

/// It never speaks unasked, and keeps no sessions.
pub(super) async fn no_stream() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

pub(super) async fn answer(State(books): State<Arc<Books>>, headers: HeaderMap, body: Bytes) -> Response {
    let shown = headers.get(AUTHORIZATION).and_then(|shown| shown.to_str().ok()).unwrap_or_default();
    books.pages().shown.push(shown.to_owned());
    let elsewhere = books.pages().redirects_to.clone();
    if let Some(elsewhere) = elsewhere {
        return (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, elsewhere)]).into_response();
    }
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let method = request["method"].as_str().unwrap_or_default();
    let open_to_all = books.manners.greets_anybody && !matches!(method, "ping" | "tools/list" | "tools/call");
    let granted = scopes_of(&books, shown.trim_start_matches("Bearer "));
    let Some(scopes) = granted.or(open_to_all.then(String::new)) else {
        books.pages().counts.refused += 1;
        return challenged(&books, StatusCode::UNAUTHORIZED, "invalid_token", None);
    };
    if let Some(scope) = books.manners.call_scope.filter(|_| method == "tools/call")
        && !scopes.split(' ').any(|granted| granted == scope)
    {
        let wanted = books.pages().wanted_scopes.clone().unwrap_or_else(|| scope.to_owned());
        return challenged(&books, StatusCode::FORBIDDEN, "insufficient_scope", Some(&wanted));
    }
    let result = match method {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "authority", "version": "1" },
        }),
        "ping" => json!({}),
        "tools/list" => {
            json!({ "tools": [{ "name": "whoami", "inputSchema": { "type": "object" } }] })
        }
        "tools/call" => {
            books.pages().counts.calls += 1;
            json!({ "content": [{ "type": "text", "text": "you are known" }] })
        }
        _ if request["id"].is_null() => return StatusCode::ACCEPTED.into_response(),
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            return axum_json(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }));
        }
    };
    axum_json(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
}

fn scopes_of(books: &Books, token: &str) -> Option<String> {
    let issuer = books.pages().issuer.clone();
    if let Some(issuer) = issuer {
        return scopes_of(&issuer, token).filter(|_| !books.pages().takes_no_token);
    }
    let pages = books.pages();
    let token = pages.access.get(token)?;
    let good = !pages.takes_no_token && token.ends.is_none_or(|ends| Instant::now() < ends);
    good.then(|| token.scopes.clone())
}

fn challenged(books: &Books, status: StatusCode, error: &str, scope: Option<&str>) -> Response {
    if !books.manners.challenges || books.pages().hides_metadata {
        return status.into_response();
    }
    let url = &books.url;
    let scope = scope.map(|scope| format!(", scope=\"{scope}\"")).unwrap_or_default();
    let challenge = format!(
        "Bearer error=\"{error}\"{scope}, resource_metadata=\"{url}/.well-known/oauth-protected-resource/mcp\""
    );
    (status, [(WWW_AUTHENTICATE, challenge)]).into_response()
}

//! Minimal MCP server that accepts the authority's tokens: legacy era, without sessions.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, LOCATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{AuthorityState, json_response};

/// This server has no unsolicited stream and no sessions.
pub(super) async fn no_stream() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

pub(super) async fn answer(
    State(state): State<Arc<AuthorityState>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let shown = headers.get(AUTHORIZATION).and_then(|shown| shown.to_str().ok()).unwrap_or_default();
    state.records().presented.push(shown.to_owned());
    let elsewhere = state.records().redirects_to.clone();
    if let Some(elsewhere) = elsewhere {
        return (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, elsewhere)]).into_response();
    }
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let method = request["method"].as_str().unwrap_or_default();
    let open_to_all =
        state.options.initialize_without_token && !matches!(method, "ping" | "tools/list" | "tools/call");
    let granted = scopes_of(&state, shown.trim_start_matches("Bearer "));
    let Some(scopes) = granted.or(open_to_all.then(String::new)) else {
        state.records().counts.refused += 1;
        return challenged(&state, StatusCode::UNAUTHORIZED, "invalid_token", None);
    };
    if let Some(scope) = state.options.call_scope.filter(|_| method == "tools/call")
        && !scopes.split(' ').any(|granted| granted == scope)
    {
        let wanted = state.records().wanted_scopes.clone().unwrap_or_else(|| scope.to_owned());
        return challenged(&state, StatusCode::FORBIDDEN, "insufficient_scope", Some(&wanted));
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
            state.records().counts.calls += 1;
            json!({ "content": [{ "type": "text", "text": "you are known" }] })
        }
        _ if request["id"].is_null() => return StatusCode::ACCEPTED.into_response(),
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            return json_response(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }));
        }
    };
    json_response(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
}

fn scopes_of(state: &AuthorityState, token: &str) -> Option<String> {
    let issuer = state.records().issuer.clone();
    if let Some(issuer) = issuer {
        return scopes_of(&issuer, token).filter(|_| !state.records().rejects_tokens);
    }
    let records = state.records();
    let token = records.access.get(token)?;
    let good = !records.rejects_tokens && token.ends.is_none_or(|ends| Instant::now() < ends);
    good.then(|| token.scopes.clone())
}

fn challenged(state: &AuthorityState, status: StatusCode, error: &str, scope: Option<&str>) -> Response {
    if !state.options.sends_challenge || state.records().hides_metadata {
        return status.into_response();
    }
    let url = &state.url;
    let scope = scope.map(|scope| format!(", scope=\"{scope}\"")).unwrap_or_default();
    let challenge = format!(
        "Bearer error=\"{error}\"{scope}, resource_metadata=\"{url}/.well-known/oauth-protected-resource/mcp\""
    );
    (status, [(WWW_AUTHENTICATE, challenge)]).into_response()
}

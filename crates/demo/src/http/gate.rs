//! Refusals that have nothing to do with MCP: foreign origins, missing tokens, configured refusals, and missing headers
//! that every client must send.

use axum::response::Response;
use http::{HeaderValue, StatusCode, header, request::Parts};

use super::{Arrival, header as read, respond::text};
use crate::state::ServerState;

pub(super) fn check(state: &ServerState, parts: &Parts) -> Result<(), Response> {
    if let Some(origin) = read(&parts.headers, "origin")
        && !is_loopback(origin)
    {
        return Err(text(StatusCode::FORBIDDEN, "this origin is not allowed"));
    }
    let faults = state.faults();
    if let Some(status) = state.refusal() {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = text(status, "the sample server refuses requests, as configured");
        if let Some(time) = faults.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(time.as_secs()));
        }
        return Err(response);
    }
    if let Some(token) = &faults.require_bearer {
        let given = read(&parts.headers, "authorization").and_then(|value| value.strip_prefix("Bearer "));
        if given != Some(token.as_str()) {
            let mut response = text(StatusCode::UNAUTHORIZED, "unauthorized");
            if !faults.bare_unauthorized {
                let challenge = match given {
                    Some(_) => "Bearer error=\"invalid_token\", error_description=\"the token is not valid\"",
                    None => "Bearer",
                };
                let challenge = HeaderValue::from_static(challenge);
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            }
            return Err(response);
        }
    }
    Ok(())
}

pub(super) fn check_post(arrival: &Arrival) -> Result<(), Response> {
    let content_type = arrival.header("content-type").unwrap_or_default();
    if !content_type.starts_with("application/json") {
        return Err(text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json"));
    }
    let accept = arrival.header("accept").unwrap_or_default();
    if !(accept.contains("application/json") && accept.contains("text/event-stream")) {
        let needed = "Accept must contain application/json and text/event-stream";
        return Err(text(StatusCode::NOT_ACCEPTABLE, needed));
    }
    Ok(())
}

/// Returns whether an origin is on loopback. Protects a server on loopback against web pages that found its port.
fn is_loopback(origin: &str) -> bool {
    let Some((_, authority)) = origin.split_once("://") else { return false };
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next(),
        None => authority.split(':').next(),
    };
    matches!(host, Some("localhost" | "127.0.0.1" | "::1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_origins_on_this_machine_are_allowed() {
        assert!(is_loopback("http://localhost:3000"));
        assert!(is_loopback("http://[::1]:3000"));
        assert!(is_loopback("https://127.0.0.1"));
        assert!(!is_loopback("https://localhost.example.com"));
        assert!(!is_loopback("null"));
    }
}

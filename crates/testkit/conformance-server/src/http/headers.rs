//! Checks the headers of the modern era, which must match the body.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;
use serde_json::Value;

use super::header;
use crate::rpc::{HEADER_MISMATCH, MODERN_VERSION, Request, RpcError};

/// Checks the required members of the body, the headers and the version, in this order.
pub(super) fn check(headers: &HeaderMap, request: &Request, tools: &[Value]) -> Result<(), RpcError> {
    let version = request.modern_version()?;
    require_match(headers, "mcp-protocol-version", Some(version))?;
    if version != MODERN_VERSION {
        return Err(RpcError::unsupported_version(version));
    }
    require_match(headers, "mcp-method", Some(&request.method))?;
    if let Some(member) = name_member(&request.method) {
        require_match(headers, "mcp-name", request.params[member].as_str())?;
    }
    if request.method == "tools/call" {
        let called = tools.iter().find(|tool| tool["name"] == request.params["name"]);
        let properties = called.and_then(|tool| tool["inputSchema"]["properties"].as_object());
        for (argument, schema) in properties.into_iter().flatten() {
            if let Some(suffix) = schema["x-mcp-header"].as_str() {
                let said = request.params["arguments"][argument].as_str();
                require_match(headers, &format!("mcp-param-{}", suffix.to_ascii_lowercase()), said)?;
            }
        }
    }
    Ok(())
}

/// Member of the parameters that the name header repeats.
fn name_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

fn require_match(headers: &HeaderMap, name: &str, body: Option<&str>) -> Result<(), RpcError> {
    let mismatch = |how: &str| RpcError::new(HEADER_MISMATCH, format!("the header {name} {how}"));
    match (header(headers, name), body) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(mismatch("is missing")),
        (Some(said), body) => match decode(said.trim()) {
            Some(said) if Some(said.as_str()) == body => Ok(()),
            Some(_) => Err(mismatch("says something else than the body")),
            None => Err(mismatch("is not the Base64 that it says it is")),
        },
    }
}

/// Decodes a header value; values that a header cannot carry are encoded as `=?base64?…?=`.
fn decode(said: &str) -> Option<String> {
    match said.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok(),
        None => Some(said.to_owned()),
    }
}

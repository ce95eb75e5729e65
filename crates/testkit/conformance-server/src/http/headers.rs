//! Headers of the modern era, which have to say what the body says.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;
use serde_json::Value;

use super::header;
use crate::rpc::{HEADER_MISMATCH, MODERN_VERSION, Request, RpcError};

/// The body says what it must, the headers agree, and the version is ours: in this order.
pub(super) fn check(headers: &HeaderMap, request: &Request, tools: &[Value]) -> Result<(), RpcError> {
    let version = request.modern_version()?;
    agree(headers, "mcp-protocol-version", Some(version))?;
    if version != MODERN_VERSION {
        return Err(RpcError::unsupported_version(version));
    }
    agree(headers, "mcp-method", Some(&request.method))?;
    if let Some(member) = named_by(&request.method) {
        agree(headers, "mcp-name", request.params[member].as_str())?;
    }
    if request.method == "tools/call" {
        let called = tools.iter().find(|tool| tool["name"] == request.params["name"]);
        let properties = called.and_then(|tool| tool["inputSchema"]["properties"].as_object());
        for (argument, schema) in properties.into_iter().flatten() {
            if let Some(suffix) = schema["x-mcp-header"].as_str() {
                let said = request.params["arguments"][argument].as_str();
                agree(headers, &format!("mcp-param-{}", suffix.to_ascii_lowercase()), said)?;
            }
        }
    }
    Ok(())
}

/// Which member of the parameters the name in the header repeats.
fn named_by(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

fn agree(headers: &HeaderMap, name: &str, body: Option<&str>) -> Result<(), RpcError> {
    let mismatch = |how: &str| RpcError::new(HEADER_MISMATCH, format!("the header {name} {how}"));
    match (header(headers, name), body) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(mismatch("is missing")),
        (Some(said), body) => match decoded(said.trim()) {
            Some(said) if Some(said.as_str()) == body => Ok(()),
            Some(_) => Err(mismatch("says something else than the body")),
            None => Err(mismatch("is not the Base64 that it says it is")),
        },
    }
}

/// Values that a header cannot carry as they are come as `=?base64?…?=`.
fn decoded(said: &str) -> Option<String> {
    match said.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok(),
        None => Some(said.to_owned()),
    }
}

//! The modern era over HTTP: no session, one POST per request, headers that mirror the body, and cancellation by
//! closing the stream.

use std::sync::Arc;

use axum::response::Response;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::StatusCode;

use super::{
    Arrival,
    respond::{Outgoing, ResponseStyle, error},
};
use crate::{
    methods::perform,
    options::EraChoice,
    peer::{MessageSink, Peer, Request},
    rpc::{self, Call, Era, HEADER_MISMATCH, META_VERSION, RpcError},
    stream::Stream,
};

pub(super) async fn post(arrival: &Arrival, call: Call) -> Result<Response, Response> {
    check(arrival, &call).map_err(|cause| error(StatusCode::BAD_REQUEST, &call.id, &cause))?;
    let state = &arrival.state;
    let stream = Arc::new(Stream::new(0));
    let life = state.shutdown.child_token();
    let peer = Arc::new(Peer::new(MessageSink::Stream(Arc::clone(&stream)), life.clone()));
    let request = Request::begin(call, Era::Modern, &peer, MessageSink::Stream(Arc::clone(&stream)));
    let reader = stream.read_after(0);
    let performing = {
        let state = Arc::clone(state);
        async move {
            if let Some(frame) = perform(&state, request).await {
                stream.push(frame);
            }
            stream.end();
        }
    };
    state.tasks.spawn(performing);
    // The guard is dropped with the response: a client that disconnects cancels its request.
    let outgoing = Outgoing::new(
        reader,
        Arc::clone(state),
        arrival.connection.clone(),
        ResponseStyle::Modern,
        life.drop_guard(),
    );
    Ok(if state.options.sse_answers { outgoing.events() } else { outgoing.json_or_events().await })
}

/// Checks that the body has its envelope, the headers match it, and the version is supported.
fn check(arrival: &Arrival, call: &Call) -> Result<(), RpcError> {
    if call.method == "initialize"
        && arrival.state.options.era == EraChoice::Modern
        && let Some(requested) = call.params["protocolVersion"].as_str()
    {
        return Err(rpc::unsupported_version(requested));
    }
    let envelope = call.check_envelope();
    let Some(version) = call.meta(META_VERSION).as_str() else { return envelope };
    agree(arrival, "mcp-protocol-version", version)?;
    agree(arrival, "mcp-method", &call.method)?;
    let name = match call.method.as_str() {
        "tools/call" | "prompts/get" => &call.params["name"],
        "resources/read" => &call.params["uri"],
        _ => return envelope,
    };
    if let Some(name) = name.as_str() {
        agree(arrival, "mcp-name", name)?;
    }
    let region = &call.params["arguments"]["region"];
    if call.method == "tools/call"
        && name == "route"
        && arrival.state.options.param_headers
        && let Some(region) = region.as_str()
    {
        agree(arrival, "mcp-param-region", region)?;
    }
    envelope
}

fn agree(arrival: &Arrival, header: &str, expected: &str) -> Result<(), RpcError> {
    let text = match arrival.header(header) {
        None => format!("Bad Request: the header {header} is missing"),
        Some(value) if decode(value).as_deref() == Some(expected) => return Ok(()),
        Some(value) => {
            format!(
                "Bad Request: the request headers and body disagree: {header} is `{value}`, the body says `{expected}`"
            )
        }
    };
    Err(RpcError::new(HEADER_MISMATCH, text))
}

/// Decodes a header value, which may be in the form `=?base64?…?=`.
fn decode(value: &str) -> Option<String> {
    let Some(encoded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(value.to_owned());
    };
    String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_may_be_base64() {
        assert_eq!(decode("echo").as_deref(), Some("echo"));
        assert_eq!(decode("=?base64?Z3LDvMOfZQ==?=").as_deref(), Some("grüße"));
        assert_eq!(decode("=?base64?!?="), None);
    }
}

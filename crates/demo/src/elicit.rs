//! Requests to the client, for the showcase: its roots, which a legacy server remembers until they change, and
//! sampling.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    peer::{Peer, Request},
    rpc::{Era, MISSING_CLIENT_CAPABILITY, RpcError},
    tools::{failure, plain},
};

/// A request to the client.
pub(crate) struct Inquiry {
    capability: &'static str,
    method: &'static str,
    /// Turns the answer into one text.
    read: fn(&Value) -> Option<String>,
    /// Sent only once per session.
    is_remembered: bool,
}

pub(crate) const ROOTS: Inquiry = Inquiry {
    capability: "roots",
    method: "roots/list",
    read: |result| {
        let roots = result["roots"].as_array()?;
        Some(roots.iter().filter_map(|root| root["uri"].as_str()).collect::<Vec<_>>().join(" "))
    },
    is_remembered: true,
};

pub(crate) const SAMPLING: Inquiry = Inquiry {
    capability: "sampling",
    method: "sampling/createMessage",
    read: |result| result["content"]["text"].as_str().map(str::to_owned),
    is_remembered: false,
};

/// The tools, in the order of the list.
pub(crate) fn tools() -> Vec<Value> {
    [
        ("roots", "Roots", "Returns the roots of the client; requests them if they are unknown."),
        ("sample", "Sample", "Returns an answer of the client's model."),
    ]
    .map(|(name, title, description)| {
        json!({
            "name": name,
            "title": title,
            "description": description,
            "inputSchema": { "type": "object" },
            "annotations": { "title": title, "readOnlyHint": true, "openWorldHint": false },
        })
    })
    .into()
}

/// Asks the client: with a request in the legacy era, with `input_required` in the modern one.
pub(crate) async fn call(request: &Request, inquiry: &Inquiry) -> Result<Value, RpcError> {
    let can = request.client_can(inquiry.capability);
    match request.era {
        Era::Legacy if !can => Ok(failure("this client does not support this request")),
        Era::Legacy => {
            if let Some(known) = request.peer.roots().filter(|_| inquiry.is_remembered) {
                return Ok(plain(&known));
            }
            let body = request.ask_client(inquiry.method, params()).await.unwrap_or_default();
            let Some(text) = (inquiry.read)(&body["result"]) else {
                return Ok(failure(&format!("the client did not answer: {}", body["error"])));
            };
            if inquiry.is_remembered {
                request.peer.set_roots(&text);
            }
            Ok(plain(&text))
        }
        Era::Modern if !can => {
            let missing = json!({ "requiredCapabilities": { inquiry.capability: {} } });
            let text = "this needs a client that supports this request";
            Err(RpcError::new(MISSING_CLIENT_CAPABILITY, text).with_data(missing))
        }
        Era::Modern => match &request.param("inputResponses")["it"] {
            Value::Null => Ok(json!({
                "resultType": "input_required",
                "inputRequests": { "it": { "method": inquiry.method, "params": params() } },
            })),
            answer => Ok((inquiry.read)(answer)
                .map_or_else(|| failure("the client did not answer"), |text| plain(&text))),
        },
    }
}

fn params() -> Value {
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "Hello" } }], "maxTokens": 9 })
}

/// Handles changed roots of a legacy client: if they are known, requests them again, outside of calls. An invalid
/// answer changes nothing.
pub(crate) fn roots_changed(peer: &Arc<Peer>) {
    if peer.roots().is_none() {
        return;
    }
    let peer = Arc::clone(peer);
    tokio::spawn(async move {
        let asking = peer.ask_in_background(ROOTS.method, json!({}));
        let body = peer.until_end(asking).await.flatten().unwrap_or_default();
        if let Some(text) = (ROOTS.read)(&body["result"]) {
            peer.set_roots(&text);
        }
    });
}

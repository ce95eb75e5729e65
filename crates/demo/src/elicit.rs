//! What only the client can tell, for the showcase: its roots, which a legacy server remembers until it hears that they have
//! changed, and words of its model.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    peer::{Peer, Request},
    rpc::{Era, MISSING_CLIENT_CAPABILITY, RpcError},
    tools::{failure, plain},
};

/// Something to find out.
pub(crate) struct Inquiry {
    capability: &'static str,
    method: &'static str,
    /// What the answer comes to, in one text.
    read: fn(&Value) -> Option<String>,
    /// Asked once in a session, and not again.
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

pub(crate) const WORDS_OF_THE_MODEL: Inquiry = Inquiry {
    capability: "sampling",
    method: "sampling/createMessage",
    read: |result| result["content"]["text"].as_str().map(str::to_owned),
    is_remembered: false,
};

/// The tools, in the order of the list.
pub(crate) fn tools() -> Vec<Value> {
    [
        ("roots", "Roots", "Says which roots the client has; asks for them if that is not known."),
        ("sample", "Sample", "Says what the client's model says."),
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

/// Finds out: with a request of our own in the legacy era, with `input_required` in the modern one.
pub(crate) async fn call(request: &Request, inquiry: &Inquiry) -> Result<Value, RpcError> {
    let can = request.client_can(inquiry.capability);
    match request.era {
        Era::Legacy if !can => Ok(failure("this client cannot be asked that")),
        Era::Legacy => {
            if let Some(known) = request.peer.roots().filter(|_| inquiry.is_remembered) {
                return Ok(plain(&known));
            }
            let body = request.ask_client(inquiry.method, params()).await.unwrap_or_default();
            let Some(told) = (inquiry.read)(&body["result"]) else {
                return Ok(failure(&format!("the client does not say: {}", body["error"])));
            };
            if inquiry.is_remembered {
                request.peer.set_roots(&told);
            }
            Ok(plain(&told))
        }
        Era::Modern if !can => {
            let missing = json!({ "requiredCapabilities": { inquiry.capability: {} } });
            let text = "this needs a client that can be asked";
            Err(RpcError::new(MISSING_CLIENT_CAPABILITY, text).with_data(missing))
        }
        Era::Modern => match &request.param("inputResponses")["it"] {
            Value::Null => Ok(json!({
                "resultType": "input_required",
                "inputRequests": { "it": { "method": inquiry.method, "params": params() } },
            })),
            answer => Ok((inquiry.read)(answer)
                .map_or_else(|| failure("the client does not say"), |told| plain(&told))),
        },
    }
}

fn params() -> Value {
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "Hello" } }], "maxTokens": 9 })
}

/// A legacy client has other roots. Whoever knew them asks again, outside any call; an answer that is none changes nothing.
pub(crate) fn roots_changed(peer: &Arc<Peer>) {
    if peer.roots().is_none() {
        return;
    }
    let peer = Arc::clone(peer);
    tokio::spawn(async move {
        let asking = peer.ask_aside(ROOTS.method, json!({}));
        let body = peer.until_end(asking).await.flatten().unwrap_or_default();
        if let Some(told) = (ROOTS.read)(&body["result"]) {
            peer.set_roots(&told);
        }
    });
}

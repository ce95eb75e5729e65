//! Servers that ask something before they answer.

use crate::stage::{NAME, call, legacy, modern, promptly, raw, said, serve, spec_over, until_ready};
use bytes::Bytes;
use gripfast::config::UrlTransport;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::{CallOptions, Host};
use gripfast_demo::RunningServer;
use serde_json::{Value, json};
use std::sync::Arc;

/// A caller that says yes to everything.
struct Agreeable;

impl Listener for Agreeable {
    fn said(&self, _message: &[u8]) {}

    fn asked(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        Some(Box::pin(async move {
            let asked: Value = serde_json::from_slice(&request).unwrap();
            assert_eq!(asked["method"], "elicitation/create");
            let yes = json!({ "action": "accept", "content": { "ok": true } });
            json!({ "jsonrpc": "2.0", "id": asked["id"], "result": yes }).to_string().into_bytes()
        }))
    }
}

async fn host_that_can_be_asked(transport: UrlTransport) -> (RunningServer, Host) {
    let server = serve(legacy()).await;
    let url = if transport == UrlTransport::Sse { server.sse_url() } else { server.url() };
    let host = Host::builder().capabilities(json!({ "elicitation": {} })).build();
    host.spawn(NAME, spec_over(&url, transport)).unwrap();
    until_ready(&host).await;
    (server, host)
}

#[tokio::test]
async fn a_question_reaches_the_caller_that_caused_it_and_its_answer_the_server() {
    for transport in [UrlTransport::Http, UrlTransport::Sse] {
        let (_server, host) = host_that_can_be_asked(transport).await;
        let options = CallOptions { listener: Some(Arc::new(Agreeable)), ..CallOptions::default() };
        let params = raw(&json!({ "name": "ask", "arguments": {} }));
        let asking = host.request_with(NAME, "tools/call", Some(params), options);
        let answer = promptly(asking).await.unwrap();
        assert!(said(&answer).contains("yes"), "{}", said(&answer));
    }
}

#[tokio::test]
async fn a_question_to_a_caller_that_cannot_be_asked_is_declined_and_nothing_hangs() {
    for transport in [UrlTransport::Http, UrlTransport::Sse] {
        let (_server, host) = host_that_can_be_asked(transport).await;
        let answer = call(&host, "ask", json!({})).await.unwrap();
        assert!(answer.is_tool_error() && said(&answer).contains("refused"), "{}", said(&answer));
    }
}

#[tokio::test]
async fn what_a_modern_caller_says_of_itself_reaches_the_server_and_its_question_comes_back_as_it_is() {
    let server = serve(modern()).await;
    let host = Host::builder().build();
    host.spawn(NAME, spec_over(&server.url(), UrlTransport::Http)).unwrap();
    until_ready(&host).await;
    let meta = json!({ "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } } });
    let params = raw(&json!({ "name": "ask", "arguments": {}, "_meta": meta }));
    let answer = promptly(host.request(NAME, "tools/call", Some(params))).await.unwrap();
    let result: Value = serde_json::from_str(answer.result().unwrap().get()).unwrap();
    assert_eq!(result["resultType"], "input_required");
}

//! Servers that ask something before they answer.

use crate::script::{Act, Script, good_manners, open_ended};
use crate::stage::{
    NAME, call, eventually, host, legacy, modern, promptly, raw, said, serve, spec, spec_over, until_ready,
};
use bytes::Bytes;
use gripfast::config::UrlTransport;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::{CallOptions, Host};
use gripfast_demo::RunningServer;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

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

#[tokio::test]
async fn a_call_that_may_be_asked_waits_for_the_stream_on_which_its_server_may_ask() {
    let open = Arc::new(Notify::new());
    let opening = Arc::clone(&open);
    let script = Script::new(move |heard| match heard.method.as_str() {
        "GET" => Act::SayOnceAndHold(Arc::clone(&opening), open_ended("text/event-stream")),
        _ => good_manners(heard),
    })
    .await;
    let host = host(spec(&script.url()));
    let options = CallOptions { listener: Some(Arc::new(Agreeable)), ..CallOptions::default() };
    let params = raw(&json!({ "name": "act", "arguments": {} }));
    let begun = Instant::now();
    let calling =
        tokio::spawn(async move { host.request_with(NAME, "tools/call", Some(params), options).await });
    eventually("the tools were listed", || !script.calls_of("tools/list").is_empty()).await;
    eventually("the stream was asked for", || !script.with_method("GET").is_empty()).await;
    // A moment for what must not happen: as long as a call takes, several times over.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let early = script.calls_of("tools/call").len();
    let patience_has_ended = begun.elapsed() >= Duration::from_secs(1);
    assert!(early == 0 || patience_has_ended, "there is no stream yet on which it could be asked");
    open.notify_one();
    promptly(calling).await.unwrap().unwrap();
}

#[tokio::test]
async fn c03_a_server_that_says_nothing_about_its_stream_is_called_all_the_same() {
    let never = Arc::new(Notify::new());
    let script = Script::new(move |heard| match heard.method.as_str() {
        "GET" => Act::SayOnceAndHold(Arc::clone(&never), Vec::new()),
        _ => good_manners(heard),
    })
    .await;
    let host = host(spec(&script.url()));
    let options = CallOptions { listener: Some(Arc::new(Agreeable)), ..CallOptions::default() };
    let params = raw(&json!({ "name": "act", "arguments": {} }));
    promptly(host.request_with(NAME, "tools/call", Some(params), options)).await.unwrap();
}

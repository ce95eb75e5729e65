//! Servers that send a request before they answer.

use crate::http_host::{
    NAME, call, host, legacy, modern, raw, serve, spec, spec_over, text_of, wait_until_ready, within_timeout,
};
use crate::scripted_server::{ScriptedAction, ScriptedServer, open_ended, respond_normally};
use bytes::Bytes;
use gripfast::config::UrlTransport;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::{CallOptions, Host};
use gripfast_demo::RunningServer;
use gripfast_testkit::wait::until;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A client that accepts every elicitation.
struct AcceptsEverything;

impl Listener for AcceptsEverything {
    fn on_message(&self, _message: &[u8]) {}

    fn on_request(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        Some(Box::pin(async move {
            let asked: Value = serde_json::from_slice(&request).unwrap();
            assert_eq!(asked["method"], "elicitation/create");
            let yes = json!({ "action": "accept", "content": { "ok": true } });
            json!({ "jsonrpc": "2.0", "id": asked["id"], "result": yes }).to_string().into_bytes()
        }))
    }
}

async fn host_with_elicitation(transport: UrlTransport) -> (RunningServer, Host) {
    let server = serve(legacy()).await;
    let url = if transport == UrlTransport::Sse { server.sse_url() } else { server.url() };
    let host = Host::builder().capabilities(json!({ "elicitation": {} })).build();
    host.spawn(NAME, spec_over(&url, transport)).unwrap();
    wait_until_ready(&host).await;
    (server, host)
}

#[tokio::test]
async fn an_elicitation_reaches_its_caller_and_the_response_the_server() {
    for transport in [UrlTransport::Http, UrlTransport::Sse] {
        let (_server, host) = host_with_elicitation(transport).await;
        let options = CallOptions { listener: Some(Arc::new(AcceptsEverything)), ..CallOptions::default() };
        let params = raw(&json!({ "name": "ask", "arguments": {} }));
        let asking = host.request_with(NAME, "tools/call", Some(&params), options);
        let answer = within_timeout(asking).await.unwrap();
        assert!(text_of(&answer).contains("yes"), "{}", text_of(&answer));
    }
}

#[tokio::test]
async fn an_elicitation_without_client_support_is_declined_without_a_hang() {
    for transport in [UrlTransport::Http, UrlTransport::Sse] {
        let (_server, host) = host_with_elicitation(transport).await;
        let answer = call(&host, "ask", json!({})).await.unwrap();
        assert!(answer.is_tool_error() && text_of(&answer).contains("refused"), "{}", text_of(&answer));
    }
}

#[tokio::test]
async fn modern_client_capabilities_and_input_requests_pass_unchanged() {
    let server = serve(modern()).await;
    let host = Host::builder().build();
    host.spawn(NAME, spec_over(&server.url(), UrlTransport::Http)).unwrap();
    wait_until_ready(&host).await;
    let meta = json!({ "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } } });
    let params = raw(&json!({ "name": "ask", "arguments": {}, "_meta": meta }));
    let answer = within_timeout(host.request(NAME, "tools/call", Some(params))).await.unwrap();
    let result: Value = serde_json::from_str(answer.result().unwrap().get()).unwrap();
    assert_eq!(result["resultType"], "input_required");
}

#[tokio::test]
async fn a_call_with_elicitation_waits_for_the_servers_stream() {
    // The host waits for the stream for one second. An attempt in which the machine took longer shows nothing.
    for _ in 0..20 {
        let started = Instant::now();
        let sent = calls_sent_before_the_stream_opens().await;
        if started.elapsed() < Duration::from_secs(1) {
            return assert_eq!(sent, 0, "there is no stream yet on which the server could ask");
        }
    }
    panic!("no attempt took less than a second");
}

/// Starts a call and returns how many calls the server has received when the stream opens.
async fn calls_sent_before_the_stream_opens() -> usize {
    let open = Arc::new(Notify::new());
    let opening = Arc::clone(&open);
    let script = ScriptedServer::new(move |request| match request.method.as_str() {
        "GET" => ScriptedAction::RespondWhenNotified(Arc::clone(&opening), open_ended("text/event-stream")),
        _ => respond_normally(request),
    })
    .await;
    let host = host(spec(&script.url()));
    let options = CallOptions { listener: Some(Arc::new(AcceptsEverything)), ..CallOptions::default() };
    let params = raw(&json!({ "name": "act", "arguments": {} }));
    let calling =
        tokio::spawn(async move { host.request_with(NAME, "tools/call", Some(&params), options).await });
    until("the tools were listed", || !script.requests_for("tools/list").is_empty()).await;
    until("the stream was asked for", || !script.with_method("GET").is_empty()).await;
    // Host and server run on this thread, so a call that does not wait is received within these turns.
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
    let sent = script.requests_for("tools/call").len();
    open.notify_one();
    within_timeout(calling).await.unwrap().unwrap();
    sent
}

#[tokio::test]
async fn c03_a_server_with_a_silent_stream_is_still_called() {
    let never = Arc::new(Notify::new());
    let script = ScriptedServer::new(move |request| match request.method.as_str() {
        "GET" => ScriptedAction::RespondWhenNotified(Arc::clone(&never), Vec::new()),
        _ => respond_normally(request),
    })
    .await;
    let host = host(spec(&script.url()));
    let options = CallOptions { listener: Some(Arc::new(AcceptsEverything)), ..CallOptions::default() };
    let params = raw(&json!({ "name": "act", "arguments": {} }));
    within_timeout(host.request_with(NAME, "tools/call", Some(&params), options)).await.unwrap();
}

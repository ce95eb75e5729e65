//! HTTP+SSE of 2024-11-05.

use crate::client::{Response, get, post};
use crate::messages::initialize;
use gripfast_demo::{EndpointForm, Faults, Options, RunningServer, start_http};
use serde_json::{Value, json};

#[tokio::test]
async fn answers_come_on_the_stream_and_posts_are_accepted() {
    let server = start(Options::default()).await;
    let (mut stream, endpoint) = open(&server).await;
    assert!(endpoint.starts_with("/message?sessionId="), "{endpoint}");
    let accepted = post(server.addr(), &endpoint, &[], &initialize(0, "2024-11-05")).await;
    assert_eq!((accepted.status, accepted.text().await.as_str()), (202, "Accepted"));
    assert_eq!(stream.message().await.unwrap()["result"]["protocolVersion"], "2024-11-05");
    post(server.addr(), &endpoint, &[], &echo(1)).await;
    assert_eq!(stream.message().await.unwrap()["result"]["content"][0]["text"], "hi");
    server.add_tool("fresh").await;
    assert_eq!(stream.message().await.unwrap()["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn the_endpoint_has_the_configured_form() {
    let server = start(Options::default()).await;
    for (endpoint, start) in [
        (EndpointForm::Absolute, format!("http://{}/message?", server.addr())),
        (EndpointForm::Query, "?sessionId=".to_owned()),
        (EndpointForm::ForeignOrigin, "http://elsewhere.invalid/".to_owned()),
    ] {
        server.set_faults(Faults { endpoint, ..Faults::default() });
        let (mut stream, given) = open(&server).await;
        assert!(given.starts_with(&start), "{given}");
        if endpoint == EndpointForm::Query {
            post(server.addr(), &format!("/sse{given}"), &[], &initialize(0, "2024-11-05")).await;
            assert!(stream.message().await.unwrap()["result"].is_object(), "it resolves against /sse");
        }
    }
}

#[tokio::test]
async fn an_expired_session_gets_404_or_no_answer() {
    let server = start(Options::default()).await;
    let dead = "/message?sessionId=dead";
    assert_eq!(post(server.addr(), dead, &[], &echo(1)).await.status, 404);
    server.set_faults(Faults { silent_dead_sse_post: true, ..Faults::default() });
    let (late, hello) = (echo(1), initialize(0, "2024-11-05"));
    let silent = post(server.addr(), dead, &[], &late);
    let (_stream, endpoint) = open(&server).await;
    let live = post(server.addr(), &endpoint, &[], &hello);
    tokio::select! {
        _ = silent => panic!("there should be no answer"),
        live = live => assert_eq!(live.status, 202),
    }
}

#[tokio::test]
async fn a_dropped_session_is_refused_although_its_stream_is_open() {
    let server = start(Options::default()).await;
    let (_stream, endpoint) = open(&server).await;
    server.forget_sessions();
    assert_eq!(post(server.addr(), &endpoint, &[], &initialize(0, "2024-11-05")).await.status, 404);
}

#[tokio::test]
async fn a_server_with_only_http_sse_refuses_streamable_http() {
    let server = start(Options { sse_only: true, ..Options::default() }).await;
    assert_eq!(post(server.addr(), "/mcp", &[], &initialize(0, "2025-11-25")).await.status, 404);
    assert_eq!(post(server.addr(), "/sse", &[], &initialize(0, "2025-11-25")).await.status, 405);
    open(&server).await;
}

async fn start(options: Options) -> RunningServer {
    start_http(([127, 0, 0, 1], 0).into(), options).await.expect("a free port")
}

fn echo(id: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
           "params": {"name": "echo", "arguments": {"text": "hi"}}})
}

/// The stream and the endpoint that its first event names.
async fn open(server: &RunningServer) -> (Response, String) {
    let mut stream = get(server.addr(), "/sse", &[]).await;
    assert_eq!(stream.status, 200);
    let first = stream.event().await.expect("an event");
    assert_eq!(first.event, "endpoint");
    (stream, first.data)
}

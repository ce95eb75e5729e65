//! Every kind of answer to a POST ends its request, and so does silence.

use crate::http_host::{
    call, echo, legacy, raw, ready_host, serve, spec, status, wait_until, wait_until_ready, within_timeout,
};
use crate::scripted_server::{
    HttpRequest, ScriptedAction, ScriptedServer, open_ended, respond_json, respond_normally, respond_text,
    response,
};
use gripfast::{CallOutcome, Code, Host};
use serde_json::json;
use std::time::Duration;

/// A host whose server answers every tool call in this way.
async fn host_answered_with(
    play: impl Fn(&HttpRequest) -> ScriptedAction + Send + Sync + 'static,
) -> ScriptedServer {
    ScriptedServer::new(move |request| match request.rpc().as_str() {
        "tools/call" => play(request),
        _ => respond_normally(request),
    })
    .await
}

#[tokio::test]
async fn d07_an_error_without_an_id_answers_its_post() {
    let error = json!({ "code": -32600, "message": "Bad Request: what is this" });
    for (status, id) in
        [(400, None), (400, Some(json!(null))), (422, Some(json!("server-error"))), (200, None)]
    {
        let mut body = json!({ "jsonrpc": "2.0", "error": error });
        if let Some(id) = id {
            body["id"] = id;
        }
        let script = host_answered_with(move |_| respond_json(status, &body)).await;
        let host = ready_host(spec(&script.url())).await;
        let answer = call(&host, "act", json!({})).await.unwrap();
        assert_eq!(answer.result().unwrap_err().0, -32600, "{status}");
        assert_eq!(script.requests_for("tools/call").len(), 1);
    }
}

#[tokio::test]
async fn d07_any_other_answer_ends_the_call_with_a_cause() {
    let events = |body: &str| [open_ended("text/event-stream"), body.as_bytes().to_vec()].concat();
    let cases: Vec<(Vec<u8>, Code, &str)> = vec![
        (response(500, &[], "oops"), Code::OutcomeUnknown, "HTTP 500: oops"),
        (response(502, &[], ""), Code::OutcomeUnknown, "HTTP 502"),
        (response(418, &[], "teapot"), Code::UpstreamProtocol, "HTTP 418: teapot"),
        (response(202, &[], ""), Code::UpstreamProtocol, "sent no answer"),
        (response(204, &[], ""), Code::UpstreamProtocol, "sent no answer"),
        (response(205, &[], ""), Code::UpstreamProtocol, "sent no answer"),
        (response(200, &[], "hello"), Code::UpstreamProtocol, "a body without a content type"),
        (response(200, &[("content-type", "text/html")], "<html>"), Code::UpstreamProtocol, "text/html"),
        (response(200, &[("content-type", "application/json")], "{"), Code::UpstreamProtocol, "JSON-RPC"),
        (response(200, &[("content-type", "application/json")], "[]"), Code::UpstreamProtocol, "JSON-RPC"),
        (events(""), Code::OutcomeUnknown, "event stream ended"),
        (events("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"resu"), Code::OutcomeUnknown, "event stream ended"),
        (events("data: half\n\ndata: of it\n\n"), Code::OutcomeUnknown, "event stream ended"),
    ];
    for (bytes, code, cause) in cases {
        let told = String::from_utf8_lossy(&bytes).into_owned();
        let script = host_answered_with(move |_| ScriptedAction::Respond(bytes.clone())).await;
        let host = ready_host(spec(&script.url())).await;
        let error = call(&host, "act", json!({})).await.unwrap_err();
        assert_eq!((error.code, error.outcome), (code, CallOutcome::Unknown), "{told}: {error}");
        assert!(error.text.contains(cause), "{told}: {error}");
        assert_eq!(script.requests_for("tools/call").len(), 1, "{told}: it may have been executed");
    }
}

#[tokio::test]
async fn d07_an_answer_is_found_after_any_other_messages() {
    let body = |id: &serde_json::Value| {
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": "ok" }] } });
        let other = json!({ "jsonrpc": "2.0", "id": 987_654, "result": { "content": [] } });
        format!(
            ": hello\n\nid: 7\ndata:\n\ndata: junk\n\nevent: message\ndata: {other}\n\ndata: {answer}\n\n"
        )
    };
    let script = host_answered_with(move |request| {
        ScriptedAction::Respond(
            [open_ended("text/event-stream"), body(&request.json()["id"]).into_bytes()].concat(),
        )
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    let answer = call(&host, "act", json!({})).await.unwrap();
    assert_eq!(crate::http_host::text_of(&answer), "ok");
}

#[tokio::test]
async fn c03_a_black_hole_ends_in_a_timeout_and_b08_affects_no_other_server() {
    let (hole, healthy) = (serve(legacy()).await, serve(legacy()).await);
    let mut limits = spec(&hole.url());
    limits.supervision.timeouts.call = Duration::from_millis(800);
    limits.supervision.timeouts.connect = Duration::from_millis(500);
    limits.supervision.keepalive.timeout = Duration::from_millis(300);
    let host = ready_host(limits).await;
    host.spawn("healthy", spec(&healthy.url())).unwrap();
    host.catalog("healthy", Duration::from_secs(5)).await.unwrap();

    hole.stall();
    let stuck = {
        let host = host.clone();
        tokio::spawn(async move { crate::http_host::count(&host, "unknown").await })
    };
    wait_until(&host, |status| status.supervision.in_flight == 1).await;
    assert_still_serving(&host).await;
    assert!(!stuck.is_finished(), "B08: the hanging server delays no other");
    let error = within_timeout(stuck).await.unwrap().unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Timeout, CallOutcome::Unknown), "{error}");

    // The unanswered probe ends the link; the next one is established as soon as packets flow.
    wait_until(&host, |status| status.supervision.restarts > 0).await;
    assert_still_serving(&host).await;
    hole.resume();
    wait_until_ready(&host).await;
    assert_eq!(echo(&host, "back").await.as_deref(), Ok("back"));
}

async fn assert_still_serving(host: &Host) {
    let arguments = raw(&json!({ "text": "hi" }));
    within_timeout(host.call("healthy", "echo", Some(arguments))).await.unwrap();
}

#[tokio::test]
async fn c03_a_tool_that_hangs_costs_its_own_call_only() {
    let server = serve(legacy()).await;
    let mut limits = spec(&server.url());
    limits.supervision.timeouts.call = Duration::from_millis(400);
    let host = ready_host(limits).await;
    let epoch = status(&host).supervision.epoch;
    let (hanging, fine) =
        tokio::join!(call(&host, "misbehave", json!({ "how": "hang" })), echo(&host, "meanwhile"));
    assert_eq!(hanging.unwrap_err().code, Code::Timeout);
    assert_eq!(fine.as_deref(), Ok("meanwhile"));
    // The cancelled call was cancelled at the server too.
    within_timeout(server.until_idle()).await;
    assert_eq!(echo(&host, "after").await.as_deref(), Ok("after"));
    assert_eq!(status(&host).supervision.epoch, epoch, "the probe was answered: the link stays");
}

#[tokio::test]
async fn c03_the_callers_own_timeout_is_a_limit_too() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    let options = gripfast::CallOptions { timeout: Some(Duration::from_millis(200)), ..Default::default() };
    let params = raw(&json!({ "name": "sleep", "arguments": { "ms": 60_000 } }));
    let error =
        within_timeout(host.request_with(crate::http_host::NAME, "tools/call", Some(&params), options)).await;
    assert_eq!(error.unwrap_err().code, Code::Timeout);
}

#[tokio::test]
async fn d07_a_refusal_with_an_endless_body_still_refuses() {
    let script = host_answered_with(|_| {
        ScriptedAction::RespondAndHold(
            b"HTTP/1.1 418 Teapot\r\ncontent-length: 1000\r\n\r\nshort and".to_vec(),
        )
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    let error = call(&host, "act", json!({})).await.unwrap_err();
    assert!(error.text.contains("418"), "{error}");
}

#[tokio::test]
async fn d07_a_session_refused_in_the_handshake_causes_no_loop() {
    let script = ScriptedServer::new(|request| match request.rpc().as_str() {
        "initialize" => respond_text(404, "Session not found"),
        _ => respond_normally(request),
    })
    .await;
    let host = crate::http_host::host(spec(&script.url()));
    let status = crate::http_host::wait_for_state(&host, gripfast::State::ConfigError).await;
    assert!(status.supervision.cause.unwrap().contains("Session not found"));
    assert_eq!(script.requests_for("initialize").len(), 1);
}

#[tokio::test]
async fn every_request_asks_for_an_answer_that_is_not_compressed() {
    let script = ScriptedServer::new(respond_normally).await;
    let host = ready_host(spec(&script.url())).await;
    call(&host, "act", json!({})).await.unwrap();
    for request in script.requests() {
        assert_eq!(request.header("accept-encoding"), Some("identity"), "{request:?}");
    }
}

#[tokio::test]
async fn d07_an_error_with_a_foreign_id_on_an_event_stream_ends_its_post() {
    let script = host_answered_with(|_| {
        let error = json!({ "code": -32602, "message": "no such customer" });
        let event = format!("data: {}\n\n", json!({ "jsonrpc": "2.0", "id": 987_654, "error": error }));
        ScriptedAction::RespondAndHold([open_ended("text/event-stream"), event.into_bytes()].concat())
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    let answer = call(&host, "act", json!({})).await.unwrap();
    assert_eq!(answer.result().unwrap_err(), (-32602, "no such customer".to_owned()));
}

//! Unsolicited messages of a server, and event streams that are cut.

use crate::http_host::{
    call, echo, legacy, modern, raw, ready_host, serve, spec, spec_over, status, text_of, wait_for_tool,
    wait_until, within_timeout,
};
use crate::scripted_server::{ScriptedAction, ScriptedServer, open_ended, respond_normally, respond_text};
use gripfast::config::UrlTransport;
use gripfast::{CallOptions, CallOutcome, Code, Event};
use gripfast_demo::Options;
use gripfast_testkit::wait::until;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test]
async fn b05_a_changed_list_reaches_the_catalog_on_every_kind_of_stream() {
    for (options, transport) in
        [(legacy(), UrlTransport::Http), (modern(), UrlTransport::Http), (legacy(), UrlTransport::Sse)]
    {
        let server = serve(options).await;
        let url = if transport == UrlTransport::Sse { server.sse_url() } else { server.url() };
        let host = ready_host(spec_over(&url, transport)).await;
        if status(&host).era == Some("modern") {
            until("it listens", || server.in_flight() == 1).await;
        }
        let mut events = host.subscribe_events();
        server.add_tool("fresh").await;
        let told = within_timeout(async {
            loop {
                if let Event::CatalogChanged { added, .. } = events.recv().await.unwrap().event {
                    return added;
                }
            }
        });
        assert_eq!(told.await, 1);
        wait_for_tool(&host, "fresh").await;
        assert!(server.remove_tool("fresh").await);
        wait_until(&host, |status| !status.events.is_empty() && status.tools == 10).await;
    }
}

#[tokio::test]
async fn a_cut_stream_resumes_after_its_last_event() {
    let server = serve(legacy()).await;
    let tap = ScriptedServer::in_front_of(server.addr()).await;
    let host = ready_host(spec(&tap.url())).await;
    server.add_tool("before").await;
    wait_for_tool(&host, "before").await;
    tap.cut();
    server.add_tool("meanwhile").await;
    wait_for_tool(&host, "meanwhile").await;
    let streams = tap.with_method("GET");
    let resumed = streams.last().unwrap();
    assert_eq!(resumed.header("last-event-id"), Some("0-1"), "{streams:#?}");
    assert_eq!((server.initializes(), status(&host).supervision.restarts), (1, 0));
}

#[tokio::test]
async fn an_answer_on_a_cut_stream_is_resumed_without_a_resend() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    let params = json!({
        "name": "sleep", "arguments": { "ms": 400 }, "_meta": { "progressToken": "p" },
    });
    let (messages, listener) = crate::calls::recorder();
    let calling = {
        let host = host.clone();
        tokio::spawn(async move {
            let options = CallOptions { listener: Some(listener), ..CallOptions::default() };
            host.request_with(crate::http_host::NAME, "tools/call", Some(&raw(&params)), options).await
        })
    };
    until("progress", || !messages.lock().unwrap().is_empty()).await;
    server.reset_connections();
    let answer = within_timeout(calling).await.unwrap().unwrap();
    assert_eq!(text_of(&answer), "slept 400 ms");
    assert_eq!(server.calls(), 1);
    assert_eq!(status(&host).supervision.restarts, 0);
}

#[tokio::test]
async fn an_answer_that_is_cut_and_cannot_be_resumed_is_an_unknown_outcome() {
    for options in [Options { legacy_version: "2025-06-18".to_owned(), ..legacy() }, modern()] {
        let server = serve(options).await;
        let host = ready_host(spec(&server.url())).await;
        for how in ["cut_sse", "unanswered"] {
            let error = call(&host, "misbehave", json!({ "how": how })).await.unwrap_err();
            assert_eq!(
                (error.code, error.outcome),
                (Code::OutcomeUnknown, CallOutcome::Unknown),
                "{how}: {error}"
            );
        }
        assert_eq!(server.calls(), 2);
        assert_eq!(echo(&host, "next").await.as_deref(), Ok("next"));
    }
}

#[tokio::test]
async fn an_answer_in_small_pieces_or_after_half_a_frame_is_complete() {
    for options in [legacy(), modern()] {
        let server = serve(Options { sse_answers: true, ..options }).await;
        let host = ready_host(spec(&server.url())).await;
        for (how, ms) in [("slow_drip", 5), ("half_frame", 0), ("junk", 0)] {
            let answer = call(&host, "misbehave", json!({ "how": how, "ms": ms })).await.unwrap();
            assert_eq!(text_of(&answer), how);
        }
    }
}

#[tokio::test]
async fn a_stream_timeout_of_a_proxy_does_not_cost_the_link() {
    // A proxy in front of a server that sends no bytes before its first event.
    let script = ScriptedServer::new(|request| match request.method.as_str() {
        "GET" => respond_text(504, "Gateway Time-out"),
        _ => respond_normally(request),
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    until("it tries again", || script.with_method("GET").len() >= 2).await;
    call(&host, "look", json!({})).await.unwrap();
    let now = status(&host).supervision;
    assert_eq!((now.restarts, script.requests_for("initialize").len()), (0, 1), "{now:?}");
}

#[tokio::test]
async fn a_cut_subscription_costs_the_link_only_if_the_server_is_gone() {
    let server = serve(modern()).await;
    let tap = ScriptedServer::in_front_of(server.addr()).await;
    let host = ready_host(spec(&tap.url())).await;
    until("it listens", || server.in_flight() == 1).await;
    let asked = tap.requests_for("server/discover").len();
    tap.cut();
    until("it asks whether the server is there", || tap.requests_for("server/discover").len() > asked).await;
    assert_eq!(echo(&host, "there").await.as_deref(), Ok("there"));
    assert_eq!(status(&host).supervision.restarts, 0);
}

#[tokio::test]
async fn a_server_request_is_answered_in_its_own_session() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    // The sample server sends elicitations only to clients with that capability; every client answers a ping.
    assert!(call(&host, "ask", json!({})).await.unwrap().is_tool_error());

    let ping = json!({ "jsonrpc": "2.0", "id": "q-1", "method": "ping" });
    let script = ScriptedServer::new(move |request| match request.method.as_str() {
        "GET" => ScriptedAction::RespondAndHold(
            [open_ended("text/event-stream"), format!("data: {ping}\n\n").into_bytes()].concat(),
        ),
        _ if request.json()["id"] == "q-1" => {
            ScriptedAction::Respond(crate::scripted_server::response(202, &[], ""))
        }
        _ => respond_normally(request),
    })
    .await;
    let _host = ready_host(spec(&script.url())).await;
    let answers = || script.requests().into_iter().filter(|request| request.json()["id"] == "q-1");
    until("the ping is answered", || answers().count() == 1).await;
    let answer = answers().next().unwrap();
    assert_eq!(answer.json()["result"], json!({}));
    assert_eq!(answer.header("mcp-session-id"), Some("s-1"));
}

#[tokio::test]
async fn an_answer_is_resumed_as_long_as_each_stream_brings_an_event() {
    let asked = Mutex::new(json!(null));
    let script = ScriptedServer::new(move |request| {
        let events = |text: String| {
            ScriptedAction::Respond([open_ended("text/event-stream"), text.into_bytes()].concat())
        };
        match (request.rpc().as_str(), request.header("last-event-id")) {
            ("tools/call", _) => {
                *asked.lock().unwrap() = request.json()["id"].clone();
                events("retry: 1\nid: 1\ndata:\n\n".to_owned())
            }
            (_, Some("6")) => {
                let result = json!({ "content": [{ "type": "text", "text": "at last" }] });
                let answer = json!({ "jsonrpc": "2.0", "id": *asked.lock().unwrap(), "result": result });
                events(format!("id: 7\ndata: {answer}\n\n"))
            }
            (_, Some(last)) => events(format!("id: {}\ndata:\n\n", last.parse::<u32>().unwrap() + 1)),
            (_, None) => respond_normally(request),
        }
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    let answer = call(&host, "act", json!({})).await.unwrap();
    assert_eq!((text_of(&answer).as_str(), script.requests_for("tools/call").len()), ("at last", 1));
}

#[tokio::test]
async fn d04_an_empty_stream_is_not_reopened_without_a_pause() {
    let opened = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&opened);
    let script = ScriptedServer::new(move |request| match request.method.as_str() {
        "GET" => {
            times.lock().unwrap().push(Instant::now());
            ScriptedAction::Respond([open_ended("text/event-stream"), b"retry: 0\n\n".to_vec()].concat())
        }
        _ => respond_normally(request),
    })
    .await;
    let _host = ready_host(spec(&script.url())).await;
    until("it is opened again", || opened.lock().unwrap().len() >= 2).await;
    let opened = opened.lock().unwrap();
    assert!(opened[1] - opened[0] >= Duration::from_secs(1), "{:?}", opened[1] - opened[0]);
}

#[tokio::test]
async fn d04_a_stream_that_ends_after_each_event_is_not_reopened_without_a_pause() {
    let opened = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&opened);
    let script = ScriptedServer::new(move |request| match request.method.as_str() {
        "GET" => {
            times.lock().unwrap().push(Instant::now());
            let said = json!({ "jsonrpc": "2.0", "method": "notifications/vendor/tick" });
            let events = format!("retry: 0\ndata: {said}\n\n");
            ScriptedAction::Respond([open_ended("text/event-stream"), events.into_bytes()].concat())
        }
        _ => respond_normally(request),
    })
    .await;
    let _host = ready_host(spec(&script.url())).await;
    until("it is opened again", || opened.lock().unwrap().len() >= 4).await;
    for two in opened.lock().unwrap().windows(2) {
        // The delay begins when the previous stream has been read, which is later than when it was opened.
        assert!(two[1] - two[0] >= Duration::from_millis(100), "{:?}", two[1] - two[0]);
    }
}

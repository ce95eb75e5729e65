//! At-most-once execution: requests that are sent again, and requests that never are.

use crate::http_host::{call, count, echo, legacy, modern, ready_host, serve, spec, status, text_of};
use crate::scripted_server::{
    ScriptedAction, ScriptedServer, respond_json, respond_normally, respond_result, respond_text, response,
};
use gripfast::config::{PinMode, ServerSpec};
use gripfast::{CallOutcome, Code};
use gripfast_demo::{Faults, Options, Refusal, RefusalDuration, RunningServer};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A proxy that resets the connection instead of returning the answers of the first calls.
async fn server_that_resets(server: &RunningServer, calls: usize) -> ScriptedServer {
    let (addr, left) = (server.addr(), Arc::new(AtomicUsize::new(calls)));
    ScriptedServer::new(move |request| {
        let swallowed = request.rpc() == "tools/call"
            && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if swallowed { ScriptedAction::ForwardAndReset(addr) } else { ScriptedAction::Forward(addr) }
    })
    .await
}

fn refusing_faults(status: u16, times: u64, wait: Option<u64>) -> Faults {
    Faults {
        refuse: Some(Refusal { status, lasts: RefusalDuration::Requests(times) }),
        retry_after: wait.map(Duration::from_secs),
        ..Faults::default()
    }
}

#[tokio::test]
async fn c05_a_reset_after_a_side_effect_is_unknown_and_executed_once() {
    for options in [legacy(), modern()] {
        let server = serve(options).await;
        let tap = server_that_resets(&server, 1).await;
        let host = ready_host(spec(&tap.url())).await;
        let error = count(&host, "effect").await.unwrap_err();
        assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, CallOutcome::Unknown), "{error}");
        assert_eq!(server.counter_keys(), ["effect"]);
        assert_eq!(count(&host, "next").await.as_deref(), Ok("2"));
        assert_eq!(server.counter_keys(), ["effect", "next"]);
        assert_eq!(status(&host).supervision.restarts, 0, "one connection broke, not the server");
    }
}

#[tokio::test]
async fn c05_a_reset_in_the_middle_of_the_answer_is_an_unknown_outcome() {
    for options in [Options { legacy_version: "2025-06-18".to_owned(), ..legacy() }, modern()] {
        let server = serve(options).await;
        let host = ready_host(spec(&server.url())).await;
        let error = call(&host, "misbehave", json!({ "how": "reset" })).await.unwrap_err();
        assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, CallOutcome::Unknown), "{error}");
        assert_eq!(server.calls(), 1);
    }
}

#[tokio::test]
async fn c05_a_read_only_tool_is_resent_exactly_once() {
    let server = serve(legacy()).await;
    let tap = server_that_resets(&server, 1).await;
    let host = ready_host(spec(&tap.url())).await;
    assert_eq!(echo(&host, "again").await.as_deref(), Ok("again"));
    assert_eq!(server.calls(), 2);

    let server = serve(legacy()).await;
    let tap = server_that_resets(&server, 9).await;
    let host = ready_host(spec(&tap.url())).await;
    assert_eq!(echo(&host, "again").await.unwrap_err().code, Code::OutcomeUnknown);
    assert_eq!(server.calls(), 2);
}

#[tokio::test]
async fn c05_operator_settings_override_tool_hints() {
    let server = serve(legacy()).await;
    let tap = server_that_resets(&server, 1).await;
    let mut vouched = spec(&tap.url());
    vouched.replay.safe = vec!["counter".to_owned()];
    let host = ready_host(vouched).await;
    assert_eq!(count(&host, "twice").await.as_deref(), Ok("2"));
    assert_eq!(server.counter_keys(), ["twice", "twice"]);

    let server = serve(legacy()).await;
    let tap = server_that_resets(&server, 1).await;
    let mut forbidden = spec(&tap.url());
    forbidden.replay.never = vec!["echo".to_owned()];
    let host = ready_host(forbidden).await;
    assert_eq!(echo(&host, "never").await.unwrap_err().code, Code::OutcomeUnknown);
    assert_eq!(server.calls(), 1);
}

#[tokio::test]
async fn c05_a_busy_server_gets_one_retry_after_its_retry_after() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    for (done, busy) in [429, 503].into_iter().enumerate() {
        server.set_faults(refusing_faults(busy, 1, Some(1)));
        let started = Instant::now();
        let value = (done + 1).to_string();
        assert_eq!(count(&host, "patient").await, Ok(value), "{busy}");
        assert!(started.elapsed() >= Duration::from_secs(1), "{busy}: {:?}", started.elapsed());
        assert_eq!(server.counter_keys().len(), done + 1, "{busy}");
    }
    assert_eq!(status(&host).supervision.consecutive_failures, 0, "being busy is no failure");
}

#[tokio::test]
async fn c05_retry_after_may_be_a_date_or_unreadable() {
    for asked in ["Fri, 31 Dec 2026 23:59:59 GMT", "soon", "-1", "99999999999999999999"] {
        let first = AtomicUsize::new(0);
        let script = ScriptedServer::new(move |request| match request.rpc().as_str() {
            "tools/call" if first.fetch_add(1, Ordering::Relaxed) == 0 => {
                ScriptedAction::Respond(response(503, &[("retry-after", asked)], ""))
            }
            _ => respond_normally(request),
        })
        .await;
        let host = ready_host(spec(&script.url())).await;
        let answer = call(&host, "act", json!({})).await.unwrap_or_else(|error| panic!("{asked}: {error}"));
        assert_eq!(
            (text_of(&answer).as_str(), script.requests_for("tools/call").len()),
            ("done", 2),
            "{asked}"
        );
    }
}

#[tokio::test]
async fn c05_a_busy_server_gets_no_further_retries() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    server.set_faults(refusing_faults(503, 9, Some(0)));
    let error = count(&host, "never").await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Overloaded, CallOutcome::Refused), "{error}");
    assert!(server.counter_keys().is_empty());
}

#[tokio::test]
async fn c05_a_retry_after_beyond_the_deadline_fails_immediately() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    for (seconds, told) in [(3600, 3600), (u64::MAX, 86_400)] {
        server.set_faults(refusing_faults(429, 9, Some(seconds)));
        let error = count(&host, "never").await.unwrap_err();
        assert_eq!((error.code, error.outcome), (Code::Overloaded, CallOutcome::Refused), "{error}");
        assert_eq!(error.retry_after, Some(Duration::from_secs(told)));
    }
}

#[tokio::test]
async fn c05_any_other_5xx_is_unknown_and_only_read_only_calls_are_resent() {
    for fault in [500, 502, 503, 504] {
        let script = ScriptedServer::new(move |request| match request.rpc().as_str() {
            "tools/call" => respond_text(fault, "a bad moment"),
            _ => respond_normally(request),
        })
        .await;
        let host = ready_host(spec(&script.url())).await;
        let error = call(&host, "act", json!({})).await.unwrap_err();
        assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, CallOutcome::Unknown), "{error}");
        assert_eq!(script.requests_for("tools/call").len(), 1);
        let error = call(&host, "look", json!({})).await.unwrap_err();
        assert_eq!(error.code, Code::OutcomeUnknown, "{error}");
        assert_eq!(script.requests_for("tools/call").len(), 3);
    }
}

#[tokio::test]
async fn c05_a_replay_has_a_new_id() {
    let first = Arc::new(AtomicUsize::new(0));
    let script = ScriptedServer::new(move |request| match request.rpc().as_str() {
        "tools/call" if first.fetch_add(1, Ordering::Relaxed) == 0 => {
            ScriptedAction::Respond(response(500, &[], ""))
        }
        _ => respond_normally(request),
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    call(&host, "look", json!({})).await.unwrap();
    let ids: Vec<_> =
        script.requests_for("tools/call").iter().map(|request| request.json()["id"].clone()).collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

/// A proxy for a server whose tool `route` requires a header that the first listing does not declare.
async fn upgraded(server: &RunningServer) -> ScriptedServer {
    let (addr, listed) = (server.addr(), AtomicUsize::new(0));
    ScriptedServer::new(move |request| match request.rpc().as_str() {
        "tools/list" if listed.fetch_add(1, Ordering::Relaxed) == 0 => {
            let schema = json!({ "type": "object", "properties": { "region": { "type": "string" } } });
            let tools = json!([{ "name": "route", "inputSchema": schema }]);
            respond_result(
                request,
                json!({ "tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private" }),
            )
        }
        _ => ScriptedAction::Forward(addr),
    })
    .await
}

#[tokio::test]
async fn c05_a_call_with_refused_headers_is_resent_once_after_a_new_listing() {
    let server = serve(Options { param_headers: true, ..modern() }).await;
    let tap = upgraded(&server).await;
    let host = ready_host(ServerSpec { pins: PinMode::Warn, ..spec(&tap.url()) }).await;
    let routed = call(&host, "route", json!({ "region": "eu" })).await.unwrap();
    assert_eq!(text_of(&routed), "routed to eu");
    let headers = |calls: Vec<crate::scripted_server::HttpRequest>| -> Vec<Option<String>> {
        calls.iter().map(|request| request.header("mcp-param-region").map(str::to_owned)).collect()
    };
    assert_eq!(headers(tap.requests_for("tools/call")), [None, Some("eu".to_owned())]);
    assert_eq!(server.calls(), 1, "the refused one was never executed");
    call(&host, "route", json!({ "region": "us" })).await.unwrap();
    assert_eq!(tap.requests_for("tools/call").len(), 3, "the next one knows");
}

#[tokio::test]
async fn c05_headers_refused_twice_end_with_the_servers_error() {
    let server = serve(modern()).await;
    let addr = server.addr();
    let script = ScriptedServer::new(move |request| match request.rpc().as_str() {
        "tools/call" => {
            let error = json!({ "code": -32020, "message": "never right" });
            respond_json(400, &json!({ "jsonrpc": "2.0", "id": request.json()["id"], "error": error }))
        }
        _ => ScriptedAction::Forward(addr),
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    let answer = call(&host, "echo", json!({ "text": "hi" })).await.unwrap();
    assert_eq!(answer.result().unwrap_err(), (-32020, "never right".to_owned()));
    assert_eq!(script.requests_for("tools/call").len(), 2);
    assert_eq!(status(&host).supervision.consecutive_failures, 0);
}

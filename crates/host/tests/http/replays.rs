//! At most once: what is sent again, and what never is.

use crate::script::{Act, Script, good_manners, response, say_json, say_result, say_text};
use crate::stage::{call, count, echo, legacy, modern, ready_host, said, serve, spec, status};
use gripfast::config::{PinMode, ServerSpec};
use gripfast::{Code, Fate};
use gripfast_demo::{Faults, Lasts, Options, Refusal, RunningServer};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Stands in front of a server and swallows the answers of the first calls.
async fn swallowing(server: &RunningServer, calls: usize) -> Script {
    let (addr, left) = (server.addr(), Arc::new(AtomicUsize::new(calls)));
    Script::new(move |heard| {
        let swallowed = heard.rpc() == "tools/call"
            && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if swallowed { Act::SwallowAnswerOf(addr) } else { Act::PassOn(addr) }
    })
    .await
}

fn refusing(status: u16, times: u64, wait: Option<u64>) -> Faults {
    Faults {
        refuse: Some(Refusal { status, lasts: Lasts::Requests(times) }),
        retry_after: wait.map(Duration::from_secs),
        ..Faults::default()
    }
}

#[tokio::test]
async fn c05_a_reset_after_a_side_effect_is_an_unknown_outcome_and_the_effect_is_there_once() {
    for options in [legacy(), modern()] {
        let server = serve(options).await;
        let tap = swallowing(&server, 1).await;
        let host = ready_host(spec(&tap.url())).await;
        let error = count(&host, "effect").await.unwrap_err();
        assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, Fate::Unknown), "{error}");
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
        assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, Fate::Unknown), "{error}");
        assert_eq!(server.calls(), 1);
    }
}

#[tokio::test]
async fn c05_a_tool_that_only_reads_is_sent_once_more_and_no_more_than_that() {
    let server = serve(legacy()).await;
    let tap = swallowing(&server, 1).await;
    let host = ready_host(spec(&tap.url())).await;
    assert_eq!(echo(&host, "again").await.as_deref(), Ok("again"));
    assert_eq!(server.calls(), 2);

    let server = serve(legacy()).await;
    let tap = swallowing(&server, 9).await;
    let host = ready_host(spec(&tap.url())).await;
    assert_eq!(echo(&host, "again").await.unwrap_err().code, Code::OutcomeUnknown);
    assert_eq!(server.calls(), 2);
}

#[tokio::test]
async fn c05_the_operators_word_counts_more_than_the_tools_hints() {
    let server = serve(legacy()).await;
    let tap = swallowing(&server, 1).await;
    let mut vouched = spec(&tap.url());
    vouched.replay.safe = vec!["counter".to_owned()];
    let host = ready_host(vouched).await;
    assert_eq!(count(&host, "twice").await.as_deref(), Ok("2"));
    assert_eq!(server.counter_keys(), ["twice", "twice"]);

    let server = serve(legacy()).await;
    let tap = swallowing(&server, 1).await;
    let mut forbidden = spec(&tap.url());
    forbidden.replay.never = vec!["echo".to_owned()];
    let host = ready_host(forbidden).await;
    assert_eq!(echo(&host, "never").await.unwrap_err().code, Code::OutcomeUnknown);
    assert_eq!(server.calls(), 1);
}

#[tokio::test]
async fn c05_a_busy_server_is_asked_once_more_after_the_time_it_named() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    for (done, busy) in [429, 503].into_iter().enumerate() {
        server.set_faults(refusing(busy, 1, Some(1)));
        let begun = Instant::now();
        let value = (done + 1).to_string();
        assert_eq!(count(&host, "patient").await, Ok(value), "{busy}");
        assert!(begun.elapsed() >= Duration::from_secs(1), "{busy}: {:?}", begun.elapsed());
        assert_eq!(server.counter_keys().len(), done + 1, "{busy}");
    }
    assert_eq!(status(&host).supervision.consecutive_failures, 0, "being busy is no failure");
}

#[tokio::test]
async fn c05_a_busy_server_may_name_its_time_as_a_date_or_in_a_form_that_nobody_can_read() {
    for asked in ["Fri, 31 Dec 2026 23:59:59 GMT", "soon", "-1", "99999999999999999999"] {
        let first = AtomicUsize::new(0);
        let script = Script::new(move |heard| match heard.rpc().as_str() {
            "tools/call" if first.fetch_add(1, Ordering::Relaxed) == 0 => {
                Act::Say(response(503, &[("retry-after", asked)], ""))
            }
            _ => good_manners(heard),
        })
        .await;
        let host = ready_host(spec(&script.url())).await;
        let answer = call(&host, "act", json!({})).await.unwrap_or_else(|error| panic!("{asked}: {error}"));
        assert_eq!((said(&answer).as_str(), script.calls_of("tools/call").len()), ("done", 2), "{asked}");
    }
}

#[tokio::test]
async fn c05_a_server_that_stays_busy_is_not_pestered() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    server.set_faults(refusing(503, 9, Some(0)));
    let error = count(&host, "never").await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Overloaded, Fate::Refused), "{error}");
    assert!(server.counter_keys().is_empty());
}

#[tokio::test]
async fn c05_more_patience_than_the_caller_has_is_an_answer_at_once() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    for (seconds, told) in [(3600, 3600), (u64::MAX, 86_400)] {
        server.set_faults(refusing(429, 9, Some(seconds)));
        let error = count(&host, "never").await.unwrap_err();
        assert_eq!((error.code, error.outcome), (Code::Overloaded, Fate::Refused), "{error}");
        assert_eq!(error.retry_after, Some(Duration::from_secs(told)));
    }
}

#[tokio::test]
async fn c05_any_other_5xx_is_an_unknown_outcome_and_only_what_reads_is_sent_again() {
    for fault in [500, 502, 503, 504] {
        let script = Script::new(move |heard| match heard.rpc().as_str() {
            "tools/call" => say_text(fault, "a bad moment"),
            _ => good_manners(heard),
        })
        .await;
        let host = ready_host(spec(&script.url())).await;
        let error = call(&host, "act", json!({})).await.unwrap_err();
        assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, Fate::Unknown), "{error}");
        assert_eq!(script.calls_of("tools/call").len(), 1);
        let error = call(&host, "look", json!({})).await.unwrap_err();
        assert_eq!(error.code, Code::OutcomeUnknown, "{error}");
        assert_eq!(script.calls_of("tools/call").len(), 3);
    }
}

#[tokio::test]
async fn c05_a_replay_has_an_id_of_its_own() {
    let first = Arc::new(AtomicUsize::new(0));
    let script = Script::new(move |heard| match heard.rpc().as_str() {
        "tools/call" if first.fetch_add(1, Ordering::Relaxed) == 0 => Act::Say(response(500, &[], "")),
        _ => good_manners(heard),
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    call(&host, "look", json!({})).await.unwrap();
    let ids: Vec<_> = script.calls_of("tools/call").iter().map(|heard| heard.json()["id"].clone()).collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

/// Stands in front of a server whose tool `route` wants a header, and at first lists it without saying so.
async fn upgraded(server: &RunningServer) -> Script {
    let (addr, listed) = (server.addr(), AtomicUsize::new(0));
    Script::new(move |heard| match heard.rpc().as_str() {
        "tools/list" if listed.fetch_add(1, Ordering::Relaxed) == 0 => {
            let schema = json!({ "type": "object", "properties": { "region": { "type": "string" } } });
            let tools = json!([{ "name": "route", "inputSchema": schema }]);
            say_result(
                heard,
                json!({ "tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private" }),
            )
        }
        _ => Act::PassOn(addr),
    })
    .await
}

#[tokio::test]
async fn c05_a_call_whose_headers_are_refused_goes_once_more_with_those_of_a_fresh_listing() {
    let server = serve(Options { param_headers: true, ..modern() }).await;
    let tap = upgraded(&server).await;
    let host = ready_host(ServerSpec { pins: PinMode::Warn, ..spec(&tap.url()) }).await;
    let routed = call(&host, "route", json!({ "region": "eu" })).await.unwrap();
    assert_eq!(said(&routed), "routed to eu");
    let headers = |calls: Vec<crate::script::Heard>| -> Vec<Option<String>> {
        calls.iter().map(|heard| heard.header("mcp-param-region").map(str::to_owned)).collect()
    };
    assert_eq!(headers(tap.calls_of("tools/call")), [None, Some("eu".to_owned())]);
    assert_eq!(server.calls(), 1, "the refused one was never carried out");
    call(&host, "route", json!({ "region": "us" })).await.unwrap();
    assert_eq!(tap.calls_of("tools/call").len(), 3, "the next one knows");
}

#[tokio::test]
async fn c05_headers_that_are_refused_twice_end_with_the_servers_own_words() {
    let server = serve(modern()).await;
    let addr = server.addr();
    let script = Script::new(move |heard| match heard.rpc().as_str() {
        "tools/call" => {
            let error = json!({ "code": -32020, "message": "never right" });
            say_json(400, &json!({ "jsonrpc": "2.0", "id": heard.json()["id"], "error": error }))
        }
        _ => Act::PassOn(addr),
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    let answer = call(&host, "echo", json!({ "text": "hi" })).await.unwrap();
    assert_eq!(answer.result().unwrap_err(), (-32020, "never right".to_owned()));
    assert_eq!(script.calls_of("tools/call").len(), 2);
    assert_eq!(status(&host).supervision.consecutive_failures, 0);
}

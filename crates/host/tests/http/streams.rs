//! What a server says unasked, and what becomes of streams that are cut.

use crate::script::{Act, Script, good_manners, open_ended, say_text};
use crate::stage::{
    call, echo, eventually, legacy, modern, promptly, raw, ready_host, said, serve, spec, spec_over, status,
    until, until_tool,
};
use gripfast::config::UrlTransport;
use gripfast::{CallOptions, Code, Event, Fate};
use gripfast_demo::Options;
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
            eventually("it listens", || server.in_flight() == 1).await;
        }
        let mut events = host.events();
        server.add_tool("fresh").await;
        let told = promptly(async {
            loop {
                if let Event::CatalogChanged { added, .. } = events.recv().await.unwrap().event {
                    return added;
                }
            }
        });
        assert_eq!(told.await, 1);
        until_tool(&host, "fresh").await;
        assert!(server.remove_tool("fresh").await);
        until(&host, |status| !status.events.is_empty() && status.tools == 10).await;
    }
}

#[tokio::test]
async fn a_cut_stream_is_picked_up_after_its_last_event_and_nothing_is_missed() {
    let server = serve(legacy()).await;
    let tap = Script::in_front_of(server.addr()).await;
    let host = ready_host(spec(&tap.url())).await;
    server.add_tool("before").await;
    until_tool(&host, "before").await;
    tap.cut();
    server.add_tool("meanwhile").await;
    until_tool(&host, "meanwhile").await;
    let streams = tap.with_method("GET");
    let resumed = streams.last().unwrap();
    assert_eq!(resumed.header("last-event-id"), Some("0-1"), "{streams:#?}");
    assert_eq!((server.initializes(), status(&host).supervision.restarts), (1, 0));
}

#[tokio::test]
async fn an_answer_whose_stream_is_cut_is_picked_up_and_the_call_is_not_sent_again() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    let params = json!({
        "name": "sleep", "arguments": { "ms": 400 }, "_meta": { "progressToken": "p" },
    });
    let (heard, listener) = crate::calls::recorder();
    let calling = {
        let host = host.clone();
        tokio::spawn(async move {
            let options = CallOptions { listener: Some(listener), ..CallOptions::default() };
            host.request_with(crate::stage::NAME, "tools/call", Some(raw(&params)), options).await
        })
    };
    eventually("progress", || !heard.lock().unwrap().is_empty()).await;
    server.reset_connections();
    let answer = promptly(calling).await.unwrap().unwrap();
    assert_eq!(said(&answer), "slept 400 ms");
    assert_eq!(server.calls(), 1);
    assert_eq!(status(&host).supervision.restarts, 0);
}

#[tokio::test]
async fn an_answer_that_is_cut_and_cannot_be_picked_up_is_an_unknown_outcome() {
    for options in [Options { legacy_version: "2025-06-18".to_owned(), ..legacy() }, modern()] {
        let server = serve(options).await;
        let host = ready_host(spec(&server.url())).await;
        for how in ["cut_sse", "unanswered"] {
            let error = call(&host, "misbehave", json!({ "how": how })).await.unwrap_err();
            assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, Fate::Unknown), "{how}: {error}");
        }
        assert_eq!(server.calls(), 2);
        assert_eq!(echo(&host, "next").await.as_deref(), Ok("next"));
    }
}

#[tokio::test]
async fn an_answer_in_small_pieces_or_after_half_a_frame_is_whole() {
    for options in [legacy(), modern()] {
        let server = serve(Options { sse_answers: true, ..options }).await;
        let host = ready_host(spec(&server.url())).await;
        for (how, ms) in [("slow_drip", 5), ("half_frame", 0), ("junk", 0)] {
            let answer = call(&host, "misbehave", json!({ "how": how, "ms": ms })).await.unwrap();
            assert_eq!(said(&answer), how);
        }
    }
}

#[tokio::test]
async fn a_gateway_that_times_out_the_stream_does_not_cost_the_link() {
    // A proxy in front of a server that sends no byte before its first event.
    let script = Script::new(|heard| match heard.method.as_str() {
        "GET" => say_text(504, "Gateway Time-out"),
        _ => good_manners(heard),
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    eventually("it tries again", || script.with_method("GET").len() >= 2).await;
    call(&host, "look", json!({})).await.unwrap();
    let now = status(&host).supervision;
    assert_eq!((now.restarts, script.calls_of("initialize").len()), (0, 1), "{now:?}");
}

#[tokio::test]
async fn a_subscription_that_is_cut_costs_the_link_only_if_the_server_is_gone() {
    let server = serve(modern()).await;
    let tap = Script::in_front_of(server.addr()).await;
    let host = ready_host(spec(&tap.url())).await;
    eventually("it listens", || server.in_flight() == 1).await;
    let asked = tap.calls_of("server/discover").len();
    tap.cut();
    eventually("it asks whether the server is there", || tap.calls_of("server/discover").len() > asked).await;
    assert_eq!(echo(&host, "there").await.as_deref(), Ok("there"));
    assert_eq!(status(&host).supervision.restarts, 0);
}

#[tokio::test]
async fn a_server_may_ask_back_and_is_answered_on_the_session_it_asked_in() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    // The sample server asks only who said it can be asked; a ping from a script is answered by everybody.
    assert!(call(&host, "ask", json!({})).await.unwrap().is_tool_error());

    let ping = json!({ "jsonrpc": "2.0", "id": "q-1", "method": "ping" });
    let script = Script::new(move |heard| match heard.method.as_str() {
        "GET" => Act::SayAndHold(
            [open_ended("text/event-stream"), format!("data: {ping}\n\n").into_bytes()].concat(),
        ),
        _ if heard.json()["id"] == "q-1" => Act::Say(crate::script::response(202, &[], "")),
        _ => good_manners(heard),
    })
    .await;
    let _host = ready_host(spec(&script.url())).await;
    let answers = || script.heard().into_iter().filter(|heard| heard.json()["id"] == "q-1");
    eventually("the ping is answered", || answers().count() == 1).await;
    let answer = answers().next().unwrap();
    assert_eq!(answer.json()["result"], json!({}));
    assert_eq!(answer.header("mcp-session-id"), Some("s-1"));
}

#[tokio::test]
async fn an_answer_is_picked_up_for_as_long_as_each_stream_brings_an_event() {
    let asked = Mutex::new(json!(null));
    let script = Script::new(move |heard| {
        let events = |text: String| Act::Say([open_ended("text/event-stream"), text.into_bytes()].concat());
        match (heard.rpc().as_str(), heard.header("last-event-id")) {
            ("tools/call", _) => {
                *asked.lock().unwrap() = heard.json()["id"].clone();
                events("retry: 1\nid: 1\ndata:\n\n".to_owned())
            }
            (_, Some("6")) => {
                let result = json!({ "content": [{ "type": "text", "text": "at last" }] });
                let answer = json!({ "jsonrpc": "2.0", "id": *asked.lock().unwrap(), "result": result });
                events(format!("id: 7\ndata: {answer}\n\n"))
            }
            (_, Some(last)) => events(format!("id: {}\ndata:\n\n", last.parse::<u32>().unwrap() + 1)),
            (_, None) => good_manners(heard),
        }
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    let answer = call(&host, "act", json!({})).await.unwrap();
    assert_eq!((said(&answer).as_str(), script.calls_of("tools/call").len()), ("at last", 1));
}

#[tokio::test]
async fn d04_a_stream_that_says_nothing_and_ends_is_not_opened_again_without_a_pause() {
    let opened = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&opened);
    let script = Script::new(move |heard| match heard.method.as_str() {
        "GET" => {
            times.lock().unwrap().push(Instant::now());
            Act::Say([open_ended("text/event-stream"), b"retry: 0\n\n".to_vec()].concat())
        }
        _ => good_manners(heard),
    })
    .await;
    let _host = ready_host(spec(&script.url())).await;
    eventually("it is opened again", || opened.lock().unwrap().len() >= 2).await;
    let opened = opened.lock().unwrap();
    assert!(opened[1] - opened[0] >= Duration::from_secs(1), "{:?}", opened[1] - opened[0]);
}

#[tokio::test]
async fn d04_a_stream_that_ends_after_each_event_is_not_opened_again_without_a_pause() {
    let opened = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&opened);
    let script = Script::new(move |heard| match heard.method.as_str() {
        "GET" => {
            times.lock().unwrap().push(Instant::now());
            let said = json!({ "jsonrpc": "2.0", "method": "notifications/vendor/tick" });
            let events = format!("retry: 0\ndata: {said}\n\n");
            Act::Say([open_ended("text/event-stream"), events.into_bytes()].concat())
        }
        _ => good_manners(heard),
    })
    .await;
    let _host = ready_host(spec(&script.url())).await;
    eventually("it is opened again", || opened.lock().unwrap().len() >= 4).await;
    for two in opened.lock().unwrap().windows(2) {
        // Its time begins when the one before has been read, which is later than when that was opened.
        assert!(two[1] - two[0] >= Duration::from_millis(100), "{:?}", two[1] - two[0]);
    }
}

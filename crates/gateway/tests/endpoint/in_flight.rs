//! Calls in flight: progress under the client's token, cancellation, disconnects and resumption.

use crate::client::{EventStream, LegacyClient, ModernClient, call, request};
use crate::test_gateway::{TestGateway, at, demo};
use gripfast_demo::Faults;
use gripfast_testkit::wait::{until, within};
use serde_json::{Value, json};
use std::time::Duration;

fn sleep(ms: u64) -> Value {
    call("demo__sleep", json!({ "ms": ms }))
}

fn with_progress(mut params: Value, token: impl Into<Value>) -> Value {
    params["_meta"]["progressToken"] = token.into();
    params
}

/// Reads progress notifications, all with this token, and returns the answer.
async fn progress_then_answer(stream: &mut EventStream, token: &Value) -> Value {
    let mut reports = 0;
    loop {
        let message = stream.message().await;
        if message["method"] == "notifications/progress" {
            assert_eq!(message["params"]["progressToken"], *token, "{message}");
            reports += 1;
        } else {
            assert!(reports > 0, "{message}");
            assert!(stream.next().await.is_none());
            return message;
        }
    }
}

#[tokio::test]
async fn c05_after_a_restart_a_resumed_call_ends_as_unknown_under_its_id() {
    let demo = demo().await;
    let config = at("demo", &demo.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let mut lost = client.start_request("a", "tools/call", with_progress(sleep(600_000), 1)).await;
    let place = lost.next().await.unwrap().id.unwrap();
    client.cancel("a").await;
    while lost.next().await.is_some() {}
    let gateway = gateway.restart(&config).await;
    let client = LegacyClient::with_session(&gateway.http, &client.session);
    let mut other = client.start_request("b", "tools/call", with_progress(sleep(600_000), 2)).await;
    other.message().await;
    // Nothing of the other call comes, and the stream ends.
    let mut again = client.open_stream(Some(&place)).await;
    let event = again.next().await.unwrap();
    let told: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!((&told["id"], &told["result"]["isError"]), (&json!("a"), &json!(true)));
    assert_eq!(told["result"]["_meta"]["gripfast/failure"]["code"], "outcome_unknown");
    assert!(again.next().await.is_none());
    // A resumed stream continues with the list changes that every client gets after a restart.
    let mut news = client.open_stream(event.id.as_deref()).await;
    assert_eq!(news.message().await["method"], "notifications/tools/list_changed");
    client.cancel("b").await;
}

#[tokio::test]
async fn progress_comes_as_events_under_the_clients_own_token() {
    let demo = demo().await;
    for protocol in ["legacy", "modern"] {
        let gateway = TestGateway::with(&at("demo", &demo.url(), protocol, &[])).await;
        let (legacy, modern) = (LegacyClient::connect(&gateway.http).await, ModernClient::new(&gateway.http));
        for token in [json!("my token"), json!(7), json!("7")] {
            let params = with_progress(sleep(250), token.clone());
            let mut stream = legacy.start_request("slow", "tools/call", params.clone()).await;
            assert_eq!(stream.headers["content-type"], "text/event-stream");
            let answer = progress_then_answer(&mut stream, &token).await;
            assert_eq!(answer["id"], "slow");
            assert!(answer["result"].get("resultType").is_none());
            let mut stream = modern.start_request("slow", "tools/call", params).await;
            let answer = progress_then_answer(&mut stream, &token).await;
            assert_eq!(
                (&answer["id"], &answer["result"]["resultType"]),
                (&json!("slow"), &json!("complete"))
            );
        }
    }
}

#[tokio::test]
async fn two_clients_with_the_same_token_and_id_get_their_own_progress_and_answers() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (one, two) = (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let of = |client: LegacyClient, ms: u64| async move {
        let mut stream = client.start_request("1", "tools/call", with_progress(sleep(ms), 1)).await;
        progress_then_answer(&mut stream, &json!(1)).await["result"]["content"][0]["text"].clone()
    };
    let (first, second) = tokio::join!(of(one, 250), of(two, 350));
    assert_eq!((first, second), (json!("slept 250 ms"), json!("slept 350 ms")));
}

#[tokio::test]
async fn an_answer_without_notifications_is_one_json_body() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    for params in [sleep(0), with_progress(sleep(0), "unused")] {
        let answered = client.post(&request(1, "tools/call", &params)).await;
        assert_eq!(answered.headers["content-type"], "application/json");
        assert_eq!(
            ModernClient::new(&gateway.http).send_request("tools/call", params).await.headers["content-type"],
            "application/json"
        );
    }
}

#[tokio::test]
async fn c07_a_legacy_client_that_hangs_up_can_resume_for_its_answer() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let mut stream = client.start_request("slow", "tools/call", with_progress(sleep(800), "t")).await;
    let first = stream.next().await.unwrap();
    drop(stream);
    let mut stream = client.open_stream(first.id.as_deref()).await;
    let answer = progress_then_answer(&mut stream, &json!("t")).await;
    assert_eq!(answer["result"]["content"][0]["text"], "slept 800 ms");
    assert_eq!(answer["id"], "slow");
    // Also after the answer was delivered.
    let mut again = client.open_stream(first.id.as_deref()).await;
    assert_eq!(progress_then_answer(&mut again, &json!("t")).await, answer);
    // Only within the same session.
    let stranger = LegacyClient::connect(&gateway.http).await;
    let mut nothing = stranger.open_stream(first.id.as_deref()).await;
    let told = nothing.message().await;
    assert_eq!(told["result"]["_meta"]["gripfast/failure"]["code"], "outcome_unknown");
    assert!(nothing.next().await.is_none());
}

#[tokio::test]
async fn c07_a_long_call_can_be_resumed_before_its_server_has_sent_anything() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    for (version, is_primed) in [("2025-11-25", true), ("2025-06-18", false)] {
        let client = LegacyClient::connect_with_version(&gateway.http, version).await;
        // The head of the response is there while the tool sleeps.
        let mut stream = client.start_request("slow", "tools/call", sleep(3000)).await;
        assert_eq!(demo.in_flight(), 1);
        assert_eq!(stream.headers["content-type"], "text/event-stream");
        if is_primed {
            let opening = stream.next().await.unwrap();
            assert_eq!(opening.data, "");
            drop(stream);
            stream = client.open_stream(opening.id.as_deref()).await;
        }
        let answer = stream.next().await.unwrap().message();
        assert_eq!(answer["result"]["content"][0]["text"], "slept 3000 ms", "{version}");
    }
}

#[tokio::test]
async fn c07_a_legacy_client_that_hangs_up_has_not_cancelled() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    // The counter is incremented after a while, unless the call was cancelled before.
    demo.set_faults(Faults { answer_delay: Some(Duration::from_millis(300)), ..Faults::default() });
    let count = request("count", "tools/call", &call("demo__counter", json!({})));
    for (version, message) in [("2025-11-25", count.clone()), ("2025-03-26", json!([count]))] {
        let client = LegacyClient::connect_with_version(&gateway.http, version).await;
        let before = demo.counter();
        tokio::select! {
            answered = client.post(&message) => panic!("too early: {answered:?}"),
            () = until("the call is under way", || demo.in_flight() == 1) => {}
        }
        within("the server is done", demo.until_idle()).await;
        assert_eq!(demo.counter(), before + 1, "{version}");
    }
}

#[tokio::test]
async fn c07_a_legacy_client_cancels_one_call_and_no_other() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (one, two) = (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let minute = || with_progress(sleep(60_000), "t");
    let mut cancelled = one.start_request("same", "tools/call", minute()).await;
    let mut kept = one.start_request("kept", "tools/call", minute()).await;
    let mut others = two.start_request("same", "tools/call", minute()).await;
    until("three calls", || demo.in_flight() == 3).await;
    one.cancel("nobody").await;
    one.cancel("same").await;
    until("two calls", || demo.in_flight() == 2).await;
    // The stream of the cancelled call ends without an answer; the others go on.
    while let Some(event) = cancelled.next().await {
        assert!(event.data.is_empty() || event.message()["method"] == "notifications/progress", "{event:?}");
    }
    assert_eq!(kept.message().await["method"], "notifications/progress");
    assert_eq!(others.message().await["method"], "notifications/progress");
    assert_eq!(one.call_tool("demo__echo", json!({ "text": "on" })).await, "on");
    one.cancel("kept").await;
    two.cancel("same").await;
    within("idle", demo.until_idle()).await;
    // C08: nothing was reconnected for that.
    assert_eq!(demo.initializes(), 1);
}

#[tokio::test]
async fn c07_a_modern_client_that_hangs_up_has_cancelled() {
    let demo = demo().await;
    // For a legacy server a disconnect is no cancellation, so the gateway has to send one.
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = ModernClient::new(&gateway.http);
    {
        // Before anything was answered.
        let asking = client.send_request("tools/call", sleep(60_000));
        tokio::select! {
            answered = asking => panic!("too early: {answered:?}"),
            () = until("the call is under way", || demo.in_flight() == 1) => {}
        }
    }
    within("idle", demo.until_idle()).await;
    // And in the middle of its stream.
    let mut kept = client.start_request("kept", "tools/call", with_progress(sleep(60_000), 1)).await;
    let mut stream = client.start_request("left", "tools/call", with_progress(sleep(60_000), 1)).await;
    stream.next().await.unwrap();
    drop(stream);
    until("one call", || demo.in_flight() == 1).await;
    assert_eq!(kept.message().await["method"], "notifications/progress");
    drop(kept);
    within("idle", demo.until_idle()).await;
    assert_eq!(demo.initializes(), 1);
}

#[tokio::test]
async fn c07_calls_of_a_deleted_session_are_cancelled() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let _stream = client.start_request("slow", "tools/call", with_progress(sleep(60_000), 1)).await;
    let headers = [("mcp-session-id", &*client.session)];
    assert_eq!(gateway.http.send(http::Method::DELETE, "/mcp", &headers, "").await.status, 200);
    within("idle", demo.until_idle()).await;
}

#[tokio::test]
async fn a_shutdown_ends_listening_streams_and_lets_calls_finish() {
    let demo = demo().await;
    let config = at("demo", &demo.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let mut listening = client.open_stream(None).await;
    let calling = tokio::spawn(async move { client.request("tools/call", sleep(4000)).await });
    until("the call is under way", || demo.in_flight() > 0).await;
    let leaving = tokio::spawn(async move { gateway.restart(&config).await });
    assert!(listening.next().await.is_none(), "the stream ends");
    assert!(!calling.is_finished(), "without waiting for the call");
    let answer = calling.await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "slept 4000 ms", "{answer}");
    leaving.await.unwrap();
}

//! Calls under way: progress under the client's own token, cancelling, hanging up and coming back.

use crate::client::{Events, Legacy, Modern, call, request};
use crate::scene::{Scene, at, demo, until, within};
use gripfast_demo::Faults;
use serde_json::{Value, json};
use std::time::Duration;

fn sleep(ms: u64) -> Value {
    call("demo__sleep", json!({ "ms": ms }))
}

fn with_progress(mut params: Value, token: impl Into<Value>) -> Value {
    params["_meta"]["progressToken"] = token.into();
    params
}

/// Everything up to the answer: progress, all of it under this token, and then the answer.
async fn progress_then_answer(stream: &mut Events, token: &Value) -> Value {
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
async fn c05_after_a_restart_a_call_that_is_picked_up_ends_as_unknown_under_its_id() {
    let demo = demo().await;
    let config = at("demo", &demo.url(), "legacy", &[]);
    let scene = Scene::with(&config).await;
    let client = Legacy::meets(&scene.http).await;
    let mut lost = client.begins("a", "tools/call", with_progress(sleep(600_000), 1)).await;
    let place = lost.next().await.unwrap().id.unwrap();
    client.cancels("a").await;
    while lost.next().await.is_some() {}
    let scene = scene.restart(&config).await;
    let client = Legacy::resumes(&scene.http, &client.session);
    let mut other = client.begins("b", "tools/call", with_progress(sleep(600_000), 2)).await;
    other.message().await;
    // Nothing of the other call comes, and the stream ends.
    let mut again = client.listens(Some(&place)).await;
    let event = again.next().await.unwrap();
    let told: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!((&told["id"], &told["result"]["isError"]), (&json!("a"), &json!(true)));
    assert_eq!(told["result"]["_meta"]["gripfast/failure"]["code"], "outcome_unknown");
    assert!(again.next().await.is_none());
    // Whoever goes on from there hears what everybody is told after a restart.
    let mut news = client.listens(event.id.as_deref()).await;
    assert_eq!(news.message().await["method"], "notifications/tools/list_changed");
    client.cancels("b").await;
}

#[tokio::test]
async fn progress_comes_as_events_under_the_clients_own_token() {
    let demo = demo().await;
    for protocol in ["legacy", "modern"] {
        let scene = Scene::with(&at("demo", &demo.url(), protocol, &[])).await;
        let (legacy, modern) = (Legacy::meets(&scene.http).await, Modern::of(&scene.http));
        for token in [json!("my token"), json!(7), json!("7")] {
            let params = with_progress(sleep(250), token.clone());
            let mut stream = legacy.begins("slow", "tools/call", params.clone()).await;
            assert_eq!(stream.headers["content-type"], "text/event-stream");
            let answer = progress_then_answer(&mut stream, &token).await;
            assert_eq!(answer["id"], "slow");
            assert!(answer["result"].get("resultType").is_none());
            let mut stream = modern.begins("slow", "tools/call", params).await;
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
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (one, two) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
    let of = |client: Legacy, ms: u64| async move {
        let mut stream = client.begins("1", "tools/call", with_progress(sleep(ms), 1)).await;
        progress_then_answer(&mut stream, &json!(1)).await["result"]["content"][0]["text"].clone()
    };
    let (first, second) = tokio::join!(of(one, 250), of(two, 350));
    assert_eq!((first, second), (json!("slept 250 ms"), json!("slept 350 ms")));
}

#[tokio::test]
async fn an_answer_without_anything_before_it_is_one_json_body() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = Legacy::meets(&scene.http).await;
    for params in [sleep(0), with_progress(sleep(0), "unused")] {
        let answered = client.post(&request(1, "tools/call", &params)).await;
        assert_eq!(answered.headers["content-type"], "application/json");
        assert_eq!(
            Modern::of(&scene.http).sends("tools/call", params).await.headers["content-type"],
            "application/json"
        );
    }
}

#[tokio::test]
async fn c07_a_legacy_client_that_hangs_up_can_come_back_for_its_answer() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = Legacy::meets(&scene.http).await;
    let mut stream = client.begins("slow", "tools/call", with_progress(sleep(800), "t")).await;
    let first = stream.next().await.unwrap();
    drop(stream);
    let mut stream = client.listens(first.id.as_deref()).await;
    let answer = progress_then_answer(&mut stream, &json!("t")).await;
    assert_eq!(answer["result"]["content"][0]["text"], "slept 800 ms");
    assert_eq!(answer["id"], "slow");
    // Also when everything has long been said.
    let mut again = client.listens(first.id.as_deref()).await;
    assert_eq!(progress_then_answer(&mut again, &json!("t")).await, answer);
    // Only for whoever holds the session.
    let stranger = Legacy::meets(&scene.http).await;
    let mut nothing = stranger.listens(first.id.as_deref()).await;
    let told = nothing.message().await;
    assert_eq!(told["result"]["_meta"]["gripfast/failure"]["code"], "outcome_unknown");
    assert!(nothing.next().await.is_none());
}

#[tokio::test]
async fn c07_a_call_that_takes_a_while_has_a_place_to_come_back_to_before_its_server_has_said_anything() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    for (version, is_primed) in [("2025-11-25", true), ("2025-06-18", false)] {
        let client = Legacy::speaks(&scene.http, version).await;
        // The head of the response is there while the tool sleeps.
        let mut stream = client.begins("slow", "tools/call", sleep(3000)).await;
        assert_eq!(demo.in_flight(), 1);
        assert_eq!(stream.headers["content-type"], "text/event-stream");
        if is_primed {
            let opening = stream.next().await.unwrap();
            assert_eq!(opening.data, "");
            drop(stream);
            stream = client.listens(opening.id.as_deref()).await;
        }
        let answer = stream.next().await.unwrap().message();
        assert_eq!(answer["result"]["content"][0]["text"], "slept 3000 ms", "{version}");
    }
}

#[tokio::test]
async fn c07_a_legacy_client_that_hangs_up_has_not_cancelled() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    // It counts after a while, if nobody has cancelled by then.
    demo.set_faults(Faults { answer_delay: Duration::from_millis(300), ..Faults::default() });
    let count = request("count", "tools/call", &call("demo__counter", json!({})));
    for (version, message) in [("2025-11-25", count.clone()), ("2025-03-26", json!([count]))] {
        let client = Legacy::speaks(&scene.http, version).await;
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
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (one, two) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
    let minute = || with_progress(sleep(60_000), "t");
    let mut cancelled = one.begins("same", "tools/call", minute()).await;
    let mut kept = one.begins("kept", "tools/call", minute()).await;
    let mut others = two.begins("same", "tools/call", minute()).await;
    until("three calls", || demo.in_flight() == 3).await;
    one.cancels("nobody").await;
    one.cancels("same").await;
    until("two calls", || demo.in_flight() == 2).await;
    // The stream of the cancelled call ends without an answer; the others go on.
    while let Some(event) = cancelled.next().await {
        assert!(event.data.is_empty() || event.message()["method"] == "notifications/progress", "{event:?}");
    }
    assert_eq!(kept.message().await["method"], "notifications/progress");
    assert_eq!(others.message().await["method"], "notifications/progress");
    assert_eq!(one.calls("demo__echo", json!({ "text": "on" })).await, "on");
    one.cancels("kept").await;
    two.cancels("same").await;
    within("idle", demo.until_idle()).await;
    // C08: nothing was reconnected for that.
    assert_eq!(demo.initializes(), 1);
}

#[tokio::test]
async fn c07_a_modern_client_that_hangs_up_has_cancelled() {
    let demo = demo().await;
    // Behind us the legacy era: there hanging up would not cancel, and so it has to be said.
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = Modern::of(&scene.http);
    {
        // Before anything was answered.
        let asking = client.sends("tools/call", sleep(60_000));
        tokio::select! {
            answered = asking => panic!("too early: {answered:?}"),
            () = until("the call is under way", || demo.in_flight() == 1) => {}
        }
    }
    within("idle", demo.until_idle()).await;
    // And in the middle of its stream.
    let mut kept = client.begins("kept", "tools/call", with_progress(sleep(60_000), 1)).await;
    let mut stream = client.begins("left", "tools/call", with_progress(sleep(60_000), 1)).await;
    stream.next().await.unwrap();
    drop(stream);
    until("one call", || demo.in_flight() == 1).await;
    assert_eq!(kept.message().await["method"], "notifications/progress");
    drop(kept);
    within("idle", demo.until_idle()).await;
    assert_eq!(demo.initializes(), 1);
}

#[tokio::test]
async fn c07_what_a_deleted_session_waited_for_is_cancelled() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = Legacy::meets(&scene.http).await;
    let _stream = client.begins("slow", "tools/call", with_progress(sleep(60_000), 1)).await;
    let headers = [("mcp-session-id", &*client.session)];
    assert_eq!(scene.http.send(http::Method::DELETE, "/mcp", &headers, "").await.status, 200);
    within("idle", demo.until_idle()).await;
}

#[tokio::test]
async fn a_gateway_that_leaves_ends_streams_that_only_listen_and_lets_calls_finish() {
    let demo = demo().await;
    let config = at("demo", &demo.url(), "legacy", &[]);
    let scene = Scene::with(&config).await;
    let client = Legacy::meets(&scene.http).await;
    let mut listening = client.listens(None).await;
    let calling = tokio::spawn(async move { client.asks("tools/call", sleep(4000)).await });
    until("the call is under way", || demo.in_flight() > 0).await;
    let leaving = tokio::spawn(async move { scene.restart(&config).await });
    assert!(listening.next().await.is_none(), "the stream ends");
    assert!(!calling.is_finished(), "without waiting for the call");
    let answer = calling.await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "slept 4000 ms", "{answer}");
    leaving.await.unwrap();
}

//! Outcomes of calls.

use crate::memory_server::*;
use gripfast::JsonText;
use gripfast::transport::Listener;
use gripfast::{CallOptions, State};
use gripfast_core::failure::HttpAnswer;
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn c01_a_failure_names_the_server_the_next_step_and_the_outcome() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.set_default_action(CallAction::ExecuteThenBreak);
    let error = call(&host, "act", "x").await.unwrap_err();
    assert!(error.text.contains("`it`"), "{error}");
    let part = error.to_json();
    assert_eq!(
        (&part["code"], &part["outcome"], &part["server"]),
        (&json!("outcome_unknown"), &json!("unknown"), &json!("it"))
    );
}

#[tokio::test(start_paused = true)]
async fn c02_an_unknown_server_is_an_error_that_suggests_the_nearest() {
    let (host, _server) = host_with(LinkKind::Process).await;
    let error = host.call("itt", "act", None).await.unwrap_err();
    assert_eq!(error.code.as_str(), "unknown_server");
    assert!(error.hint.is_some_and(|hint| hint.contains("`it`")));
}

#[tokio::test(start_paused = true)]
async fn f01_an_unknown_tool_is_an_error_that_suggests_the_nearest_and_is_not_sent() {
    let (host, server) = host_with(LinkKind::Process).await;
    let error = call(&host, "raed", "").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("unknown_tool", "not_sent"));
    assert!(error.hint.is_some_and(|hint| hint.contains("`read`")));
    assert_eq!(server.received("tools/call"), 0);
}

#[tokio::test(start_paused = true)]
async fn b11_an_answer_that_is_not_mcp_has_its_own_code_and_no_circuit_effect() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.queue_actions([CallAction::Nonsense]);
    let error = call(&host, "act", "").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("upstream_protocol", "unknown"));
    assert_eq!(host.server_status("it").unwrap().supervision.consecutive_failures, 0);
}

#[tokio::test(start_paused = true)]
async fn c03_a_hung_call_ends_in_timeout_and_only_that_call() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.queue_actions([CallAction::Hang]);
    let started = Instant::now();
    let hung = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "act", "hung").await }
    });
    run_ready_tasks().await;
    call(&host, "act", "other").await.unwrap();
    let error = hung.await.unwrap().unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("timeout", "unknown"));
    assert_eq!(started.elapsed().as_secs(), 300);
    run_ready_tasks().await;
    assert_eq!(server.received("ping"), 2, "after 180 s of silence, and at once after the timeout");
    assert_eq!(server.connects(), 1, "and kept, for the probe was answered");
}

#[tokio::test(start_paused = true)]
async fn c03_a_link_that_does_not_answer_the_probe_after_a_timeout_is_replaced() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.queue_actions([CallAction::Hang]);
    server.stop_answering_probes();
    call(&host, "act", "").await.unwrap_err();
    run_ready_tasks().await;
    server.answer_probes();
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(server.connects(), 2);
    call(&host, "act", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c03_the_callers_own_timeout_is_a_deadline_too() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.queue_actions([CallAction::Hang]);
    let started = Instant::now();
    let options = CallOptions { timeout: Some(Duration::from_secs(7)), ..CallOptions::default() };
    let error = host
        .request_with("it", "tools/call", Some(&raw(json!({ "name": "act" }))), options)
        .await
        .unwrap_err();
    assert_eq!((error.code.as_str(), started.elapsed().as_secs()), ("timeout", 7));
}

#[tokio::test(start_paused = true)]
async fn c03_waiting_for_a_slot_counts_as_call_time() {
    let mut narrow = spec();
    narrow.supervision.max_in_flight = 1;
    let (host, server) = host_with_spec(LinkKind::Process, narrow).await;
    server.queue_actions([CallAction::AnswerAfter(Duration::from_secs(200)), CallAction::Hang]);
    let first = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "act", "first").await }
    });
    run_ready_tasks().await;
    let started = Instant::now();
    let error = call(&host, "act", "second").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("timeout", "unknown"));
    assert_eq!(started.elapsed().as_secs(), 300, "200 s in the queue and 100 s at the server");
    first.await.unwrap().unwrap();
    let supervision = host.server_status("it").unwrap().supervision;
    assert_eq!(supervision.consecutive_failures, 0, "the server had a third of the time: it is not to blame");
}

#[tokio::test(start_paused = true)]
async fn c03_a_replay_does_not_restart_the_timeout() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.queue_actions([CallAction::Hang, CallAction::Hang]);
    let started = Instant::now();
    let calling = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "read", "x").await }
    });
    tokio::time::sleep(Duration::from_secs(140)).await;
    server.go_down().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.come_up();
    let error = calling.await.unwrap().unwrap_err();
    assert_eq!((error.code.as_str(), started.elapsed().as_secs()), ("timeout", 300));
}

#[derive(Default)]
struct MessageRecorder(Mutex<Vec<Value>>);

impl Listener for MessageRecorder {
    fn on_message(&self, message: &[u8]) {
        self.0.lock().unwrap().push(serde_json::from_slice(message).unwrap());
    }
}

fn with_progress(token: Value, heard: &Arc<MessageRecorder>) -> (Option<JsonText>, CallOptions) {
    let params = raw(json!({ "name": "act", "_meta": { "progressToken": token } }));
    let options =
        CallOptions { listener: Some(Arc::clone(heard) as Arc<dyn Listener>), ..CallOptions::default() };
    (Some(params), options)
}

#[tokio::test(start_paused = true)]
async fn c03_progress_extends_a_call_up_to_the_cap_and_silence_ends_it() {
    let (host, server) = host_with(LinkKind::Process).await;
    let heard = Arc::new(MessageRecorder::default());
    server.queue_actions([CallAction::Progress(Duration::from_secs(45))]);
    let started = Instant::now();
    let (params, options) = with_progress(json!("mine"), &heard);
    let error = host.request_with("it", "tools/call", params.as_deref(), options).await.unwrap_err();
    assert_eq!((error.code.as_str(), started.elapsed().as_secs()), ("timeout", 300));
    let tokens: Vec<Value> =
        heard.0.lock().unwrap().iter().map(|m| m["params"]["progressToken"].clone()).collect();
    assert_eq!(tokens.len(), 6);
    assert!(tokens.iter().all(|token| token == "mine"), "under the caller's own token: {tokens:?}");

    server.queue_actions([CallAction::Progress(Duration::from_secs(70))]);
    let started = Instant::now();
    let (params, options) = with_progress(json!(7), &heard);
    host.request_with("it", "tools/call", params.as_deref(), options).await.unwrap_err();
    assert_eq!(started.elapsed().as_secs(), 130, "70 s to the first report, then 60 s of silence");
}

/// B11
#[tokio::test(start_paused = true)]
async fn c03_progress_on_another_stream_is_matched_by_its_token() {
    // Like a legacy server that sends everything on its GET stream.
    let (host, server) = host_with(LinkKind::Remote).await;
    server.set_default_action(CallAction::AnswerAfter(Duration::from_secs(250)));
    let calls: Vec<_> = ["first", "second"]
        .into_iter()
        .map(|token| {
            let heard = Arc::new(MessageRecorder::default());
            let (params, options) = with_progress(json!(token), &heard);
            let host = host.clone();
            let calling = tokio::spawn(async move {
                host.request_with("it", "tools/call", params.as_deref(), options).await.unwrap();
            });
            (token, heard, calling)
        })
        .collect();
    run_ready_tasks().await;
    let sent = server.params_of("tools/call");
    assert_eq!(sent.len(), 2);
    for params in &sent {
        let token = &params["_meta"]["progressToken"];
        for spelled in [token.clone(), json!(token.to_string())] {
            let params = json!({ "progressToken": spelled, "progress": 1 });
            server
                .send_message(
                    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }),
                )
                .await;
        }
    }
    run_ready_tasks().await;
    for (token, heard, _) in &calls {
        let heard = heard.0.lock().unwrap();
        let tokens: Vec<_> = heard.iter().map(|said| &said["params"]["progressToken"]).collect();
        assert_eq!(tokens, [*token; 2], "each caller its own, under its own token");
    }
    let (_, _, first) = calls.into_iter().next().unwrap();
    assert!(first.await.is_err(), "it was heard of, so 60 s of silence end it");
}

#[tokio::test(start_paused = true)]
async fn c03_silence_after_progress_probes_the_link_and_counts_as_a_timeout() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.queue_actions([CallAction::ProgressThenHang(Duration::from_secs(45), 3)]);
    let started = Instant::now();
    let (params, options) = with_progress(json!(7), &Arc::new(MessageRecorder::default()));
    let error = host.request_with("it", "tools/call", params.as_deref(), options).await.unwrap_err();
    assert_eq!((error.code.as_str(), started.elapsed().as_secs()), ("timeout", 3 * 45 + 60));
    run_ready_tasks().await;
    let failures = host.server_status("it").unwrap().supervision.consecutive_failures;
    assert_eq!((server.received("ping"), failures), (1, 1));
}

/// D04
#[tokio::test(start_paused = true)]
async fn c03_an_unanswered_log_level_delays_only_the_first_call() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.ignore_levels();
    let calls = async |patience| {
        let started = Instant::now();
        let log_level = Some(gripfast::wire::log::LogLevel::Info);
        let options = CallOptions { timeout: patience, log_level, ..CallOptions::default() };
        let called =
            host.request_with("it", "tools/call", Some(&raw(json!({ "name": "act" }))), options).await;
        (called, started.elapsed())
    };
    let (called, taken) = calls(Some(Duration::from_secs(2))).await;
    assert_eq!((called.unwrap_err().code.as_str(), taken), ("timeout", Duration::from_secs(2)));
    let (called, taken) = calls(None).await;
    called.unwrap();
    assert_eq!((taken, server.received("logging/setLevel")), (Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn c04_a_call_during_a_reconnect_is_held_and_then_sent() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.go_down().await;
    run_ready_tasks().await;
    let held = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "act", "held").await }
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!held.is_finished());
    server.come_up();
    held.await.unwrap().unwrap();
    assert_eq!(server.executed("held"), 1);
    assert_eq!(host.server_status("it").unwrap().supervision.consecutive_failures, 0);
}

#[tokio::test(start_paused = true)]
async fn c04_a_held_call_fails_when_its_timeout_ends() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.go_down().await;
    let started = Instant::now();
    let error = call(&host, "act", "held").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("reconnecting", "not_sent"));
    assert_eq!(started.elapsed().as_secs(), 15);
    assert!(error.text.contains("connection refused"), "{error}");
    assert_eq!(server.executed("held"), 0);
}

#[tokio::test(start_paused = true)]
async fn c04_stopping_fails_held_calls_immediately() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.go_down().await;
    let held = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "act", "held").await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = Instant::now();
    host.stop("it").unwrap();
    assert_eq!(held.await.unwrap().unwrap_err().code.as_str(), "stopped");
    assert_eq!(Instant::now(), before);
}

#[tokio::test(start_paused = true)]
async fn c03_calls_that_outlast_a_shutdown_fail_in_time_with_a_cause() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.queue_actions([CallAction::AnswerAfter(Duration::from_secs(3)), CallAction::Hang]);
    let calls = ["slow", "hung"].map(|key| {
        let host = host.clone();
        tokio::spawn(async move { call(&host, "act", key).await })
    });
    run_ready_tasks().await;
    assert_eq!(host.in_flight_calls(), [("it".to_owned(), 2)]);
    let started = Instant::now();
    host.shutdown_with_grace(Duration::from_secs(4)).await;
    assert_eq!(started.elapsed().as_secs(), 4);
    let [slow, hung] = calls;
    slow.await.unwrap().expect("it had time enough");
    let error = hung.await.unwrap().unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("outcome_unknown", "unknown"));
    assert!(error.text.contains("the gateway is shutting down"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn c05_a_sent_call_without_an_answer_runs_at_most_once() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.queue_actions([CallAction::ExecuteThenBreak]);
    assert_eq!(call(&host, "act", "x").await.unwrap_err().code.as_str(), "outcome_unknown");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(server.executed("x"), 1);
}

#[tokio::test(start_paused = true)]
async fn c05_a_read_only_call_is_replayed_once_and_not_twice() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.queue_actions([CallAction::ExecuteThenBreak]);
    call(&host, "read", "once").await.unwrap();
    assert_eq!(server.executed("once"), 2);
    server.queue_actions([CallAction::ExecuteThenBreak, CallAction::ExecuteThenBreak]);
    assert_eq!(call(&host, "read", "twice").await.unwrap_err().code.as_str(), "outcome_unknown");
    assert_eq!(server.executed("twice"), 2);
}

#[tokio::test(start_paused = true)]
async fn c01_a_call_sent_once_and_then_refused_is_not_reported_as_not_sent() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.queue_actions([CallAction::ExecuteThenBreak]);
    let calling = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "read", "x").await }
    });
    server.stop_answering_probes();
    run_ready_tasks().await;
    host.stop("it").unwrap();
    let error = calling.await.unwrap().unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("stopped", "unknown"));
}

fn busy_for(seconds: u64) -> CallAction {
    let retry_after = Some(Duration::from_secs(seconds));
    CallAction::Refuse(HttpAnswer { status: 429, retry_after, ..HttpAnswer::default() })
}

#[tokio::test(start_paused = true)]
async fn c05_a_refusal_after_an_attempt_that_may_have_run_is_an_unknown_outcome() {
    let (host, server) = host_with(LinkKind::Remote).await;
    let unauthorized = || CallAction::Refuse(HttpAnswer { status: 401, ..HttpAnswer::default() });
    for later in [vec![busy_for(1), busy_for(1)], vec![busy_for(3600)], vec![unauthorized(), unauthorized()]]
    {
        server.queue_actions([CallAction::ExecuteThenBreak]);
        server.queue_actions(later);
        let error = call(&host, "read", "x").await.unwrap_err();
        assert_eq!(error.outcome.as_str(), "unknown", "{error}");
        assert!(error.text.contains("an earlier attempt was sent"), "{error}");
        host.reload("it").unwrap();
        wait_for_state(&host, State::Ready).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c05_a_request_alone_in_flight_at_three_crashes_is_refused() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.set_default_action(CallAction::ExecuteThenBreak);
    let error = call(&host, "read", "x").await.unwrap_err();
    assert_eq!((error.code.as_str(), server.executed("x")), ("outcome_unknown", 2), "replayed once");
    let error = call(&host, "read", "x").await.unwrap_err();
    assert_eq!((error.code.as_str(), server.executed("x")), ("outcome_unknown", 3), "not replayed any more");
    let error = call(&host, "read", "x").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("unreachable", "not_sent"));
    assert!(error.text.contains("`it` died 3 times"), "{error}");
    assert!(error.retry_after.is_some_and(|wait| wait > Duration::from_secs(590)), "{error}");
    server.set_default_action(CallAction::Answer);
    call(&host, "read", "another").await.expect("other arguments are another request");
    assert_eq!(server.executed("x"), 3);
    tokio::time::sleep(Duration::from_secs(600)).await;
    call(&host, "read", "x").await.expect("ten minutes later it is sent again");
}

#[tokio::test(start_paused = true)]
async fn c05_a_child_killed_repeatedly_under_read_only_load_loses_no_call() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.set_default_action(CallAction::AnswerAfter(Duration::from_millis(40)));
    // With one caller and with several: the same request is in flight at every crash.
    for callers in [1, 4] {
        let load: Vec<_> = (0..callers)
            .map(|_| {
                let host = host.clone();
                tokio::spawn(async move {
                    for _ in 0..200 {
                        call(&host, "read", "same").await.unwrap();
                    }
                })
            })
            .collect();
        let killing = tokio::spawn({
            let server = server.clone();
            async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(210)).await;
                    server.break_link().await;
                }
            }
        });
        for caller in load {
            caller.await.unwrap();
        }
        killing.abort();
    }
    assert!(server.connects() > 60, "{}", server.connects());
}

#[tokio::test(start_paused = true)]
async fn c04_a_long_call_is_held_during_every_outage() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.go_down().await;
    server.set_default_action(CallAction::AnswerAfter(Duration::from_secs(30)));
    let calling = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "read", "x").await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.come_up();
    tokio::time::sleep(Duration::from_secs(30)).await;
    server.go_down().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.come_up();
    calling.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn c05_a_busy_server_gets_the_request_once_more_after_retry_after() {
    let (host, server) = host_with(LinkKind::Remote).await;
    let busy = HttpAnswer { status: 429, retry_after: Some(Duration::from_secs(4)), ..HttpAnswer::default() };
    server.queue_actions([CallAction::Refuse(busy.clone())]);
    let started = Instant::now();
    call(&host, "act", "x").await.unwrap();
    assert_eq!((started.elapsed().as_secs(), server.executed("x")), (4, 1));
    server.queue_actions([CallAction::Refuse(busy.clone()), CallAction::Refuse(busy)]);
    let error = call(&host, "act", "y").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("overloaded", "refused"));
}

#[tokio::test(start_paused = true)]
async fn c06_calls_run_concurrently_queue_in_order_and_overflow_is_refused() {
    let mut narrow = spec();
    narrow.supervision.max_in_flight = 2;
    narrow.supervision.max_waiting = 3;
    let (host, server) = host_with_spec(LinkKind::Process, narrow).await;
    server.set_default_action(CallAction::AnswerAfter(Duration::from_secs(1)));
    let started = Instant::now();
    let calls: Vec<_> = (0..5)
        .map(|n| {
            let host = host.clone();
            tokio::spawn(async move {
                call(&host, "act", &n.to_string()).await.map(|_| started.elapsed().as_secs())
            })
        })
        .collect();
    run_ready_tasks().await;
    assert_eq!(server.in_flight(), 2);
    assert_eq!(call(&host, "act", "6").await.unwrap_err().code.as_str(), "overloaded");
    let mut took = Vec::new();
    for call in calls {
        took.push(call.await.unwrap().unwrap());
    }
    assert_eq!(took, [1, 1, 2, 2, 3], "two at a time, in the order of asking");
    assert_eq!(server.most_in_flight(), 2);
}

/// C06
#[tokio::test(start_paused = true)]
async fn c04_a_queued_call_is_held_no_longer_than_a_later_one() {
    let mut narrow = spec();
    narrow.supervision.max_in_flight = 1;
    let (host, server) = host_with_spec(LinkKind::Remote, narrow).await;
    server.queue_actions([CallAction::Hang]);
    let calls = ["first", "queued", "queued too"].map(|key| {
        let host = host.clone();
        tokio::spawn(async move { call(&host, "act", key).await.unwrap_err() })
    });
    run_ready_tasks().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let lost = Instant::now();
    server.go_down().await;
    let [first, queued, too] = calls;
    assert_eq!(first.await.unwrap().code.as_str(), "outcome_unknown");
    for call in [queued, too] {
        let error = call.await.unwrap();
        assert_eq!((error.code.as_str(), error.outcome.as_str()), ("reconnecting", "not_sent"), "{error}");
        assert_eq!(lost.elapsed().as_secs(), 15, "the time in the queue is not that of waiting for a link");
    }
}

#[tokio::test(start_paused = true)]
async fn c07_a_dropped_call_frees_its_slot_and_is_cancelled_at_the_server() {
    let mut narrow = spec();
    narrow.supervision.max_in_flight = 1;
    let (host, server) = host_with_spec(LinkKind::Process, narrow).await;
    server.queue_actions([CallAction::Hang]);
    let dropped = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "act", "dropped").await }
    });
    run_ready_tasks().await;
    let waiting = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "act", "waiting").await }
    });
    run_ready_tasks().await;
    dropped.abort();
    waiting.await.unwrap().unwrap();
    assert_eq!((server.cancelled(), server.in_flight()), (1, 0));
    assert_eq!(host.server_status("it").unwrap().supervision.in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn c07_a_caller_that_leaves_the_queue_leaves_no_trace() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.go_down().await;
    for _ in 0..2000 {
        let left = tokio::time::timeout(Duration::from_millis(1), call(&host, "act", "")).await;
        assert!(left.is_err());
    }
    assert_eq!(host.server_status("it").unwrap().supervision.waiting, 0);
    server.come_up();
    call(&host, "act", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c08_a_cancelled_call_never_triggers_a_reconnect() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.set_default_action(CallAction::Hang);
    for _ in 0..20 {
        let _ = tokio::time::timeout(Duration::from_millis(5), call(&host, "act", "")).await;
    }
    run_ready_tasks().await;
    assert_eq!(server.connects(), 1);
    assert!(server.received("ping") > 0, "nothing was heard since they were sent: the server is asked");
    wait_for_state(&host, State::Ready).await;
}

/// A client that answers every request after this time.
struct AnswersAfter(Duration);

impl Listener for AnswersAfter {
    fn on_message(&self, _message: &[u8]) {}

    fn on_request(&self, request: bytes::Bytes) -> Option<gripfast::transport::BoxFuture<'static, Vec<u8>>> {
        let pause = self.0;
        Some(Box::pin(async move {
            tokio::time::sleep(pause).await;
            request.to_vec()
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn c03_the_time_of_an_elicitation_does_not_count_as_server_time() {
    let (host, server) = host_with(LinkKind::Process).await;
    for (thinks, works, taken) in [(500, 290, Some(790)), (500, 310, None)] {
        server.queue_actions([CallAction::AskThenWork(Duration::from_secs(works))]);
        let listener: Arc<dyn Listener> = Arc::new(AnswersAfter(Duration::from_secs(thinks)));
        let options = CallOptions { listener: Some(listener), ..CallOptions::default() };
        let started = Instant::now();
        let params = Some(raw(json!({ "name": "act" })));
        let answer = host.request_with("it", "tools/call", params.as_deref(), options).await;
        match taken {
            Some(taken) => assert_eq!((answer.is_ok(), started.elapsed().as_secs()), (true, taken)),
            None => {
                assert_eq!(answer.unwrap_err().code.as_str(), "timeout");
                assert_eq!(started.elapsed().as_secs(), 800, "five minutes of its own, and the person's");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c03_the_silence_timeout_restarts_after_an_elicitation_response() {
    let (host, server) = host_with(LinkKind::Process).await;
    for (works, taken) in [(50, Ok(120)), (70, Err(130))] {
        server.queue_actions([CallAction::ProgressAskThenWork(Duration::from_secs(works))]);
        let listener: Arc<dyn Listener> = Arc::new(AnswersAfter(Duration::from_secs(70)));
        let options = CallOptions { listener: Some(listener), ..CallOptions::default() };
        let started = Instant::now();
        let params = Some(raw(json!({ "name": "act", "_meta": { "progressToken": 7 } })));
        let answer = host.request_with("it", "tools/call", params.as_deref(), options).await;
        let took = started.elapsed().as_secs();
        assert_eq!(answer.map(|_| took).map_err(|_| took), taken);
    }
}

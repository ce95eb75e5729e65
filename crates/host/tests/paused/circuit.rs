//! The circuit breaker, as callers see it.

use crate::memory_server::*;
use gripfast::{CircuitView, Host, State};
use gripfast_core::supervise::upstream::LinkKind;
use std::time::Duration;

const COOLDOWN: Duration = Duration::from_secs(60);

fn circuit(host: &Host) -> CircuitView {
    host.server_status("it").unwrap().supervision.circuit
}

/// A server whose last three calls timed out while it still answers probes.
async fn opened() -> (Host, MemoryServer) {
    let mut hasty = spec();
    hasty.supervision.timeouts.call = Duration::from_secs(1);
    let (host, server) = host_with_spec(LinkKind::Remote, hasty).await;
    server.queue_actions([CallAction::Hang, CallAction::Hang, CallAction::Hang]);
    for _ in 0..3 {
        assert_eq!(call(&host, "act", "").await.unwrap_err().code.as_str(), "timeout");
    }
    (host, server)
}

#[tokio::test(start_paused = true)]
async fn b11_b13_three_timeouts_open_the_circuit_and_calls_are_refused() {
    let (host, server) = opened().await;
    assert_eq!(circuit(&host), CircuitView::Open);
    assert_eq!(host.server_status("it").unwrap().supervision.state, State::Degraded);
    let seen = server.received("tools/call");
    let error = call(&host, "act", "").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("unreachable", "not_sent"));
    assert!(error.retry_after.is_some_and(|wait| wait <= COOLDOWN && wait > Duration::from_secs(50)));
    assert_eq!(server.received("tools/call"), seen);
}

#[tokio::test(start_paused = true)]
async fn b12_tool_errors_rejections_and_cancelled_calls_never_count() {
    let (host, server) = host_with(LinkKind::Remote).await;
    for _ in 0..10 {
        server.queue_actions([
            CallAction::ToolError,
            CallAction::Reject(-32602, "Invalid params"),
            CallAction::Hang,
        ]);
        assert!(call(&host, "act", "").await.unwrap().is_tool_error());
        assert!(call(&host, "act", "").await.unwrap().result().is_err());
        let abandoned = tokio::time::timeout(Duration::from_millis(10), call(&host, "act", "")).await;
        assert!(abandoned.is_err());
    }
    assert_eq!(host.server_status("it").unwrap().supervision.consecutive_failures, 0);
}

#[tokio::test(start_paused = true)]
async fn b12_calls_that_race_a_lost_link_do_not_count() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.set_default_action(CallAction::Hang);
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let host = host.clone();
            tokio::spawn(async move { call(&host, "act", "").await })
        })
        .collect();
    run_ready_tasks().await;
    server.break_link().await;
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap_err().code.as_str(), "outcome_unknown");
    }
    assert_eq!(circuit(&host), CircuitView::Closed);
}

#[tokio::test(start_paused = true)]
async fn b14_b15_after_the_cooldown_one_successful_trial_closes_the_circuit() {
    let (host, server) = opened().await;
    tokio::time::sleep(COOLDOWN).await;
    server.queue_actions([CallAction::AnswerAfter(Duration::from_millis(500))]);
    let trial = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "act", "trial").await }
    });
    run_ready_tasks().await;
    assert_eq!(call(&host, "act", "other").await.unwrap_err().code.as_str(), "unreachable");
    trial.await.unwrap().unwrap();
    assert_eq!(circuit(&host), CircuitView::Closed);
    call(&host, "act", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn b15_a_failed_trial_opens_the_circuit_for_another_cooldown() {
    let (host, server) = opened().await;
    tokio::time::sleep(COOLDOWN).await;
    server.queue_actions([CallAction::Hang]);
    assert_eq!(call(&host, "act", "").await.unwrap_err().code.as_str(), "timeout");
    let error = call(&host, "act", "").await.unwrap_err();
    assert!(error.retry_after.is_some_and(|wait| wait > Duration::from_secs(50)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn b14_a_cancelled_trial_frees_its_place() {
    let (host, server) = opened().await;
    tokio::time::sleep(COOLDOWN).await;
    server.queue_actions([CallAction::Hang]);
    let abandoned = tokio::time::timeout(Duration::from_millis(10), call(&host, "act", "")).await;
    assert!(abandoned.is_err());
    call(&host, "act", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn b16_half_open_without_a_link_answers_reconnecting_and_reconnects() {
    let (host, server) = opened().await;
    server.go_down().await;
    tokio::time::sleep(COOLDOWN + Duration::from_secs(1)).await;
    while host.server_status("it").unwrap().supervision.next_attempt.is_none_or(|wait| wait.is_zero()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let dials = server.connects();
    let error = call(&host, "act", "").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("reconnecting", "not_sent"));
    run_ready_tasks().await;
    assert_eq!(server.connects(), dials + 1);
}

#[tokio::test(start_paused = true)]
async fn b17_b18_a_reconnect_closes_the_circuit_for_the_next_call() {
    let (host, _server) = opened().await;
    host.reconnect("it").unwrap();
    wait_for_state(&host, State::Ready).await;
    assert_eq!(circuit(&host), CircuitView::Closed);
    call(&host, "act", "").await.unwrap();
}

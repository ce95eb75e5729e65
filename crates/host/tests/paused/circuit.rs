//! The circuit breaker, as callers meet it.

use crate::world::*;
use gripfast::{CircuitView, Host, State};
use gripfast_core::supervise::upstream::LinkKind;
use std::time::Duration;

const COOLDOWN: Duration = Duration::from_secs(60);

fn circuit(host: &Host) -> CircuitView {
    host.status_of("it").unwrap().supervision.circuit
}

/// A server whose last three calls timed out, while it still answers probes.
async fn opened() -> (Host, Server) {
    let mut hasty = spec();
    hasty.supervision.timeouts.call = Duration::from_secs(1);
    let (host, server) = host_with_spec(LinkKind::Remote, hasty).await;
    server.next_acts([Act::Hang, Act::Hang, Act::Hang]);
    for _ in 0..3 {
        assert_eq!(call(&host, "act", "").await.unwrap_err().code.word(), "timeout");
    }
    (host, server)
}

#[tokio::test(start_paused = true)]
async fn b11_b13_three_timeouts_open_it_and_calls_are_refused_without_touching_the_link() {
    let (host, server) = opened().await;
    assert_eq!(circuit(&host), CircuitView::Open);
    assert_eq!(host.status_of("it").unwrap().supervision.state, State::Degraded);
    let seen = server.received("tools/call");
    let error = call(&host, "act", "").await.unwrap_err();
    assert_eq!((error.code.word(), error.outcome.word()), ("unreachable", "not_sent"));
    assert!(error.retry_after.is_some_and(|wait| wait <= COOLDOWN && wait > Duration::from_secs(50)));
    assert_eq!(server.received("tools/call"), seen);
}

#[tokio::test(start_paused = true)]
async fn b12_tool_errors_rejections_and_cancelled_calls_never_count() {
    let (host, server) = host_with(LinkKind::Remote).await;
    for _ in 0..10 {
        server.next_acts([Act::ToolError, Act::Reject(-32602, "Invalid params"), Act::Hang]);
        assert!(call(&host, "act", "").await.unwrap().is_tool_error());
        assert!(call(&host, "act", "").await.unwrap().result().is_err());
        let abandoned = tokio::time::timeout(Duration::from_millis(10), call(&host, "act", "")).await;
        assert!(abandoned.is_err());
    }
    assert_eq!(host.status_of("it").unwrap().supervision.consecutive_failures, 0);
}

#[tokio::test(start_paused = true)]
async fn b12_calls_that_race_a_lost_link_do_not_count() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.always(Act::Hang);
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let host = host.clone();
            tokio::spawn(async move { call(&host, "act", "").await })
        })
        .collect();
    settle().await;
    server.break_link().await;
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap_err().code.word(), "outcome_unknown");
    }
    assert_eq!(circuit(&host), CircuitView::Closed);
}

#[tokio::test(start_paused = true)]
async fn b14_b15_after_the_cooldown_one_caller_is_the_trial_and_its_success_closes_it() {
    let (host, server) = opened().await;
    tokio::time::sleep(COOLDOWN).await;
    server.next_acts([Act::Slowly(Duration::from_millis(500))]);
    let trial = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "act", "trial").await }
    });
    settle().await;
    assert_eq!(call(&host, "act", "other").await.unwrap_err().code.word(), "unreachable");
    trial.await.unwrap().unwrap();
    assert_eq!(circuit(&host), CircuitView::Closed);
    call(&host, "act", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn b15_a_failed_trial_opens_it_for_another_cooldown() {
    let (host, server) = opened().await;
    tokio::time::sleep(COOLDOWN).await;
    server.next_acts([Act::Hang]);
    assert_eq!(call(&host, "act", "").await.unwrap_err().code.word(), "timeout");
    let error = call(&host, "act", "").await.unwrap_err();
    assert!(error.retry_after.is_some_and(|wait| wait > Duration::from_secs(50)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn b14_a_trial_that_is_abandoned_frees_its_place() {
    let (host, server) = opened().await;
    tokio::time::sleep(COOLDOWN).await;
    server.next_acts([Act::Hang]);
    let abandoned = tokio::time::timeout(Duration::from_millis(10), call(&host, "act", "")).await;
    assert!(abandoned.is_err());
    call(&host, "act", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn b16_half_open_without_a_link_answers_reconnecting_and_asks_for_one() {
    let (host, server) = opened().await;
    server.go_away().await;
    tokio::time::sleep(COOLDOWN + Duration::from_secs(1)).await;
    while host.status_of("it").unwrap().supervision.next_attempt.is_none_or(|wait| wait.is_zero()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let dials = server.dials();
    let error = call(&host, "act", "").await.unwrap_err();
    assert_eq!((error.code.word(), error.outcome.word()), ("reconnecting", "not_sent"));
    settle().await;
    assert_eq!(server.dials(), dials + 1);
}

#[tokio::test(start_paused = true)]
async fn b17_b18_a_reconnect_closes_it_and_the_next_call_goes_straight_through() {
    let (host, _server) = opened().await;
    host.reconnect("it").unwrap();
    until(&host, State::Ready).await;
    assert_eq!(circuit(&host), CircuitView::Closed);
    call(&host, "act", "").await.unwrap();
}

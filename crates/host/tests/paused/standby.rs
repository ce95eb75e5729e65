//! Standby links: replacement of a working link.

use crate::memory_server::*;
use gripfast::{SpareState, State};
use gripfast_core::supervise::upstream::LinkKind;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn f01_reload_shows_new_tools_and_calls_in_flight_finish_on_the_old_link() {
    for kind in [LinkKind::Process, LinkKind::Remote] {
        let (host, server) = host_with(kind).await;
        server.queue_actions([CallAction::AnswerAfter(Duration::from_secs(60))]);
        let running = tokio::spawn({
            let host = host.clone();
            async move { call(&host, "act", "running").await }
        });
        run_ready_tasks().await;
        let mut events = host.subscribe_events();
        server.set_tool_names(&["other"]);
        host.reload("it").unwrap();
        wait_for_event(&mut events, "replaced").await;
        assert_eq!(tool_names(&host).await, ["other"]);
        call(&host, "other", "").await.unwrap();
        assert!(!running.is_finished());
        running.await.unwrap().unwrap();
        assert_eq!((server.connects(), server.executed("running")), (2, 1));
        assert_eq!(host.server_status("it").unwrap().calls.errors, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn f01_a_failed_reload_leaves_the_server_unchanged() {
    let (host, server) = host_with(LinkKind::Process).await;
    let mut events = host.subscribe_events();
    server.fail_connects_with(refused());
    host.reload("it").unwrap();
    wait_for_event(&mut events, "replacement_failed").await;
    assert_eq!(host.server_status("it").unwrap().supervision.state, State::Ready);
    call(&host, "act", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn f01_stopping_in_the_middle_of_a_reload_leaves_nothing() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.hang_in_handshake();
    host.reload("it").unwrap();
    run_ready_tasks().await;
    host.stop("it").unwrap();
    wait_for_state(&host, State::Stopped).await;
    host.shutdown().await;
    assert_eq!(server.connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_leaking_server_is_replaced_in_time_without_failed_calls() {
    let mut old_soon = spec();
    old_soon.supervision.recycle.max_lifetime = Some(Duration::from_secs(3600));
    let (host, server) = host_with_spec(LinkKind::Process, old_soon).await;
    for _ in 0..150 {
        call(&host, "act", "").await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert!((3..=4).contains(&server.connects()), "{} dials in two and a half hours", server.connects());
    assert_eq!(host.server_status("it").unwrap().supervision.restarts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_over_its_memory_limit_is_replaced() {
    let mut lean = spec();
    lean.supervision.recycle.max_rss = Some(1000);
    let (host, server) = host_with_spec(LinkKind::Process, lean).await;
    server.set_resident_memory(999);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.connects(), 1);
    let mut events = host.subscribe_events();
    server.set_resident_memory(2000);
    wait_for_event(&mut events, "replaced").await;
    assert_eq!(server.connects(), 2);
    call(&host, "act", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_spare_is_started_beside_the_first_and_gets_no_calls() {
    let mut careful = spec();
    careful.supervision.spare = true;
    let (host, server) = host_with_spec(LinkKind::Process, careful).await;
    run_ready_tasks().await;
    let status = host.server_status("it").unwrap().supervision;
    assert_eq!((server.connects(), status.spare, status.restarts), (2, Some(SpareState::Ready), 0));
    call(&host, "act", "").await.unwrap();
    host.shutdown().await;
}

async fn wait_for_event(events: &mut tokio::sync::broadcast::Receiver<gripfast::UpstreamEvent>, word: &str) {
    while events.recv().await.unwrap().event.kind() != word {}
}

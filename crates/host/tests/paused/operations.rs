//! Operations of the host: start, stop, reconnect, reload, discover, status.

use crate::memory_server::*;
use gripfast::{Code, Event, Host, SpawnError, State};
use gripfast_core::supervise::upstream::LinkKind;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn f01_stop_start_reconnect_and_reload_work() {
    let (host, server) = host_with(LinkKind::Process).await;
    host.stop("it").unwrap();
    assert_eq!(call(&host, "act", "").await.unwrap_err().code.as_str(), "stopped");
    host.start("it").unwrap();
    call(&host, "act", "").await.unwrap();
    assert_eq!(server.connects(), 2);
    host.reconnect("it").unwrap();
    run_ready_tasks().await;
    assert_eq!(server.connects(), 3);
    server.fail_connects_with(refused());
    server.break_link().await;
    wait_for_state(&host, State::Parked).await;
    server.come_up();
    host.reload("it").unwrap();
    wait_for_state(&host, State::Ready).await;
    assert_eq!(host.server_status("it").unwrap().supervision.restarts_in_window, 0, "bad memories are gone");
}

#[tokio::test(start_paused = true)]
async fn f01_discover_asks_all_in_parallel_and_a_failing_one_is_a_row() {
    let (host, _server) = host_with(LinkKind::Process).await;
    let (slow, slower) = (MemoryServer::new(LinkKind::Remote), MemoryServer::new(LinkKind::Remote));
    slow.hang_in_handshake();
    slower.hang_in_handshake();
    add(&host, "slow", spec(), &slow);
    add(&host, "slower", spec(), &slower);
    host.spawn_broken("broken", "unknown key `comand`").unwrap();
    let before = Instant::now();
    let rows = host.discover(Duration::from_secs(2)).await;
    assert_eq!(before.elapsed(), Duration::from_secs(2), "in parallel");
    let shape: Vec<_> = rows.iter().map(|row| (row.server.as_str(), row.catalog.is_ok())).collect();
    assert_eq!(shape, [("it", true), ("slow", false), ("slower", false), ("broken", false)]);
}

#[tokio::test(start_paused = true)]
async fn f01_names_are_unique_and_unknown_names_are_errors() {
    let (host, server) = host_with(LinkKind::Process).await;
    assert_eq!(host.spawn("it", spec()), Err(SpawnError::NameTaken("it".to_owned())));
    assert_eq!(host.stop("missing").unwrap_err().code.as_str(), "unknown_server");
    host.remove_server("it").await.unwrap();
    assert_eq!(host.server_names(), Vec::<String>::new());
    add(&host, "it", spec(), &server);
    wait_for_state(&host, State::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn f02_a_lazy_server_starts_on_first_use_and_stops_when_unused() {
    let mut lazy = spec();
    lazy.supervision.lazy = true;
    let (host, server) = host_with_spec(LinkKind::Process, lazy).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!((server.connects(), host.server_status("it").unwrap().supervision.state), (0, State::Idle));
    call(&host, "act", "").await.unwrap();
    assert_eq!(server.connects(), 1);
    tokio::time::sleep(Duration::from_secs(599)).await;
    assert_eq!(host.server_status("it").unwrap().supervision.state, State::Ready);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(host.server_status("it").unwrap().supervision.state, State::Idle);
    assert_eq!(tool_names(&host).await.len(), 2, "listed without being started");
    assert_eq!(server.connects(), 1);
    call(&host, "act", "").await.unwrap();
    assert_eq!(server.connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn f02_a_lazy_server_does_not_stop_under_a_long_call() {
    let mut lazy = spec();
    lazy.supervision.lazy = true;
    lazy.supervision.idle_timeout = Duration::from_secs(5);
    let (host, server) = host_with_spec(LinkKind::Process, lazy).await;
    server.queue_actions([CallAction::AnswerAfter(Duration::from_secs(60))]);
    call(&host, "act", "long").await.unwrap();
    assert_eq!((server.connects(), server.executed("long")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn f03_status_counts_calls_errors_and_tool_errors_apart() {
    let (host, server) = host_with(LinkKind::Remote).await;
    call(&host, "act", "").await.unwrap();
    server.queue_actions([CallAction::ToolError, CallAction::ExecuteThenBreak]);
    call(&host, "act", "").await.unwrap();
    call(&host, "act", "").await.unwrap_err();
    let status = host.server_status("it").unwrap();
    assert_eq!((status.calls.calls, status.calls.errors, status.calls.tool_errors), (3, 1, 1));
    assert_eq!((status.era, status.protocol_version.as_deref()), (Some("legacy"), Some("2025-11-25")));
    assert_eq!((status.tools, status.server_info.as_deref()), (2, Some("memory 1")));
    assert!(!status.events.is_empty() && status.calls.p50.is_some());
}

#[tokio::test(start_paused = true)]
async fn f03_calls_to_a_stopped_server_are_refused_and_not_errors_of_the_server() {
    let (host, _server) = host_with(LinkKind::Remote).await;
    call(&host, "act", "").await.unwrap();
    host.stop("it").unwrap();
    for _ in 0..3 {
        assert_eq!(call(&host, "act", "").await.unwrap_err().code, Code::Stopped);
    }
    let calls = host.server_status("it").unwrap().calls;
    assert_eq!((calls.calls, calls.errors, calls.refused), (1, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn f03_a_server_is_not_ready_before_its_tools_are_listed() {
    let host = Host::builder().build();
    let server = MemoryServer::new(LinkKind::Remote);
    let mut events = host.subscribe_events();
    add(&host, "it", spec(), &server);
    let mut told = Vec::new();
    loop {
        match events.recv().await.unwrap().event {
            Event::StateChanged { to: State::Ready, .. } => break,
            event => told.push(event.kind()),
        }
    }
    assert_eq!(told, ["state_changed", "catalog_changed"], "starting, listed, then ready");
}

#[tokio::test(start_paused = true)]
async fn f04_an_outage_has_one_event_for_all_connect_attempts() {
    let (host, server) = host_with(LinkKind::Remote).await;
    let mut events = host.subscribe_events();
    server.go_down().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut changes = 0;
    while let Ok(told) = events.try_recv() {
        changes += usize::from(matches!(told.event, Event::StateChanged { .. }));
    }
    assert!(server.connects() > 10);
    assert_eq!(changes, 1);
}

#[tokio::test(start_paused = true)]
async fn f01_calls_continue_for_ten_seconds_after_stop_on_every_link() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.set_default_action(CallAction::Hang);
    let begin = |key: &'static str| {
        let host = host.clone();
        tokio::spawn(async move { call(&host, "act", key).await })
    };
    let on_the_old_link = begin("old");
    run_ready_tasks().await;
    host.reconnect("it").unwrap();
    wait_for_state(&host, State::Ready).await;
    let on_the_present_one = begin("new");
    run_ready_tasks().await;
    assert_eq!((server.connects(), server.in_flight()), (2, 2));
    let started = Instant::now();
    host.stop("it").unwrap();
    for calling in [on_the_old_link, on_the_present_one] {
        let error = calling.await.unwrap().unwrap_err();
        assert_eq!((error.code.as_str(), error.outcome.as_str()), ("outcome_unknown", "unknown"), "{error}");
        assert_eq!(started.elapsed().as_secs(), 10);
    }
    assert_eq!((server.in_flight(), server.cancelled()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_calls_in_flight_finish() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.queue_actions([CallAction::AnswerAfter(Duration::from_secs(5))]);
    let running = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "act", "running").await }
    });
    run_ready_tasks().await;
    host.shutdown().await;
    running.await.unwrap().unwrap();
}

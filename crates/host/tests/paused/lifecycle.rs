//! Lifecycle of a server: reconnects, parking, listing and catalog.

use crate::intercepting_link::{CallOutcome, InterceptedDialer, RequestInterceptor};
use crate::memory_server::*;
use gripfast::config::ServerSpec;
use gripfast::store::{MemoryStore, Store};
use gripfast::transport::{Dialer, Outgoing, Route};
use gripfast::{Event, Host, SpawnOptions, State};
use gripfast_core::failure::Observed;
use gripfast_core::supervise::spec::WhenDown;
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn b05_an_endless_listing_ends_with_the_call_timeout() {
    let mut spec = spec();
    spec.supervision.timeouts.connect = Duration::from_secs(60);
    spec.supervision.timeouts.call = Duration::from_secs(10);
    let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Remote));
    server.set_list_delay(Some(Duration::from_secs(50)));
    let started = Instant::now();
    add(&host, "it", spec, &server);
    let given_up =
        tokio::time::timeout(Duration::from_secs(100), wait_for_state(&host, State::Degraded)).await;
    assert_eq!((given_up, started.elapsed().as_secs()), (Ok(()), 10));
    server.set_list_delay(Some(Duration::ZERO));
    wait_for_state(&host, State::Ready).await;
}

/// A transport of the embedding program that panics once.
#[derive(Default)]
struct PanicsOnce(AtomicBool);

impl RequestInterceptor for PanicsOnce {
    fn intercept(&self, request: &Outgoing<'_>) -> Option<CallOutcome> {
        let panics = request.method == "tools/list" && !self.0.swap(true, Ordering::Relaxed);
        panics.then(|| -> CallOutcome {
            Box::pin(async { panic!("a list that cannot be read, as the test wants it") })
        })
    }
}

#[tokio::test(start_paused = true)]
async fn b05_a_listing_that_panics_is_a_listing_that_failed() {
    let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Remote));
    let dialer: Arc<dyn Dialer> = Arc::new(InterceptedDialer(server, Arc::new(PanicsOnce::default())));
    host.spawn_with("it", spec(), SpawnOptions { dialer: Some(dialer), ..SpawnOptions::default() }).unwrap();
    for state in [State::Degraded, State::Ready] {
        let reached = tokio::time::timeout(Duration::from_secs(100), wait_for_state(&host, state)).await;
        assert_eq!(reached, Ok(()), "{state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn d05_a_paused_server_has_the_whole_keepalive_timeout() {
    let mut spec = spec();
    spec.supervision.timeouts.connect = Duration::from_secs(1);
    spec.supervision.keepalive.timeout = Duration::from_secs(30);
    let (host, server) = host_with_spec(LinkKind::Remote, spec).await;
    server.answer_probes_within(Duration::from_secs(10));
    while server.received("ping") < 3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((server.connects(), host.server_status("it").unwrap().supervision.state), (1, State::Ready));
}

#[tokio::test(start_paused = true)]
async fn b01_days_of_failures_do_not_lose_a_server_and_only_stop_ends_it() {
    let (host, server) = host_with(LinkKind::Process).await;
    for _ in 0..3 {
        server.go_down().await;
        tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
        let status = host.server_status("it").unwrap().supervision;
        assert_eq!(status.state, State::Parked);
        assert!(status.next_attempt.is_some(), "a parked server shows when it tries again");
        server.come_up();
        wait_for_state(&host, State::Ready).await;
    }
    host.stop("it").unwrap();
    let dials = server.connects();
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!(
        (server.connects(), host.server_status("it").unwrap().supervision.state),
        (dials, State::Stopped)
    );
    host.start("it").unwrap();
    wait_for_state(&host, State::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn b02_a_lost_link_reconnects_immediately_without_a_call() {
    for kind in [LinkKind::Process, LinkKind::Remote] {
        let (host, server) = host_with(kind).await;
        let before = Instant::now();
        server.break_link().await;
        wait_for_reconnect(&host, &server, 2).await;
        assert_eq!(Instant::now(), before, "not a millisecond passed");
    }
}

#[tokio::test(start_paused = true)]
async fn b08_a_server_that_returns_unchanged_causes_no_new_catalog() {
    let (host, server) = host_with(LinkKind::Process).await;
    let (menu, changes) = (host.catalog_snapshot(), host.catalog_changes());
    server.break_link().await;
    wait_for_reconnect(&host, &server, 2).await;
    assert!(!changes.has_changed().unwrap());
    assert!(Arc::ptr_eq(&menu, &host.catalog_snapshot()));
    server.set_tool_names(&["act", "look", "new"]);
    server.break_link().await;
    wait_for_reconnect(&host, &server, 3).await;
    assert!(changes.has_changed().unwrap());
    assert_eq!(host.catalog_snapshot().tools.len(), 3);
}

async fn wait_for_reconnect(host: &Host, server: &MemoryServer, dials: usize) {
    let mut events = host.subscribe_events();
    while server.connects() < dials || host.server_status("it").unwrap().supervision.state != State::Ready {
        let _ = events.recv().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b02_b07_a_server_that_is_down_at_start_is_retried_on_the_same_schedule() {
    let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Remote));
    server.fail_connects_with(refused());
    add(&host, "it", spec(), &server);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let times = server.connect_times();
    let begin = times[0];
    let pauses: Vec<_> = times.windows(2).map(|pair| (pair[0] - begin, pair[1] - pair[0])).collect();
    for (at, pause) in &pauses {
        let longest =
            if *at < Duration::from_secs(2) { Duration::from_millis(202) } else { Duration::from_secs(36) };
        assert!(*pause <= longest, "{pause:?} at {at:?}");
    }
    assert!(pauses.last().unwrap().1 > Duration::from_secs(5));
    server.come_up();
    assert_eq!(host.catalog("it", Duration::from_secs(40)).await.unwrap().tools.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn b03_a_crash_looping_server_is_parked_and_wakes_on_a_call() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.fail_connects_with(Observed::SpawnFailed("exec format error".to_owned()));
    server.break_link().await;
    wait_for_state(&host, State::Parked).await;
    let dials = server.connects();
    assert!(dials <= 7, "the first start, and five restarts: {dials}");
    tokio::time::sleep(Duration::from_secs(600)).await;
    let probes = server.connects() - dials;
    assert!((8..=13).contains(&probes), "about one a minute: {probes}");

    let started = Instant::now();
    let first = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "act", "first").await }
    });
    run_ready_tasks().await;
    let error = call(&host, "act", "second").await.unwrap_err();
    assert_eq!(error.code.as_str(), "unreachable", "a parked server answers at once");
    assert_eq!(first.await.unwrap().unwrap_err().code.as_str(), "unreachable");
    assert!(started.elapsed() < Duration::from_secs(1), "its attempt has ended: {:?}", started.elapsed());
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.come_up();
    assert!(call(&host, "act", "third").await.is_ok(), "the call that wakes it is held until it is up");
}

#[tokio::test(start_paused = true)]
async fn b04_a_server_that_keeps_dying_is_parked_unless_calls_succeed() {
    let (host, server) = host_with(LinkKind::Process).await;
    for _ in 0..20 {
        server.break_link().await;
        wait_for_state(&host, State::Ready).await;
        call(&host, "act", "").await.unwrap();
    }
    for _ in 0..20 {
        if host.server_status("it").unwrap().supervision.state == State::Parked {
            return;
        }
        server.break_link().await;
        run_ready_tasks().await;
    }
    panic!("six deaths without a good call did not park it");
}

#[tokio::test(start_paused = true)]
async fn b05_after_a_reconnect_the_tools_are_relisted_with_an_event() {
    let (host, server) = host_with(LinkKind::Process).await;
    assert_eq!(tool_names(&host).await, ["act", "read"]);
    server.set_tool_names(&["act", "new"]);
    let mut events = host.subscribe_events();
    server.break_link().await;
    let told = loop {
        if let Event::CatalogChanged { added, removed, changed } = events.recv().await.unwrap().event {
            break (added, removed, changed);
        }
    };
    assert_eq!(told, (1, 1, 0));
    assert_eq!(tool_names(&host).await, ["act", "new"]);
}

#[tokio::test(start_paused = true)]
async fn b05_a_list_changed_notification_triggers_a_listing() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.set_tool_names(&["only"]);
    server
        .send_message(serde_json::json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }))
        .await;
    let mut events = host.subscribe_events();
    while tool_names(&host).await != ["only"] {
        let _ = events.recv().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b06_the_tools_of_an_unreachable_server_stay_listed_unchanged() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let server = MemoryServer::new(LinkKind::Remote);
    let host = host_on(&store);
    add(&host, "it", spec(), &server);
    wait_for_state(&host, State::Ready).await;
    let bytes = |catalog: &gripfast::Catalog| -> Vec<String> {
        catalog.tools.iter().map(|tool| tool.raw.get().to_owned()).collect()
    };
    let before = bytes(&host.catalog("it", Duration::ZERO).await.unwrap());
    server.go_down().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(host.server_status("it").unwrap().supervision.state, State::Parked);
    assert_eq!(bytes(&host.catalog("it", Duration::ZERO).await.unwrap()), before);
    host.shutdown().await;

    let host = host_on(&store);
    add(&host, "it", spec(), &server);
    assert_eq!(bytes(&host.catalog("it", Duration::ZERO).await.unwrap()), before, "without the server");
}

#[tokio::test(start_paused = true)]
async fn b06_with_withdraw_a_parked_server_lists_nothing_until_it_is_back() {
    let mut withdrawing = spec();
    withdrawing.supervision.when_down = WhenDown::Withdraw;
    let (host, server) = host_with_spec(LinkKind::Remote, withdrawing).await;
    server.go_down().await;
    run_ready_tasks().await;
    assert_eq!(tool_names(&host).await.len(), 2, "away for a moment is no reason");
    wait_for_state(&host, State::Parked).await;
    assert_eq!(tool_names(&host).await.len(), 0);
    server.come_up();
    wait_for_state(&host, State::Ready).await;
    assert_eq!(tool_names(&host).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn b08_a_server_that_hangs_neither_delays_nor_unlists_another() {
    let (host, _server) = host_with(LinkKind::Remote).await;
    let stuck = MemoryServer::new(LinkKind::Remote);
    stuck.hang_in_handshake();
    add(&host, "stuck", spec(), &stuck);
    run_ready_tasks().await;
    let before = Instant::now();
    let stuck_call = tokio::spawn({
        let host = host.clone();
        async move { host.call("stuck", "act", None).await }
    });
    call(&host, "act", "").await.unwrap();
    assert_eq!(tool_names(&host).await.len(), 2);
    assert_eq!(Instant::now(), before, "no time passed for the healthy one");
    let error = stuck_call.await.unwrap().unwrap_err();
    assert_eq!(error.code.as_str(), "reconnecting");
}

#[tokio::test(start_paused = true)]
async fn b09_permanent_errors_are_reported_immediately_without_retry_storm() {
    let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Process));
    server.fail_connects_with(Observed::NoExecutable("command `npx` was not found".to_owned()));
    add(&host, "it", spec(), &server);
    wait_for_state(&host, State::ConfigError).await;
    let error = call(&host, "act", "").await.unwrap_err();
    assert!(error.text.contains("npx") && error.hint.is_some(), "{error:?}");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(server.connects() <= 14, "{} tries in ten minutes", server.connects());
    server.come_up();
    host.reconnect("it").unwrap();
    wait_for_state(&host, State::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn b07_a_listing_waits_for_a_slow_server_up_to_the_configured_time() {
    let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Remote));
    server.hang_in_handshake();
    let unhurried: ServerSpec = spec();
    add(&host, "it", unhurried, &server);
    let before = Instant::now();
    let error = host.catalog("it", Duration::from_secs(2)).await.unwrap_err();
    assert_eq!((before.elapsed(), error.code.as_str()), (Duration::from_secs(2), "reconnecting"));
}

/// B05: lists are independent of each other.
#[tokio::test(start_paused = true)]
async fn b05_a_failed_list_hides_no_tools_and_is_reported_and_retried() {
    for method in ["resources/list", "resources/templates/list"] {
        for fault in [ListFault::Hangs, ListFault::Fails, ListFault::RepeatsPage, ListFault::TooLarge] {
            let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Remote));
            server.break_list(method, Some(fault));
            add(&host, "it", spec(), &server);
            let started = Instant::now();
            assert_eq!(tool_names(&host).await, ["act", "read"], "{method} {fault:?}");
            assert!(started.elapsed() <= Duration::from_secs(1), "{method} {fault:?}");
            call(&host, "act", "x").await.unwrap();
            wait_for_state(&host, State::Degraded).await;
            let cause = host.server_status("it").unwrap().supervision.cause.unwrap();
            assert!(cause.contains(&format!("`{method}`")), "{cause}");
            call(&host, "act", "x").await.unwrap();
            server.break_list(method, None);
            wait_for_state(&host, State::Ready).await;
            assert_eq!(server.connects(), 1, "the link was never to blame: {method} {fault:?}");
            assert_eq!(host.server_status("it").unwrap().supervision.cause, None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b05_tools_are_listed_although_another_list_crashes_the_server() {
    let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Process));
    server.break_list("resources/list", Some(ListFault::Kills));
    add(&host, "it", spec(), &server);
    assert_eq!(tool_names(&host).await, ["act", "read"]);
}

#[tokio::test(start_paused = true)]
async fn b05_a_list_that_fails_later_keeps_its_last_content() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.set_tool_names(&["new"]);
    server.break_list("resources/list", Some(ListFault::Fails));
    server.send_message(json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })).await;
    wait_for_state(&host, State::Degraded).await;
    assert_eq!(tool_names(&host).await, ["new"]);
}

#[tokio::test(start_paused = true)]
async fn d08_a_legacy_server_that_ignores_the_era_probe_is_initialized() {
    for route in [Route::Http, Route::Stdio, Route::Custom] {
        let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Remote).with_route(route));
        server.ignore_discover();
        let started = Instant::now();
        add(&host, "it", spec(), &server);
        wait_for_state(&host, State::Ready).await;
        assert_eq!(started.elapsed(), Duration::from_secs(5), "{route:?}");
        server.break_link().await;
        call(&host, "act", "x").await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(6), "{route:?}: it is asked `initialize` first");
        assert_eq!(server.received("server/discover"), 1);
    }
}

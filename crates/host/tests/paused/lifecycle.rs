//! Never lose a server.

use crate::meddled::{Fate, Meddled, Meddler};
use crate::world::*;
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
async fn b05_a_listing_that_does_not_end_is_given_up_after_the_time_of_a_call() {
    let mut spec = spec();
    spec.supervision.timeouts.connect = Duration::from_secs(60);
    spec.supervision.timeouts.call = Duration::from_secs(10);
    let (host, server) = (Host::builder().build(), Server::new(LinkKind::Remote));
    server.list_within(Some(Duration::from_secs(50)));
    let begun = Instant::now();
    add(&host, "it", spec, &server);
    let given_up = tokio::time::timeout(Duration::from_secs(100), until(&host, State::Degraded)).await;
    assert_eq!((given_up, begun.elapsed().as_secs()), (Ok(()), 10));
    server.list_within(Some(Duration::ZERO));
    until(&host, State::Ready).await;
}

/// A transport of the embedding program that has a bug, once.
#[derive(Default)]
struct PanicsOnce(AtomicBool);

impl Meddler for PanicsOnce {
    fn meddle(&self, request: &Outgoing) -> Option<Fate> {
        let panics = request.method == "tools/list" && !self.0.swap(true, Ordering::Relaxed);
        panics.then(|| -> Fate {
            Box::pin(async { panic!("a list that cannot be read, as the test wants it") })
        })
    }
}

#[tokio::test(start_paused = true)]
async fn b05_a_listing_that_panics_is_a_listing_that_failed() {
    let (host, server) = (Host::builder().build(), Server::new(LinkKind::Remote));
    let dialer: Arc<dyn Dialer> = Arc::new(Meddled(server, Arc::new(PanicsOnce::default())));
    host.spawn_with("it", spec(), SpawnOptions { dialer: Some(dialer), ..SpawnOptions::default() }).unwrap();
    for state in [State::Degraded, State::Ready] {
        let reached = tokio::time::timeout(Duration::from_secs(100), until(&host, state)).await;
        assert_eq!(reached, Ok(()), "{state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn d05_a_server_that_pauses_has_the_whole_keepalive_timeout_however_short_a_dial_may_be() {
    let mut spec = spec();
    spec.supervision.timeouts.connect = Duration::from_secs(1);
    spec.supervision.keepalive.timeout = Duration::from_secs(30);
    let (host, server) = host_with_spec(LinkKind::Remote, spec).await;
    server.answer_probes_within(Duration::from_secs(10));
    while server.received("ping") < 3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((server.dials(), host.status_of("it").unwrap().supervision.state), (1, State::Ready));
}

#[tokio::test(start_paused = true)]
async fn b01_days_of_trouble_do_not_lose_it_and_only_stop_holds_it() {
    let (host, server) = host_with(LinkKind::Process).await;
    for _ in 0..3 {
        server.go_away().await;
        tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
        let status = host.status_of("it").unwrap().supervision;
        assert_eq!(status.state, State::Parked);
        assert!(status.next_attempt.is_some(), "a parked server shows when it tries again");
        server.come_back();
        until(&host, State::Ready).await;
    }
    host.stop("it").unwrap();
    let dials = server.dials();
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!((server.dials(), host.status_of("it").unwrap().supervision.state), (dials, State::Stopped));
    host.start_again("it").unwrap();
    until(&host, State::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn b02_a_lost_link_is_made_again_at_once_without_anybody_calling() {
    for kind in [LinkKind::Process, LinkKind::Remote] {
        let (host, server) = host_with(kind).await;
        let before = Instant::now();
        server.break_link().await;
        until_dialed_again(&host, &server, 2).await;
        assert_eq!(Instant::now(), before, "not a millisecond passed");
    }
}

#[tokio::test(start_paused = true)]
async fn b08_a_server_that_comes_back_as_it_was_has_nobody_make_a_new_menu() {
    let (host, server) = host_with(LinkKind::Process).await;
    let (menu, changes) = (host.menu(), host.menu_changes());
    server.break_link().await;
    until_dialed_again(&host, &server, 2).await;
    assert!(!changes.has_changed().unwrap());
    assert!(Arc::ptr_eq(&menu, &host.menu()));
    server.offer(&["act", "look", "new"]);
    server.break_link().await;
    until_dialed_again(&host, &server, 3).await;
    assert!(changes.has_changed().unwrap());
    assert_eq!(host.menu().tools.len(), 3);
}

async fn until_dialed_again(host: &Host, server: &Server, dials: usize) {
    let mut events = host.events();
    while server.dials() < dials || host.status_of("it").unwrap().supervision.state != State::Ready {
        let _ = events.recv().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b02_b07_a_server_that_is_down_at_the_start_is_dialed_on_the_same_schedule_and_its_tools_appear() {
    let (host, server) = (Host::builder().build(), Server::new(LinkKind::Remote));
    server.shut(refused());
    add(&host, "it", spec(), &server);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let times = server.dial_times();
    let begin = times[0];
    let pauses: Vec<_> = times.windows(2).map(|pair| (pair[0] - begin, pair[1] - pair[0])).collect();
    for (at, pause) in &pauses {
        let longest =
            if *at < Duration::from_secs(2) { Duration::from_millis(202) } else { Duration::from_secs(36) };
        assert!(*pause <= longest, "{pause:?} at {at:?}");
    }
    assert!(pauses.last().unwrap().1 > Duration::from_secs(5));
    server.come_back();
    assert_eq!(host.catalog("it", Duration::from_secs(40)).await.unwrap().tools.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn b03_a_crash_loop_is_parked_probes_itself_slowly_and_wakes_on_a_call() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.shut(Observed::SpawnFailed("exec format error".to_owned()));
    server.break_link().await;
    until(&host, State::Parked).await;
    let dials = server.dials();
    assert!(dials <= 7, "the first start, and five restarts: {dials}");
    tokio::time::sleep(Duration::from_secs(600)).await;
    let probes = server.dials() - dials;
    assert!((8..=13).contains(&probes), "about one a minute: {probes}");

    let begun = Instant::now();
    let first = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "act", "first").await }
    });
    settle().await;
    let error = call(&host, "act", "second").await.unwrap_err();
    assert_eq!(error.code.word(), "unreachable", "a parked server answers at once");
    assert_eq!(first.await.unwrap().unwrap_err().code.word(), "unreachable");
    assert!(begun.elapsed() < Duration::from_secs(1), "its attempt has ended: {:?}", begun.elapsed());
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.come_back();
    assert!(call(&host, "act", "third").await.is_ok(), "the call that wakes it is held until it is up");
}

#[tokio::test(start_paused = true)]
async fn b04_a_server_that_connects_and_dies_again_and_again_is_parked_and_good_calls_forgive() {
    let (host, server) = host_with(LinkKind::Process).await;
    for _ in 0..20 {
        server.break_link().await;
        until(&host, State::Ready).await;
        call(&host, "act", "").await.unwrap();
    }
    for _ in 0..20 {
        if host.status_of("it").unwrap().supervision.state == State::Parked {
            return;
        }
        server.break_link().await;
        settle().await;
    }
    panic!("six deaths without a good call did not park it");
}

#[tokio::test(start_paused = true)]
async fn b05_after_a_revival_the_tools_are_listed_again_and_the_change_is_told() {
    let (host, server) = host_with(LinkKind::Process).await;
    assert_eq!(tool_names(&host).await, ["act", "read"]);
    server.offer(&["act", "new"]);
    let mut events = host.events();
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
async fn b05_a_changed_list_is_listed_again_when_the_server_says_so() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.offer(&["only"]);
    server.say(serde_json::json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })).await;
    let mut events = host.events();
    while tool_names(&host).await != ["only"] {
        let _ = events.recv().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b06_the_tools_of_a_server_that_is_away_stay_listed_byte_for_byte_also_across_a_restart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let server = Server::new(LinkKind::Remote);
    let host = host_on(&store);
    add(&host, "it", spec(), &server);
    until(&host, State::Ready).await;
    let bytes = |catalog: &gripfast::Catalog| -> Vec<String> {
        catalog.tools.iter().map(|tool| tool.raw.get().to_owned()).collect()
    };
    let before = bytes(&host.catalog("it", Duration::ZERO).await.unwrap());
    server.go_away().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(host.status_of("it").unwrap().supervision.state, State::Parked);
    assert_eq!(bytes(&host.catalog("it", Duration::ZERO).await.unwrap()), before);
    host.shutdown().await;

    let host = host_on(&store);
    add(&host, "it", spec(), &server);
    assert_eq!(bytes(&host.catalog("it", Duration::ZERO).await.unwrap()), before, "without the server");
}

#[tokio::test(start_paused = true)]
async fn b06_with_withdraw_a_parked_server_offers_nothing_and_revival_puts_it_back() {
    let mut withdrawing = spec();
    withdrawing.supervision.when_down = WhenDown::Withdraw;
    let (host, server) = host_with_spec(LinkKind::Remote, withdrawing).await;
    server.go_away().await;
    settle().await;
    assert_eq!(tool_names(&host).await.len(), 2, "away for a moment is no reason");
    until(&host, State::Parked).await;
    assert_eq!(tool_names(&host).await.len(), 0);
    server.come_back();
    until(&host, State::Ready).await;
    assert_eq!(tool_names(&host).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn b08_a_server_that_hangs_neither_delays_nor_unlists_another() {
    let (host, _server) = host_with(LinkKind::Remote).await;
    let stuck = Server::new(LinkKind::Remote);
    stuck.hang_in_handshake();
    add(&host, "stuck", spec(), &stuck);
    settle().await;
    let before = Instant::now();
    let stuck_call = tokio::spawn({
        let host = host.clone();
        async move { host.call("stuck", "act", None).await }
    });
    call(&host, "act", "").await.unwrap();
    assert_eq!(tool_names(&host).await.len(), 2);
    assert_eq!(Instant::now(), before, "no time passed for the healthy one");
    let error = stuck_call.await.unwrap().unwrap_err();
    assert_eq!(error.code.word(), "reconnecting");
}

#[tokio::test(start_paused = true)]
async fn b09_what_retrying_cannot_mend_is_said_at_once_and_not_stormed() {
    let (host, server) = (Host::builder().build(), Server::new(LinkKind::Process));
    server.shut(Observed::NoExecutable("command `npx` was not found".to_owned()));
    add(&host, "it", spec(), &server);
    until(&host, State::ConfigError).await;
    let error = call(&host, "act", "").await.unwrap_err();
    assert!(error.text.contains("npx") && error.hint.is_some(), "{error:?}");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(server.dials() <= 14, "{} tries in ten minutes", server.dials());
    server.come_back();
    host.reconnect("it").unwrap();
    until(&host, State::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn b07_listing_waits_for_a_slow_server_only_as_long_as_it_is_told_to() {
    let (host, server) = (Host::builder().build(), Server::new(LinkKind::Remote));
    server.hang_in_handshake();
    let unhurried: ServerSpec = spec();
    add(&host, "it", unhurried, &server);
    let before = Instant::now();
    let error = host.catalog("it", Duration::from_secs(2)).await.unwrap_err();
    assert_eq!((before.elapsed(), error.code.word()), (Duration::from_secs(2), "reconnecting"));
}

/// B05: each list stands for itself.
#[tokio::test(start_paused = true)]
async fn b05_a_list_that_fails_hides_no_tools_and_is_named_and_tried_again() {
    for method in ["resources/list", "resources/templates/list"] {
        for fault in [ListFault::Hangs, ListFault::Fails, ListFault::Circles, ListFault::TooLarge] {
            let (host, server) = (Host::builder().build(), Server::new(LinkKind::Remote));
            server.break_list(method, Some(fault));
            add(&host, "it", spec(), &server);
            let begun = Instant::now();
            assert_eq!(tool_names(&host).await, ["act", "read"], "{method} {fault:?}");
            assert!(begun.elapsed() <= Duration::from_secs(1), "{method} {fault:?}");
            call(&host, "act", "x").await.unwrap();
            until(&host, State::Degraded).await;
            let cause = host.status_of("it").unwrap().supervision.cause.unwrap();
            assert!(cause.contains(&format!("`{method}`")), "{cause}");
            call(&host, "act", "x").await.unwrap();
            server.break_list(method, None);
            until(&host, State::Ready).await;
            assert_eq!(server.dials(), 1, "the link was never to blame: {method} {fault:?}");
            assert_eq!(host.status_of("it").unwrap().supervision.cause, None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b05_tools_are_published_although_asking_for_another_list_kills_the_server() {
    let (host, server) = (Host::builder().build(), Server::new(LinkKind::Process));
    server.break_list("resources/list", Some(ListFault::Kills));
    add(&host, "it", spec(), &server);
    assert_eq!(tool_names(&host).await, ["act", "read"]);
}

#[tokio::test(start_paused = true)]
async fn b05_a_list_that_fails_later_stays_as_it_was_known() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.offer(&["new"]);
    server.break_list("resources/list", Some(ListFault::Fails));
    server.say(json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })).await;
    until(&host, State::Degraded).await;
    assert_eq!(tool_names(&host).await, ["new"]);
}

#[tokio::test(start_paused = true)]
async fn d08_a_legacy_server_that_leaves_the_probe_of_its_era_unanswered_is_initialized_and_remembered() {
    for route in [Route::Http, Route::Stdio, Route::Custom] {
        let (host, server) = (Host::builder().build(), Server::new(LinkKind::Remote).on(route));
        server.ignore_discover();
        let begun = Instant::now();
        add(&host, "it", spec(), &server);
        until(&host, State::Ready).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(5), "{route:?}");
        server.break_link().await;
        call(&host, "act", "x").await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(6), "{route:?}: it is asked `initialize` first");
        assert_eq!(server.received("server/discover"), 1);
    }
}

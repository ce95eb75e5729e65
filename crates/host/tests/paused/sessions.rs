//! Sessions and keepalive.

use crate::intercepting_link::{CallOutcome, InterceptedDialer, RequestInterceptor};
use crate::memory_server::*;
use gripfast::transport::{Dialer, Outgoing, RenewOutcome, Route};
use gripfast::{Host, SpawnOptions, State};
use gripfast_core::failure::{Evidence, HttpAnswer, Observed};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A restarted server that refuses the old credential.
#[derive(Default)]
struct RefusesCredential {
    refuses: AtomicBool,
    renewals: AtomicU32,
}

impl RequestInterceptor for RefusesCredential {
    fn intercept(&self, request: &Outgoing<'_>) -> Option<CallOutcome> {
        if request.method != "initialize" || !self.refuses.load(Ordering::Relaxed) {
            return None;
        }
        let answer = HttpAnswer { status: 401, ..HttpAnswer::default() };
        let evidence = Evidence::sent(request.during, Observed::Http(answer));
        Some(Box::pin(std::future::ready(Err(evidence.into()))))
    }

    fn renew(&self) -> RenewOutcome {
        self.refuses.store(false, Ordering::Relaxed);
        self.renewals.fetch_add(1, Ordering::Relaxed);
        RenewOutcome::Replaced
    }
}

/// E03
#[tokio::test(start_paused = true)]
async fn e01_a_session_and_a_credential_that_expire_together_are_both_renewed() {
    let (host, server, keys) = (
        Host::builder().build(),
        MemoryServer::new(LinkKind::Remote),
        Arc::new(RefusesCredential::default()),
    );
    let dialer: Arc<dyn Dialer> = Arc::new(InterceptedDialer(server.clone(), Arc::clone(&keys)));
    host.spawn_with("it", spec(), SpawnOptions { dialer: Some(dialer), ..SpawnOptions::default() }).unwrap();
    wait_for_state(&host, State::Ready).await;
    server.forget_session();
    keys.refuses.store(true, Ordering::Relaxed);
    call(&host, "act", "x").await.unwrap();
    assert_eq!((keys.renewals.load(Ordering::Relaxed), server.connects(), server.executed("x")), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn d01_a_tool_error_that_mentions_sessions_is_not_an_expired_one() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.queue_actions([CallAction::ToolError]);
    assert!(call(&host, "act", "").await.unwrap().is_tool_error());
    assert_eq!(server.received("initialize"), 1);
}

#[tokio::test(start_paused = true)]
async fn d01_a_child_error_about_its_own_sessions_causes_no_restart() {
    let (host, server) =
        (Host::builder().build(), MemoryServer::new(LinkKind::Process).with_route(Route::Stdio));
    add(&host, "it", spec(), &server);
    wait_for_state(&host, State::Ready).await;
    server.queue_actions([CallAction::Reject(-32001, "Session not found: browser-7")]);
    let answer = call(&host, "act", "").await.unwrap();
    assert_eq!(answer.result().unwrap_err(), (-32001, "Session not found: browser-7".to_owned()));
    run_ready_tasks().await;
    assert_eq!((server.connects(), server.received("tools/call")), (1, 1));
}

/// C05
#[tokio::test(start_paused = true)]
async fn d01_a_session_error_of_a_server_without_sessions_is_not_resent() {
    let server = MemoryServer::new(LinkKind::Remote).with_route(Route::Http).without_sessions();
    let host = Host::builder().build();
    add(&host, "it", spec(), &server);
    wait_for_state(&host, State::Ready).await;
    server.queue_actions([CallAction::Reject(-32001, "Session not found: 42")]);
    let answer = call(&host, "act", "").await.unwrap();
    assert_eq!(answer.result().unwrap_err(), (-32001, "Session not found: 42".to_owned()));
    run_ready_tasks().await;
    assert_eq!((server.received("initialize"), server.received("tools/call")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn d02_fifty_calls_on_an_expired_session_share_one_new_session() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.forget_session();
    let calls: Vec<_> = (0..50)
        .map(|n| {
            let host = host.clone();
            tokio::spawn(async move { call(&host, "act", &n.to_string()).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(server.received("initialize"), 2, "the first one, and one for all fifty");
    assert!((0..50).all(|n| server.executed(&n.to_string()) == 1));
    assert_eq!(server.connects(), 1, "the link stayed");
}

#[tokio::test(start_paused = true)]
async fn d02_a_session_refused_again_ends_with_its_error_and_no_loop() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.set_default_action(CallAction::Reject(-32001, "Session not found"));
    let error = call(&host, "act", "").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("unreachable", "refused"));
    assert_eq!(server.received("tools/call"), 2);
}

#[tokio::test(start_paused = true)]
async fn d03_every_method_renews_an_expired_session() {
    let (host, server) = host_with(LinkKind::Remote).await;
    for method in [
        "tools/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "vendor/unknown",
    ] {
        server.forget_session();
        let answer = host.request("it", method, Some(raw(json!({})))).await.unwrap();
        assert!(answer.result().is_ok(), "{method}");
    }
    assert_eq!(server.received("initialize"), 9);
}

#[tokio::test(start_paused = true)]
async fn d05_a_silent_link_is_probed_after_the_interval_also_during_a_call() {
    let (host, server) = host_with(LinkKind::Remote).await;
    tokio::time::sleep(Duration::from_secs(179)).await;
    assert_eq!(server.received("ping"), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(server.received("ping"), 1);
    server.queue_actions([CallAction::AnswerAfter(Duration::from_secs(290))]);
    call(&host, "act", "").await.unwrap();
    assert_eq!(server.received("ping"), 2, "once in 290 s of silence");
}

/// D05: a server that does one thing at a time answers no probe while it works.
#[tokio::test(start_paused = true)]
async fn d05_a_tool_that_blocks_its_server_for_250_s_succeeds_with_a_keepalive_of_5_s() {
    let mut spec = spec();
    spec.supervision.keepalive.interval = Some(Duration::from_secs(5));
    spec.supervision.keepalive.timeout = Duration::from_secs(5);
    let (host, server) = host_with_spec(LinkKind::Process, spec).await;
    server.stop_answering_probes();
    server.queue_actions([CallAction::AnswerAfter(Duration::from_secs(250))]);
    call(&host, "act", "").await.unwrap();
    assert_eq!(server.connects(), 1, "{:?} {:?}", server.connect_times(), Instant::now());
}

#[tokio::test(start_paused = true)]
async fn d05_a_server_without_ping_is_probed_with_tools_list() {
    let (_host, server) = host_with(LinkKind::Remote).await;
    server.without_ping();
    let lists = server.received("tools/list");
    tokio::time::sleep(Duration::from_secs(181 * 3)).await;
    assert_eq!((server.received("ping"), server.received("tools/list") - lists), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn d06_the_first_call_after_twelve_idle_hours_and_an_expiry_works() {
    let (host, server) = host_with(LinkKind::Remote).await;
    for hour in 0..12 {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        match hour {
            3 => server.forget_session(),
            7 => server.break_link().await,
            _ => {}
        }
    }
    call(&host, "act", "").await.unwrap();
    assert_eq!(host.server_status("it").unwrap().calls.errors, 0);
}

#[tokio::test(start_paused = true)]
async fn d06_an_unanswered_probe_replaces_the_link_and_fails_no_call() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.stop_answering_probes();
    tokio::time::sleep(Duration::from_secs(215)).await;
    assert_eq!(server.connects(), 2);
    server.answer_probes();
    call(&host, "act", "").await.unwrap();
    wait_for_state(&host, State::Ready).await;
}

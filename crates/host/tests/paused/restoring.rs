//! D04: session state is restored in a new session before any call.

use crate::memory_server::*;
use gripfast::config::{Argument, RestoreCall, ServerSpec, Template};
use gripfast::wire::log::LogLevel;
use gripfast::{CallOptions, Code, Host, Restored, SpareState, State};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::json;
use std::time::Duration;

fn marked(keys: &[&str]) -> ServerSpec {
    let call = |key: &&str| RestoreCall {
        tool: "act".to_owned(),
        arguments: Argument::Table(vec![(
            "key".to_owned(),
            Argument::Text(Template::parse(key).unwrap().into_secret()),
        )]),
    };
    ServerSpec { restore: keys.iter().map(call).collect(), ..spec() }
}

fn restored(host: &Host) -> Option<Restored> {
    host.server_status("it").unwrap().restored
}

#[tokio::test(start_paused = true)]
async fn d04_marked_calls_are_made_first_in_every_new_session() {
    for kind in [LinkKind::Process, LinkKind::Remote] {
        let (host, server) = host_with_spec(kind, marked(&["login", "select"])).await;
        assert_eq!((server.executed("login"), server.executed("select")), (1, 1));
        call(&host, "act", "first").await.unwrap();
        run_ready_tasks().await;
        assert_eq!(restored(&host), Some(Restored::Everything));
        server.queue_actions([CallAction::AnswerAfter(Duration::from_secs(2))]);
        let began = tokio::time::Instant::now();
        server.break_link().await;
        call(&host, "act", "second").await.unwrap();
        assert!(began.elapsed() >= Duration::from_secs(2), "it waited for the login");
        assert_eq!((server.executed("login"), server.executed("select")), (2, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn d04_a_renewed_session_is_restored_too() {
    let (host, server) = host_with_spec(LinkKind::Remote, marked(&["login"])).await;
    call(&host, "act", "before").await.unwrap();
    server.forget_session();
    call(&host, "act", "after").await.unwrap();
    assert_eq!((server.connects(), server.executed("login"), server.executed("after")), (1, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn d04_a_spare_and_a_replacement_are_restored_before_they_take_over() {
    let mut spared = marked(&["login"]);
    spared.supervision.spare = true;
    let (host, server) = host_with_spec(LinkKind::Process, spared).await;
    wait_for_logins(&server, 2).await;
    let mut events = host.subscribe_events();
    host.reload("it").unwrap();
    while events.recv().await.unwrap().event.kind() != "replaced" {}
    // The new instance, and its own spare.
    wait_for_logins(&server, 4).await;
}

/// B02, F03
#[tokio::test(start_paused = true)]
async fn b02_a_spare_that_dies_during_the_restore_is_no_spare() {
    let mut spared = marked(&["login"]);
    spared.supervision.spare = true;
    let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Process));
    server.queue_actions([CallAction::Answer, CallAction::Hang]);
    add(&host, "it", spared, &server);
    wait_for_logins(&server, 2).await;
    server.lose_link(1).await;
    let told = host.server_status("it").unwrap().supervision.spare;
    assert_eq!(told, Some(SpareState::Starting));
    // It gets half of `timeouts.connect` and is then replaced.
    wait_for_logins(&server, 3).await;
    wait_for_spare(&host, SpareState::Ready).await;
    assert_eq!(server.open_links(), [0, 2]);
}

async fn wait_for_spare(host: &Host, state: SpareState) {
    while host.server_status("it").unwrap().supervision.spare != Some(state) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Marked calls are expanded on another thread, which takes a while that yielding does not wait for.
async fn wait_for_logins(server: &MemoryServer, times: u32) {
    for _ in 0..60_000 {
        if server.executed("login") == times {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((server.connects(), server.executed("login")), (times as usize, times), "one for each link");
}

#[tokio::test(start_paused = true)]
async fn d04_a_failed_marked_call_blocks_no_other_call_and_is_reported() {
    for (act, why) in [
        (CallAction::ToolError, "the tool reported an error"),
        (CallAction::Reject(-32602, "no such user"), "no such user (-32602)"),
        (CallAction::Hang, "no answer in time"),
    ] {
        let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Process));
        server.queue_actions([act]);
        let mut events = host.subscribe_events();
        add(&host, "it", marked(&["login", "select"]), &server);
        wait_for_state(&host, State::Ready).await;
        let told = loop {
            let told = events.recv().await.unwrap().event;
            if told.kind() == "session_restored" {
                break told;
            }
        };
        let missing = format!("call of `act`: {why}");
        assert!(told.to_string().contains(&missing), "{told}");
        assert_eq!(restored(&host), Some(Restored::Partly { missing: vec![missing] }));
        call(&host, "act", "other").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn d04_an_unset_variable_of_a_marked_call_blocks_its_server_with_a_cause() {
    let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Process));
    add(&host, "it", marked(&["${env:GRIPFAST_TEST_UNSET}"]), &server);
    wait_for_state(&host, State::ConfigError).await;
    let refused = call(&host, "act", "").await.unwrap_err();
    assert_eq!(refused.code, Code::Unreachable);
    assert!(refused.to_string().contains("GRIPFAST_TEST_UNSET"), "{refused}");
    assert_eq!(server.connects(), 0);
}

#[tokio::test(start_paused = true)]
async fn d04_a_new_session_has_the_log_level_before_the_first_call() {
    let (host, server) = host_with(LinkKind::Remote).await;
    run_ready_tasks().await;
    assert_eq!(restored(&host), Some(Restored::Nothing));
    let wants = async |level| {
        let options = CallOptions { log_level: Some(level), ..CallOptions::default() };
        let params = raw(json!({ "name": "act", "arguments": { "key": "" } }));
        host.request_with("it", "tools/call", Some(&params), options).await.unwrap();
    };
    wants(LogLevel::Info).await;
    wants(LogLevel::Error).await;
    assert_eq!(server.params_of("logging/setLevel"), [json!({ "level": "info" })]);
    server.break_link().await;
    wait_for_state(&host, State::Ready).await;
    run_ready_tasks().await;
    assert_eq!(server.params_of("logging/setLevel").len(), 2, "without a call");
    wants(LogLevel::Error).await;
    assert_eq!(
        server.params_of("logging/setLevel"),
        [json!({ "level": "info" }), json!({ "level": "info" })]
    );
    assert_eq!(restored(&host), Some(Restored::Everything));
}

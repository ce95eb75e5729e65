//! D04: what a session knew, the next one is told before anybody needs it.

use crate::world::*;
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
    host.status_of("it").unwrap().restored
}

#[tokio::test(start_paused = true)]
async fn d04_marked_calls_are_made_in_every_new_session_before_anybody_elses() {
    for kind in [LinkKind::Process, LinkKind::Remote] {
        let (host, server) = host_with_spec(kind, marked(&["login", "select"])).await;
        assert_eq!((server.executed("login"), server.executed("select")), (1, 1));
        call(&host, "act", "first").await.unwrap();
        settle().await;
        assert_eq!(restored(&host), Some(Restored::Everything));
        server.next_acts([Act::Slowly(Duration::from_secs(2))]);
        let began = tokio::time::Instant::now();
        server.break_link().await;
        call(&host, "act", "second").await.unwrap();
        assert!(began.elapsed() >= Duration::from_secs(2), "it waited for the login");
        assert_eq!((server.executed("login"), server.executed("select")), (2, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn d04_a_renewed_session_is_told_too() {
    let (host, server) = host_with_spec(LinkKind::Remote, marked(&["login"])).await;
    call(&host, "act", "before").await.unwrap();
    server.forget_session();
    call(&host, "act", "after").await.unwrap();
    assert_eq!((server.dials(), server.executed("login"), server.executed("after")), (1, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn d04_a_spare_and_a_replacement_have_heard_it_before_they_take_over() {
    let mut spared = marked(&["login"]);
    spared.supervision.spare = true;
    let (host, server) = host_with_spec(LinkKind::Process, spared).await;
    until_logins(&server, 2).await;
    let mut events = host.events();
    host.reload("it").unwrap();
    while events.recv().await.unwrap().event.word() != "replaced" {}
    // It, and its own spare.
    until_logins(&server, 4).await;
}

/// B02, F03
#[tokio::test(start_paused = true)]
async fn b02_a_spare_that_dies_while_it_is_told_is_no_spare() {
    let mut spared = marked(&["login"]);
    spared.supervision.spare = true;
    let (host, server) = (Host::builder().build(), Server::new(LinkKind::Process));
    server.next_acts([Act::Answer, Act::Hang]);
    add(&host, "it", spared, &server);
    until_logins(&server, 2).await;
    server.lose(1).await;
    let told = host.status_of("it").unwrap().supervision.spare;
    assert_eq!(told, Some(SpareState::Starting));
    // It is given half of `timeouts.connect`, and is then made again.
    until_logins(&server, 3).await;
    until_spare(&host, SpareState::Ready).await;
    assert_eq!(server.open_links(), [0, 2]);
}

async fn until_spare(host: &Host, state: SpareState) {
    while host.status_of("it").unwrap().supervision.spare != Some(state) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Marked calls are filled in on another thread, which takes a while that no yielding waits for.
async fn until_logins(server: &Server, times: u32) {
    for _ in 0..60_000 {
        if server.executed("login") == times {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((server.dials(), server.executed("login")), (times as usize, times), "one for each link");
}

#[tokio::test(start_paused = true)]
async fn d04_a_marked_call_that_fails_keeps_nobody_out_and_is_named() {
    for (act, why) in [
        (Act::ToolError, "the tool says that it failed"),
        (Act::Reject(-32602, "no such user"), "no such user (-32602)"),
        (Act::Hang, "no answer in time"),
    ] {
        let (host, server) = (Host::builder().build(), Server::new(LinkKind::Process));
        server.next_acts([act]);
        let mut events = host.events();
        add(&host, "it", marked(&["login", "select"]), &server);
        until(&host, State::Ready).await;
        let told = loop {
            let told = events.recv().await.unwrap().event;
            if told.word() == "session_restored" {
                break told;
            }
        };
        let missing = format!("the call of `act`: {why}");
        assert!(told.to_string().contains(&missing), "{told}");
        assert_eq!(restored(&host), Some(Restored::Partly { missing: vec![missing] }));
        call(&host, "act", "other").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn d04_a_marked_call_whose_variable_is_not_set_blocks_its_server_and_says_which() {
    let (host, server) = (Host::builder().build(), Server::new(LinkKind::Process));
    add(&host, "it", marked(&["${env:GRIPFAST_TEST_UNSET}"]), &server);
    until(&host, State::ConfigError).await;
    let refused = call(&host, "act", "").await.unwrap_err();
    assert_eq!(refused.code, Code::Unreachable);
    assert!(refused.to_string().contains("GRIPFAST_TEST_UNSET"), "{refused}");
    assert_eq!(server.dials(), 0);
}

#[tokio::test(start_paused = true)]
async fn d04_a_new_session_has_the_log_level_at_once_and_a_server_without_wishes_has_nothing_to_restore() {
    let (host, server) = host_with(LinkKind::Remote).await;
    settle().await;
    assert_eq!(restored(&host), Some(Restored::Nothing));
    let wants = async |level| {
        let options = CallOptions { log_level: Some(level), ..CallOptions::default() };
        let params = raw(json!({ "name": "act", "arguments": { "key": "" } }));
        host.request_with("it", "tools/call", Some(params), options).await.unwrap();
    };
    wants(LogLevel::Info).await;
    wants(LogLevel::Error).await;
    assert_eq!(server.asked("logging/setLevel"), [json!({ "level": "info" })]);
    server.break_link().await;
    until(&host, State::Ready).await;
    settle().await;
    assert_eq!(server.asked("logging/setLevel").len(), 2, "nobody called");
    wants(LogLevel::Error).await;
    assert_eq!(server.asked("logging/setLevel"), [json!({ "level": "info" }), json!({ "level": "info" })]);
    assert_eq!(restored(&host), Some(Restored::Everything));
}

//! Answers that are given again.

use crate::world::*;
use gripfast::config::{Isolation, ServerSpec};
use gripfast::{
    Answer, CallError, CallOptions, Client, ClientKey, Code, Host, Outcome, Principal, State, ToolRule,
};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::{Value, json};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

async fn host(server: &Server) -> Host {
    let host = Host::builder().build();
    let mut spec = spec();
    let rule = ToolRule::For(MINUTE);
    spec.cache.tools = vec![("read".to_owned(), rule), ("act".to_owned(), rule)];
    add(&host, "it", spec, server);
    until(&host, State::Ready).await;
    host
}

async fn asks(host: &Host, name: &str, method: &str, params: Value) -> Result<Answer, CallError> {
    let client = Client::one(ClientKey::new(name)).on_behalf_of(Principal::named(name));
    let options = CallOptions { client: Some(client), ..CallOptions::default() };
    host.request_with("it", method, Some(raw(params)), options).await
}

async fn calls(host: &Host, name: &str, tool: &str, key: &str) -> Result<Answer, CallError> {
    asks(host, name, "tools/call", json!({ "name": tool, "arguments": { "key": key } })).await
}

async fn reads(host: &Host, name: &str) -> Value {
    let answer = asks(host, name, "resources/read", json!({ "uri": "x://a" })).await.unwrap();
    let Outcome::Result(result) = answer.outcome() else { panic!("{answer:?}") };
    serde_json::from_str(result.get()).unwrap()
}

/// C03
#[tokio::test(start_paused = true)]
async fn g04_waiting_for_an_answer_that_is_being_made_for_somebody_else_is_part_of_the_call() {
    let server = Server::new(LinkKind::Process);
    let host = host(&server).await;
    server.always(Act::Hang);
    let leader = tokio::spawn({
        let host = host.clone();
        async move { calls(&host, "ann", "read", "x").await }
    });
    settle().await;
    let begun = tokio::time::Instant::now();
    let error = calls(&host, "ann", "read", "x").await.unwrap_err();
    assert_eq!((error.code, error.outcome.word()), (Code::Timeout, "not_sent"), "{error}");
    assert_eq!(begun.elapsed(), Duration::from_secs(300));
    assert_eq!(leader.await.unwrap().unwrap_err().code, Code::Timeout);
    assert_eq!(server.executed("x"), 1);
}

#[tokio::test(start_paused = true)]
async fn g04_what_the_operator_vouches_for_is_given_again_if_the_tool_changes_nothing() {
    let server = Server::new(LinkKind::Process);
    let host = host(&server).await;
    for (tool, executed) in [("read", 1), ("act", 3)] {
        for _ in 0..3 {
            calls(&host, "ann", tool, tool).await.unwrap();
        }
        assert_eq!(server.executed(tool), executed, "{tool}");
    }
    let respelled =
        json!({ "arguments": { "key": "read" }, "_meta": { "progressToken": 7 }, "name": "read" });
    asks(&host, "ann", "tools/call", respelled).await.unwrap();
    assert_eq!(server.executed("read"), 1, "the order of keys does not matter");
    calls(&host, "ben", "read", "read").await.unwrap();
    assert_eq!(server.executed("read"), 2, "nobody called it public");
    tokio::time::sleep(MINUTE).await;
    calls(&host, "ann", "read", "read").await.unwrap();
    assert_eq!(server.executed("read"), 3);
    let used = host.status_of("it").unwrap().cache;
    assert_eq!((used.hits, used.misses), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn g04_what_a_clients_own_instance_said_is_given_to_that_client_only() {
    let server = Server::new(LinkKind::Process);
    let host = Host::builder().build();
    let mut spec = ServerSpec { isolation: Isolation::PerClient, ..spec() };
    spec.cache.tools = vec![("read".to_owned(), ToolRule::For(MINUTE))];
    add(&host, "it", spec, &server);
    until(&host, State::Ready).await;
    let calls = async |name: &str| {
        let client = Client::one(ClientKey::new(name));
        let options = CallOptions { client: Some(client), ..CallOptions::default() };
        let params = json!({ "name": "read", "arguments": { "key": "read" } });
        host.request_with("it", "tools/call", Some(raw(params)), options).await.unwrap();
        server.executed("read")
    };
    // On this machine they are one principal.
    assert_eq!((calls("one").await, calls("one").await), (1, 1));
    assert_eq!((calls("other").await, calls("other").await, calls("one").await), (2, 2, 2));
}

#[tokio::test(start_paused = true)]
async fn g04_reads_live_as_long_as_the_server_says_and_say_what_is_left_of_it() {
    let server = Server::new(LinkKind::Process).modern();
    server.has_to_read(
        json!({ "contents": [], "resultType": "complete", "ttlMs": 60_000, "cacheScope": "public" }),
    );
    let host = host(&server).await;
    assert_eq!(reads(&host, "ann").await["ttlMs"], 60_000);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(reads(&host, "ben").await["ttlMs"], 40_000);
    assert_eq!(server.received("resources/read"), 1, "public is for everybody");
    tokio::time::sleep(Duration::from_secs(40)).await;
    reads(&host, "ben").await;
    assert_eq!(server.received("resources/read"), 2);
    server.has_to_read(
        json!({ "contents": [], "resultType": "complete", "ttlMs": 60_000, "cacheScope": "private" }),
    );
    tokio::time::sleep(MINUTE).await;
    for name in ["ann", "ann", "ben"] {
        reads(&host, name).await;
    }
    assert_eq!(server.received("resources/read"), 4, "private is for whom it was made");
}

#[tokio::test(start_paused = true)]
async fn g04_what_changed_is_dropped() {
    let server = Server::new(LinkKind::Process).modern();
    server.has_to_read(
        json!({ "contents": [], "resultType": "complete", "ttlMs": 600_000, "cacheScope": "public" }),
    );
    let host = host(&server).await;
    reads(&host, "ann").await;
    let again = async |what: &str, times: usize| {
        reads(&host, "ann").await;
        reads(&host, "ann").await;
        assert_eq!(server.received("resources/read"), times, "{what}");
    };
    again("nothing happened", 1).await;
    server.update("x://other").await;
    settle().await;
    again("another resource changed", 1).await;
    server.update("x://a").await;
    settle().await;
    again("it changed", 2).await;
    server.say(json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })).await;
    settle().await;
    again("a list changed", 3).await;
    host.stop("it").unwrap();
    host.start_again("it").unwrap();
    until(&host, State::Ready).await;
    again("it was stopped", 4).await;
    host.reload("it").unwrap();
    let listed = server.received("tools/list");
    while server.received("tools/list") == listed {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    until(&host, State::Ready).await;
    settle().await;
    again("it was reloaded", 5).await;
}

#[tokio::test(start_paused = true)]
async fn g04_a_list_whose_time_is_over_is_given_in_place_of_a_failure_only_if_the_operator_says_so() {
    for (stale_for, after, given) in [(0, 30, false), (60, 30, true), (60, 90, false)] {
        let server = Server::new(LinkKind::Process).modern();
        server.lists_are_good_for(Duration::from_secs(10));
        let host = Host::builder().build();
        let mut spec = spec();
        spec.cache.stale_lists = Duration::from_secs(stale_for);
        spec.supervision.timeouts.reconnect_wait = Duration::from_millis(1);
        add(&host, "it", spec, &server);
        until(&host, State::Ready).await;
        let lists = async || asks(&host, "ann", "tools/list", json!({})).await;
        lists().await.unwrap();
        server.go_away().await;
        assert!(lists().await.is_ok(), "its time is not over");
        tokio::time::sleep(Duration::from_secs(10 + after)).await;
        let told = lists().await;
        assert_eq!(told.is_ok(), given, "{stale_for} {after}: {told:?}");
        if let Ok(told) = told {
            assert!(told.result().unwrap().get().contains("\"ttlMs\":0"), "{told:?}");
        }
        server.come_back();
        until(&host, State::Ready).await;
        lists().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn g04_those_who_ask_the_same_meanwhile_wait_for_one_answer() {
    let server = Server::new(LinkKind::Process);
    let host = host(&server).await;
    server.next_acts([Act::Slowly(Duration::from_secs(5))]);
    let all = (0..20).map(|_| calls(&host, "ann", "read", "k"));
    for answer in futures_util::future::join_all(all).await {
        answer.unwrap();
    }
    assert_eq!(server.executed("k"), 1);
    server.next_acts([Act::Reject(-32000, "not now")]);
    let all = (0..3).map(|_| calls(&host, "ann", "read", "other"));
    let failed = futures_util::future::join_all(all).await;
    let failed = failed.iter().filter(|answer| answer.as_ref().unwrap().is_error()).count();
    assert_eq!(failed, 1, "an error is nobody else's");
}

#[tokio::test(start_paused = true)]
async fn g04_whoever_waits_for_anothers_answer_waits_no_longer_than_it_would() {
    let server = Server::new(LinkKind::Process);
    let host = host(&server).await;
    server.always(Act::Hang);
    let leader = calls(&host, "ann", "read", "k");
    let hurried = async {
        settle().await;
        let client = Client::one(ClientKey::new("ann")).on_behalf_of(Principal::named("ann"));
        let patience = Some(Duration::from_secs(3));
        let options = CallOptions { client: Some(client), patience, ..CallOptions::default() };
        let params = raw(json!({ "name": "read", "arguments": { "key": "k" } }));
        let begun = tokio::time::Instant::now();
        let error = host.request_with("it", "tools/call", Some(params), options).await.unwrap_err();
        assert!(matches!(error.code, Code::Timeout | Code::Reconnecting | Code::Overloaded), "{error:?}");
        begun.elapsed()
    };
    tokio::select! {
        _ = leader => panic!("it hangs"),
        elapsed = hurried => assert!(elapsed <= Duration::from_secs(4), "{elapsed:?}"),
    }
}

//! Cached answers.

use crate::memory_server::*;
use gripfast::config::{Isolation, ServerSpec};
use gripfast::{
    Answer, CallError, CallOptions, Client, ClientKey, Code, Host, Outcome, Principal, State, ToolRule,
};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::{Value, json};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

async fn host(server: &MemoryServer) -> Host {
    let host = Host::builder().build();
    let mut spec = spec();
    let rule = ToolRule::Fixed(MINUTE);
    spec.cache.tools = vec![("read".to_owned(), rule), ("act".to_owned(), rule)];
    add(&host, "it", spec, server);
    wait_for_state(&host, State::Ready).await;
    host
}

async fn send_request(host: &Host, name: &str, method: &str, params: Value) -> Result<Answer, CallError> {
    let client = Client::with_key(ClientKey::new(name)).with_principal(Principal::new(name));
    let options = CallOptions { client: Some(client), ..CallOptions::default() };
    host.request_with("it", method, Some(&raw(params)), options).await
}

async fn call_tool(host: &Host, name: &str, tool: &str, key: &str) -> Result<Answer, CallError> {
    send_request(host, name, "tools/call", json!({ "name": tool, "arguments": { "key": key } })).await
}

async fn read_resource(host: &Host, name: &str) -> Value {
    let answer = send_request(host, name, "resources/read", json!({ "uri": "x://a" })).await.unwrap();
    let Outcome::Result(result) = answer.outcome() else { panic!("{answer:?}") };
    serde_json::from_str(result.get()).unwrap()
}

/// C03
#[tokio::test(start_paused = true)]
async fn g04_waiting_for_a_shared_answer_counts_as_call_time() {
    let server = MemoryServer::new(LinkKind::Process);
    let host = host(&server).await;
    server.set_default_action(CallAction::Hang);
    let leader = tokio::spawn({
        let host = host.clone();
        async move { call_tool(&host, "ann", "read", "x").await }
    });
    run_ready_tasks().await;
    let started = tokio::time::Instant::now();
    let error = call_tool(&host, "ann", "read", "x").await.unwrap_err();
    assert_eq!((error.code, error.outcome.as_str()), (Code::Timeout, "not_sent"), "{error}");
    assert_eq!(started.elapsed(), Duration::from_secs(300));
    assert_eq!(leader.await.unwrap().unwrap_err().code, Code::Timeout);
    assert_eq!(server.executed("x"), 1);
}

#[tokio::test(start_paused = true)]
async fn g04_read_only_tools_are_cached_if_configured() {
    let server = MemoryServer::new(LinkKind::Process);
    let host = host(&server).await;
    for (tool, executed) in [("read", 1), ("act", 3)] {
        for _ in 0..3 {
            call_tool(&host, "ann", tool, tool).await.unwrap();
        }
        assert_eq!(server.executed(tool), executed, "{tool}");
    }
    let respelled =
        json!({ "arguments": { "key": "read" }, "_meta": { "progressToken": 7 }, "name": "read" });
    send_request(&host, "ann", "tools/call", respelled).await.unwrap();
    assert_eq!(server.executed("read"), 1, "the order of keys does not matter");
    call_tool(&host, "ben", "read", "read").await.unwrap();
    assert_eq!(server.executed("read"), 2, "it is not marked public");
    tokio::time::sleep(MINUTE).await;
    call_tool(&host, "ann", "read", "read").await.unwrap();
    assert_eq!(server.executed("read"), 3);
    let used = host.server_status("it").unwrap().cache;
    assert_eq!((used.hits, used.misses), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn g04_answers_of_a_dedicated_instance_are_cached_for_its_client_only() {
    let server = MemoryServer::new(LinkKind::Process);
    let host = Host::builder().build();
    let mut spec = ServerSpec { isolation: Isolation::PerClient, ..spec() };
    spec.cache.tools = vec![("read".to_owned(), ToolRule::Fixed(MINUTE))];
    add(&host, "it", spec, &server);
    wait_for_state(&host, State::Ready).await;
    let calls = async |name: &str| {
        let client = Client::with_key(ClientKey::new(name));
        let options = CallOptions { client: Some(client), ..CallOptions::default() };
        let params = json!({ "name": "read", "arguments": { "key": "read" } });
        host.request_with("it", "tools/call", Some(&raw(params)), options).await.unwrap();
        server.executed("read")
    };
    // On this machine they are one principal.
    assert_eq!((calls("one").await, calls("one").await), (1, 1));
    assert_eq!((calls("other").await, calls("other").await, calls("one").await), (2, 2, 2));
}

#[tokio::test(start_paused = true)]
async fn g04_reads_live_for_the_servers_ttl_and_report_the_remaining_ttl() {
    let server = MemoryServer::new(LinkKind::Process).modern();
    server.set_read_result(
        json!({ "contents": [], "resultType": "complete", "ttlMs": 60_000, "cacheScope": "public" }),
    );
    let host = host(&server).await;
    assert_eq!(read_resource(&host, "ann").await["ttlMs"], 60_000);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(read_resource(&host, "ben").await["ttlMs"], 40_000);
    assert_eq!(server.received("resources/read"), 1, "public answers are shared by all clients");
    tokio::time::sleep(Duration::from_secs(40)).await;
    read_resource(&host, "ben").await;
    assert_eq!(server.received("resources/read"), 2);
    server.set_read_result(
        json!({ "contents": [], "resultType": "complete", "ttlMs": 60_000, "cacheScope": "private" }),
    );
    tokio::time::sleep(MINUTE).await;
    for name in ["ann", "ann", "ben"] {
        read_resource(&host, name).await;
    }
    assert_eq!(server.received("resources/read"), 4, "private is for whom it was made");
}

#[tokio::test(start_paused = true)]
async fn g04_changed_resources_are_dropped_from_the_cache() {
    let server = MemoryServer::new(LinkKind::Process).modern();
    server.set_read_result(
        json!({ "contents": [], "resultType": "complete", "ttlMs": 600_000, "cacheScope": "public" }),
    );
    let host = host(&server).await;
    read_resource(&host, "ann").await;
    let again = async |what: &str, times: usize| {
        read_resource(&host, "ann").await;
        read_resource(&host, "ann").await;
        assert_eq!(server.received("resources/read"), times, "{what}");
    };
    again("nothing happened", 1).await;
    server.send_resource_updated("x://other").await;
    run_ready_tasks().await;
    again("another resource changed", 1).await;
    server.send_resource_updated("x://a").await;
    run_ready_tasks().await;
    again("it changed", 2).await;
    server.send_message(json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })).await;
    run_ready_tasks().await;
    again("a list changed", 3).await;
    host.stop("it").unwrap();
    host.start("it").unwrap();
    wait_for_state(&host, State::Ready).await;
    again("it was stopped", 4).await;
    host.reload("it").unwrap();
    let listed = server.received("tools/list");
    while server.received("tools/list") == listed {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    wait_for_state(&host, State::Ready).await;
    run_ready_tasks().await;
    again("it was reloaded", 5).await;
}

#[tokio::test(start_paused = true)]
async fn g04_a_stale_list_replaces_a_failure_only_if_configured() {
    for (stale_for, after, given) in [(0, 30, false), (60, 30, true), (60, 90, false)] {
        let server = MemoryServer::new(LinkKind::Process).modern();
        server.set_list_ttl(Duration::from_secs(10));
        let host = Host::builder().build();
        let mut spec = spec();
        spec.cache.stale_lists = Duration::from_secs(stale_for);
        spec.supervision.timeouts.reconnect_wait = Duration::from_millis(1);
        add(&host, "it", spec, &server);
        wait_for_state(&host, State::Ready).await;
        let lists = async || send_request(&host, "ann", "tools/list", json!({})).await;
        lists().await.unwrap();
        server.go_down().await;
        assert!(lists().await.is_ok(), "its time is not over");
        tokio::time::sleep(Duration::from_secs(10 + after)).await;
        let told = lists().await;
        assert_eq!(told.is_ok(), given, "{stale_for} {after}: {told:?}");
        if let Ok(told) = told {
            assert!(told.result().unwrap().get().contains("\"ttlMs\":0"), "{told:?}");
        }
        server.come_up();
        wait_for_state(&host, State::Ready).await;
        lists().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn g04_concurrent_equal_requests_share_one_answer() {
    let server = MemoryServer::new(LinkKind::Process);
    let host = host(&server).await;
    server.queue_actions([CallAction::AnswerAfter(Duration::from_secs(5))]);
    let all = (0..20).map(|_| call_tool(&host, "ann", "read", "k"));
    for answer in futures_util::future::join_all(all).await {
        answer.unwrap();
    }
    assert_eq!(server.executed("k"), 1);
    server.queue_actions([CallAction::Reject(-32000, "not now")]);
    let all = (0..3).map(|_| call_tool(&host, "ann", "read", "other"));
    let failed = futures_util::future::join_all(all).await;
    let failed = failed.iter().filter(|answer| answer.as_ref().unwrap().is_error()).count();
    assert_eq!(failed, 1, "errors are not shared");
}

#[tokio::test(start_paused = true)]
async fn g04_a_caller_of_a_shared_answer_keeps_its_own_deadline() {
    let server = MemoryServer::new(LinkKind::Process);
    let host = host(&server).await;
    server.set_default_action(CallAction::Hang);
    let leader = call_tool(&host, "ann", "read", "k");
    let hurried = async {
        run_ready_tasks().await;
        let client = Client::with_key(ClientKey::new("ann")).with_principal(Principal::new("ann"));
        let patience = Some(Duration::from_secs(3));
        let options = CallOptions { client: Some(client), timeout: patience, ..CallOptions::default() };
        let params = raw(json!({ "name": "read", "arguments": { "key": "k" } }));
        let started = tokio::time::Instant::now();
        let error = host.request_with("it", "tools/call", Some(&params), options).await.unwrap_err();
        assert!(matches!(error.code, Code::Timeout | Code::Reconnecting | Code::Overloaded), "{error:?}");
        started.elapsed()
    };
    tokio::select! {
        _ = leader => panic!("it hangs"),
        elapsed = hurried => assert!(elapsed <= Duration::from_secs(4), "{elapsed:?}"),
    }
}

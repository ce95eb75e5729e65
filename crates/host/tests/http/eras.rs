//! Era of a server: detected, remembered, and detected again when it no longer fits.

use crate::http_host::{
    NAME, count, echo, host, legacy, modern, ready_host, serve, serve_at, spec, status, wait_until,
    wait_until_ready,
};
use crate::scripted_server::ScriptedServer;
use gripfast::config::{Argument, ProtocolChoice, RestoreCall, Template};
use gripfast::store::MemoryStore;
use gripfast::{Host, Restored, State};
use gripfast_demo::{EraChoice, Options};
use std::sync::Arc;

#[tokio::test]
async fn d08_auto_finds_the_era_of_every_server() {
    for (era, found, handshakes) in
        [(EraChoice::Legacy, "legacy", 1), (EraChoice::Modern, "modern", 0), (EraChoice::Both, "modern", 0)]
    {
        let server = serve(Options { era, ..Options::default() }).await;
        let host = ready_host(spec(&server.url())).await;
        assert_eq!(status(&host).era, Some(found), "{era:?}");
        assert_eq!(server.initializes(), handshakes, "{era:?}");
        assert_eq!(count(&host, "one").await.as_deref(), Ok("1"), "{era:?}");
    }
}

#[tokio::test]
async fn d08_the_configured_era_is_the_only_one_tried() {
    let server = serve(Options::default()).await;
    let mut chosen = spec(&server.url());
    chosen.protocol = ProtocolChoice::Legacy;
    let tap_free = ready_host(chosen).await;
    assert_eq!(status(&tap_free).era, Some("legacy"));

    let server = serve(legacy()).await;
    let mut chosen = spec(&server.url());
    chosen.protocol = ProtocolChoice::Modern;
    let host = host(chosen);
    let refused = wait_until(&host, |status| status.supervision.cause.is_some()).await;
    assert_ne!(refused.supervision.state, State::Ready);
    assert_eq!(server.initializes(), 0);
}

#[tokio::test]
async fn d08_the_era_is_remembered_over_a_reconnect_and_a_restart() {
    let server = serve(legacy()).await;
    let tap = ScriptedServer::in_front_of(server.addr()).await;
    let store = Arc::new(MemoryStore::default());
    let first = Host::builder().store(store.clone()).build();
    first.spawn(NAME, spec(&tap.url())).unwrap();
    let epoch = wait_until_ready(&first).await.supervision.epoch;
    let asked = || (tap.requests_for("server/discover").len(), tap.requests_for("initialize").len());
    assert_eq!(asked(), (1, 1));
    first.reconnect(NAME).unwrap();
    wait_until(&first, |status| status.supervision.epoch > epoch && status.supervision.state == State::Ready)
        .await;
    assert_eq!(asked(), (1, 2), "no second probe");
    first.shutdown().await;

    let second = Host::builder().store(store).build();
    second.spawn(NAME, spec(&tap.url())).unwrap();
    wait_until_ready(&second).await;
    assert_eq!(asked(), (1, 3), "no second probe");
}

#[tokio::test]
async fn d08_a_server_with_a_changed_era_is_used_in_the_new_one() {
    for (before, after, era) in [(legacy(), modern(), "modern"), (modern(), legacy(), "legacy")] {
        let server = serve(before).await;
        let (addr, host) = (server.addr(), ready_host(spec(&server.url())).await);
        server.stop().await;
        let _server = serve_at(addr, after).await;
        wait_until(&host, |status| status.era == Some(era) && status.supervision.state == State::Ready).await;
        assert_eq!(echo(&host, "hi").await.as_deref(), Ok("hi"), "{era}");
    }
}

#[tokio::test]
async fn d08_a_call_right_after_an_era_change_is_served() {
    for (before, after) in [(legacy(), modern()), (modern(), legacy())] {
        let server = serve(before).await;
        let (addr, host) = (server.addr(), ready_host(spec(&server.url())).await);
        server.stop().await;
        let server = serve_at(addr, after).await;
        assert_eq!(count(&host, "once").await.as_deref(), Ok("1"));
        assert_eq!(server.counter_keys(), ["once"]);
    }
}

#[tokio::test]
async fn modern_requests_repeat_their_body_in_headers() {
    let server = serve(Options { param_headers: true, ..modern() }).await;
    let tap = ScriptedServer::in_front_of(server.addr()).await;
    let host = ready_host(spec(&tap.url())).await;
    let answer =
        crate::http_host::call(&host, "route", serde_json::json!({ "region": "süd" })).await.unwrap();
    assert_eq!(crate::http_host::text_of(&answer), "routed to süd");
    let calls = tap.requests_for("tools/call");
    assert_eq!(calls[0].header("mcp-method"), Some("tools/call"));
    assert_eq!(calls[0].header("mcp-name"), Some("route"));
    assert_eq!(calls[0].header("mcp-protocol-version"), Some("2026-07-28"));
    assert!(calls[0].header("mcp-param-region").is_some_and(|value| value.starts_with("=?base64?")));
    assert!(tap.requests().iter().all(|request| request.header("mcp-session-id").is_none()));
}

#[tokio::test]
async fn d04_a_marked_call_repeats_its_arguments_in_headers() {
    let server = serve(Options { param_headers: true, ..modern() }).await;
    let mut spec = spec(&server.url());
    let region = Argument::Text(Template::parse("eu").unwrap());
    let arguments = Argument::Table(vec![("region".to_owned(), region)]);
    spec.restore = vec![RestoreCall { tool: "route".to_owned(), arguments }];
    let host = ready_host(spec).await;
    let status = wait_until(&host, |status| status.restored.is_some()).await;
    assert_eq!(status.restored, Some(Restored::Everything));
    assert_eq!(server.calls(), 1);
}

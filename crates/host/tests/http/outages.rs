//! Servers that go down and come back, with and without calls.

use crate::http_host::{
    NAME, call, count, echo, free_address, host, legacy, modern, raw, ready_host, serve, serve_at, spec,
    spec_over, status, tools, wait_for_state, wait_for_tool, wait_until, wait_until_ready, within_timeout,
};
use gripfast::config::{PinMode, ServerSpec, UrlTransport};
use gripfast::{CallOutcome, Code, Event, State};
use gripfast_demo::Options;
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn b02_an_idle_server_that_dies_is_reconnected_without_a_call() {
    for options in [legacy(), modern()] {
        let server = serve(options.clone()).await;
        let (addr, host) = (server.addr(), ready_host(spec(&server.url())).await);
        if options.era == gripfast_demo::EraChoice::Modern {
            gripfast_testkit::wait::until("it listens", || server.in_flight() == 1).await;
        }
        server.stop().await;
        let away = wait_for_state(&host, State::Reconnecting).await;
        assert_eq!(away.supervision.cause.as_deref(), Some("connection refused"));
        assert!(away.supervision.next_wake.is_some(), "B01: it has a next wake-up");
        assert!(away.tools > 0, "B06: its tools stay listed");
        let _server = serve_at(addr, options).await;
        wait_until_ready(&host).await;
        let revived = status(&host).events.iter().any(|told| matches!(told.event, Event::Revived { .. }));
        assert!(revived);
    }
}

#[tokio::test]
async fn c04_calls_during_an_outage_are_held_and_then_served_once_each() {
    for options in [legacy(), modern()] {
        let server = serve(options.clone()).await;
        let (addr, host) = (server.addr(), ready_host(spec(&server.url())).await);
        server.stop().await;
        let calling = {
            let host = host.clone();
            tokio::spawn(async move {
                futures_util::future::join_all(["a", "b", "c"].map(|key| count(&host, key))).await
            })
        };
        wait_until(&host, |status| status.supervision.waiting == 3).await;
        let server = serve_at(addr, options).await;
        let answers = within_timeout(calling).await.unwrap();
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        let mut keys = server.counter_keys();
        keys.sort();
        assert_eq!(keys, ["a", "b", "c"]);
    }
}

#[tokio::test]
async fn c04_a_held_call_that_times_out_was_not_sent() {
    let server = serve(legacy()).await;
    let mut impatient = spec(&server.url());
    impatient.supervision.timeouts.reconnect_wait = Duration::from_millis(300);
    let host = ready_host(impatient).await;
    server.stop().await;
    let error = count(&host, "never").await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Reconnecting, CallOutcome::NotSent), "{error}");
    assert!(error.text.contains("connection refused"), "{error}");
}

#[tokio::test]
async fn b02_a_restart_between_two_calls_costs_nothing() {
    for options in [legacy(), modern()] {
        let server = serve(options.clone()).await;
        let (addr, host) = (server.addr(), ready_host(spec(&server.url())).await);
        assert_eq!(echo(&host, "before").await.as_deref(), Ok("before"));
        server.stop().await;
        let server = serve_at(addr, options).await;
        assert_eq!(count(&host, "after").await.as_deref(), Ok("1"));
        assert_eq!(server.counter_keys(), ["after"]);
    }
}

#[tokio::test]
async fn b07_a_server_that_is_down_at_start_appears_when_it_is_up() {
    let addr = free_address().await;
    let host = host(spec(&format!("http://{addr}/mcp")));
    let down = wait_until(&host, |status| status.supervision.cause.is_some()).await;
    assert_eq!(down.supervision.cause.as_deref(), Some("connection refused"));
    assert!(matches!(down.supervision.state, State::Starting | State::Reconnecting));
    let held = {
        let host = host.clone();
        tokio::spawn(async move { echo(&host, "early").await })
    };
    wait_until(&host, |status| status.supervision.waiting == 1).await;
    let _server = serve_at(addr, legacy()).await;
    assert_eq!(within_timeout(held).await.unwrap().as_deref(), Ok("early"));
    assert!(tools(&host).await.contains(&"echo".to_owned()));
    assert_eq!(wait_until_ready(&host).await.supervision.restarts, 0, "a refused dial is no restart");
}

#[tokio::test]
async fn b05_a_server_that_returns_with_other_tools_is_relisted_with_an_event() {
    let server = serve(legacy()).await;
    let trusted = ServerSpec { pins: PinMode::Warn, ..spec(&server.url()) };
    let (addr, host) = (server.addr(), ready_host(trusted).await);
    let mut events = host.subscribe_events();
    server.stop().await;
    let _server = serve_at(addr, Options { extra_tools: 2, changed_schema: true, ..legacy() }).await;
    wait_for_tool(&host, "extra_2").await;
    let told = within_timeout(async {
        loop {
            if let Event::CatalogChanged { added, removed, changed } = events.recv().await.unwrap().event {
                return (added, removed, changed);
            }
        }
    })
    .await;
    assert_eq!(told, (2, 0, 1));
    wait_until_ready(&host).await;
}

#[tokio::test]
async fn b02_a_side_effect_call_in_flight_at_a_crash_has_an_unknown_outcome() {
    let server = serve(legacy()).await;
    let (addr, host) = (server.addr(), ready_host(spec(&server.url())).await);
    let acting = {
        let host = host.clone();
        tokio::spawn(async move { call(&host, "misbehave", json!({ "how": "hang" })).await })
    };
    let reading = {
        let host = host.clone();
        tokio::spawn(async move { call(&host, "sleep", json!({ "ms": 50 })).await })
    };
    gripfast_testkit::wait::until("both are there", || server.calls() == 2).await;
    drop(server);
    let error = within_timeout(acting).await.unwrap().unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, CallOutcome::Unknown), "{error}");
    let _server = bind_again(addr).await;
    within_timeout(reading).await.unwrap().unwrap();
}

/// Binds the port again once the dropped server has released it.
async fn bind_again(addr: std::net::SocketAddr) -> gripfast_demo::RunningServer {
    within_timeout(async {
        loop {
            match gripfast_demo::start_http(addr, legacy()).await {
                Ok(server) => return server,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await
}

#[tokio::test]
async fn b08_a_server_that_is_away_neither_delays_nor_unlists_another() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    let nowhere = free_address().await;
    host.spawn("away", spec_over(&format!("http://{nowhere}/mcp"), UrlTransport::Http)).unwrap();
    let found = within_timeout(host.discover(Duration::from_millis(200))).await;
    let found: Vec<_> = found.iter().map(|row| (row.server.as_str(), row.catalog.is_ok())).collect();
    assert_eq!(found, [(NAME, true), ("away", false)]);
    let arguments = raw(&json!({ "text": "hi" }));
    within_timeout(host.call(NAME, "echo", Some(arguments))).await.unwrap();
}

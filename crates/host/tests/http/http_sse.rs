//! HTTP+SSE transport of 2024-11-05.

use crate::http_host::{
    NAME, count, echo, host, legacy, raw, ready_host, serve, spec, spec_over, status, text_of,
    wait_for_state, wait_until, wait_until_ready, with, within_timeout,
};
use crate::scripted_server::{ScriptedAction, ScriptedServer};
use gripfast::config::{ServerSpec, UrlTransport};
use gripfast::{CallOutcome, Code, Event, State};
use gripfast_demo::{EndpointForm, Faults, Options, RunningServer};
use gripfast_testkit::wait::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn sse(server: &RunningServer) -> ServerSpec {
    spec_over(&server.sse_url(), UrlTransport::Sse)
}

#[tokio::test]
async fn the_endpoint_may_have_every_url_form() {
    for form in [EndpointForm::Relative, EndpointForm::Absolute, EndpointForm::Query] {
        let server = serve(with(Faults { endpoint: form, ..Faults::default() })).await;
        let host = ready_host(sse(&server)).await;
        assert_eq!(count(&host, "one").await.as_deref(), Ok("1"), "{form:?}");
        let status = status(&host);
        assert_eq!((status.transport, status.era), (Some("sse"), Some("legacy")));
    }
}

#[tokio::test]
async fn an_endpoint_on_another_origin_is_not_followed_and_the_status_says_so() {
    for transport in [UrlTransport::Sse, UrlTransport::Auto] {
        let faults = Faults { endpoint: EndpointForm::ForeignOrigin, ..Faults::default() };
        let server = serve(with(faults)).await;
        let host = host(spec_over(&server.sse_url(), transport));
        let cause = wait_for_state(&host, State::ConfigError).await.supervision.cause.unwrap();
        assert!(cause.contains("another origin (http://elsewhere.invalid)"), "{transport:?}: {cause}");
    }
}

#[tokio::test]
async fn d08_auto_falls_back_to_http_sse_and_remembers() {
    let server = serve(Options { sse_only: true, ..legacy() }).await;
    let tap = ScriptedServer::in_front_of(server.addr()).await;
    let host = ready_host(spec(&tap.url_for("/sse"))).await;
    assert_eq!(status(&host).transport, Some("sse"));
    assert_eq!(echo(&host, "hi").await.as_deref(), Ok("hi"));
    let probes = || tap.requests_for("server/discover").len() + tap.requests_for("initialize").len();
    let asked = probes();
    host.reconnect(NAME).unwrap();
    until("a second stream", || tap.with_method("GET").len() == 2).await;
    wait_until_ready(&host).await;
    assert_eq!(probes(), asked + 1, "one `initialize`, and nothing that is not understood");
}

#[tokio::test]
async fn d08_a_server_upgraded_to_streamable_http_is_detected() {
    let server = serve(legacy()).await;
    let (addr, moved) = (server.addr(), Arc::new(AtomicBool::new(false)));
    let flag = Arc::clone(&moved);
    let script =
        ScriptedServer::new(move |request| match (flag.load(Ordering::Relaxed), request.target.as_str()) {
            (false, "/mcp") => ScriptedAction::ForwardTo(addr, "/sse"),
            _ => ScriptedAction::Forward(addr),
        })
        .await;
    let host = ready_host(spec(&script.url())).await;
    assert_eq!(status(&host).transport, Some("sse"));
    moved.store(true, Ordering::Relaxed);
    script.cut();
    wait_until(&host, |status| status.transport == Some("http")).await;
    assert_eq!(echo(&host, "hi").await.as_deref(), Ok("hi"));
}

#[tokio::test]
async fn d02_a_refused_dead_session_costs_the_stream_and_one_resend() {
    let server = serve(legacy()).await;
    let host = ready_host(sse(&server)).await;
    server.forget_sessions();
    assert_eq!(count(&host, "once").await.as_deref(), Ok("1"));
    assert_eq!(server.counter_keys(), ["once"]);
    assert_eq!(server.initializes(), 2);
}

#[tokio::test]
async fn c03_a_silent_dead_session_times_out_and_the_next_call_works() {
    let server = serve(with(Faults { silent_dead_sse_post: true, ..Faults::default() })).await;
    let mut limits = sse(&server);
    limits.supervision.timeouts.call = Duration::from_millis(300);
    limits.supervision.keepalive.timeout = Duration::from_millis(300);
    let host = ready_host(limits).await;
    server.forget_sessions();
    let error = count(&host, "lost").await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Timeout, CallOutcome::Unknown), "{error}");
    wait_until(&host, |status| status.supervision.restarts == 1).await;
    assert_eq!(count(&host, "next").await.as_deref(), Ok("1"));
    assert_eq!(server.counter_keys(), ["next"]);
}

#[tokio::test]
async fn b02_an_ended_stream_is_a_lost_link_and_reconnects_without_a_call() {
    let server = serve(legacy()).await;
    let host = ready_host(sse(&server)).await;
    let mut events = host.subscribe_events();
    server.reset_connections();
    until("a new session", || server.initializes() == 2).await;
    wait_until_ready(&host).await;
    let revived =
        std::iter::from_fn(|| events.try_recv().ok()).any(|told| matches!(told.event, Event::Revived { .. }));
    assert!(revived);
    assert_eq!(echo(&host, "hi").await.as_deref(), Ok("hi"));
}

#[tokio::test]
async fn c05_a_stream_that_ends_during_a_call_leaves_its_outcome_unknown() {
    let server = serve(legacy()).await;
    let host = ready_host(sse(&server)).await;
    let acting = {
        let host = host.clone();
        let hang = serde_json::json!({ "how": "hang" });
        tokio::spawn(async move { crate::http_host::call(&host, "misbehave", hang).await })
    };
    until("it is there", || server.calls() == 1).await;
    server.reset_connections();
    let error = within_timeout(acting).await.unwrap().unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, CallOutcome::Unknown), "{error}");
    assert_eq!(echo(&host, "next").await.as_deref(), Ok("next"));
}

#[tokio::test]
async fn an_answer_on_the_stream_counts_even_if_its_post_is_never_answered() {
    let server = serve(legacy()).await;
    let addr = server.addr();
    // A server that answers the POST only after everything else, which may be never.
    let script = ScriptedServer::new(move |request| match request.rpc().as_str() {
        "tools/call" => ScriptedAction::ForwardAndHang(addr),
        _ => ScriptedAction::Forward(addr),
    })
    .await;
    let host = ready_host(spec_over(&script.url_for("/sse"), UrlTransport::Sse)).await;
    assert_eq!(echo(&host, "hi").await.as_deref(), Ok("hi"));
}

#[tokio::test]
async fn c03_a_post_that_is_answered_late_ends_no_call_before_its_time() {
    let server = serve(legacy()).await;
    let (addr, goes_on) = (server.addr(), Arc::new(tokio::sync::Notify::new()));
    let so = Arc::clone(&goes_on);
    let script = ScriptedServer::new(move |request| match request.rpc().as_str() {
        "tools/call" => ScriptedAction::ForwardWhenNotified(Arc::clone(&so), addr),
        _ => ScriptedAction::Forward(addr),
    })
    .await;
    let mut limits = spec_over(&script.url_for("/sse"), UrlTransport::Sse);
    limits.supervision.timeouts.call = Duration::from_secs(120);
    let host = ready_host(limits).await;
    let calling = tokio::spawn({
        let host = host.clone();
        async move { host.call(NAME, "echo", Some(raw(&serde_json::json!({ "text": "late" })))).await }
    });
    until("it is on its way", || script.requests_for("tools/call").len() == 1).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    goes_on.notify_one();
    let answer = within_timeout(calling).await.unwrap().unwrap();
    assert_eq!(text_of(&answer), "late");
}

#[tokio::test]
async fn a_stream_without_an_endpoint_event_times_out() {
    let script = ScriptedServer::new(|_| {
        ScriptedAction::RespondAndHold(crate::scripted_server::open_ended("text/event-stream"))
    })
    .await;
    let mut limits = spec_over(&script.url_for("/sse"), UrlTransport::Sse);
    limits.supervision.timeouts.connect = Duration::from_millis(200);
    let host = host(limits);
    let away = wait_until(&host, |status| status.supervision.cause.is_some()).await;
    assert!(away.supervision.cause.unwrap().contains("no answer within"));
}

//! HTTP with a separate event stream, as of 2024-11-05.

use crate::script::{Act, Script};
use crate::stage::{
    NAME, count, echo, eventually, host, legacy, promptly, raw, ready_host, said, serve, spec, spec_over,
    status, until, until_ready, until_state, with,
};
use gripfast::config::{ServerSpec, UrlTransport};
use gripfast::{Code, Event, Fate, State};
use gripfast_demo::{EndpointForm, Faults, Options, RunningServer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn sse(server: &RunningServer) -> ServerSpec {
    spec_over(&server.sse_url(), UrlTransport::Sse)
}

#[tokio::test]
async fn the_endpoint_may_be_named_in_every_form() {
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
        let cause = until_state(&host, State::ConfigError).await.supervision.cause.unwrap();
        assert!(cause.contains("another origin (http://elsewhere.invalid)"), "{transport:?}: {cause}");
    }
}

#[tokio::test]
async fn d08_auto_falls_back_to_it_and_remembers() {
    let server = serve(Options { streamable_http: false, ..legacy() }).await;
    let tap = Script::in_front_of(server.addr()).await;
    let host = ready_host(spec(&tap.at("/sse"))).await;
    assert_eq!(status(&host).transport, Some("sse"));
    assert_eq!(echo(&host, "hi").await.as_deref(), Ok("hi"));
    let probes = || tap.calls_of("server/discover").len() + tap.calls_of("initialize").len();
    let asked = probes();
    host.reconnect(NAME).unwrap();
    eventually("a second stream", || tap.with_method("GET").len() == 2).await;
    until_ready(&host).await;
    assert_eq!(probes(), asked + 1, "one `initialize`, and nothing that is not understood");
}

#[tokio::test]
async fn d08_a_server_that_has_moved_on_to_streamable_http_is_found_again() {
    let server = serve(legacy()).await;
    let (addr, moved) = (server.addr(), Arc::new(AtomicBool::new(false)));
    let flag = Arc::clone(&moved);
    let script = Script::new(move |heard| match (flag.load(Ordering::Relaxed), heard.target.as_str()) {
        (false, "/mcp") => Act::PassOnAs(addr, "/sse"),
        _ => Act::PassOn(addr),
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    assert_eq!(status(&host).transport, Some("sse"));
    moved.store(true, Ordering::Relaxed);
    script.cut();
    until(&host, |status| status.transport == Some("http")).await;
    assert_eq!(echo(&host, "hi").await.as_deref(), Ok("hi"));
}

#[tokio::test]
async fn d02_a_dead_session_that_is_refused_costs_the_stream_and_the_call_is_sent_once_more() {
    let server = serve(legacy()).await;
    let host = ready_host(sse(&server)).await;
    server.forget_sessions();
    assert_eq!(count(&host, "once").await.as_deref(), Ok("1"));
    assert_eq!(server.counter_keys(), ["once"]);
    assert_eq!(server.initializes(), 2);
}

#[tokio::test]
async fn c03_a_dead_session_that_is_never_answered_is_bounded_and_the_next_call_works() {
    let server = serve(with(Faults { silent_dead_sse_post: true, ..Faults::default() })).await;
    let mut limits = sse(&server);
    limits.supervision.timeouts.call = Duration::from_millis(300);
    limits.supervision.keepalive.timeout = Duration::from_millis(300);
    let host = ready_host(limits).await;
    server.forget_sessions();
    let error = count(&host, "lost").await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Timeout, Fate::Unknown), "{error}");
    until(&host, |status| status.supervision.restarts == 1).await;
    assert_eq!(count(&host, "next").await.as_deref(), Ok("1"));
    assert_eq!(server.counter_keys(), ["next"]);
}

#[tokio::test]
async fn b02_a_stream_that_ends_is_a_lost_link_and_is_made_anew_without_any_call() {
    let server = serve(legacy()).await;
    let host = ready_host(sse(&server)).await;
    let mut events = host.events();
    server.reset_connections();
    eventually("a new session", || server.initializes() == 2).await;
    until_ready(&host).await;
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
        tokio::spawn(async move { crate::stage::call(&host, "misbehave", hang).await })
    };
    eventually("it is there", || server.calls() == 1).await;
    server.reset_connections();
    let error = promptly(acting).await.unwrap().unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, Fate::Unknown), "{error}");
    assert_eq!(echo(&host, "next").await.as_deref(), Ok("next"));
}

#[tokio::test]
async fn an_answer_on_the_stream_counts_even_if_its_post_is_never_answered() {
    let server = serve(legacy()).await;
    let addr = server.addr();
    // A server that answers the POST when it is done with everything else, which may be never.
    let script = Script::new(move |heard| match heard.rpc().as_str() {
        "tools/call" => Act::PassOnAndHang(addr),
        _ => Act::PassOn(addr),
    })
    .await;
    let host = ready_host(spec_over(&script.at("/sse"), UrlTransport::Sse)).await;
    assert_eq!(echo(&host, "hi").await.as_deref(), Ok("hi"));
}

#[tokio::test]
async fn c03_a_post_that_is_answered_late_ends_no_call_before_its_time() {
    let server = serve(legacy()).await;
    let (addr, goes_on) = (server.addr(), Arc::new(tokio::sync::Notify::new()));
    let so = Arc::clone(&goes_on);
    let script = Script::new(move |heard| match heard.rpc().as_str() {
        "tools/call" => Act::PassOnOnce(Arc::clone(&so), addr),
        _ => Act::PassOn(addr),
    })
    .await;
    let mut limits = spec_over(&script.at("/sse"), UrlTransport::Sse);
    limits.supervision.timeouts.call = Duration::from_secs(120);
    let host = ready_host(limits).await;
    let calling = tokio::spawn({
        let host = host.clone();
        async move { host.call(NAME, "echo", Some(raw(&serde_json::json!({ "text": "late" })))).await }
    });
    eventually("it is on its way", || script.calls_of("tools/call").len() == 1).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    goes_on.notify_one();
    let answer = promptly(calling).await.unwrap().unwrap();
    assert_eq!(said(&answer), "late");
}

#[tokio::test]
async fn a_stream_that_never_names_its_endpoint_is_not_waited_for_for_ever() {
    let script = Script::new(|_| Act::SayAndHold(crate::script::open_ended("text/event-stream"))).await;
    let mut limits = spec_over(&script.at("/sse"), UrlTransport::Sse);
    limits.supervision.timeouts.connect = Duration::from_millis(200);
    let host = host(limits);
    let away = until(&host, |status| status.supervision.cause.is_some()).await;
    assert!(away.supervision.cause.unwrap().contains("no answer within"));
}

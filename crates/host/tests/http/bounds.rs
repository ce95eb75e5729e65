//! Limits, and error causes that an operator can act on.

use crate::http_host::{
    call, count, echo, free_address, host, legacy, modern, ready_host, serve, spec, spec_over, status,
    wait_for_state, wait_until, with, with_header,
};
use crate::scripted_server::{
    ScriptedAction, ScriptedServer, open_ended, respond_normally, respond_text, response,
};
use gripfast::config::{ServerSpec, UrlTransport};
use gripfast::memory::{AnswerMemory, OutOfMemory, Reservation};
use gripfast::{CallOptions, CallOutcome, Code, JsonText, NextAction, State};
use gripfast_demo::{Faults, Options};
use gripfast_testkit::wait::until;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[tokio::test]
async fn g07_an_answer_over_the_limit_fails_only_its_own_call() {
    for options in [legacy(), modern()] {
        for sse_answers in [false, true] {
            let server = serve(Options { sse_answers, ..options.clone() }).await;
            let tap = ScriptedServer::in_front_of(server.addr()).await;
            let mut limits = spec(&tap.url());
            limits.max_message = 64 << 10;
            let host = ready_host(limits).await;
            let epoch = status(&host).supervision.epoch;
            let huge = json!({ "how": "huge_frame", "size": 1 << 20 });
            let error = call(&host, "misbehave", huge).await.unwrap_err();
            assert_eq!(
                (error.code, error.outcome),
                (Code::UpstreamProtocol, CallOutcome::Unknown),
                "{error}"
            );
            assert!(
                error.text.contains("limit of 65536 bytes; if it is wanted, raise `max_message`"),
                "{error}"
            );
            let resumed =
                |request: &crate::scripted_server::HttpRequest| request.header("last-event-id").is_some();
            assert!(!tap.with_method("GET").iter().any(resumed), "what is too large is not asked for again");
            assert_eq!(echo(&host, "small").await.as_deref(), Ok("small"));
            assert_eq!(status(&host).supervision.epoch, epoch);
        }
    }
}

#[tokio::test]
async fn g07_an_endless_body_is_aborted_at_the_limit() {
    for (kind, begin) in [("application/json", "{\"a\":\""), ("text/event-stream", "data: {\"a\":\"")] {
        let written = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&written);
        let script = ScriptedServer::new(move |request| match request.rpc().as_str() {
            "tools/call" => {
                let begin = [open_ended(kind), begin.as_bytes().to_vec()].concat();
                ScriptedAction::Endless(begin, vec![b'x'; 64 << 10], Arc::clone(&counted))
            }
            _ => respond_normally(request),
        })
        .await;
        let mut limits = spec(&script.url());
        limits.max_message = 1 << 20;
        let host = ready_host(limits).await;
        let error = call(&host, "act", json!({})).await.unwrap_err();
        assert_eq!(error.code, Code::UpstreamProtocol, "{kind}: {error}");
        let written = written.load(Ordering::Relaxed);
        assert!(written < 16 << 20, "{kind}: {written} bytes were read or stood in the sockets");
    }
}

/// A memory budget of this many bytes.
#[derive(Debug)]
struct Budget {
    limit: usize,
    taken: AtomicUsize,
}

/// A reservation.
#[derive(Debug)]
struct Part {
    of: Arc<Budget>,
    bytes: usize,
}

struct Memory(Arc<Budget>);

impl AnswerMemory for Memory {
    fn reserve(&self, bytes: usize) -> Result<Arc<dyn Reservation>, OutOfMemory> {
        let mut part = Part { of: Arc::clone(&self.0), bytes: 0 };
        part.grow(bytes)?;
        Ok(Arc::new(part))
    }
}

impl Reservation for Part {
    fn grow(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        if self.of.taken.load(Ordering::Relaxed) + bytes > self.of.limit {
            return Err(OutOfMemory("the test has no more".to_owned()));
        }
        self.of.taken.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn g07_an_answer_is_counted_while_received_and_aborted_at_the_budget() {
    let result = r#"{"jsonrpc":"2.0","id":ID,"result":{"a":""#;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"a":""#;
    for (kind, begin, outcome) in [
        ("application/json", result.to_owned(), CallOutcome::Done),
        ("text/event-stream", format!("data: {result}"), CallOutcome::Done),
        // A message before the answer does not say if the call was executed.
        ("text/event-stream", format!("data: {log}"), CallOutcome::Unknown),
    ] {
        let written = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&written);
        let script = ScriptedServer::new(move |request| match request.rpc().as_str() {
            "tools/call" => {
                let begin = begin.replace("ID", &request.json()["id"].to_string());
                let begin = [open_ended(kind), begin.into_bytes()].concat();
                ScriptedAction::Endless(begin, vec![b'x'; 64 << 10], Arc::clone(&counted))
            }
            _ => respond_normally(request),
        })
        .await;
        let host = ready_host(spec(&script.url())).await;
        let budget = Arc::new(Budget { limit: 1 << 20, taken: AtomicUsize::new(0) });
        let memory: Option<Arc<dyn AnswerMemory>> = Some(Arc::new(Memory(Arc::clone(&budget))));
        let options = CallOptions { memory, ..CallOptions::default() };
        let params = JsonText::parse(json!({ "name": "act", "arguments": {} }).to_string()).unwrap();
        let error = host.request_with("demo", "tools/call", Some(&params), options).await.unwrap_err();
        assert_eq!((error.code, error.outcome), (Code::Overloaded, outcome), "{kind}: {error}");
        assert!(error.text.contains("the test has no more"), "{error}");
        assert!(written.load(Ordering::Relaxed) < 12 << 20, "it was read on");
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0, "all of it is given back");
        let status = status(&host).supervision;
        assert_eq!((status.consecutive_failures, status.restarts), (0, 0), "the link is well");
    }
}

#[tokio::test]
async fn g07_an_event_over_the_limit_is_skipped_and_later_ones_arrive() {
    let script = ScriptedServer::new(|request| match request.method.as_str() {
        "GET" => {
            let huge = format!("id: 1\ndata: {}\n\n", "x".repeat(128 << 10));
            let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
            let events = format!("{huge}id: 2\ndata: {changed}\n\n");
            ScriptedAction::RespondAndHold([open_ended("text/event-stream"), events.into_bytes()].concat())
        }
        _ => respond_normally(request),
    })
    .await;
    let mut limits = spec(&script.url());
    limits.max_message = 64 << 10;
    let _host = ready_host(limits).await;
    until("it is listed again", || script.requests_for("tools/list").len() == 2).await;
    assert_eq!(script.with_method("GET").len(), 1, "the stream goes on");
}

#[tokio::test]
async fn g07_an_unreadable_answer_on_a_stream_fails_unless_a_readable_one_follows() {
    let script = ScriptedServer::new(|request| match request.rpc().as_str() {
        "tools/call" => {
            let call = request.json();
            let damaged = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"score":NaN}}}}"#, call["id"]);
            let mended = json!({ "jsonrpc": "2.0", "id": call["id"], "result": { "content": [] } });
            let mut events = format!("data: {damaged}\n\n");
            if call["params"]["name"] == "look" {
                events += &format!("data: {mended}\n\n");
            }
            ScriptedAction::RespondAndHold([open_ended("text/event-stream"), events.into_bytes()].concat())
        }
        _ => respond_normally(request),
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    let act = || call(&host, "act", json!({}));
    let (one, two, three, four) = tokio::join!(act(), act(), act(), act());
    for error in [one, two, three, four].map(Result::unwrap_err) {
        assert_eq!((error.code, error.outcome), (Code::UpstreamProtocol, CallOutcome::Unknown), "{error}");
    }
    call(&host, "look", json!({})).await.expect("a readable answer follows, and the circuit is closed");
}

#[tokio::test]
async fn g07_an_answer_over_the_limit_on_an_old_sse_stream_fails_only_its_call() {
    let server = serve(legacy()).await;
    let mut limits = spec_over(&server.sse_url(), UrlTransport::Sse);
    limits.max_message = 64 << 10;
    let host = ready_host(limits).await;
    let other = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "counter", json!({ "ms": 300 })).await }
    });
    while server.counter() == 0 {
        tokio::task::yield_now().await;
    }
    let huge = json!({ "how": "huge_frame", "size": 1 << 20 });
    let error = call(&host, "misbehave", huge).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::UpstreamProtocol, CallOutcome::Unknown), "{error}");
    assert!(error.text.contains("`max_message`"), "{error}");
    assert!(other.await.unwrap().is_ok(), "an innocent call with a side effect");
    assert_eq!(echo(&host, "small").await.as_deref(), Ok("small"));
    assert_eq!((server.calls(), server.initializes()), (3, 1));
}

#[tokio::test]
async fn e03_a_401_with_or_without_a_challenge_needs_a_login() {
    for bare_unauthorized in [false, true] {
        let faults =
            Faults { require_bearer: Some("right".to_owned()), bare_unauthorized, ..Faults::default() };
        let server = serve(with(faults)).await;
        for spec in [spec(&server.url()), with_header(spec(&server.url()), "authorization", "Bearer wrong")] {
            let host = host(spec);
            let status = wait_for_state(&host, State::NeedsLogin).await.supervision;
            assert!(status.cause.unwrap().contains("401"));
            assert_eq!(status.next_action, Some(NextAction::Login));
            let error = count(&host, "never").await.unwrap_err();
            assert_eq!((error.code, error.outcome), (Code::NeedsLogin, CallOutcome::NotSent), "{error}");
            assert_eq!(error.to_json()["needs_reauth"], true);
        }
        let right = with_header(spec(&server.url()), "authorization", "Bearer right");
        assert_eq!(count(&ready_host(right).await, "one").await.as_deref(), Ok("1"));
    }
}

#[tokio::test]
async fn e03_a_credential_refused_later_needs_a_login_and_executes_nothing() {
    for options in [legacy(), modern()] {
        let server = serve(options).await;
        let host = ready_host(spec(&server.url())).await;
        server.set_faults(Faults { require_bearer: Some("new".to_owned()), ..Faults::default() });
        let refused = Instant::now();
        // It may be an ingress that answers for a restarting server, so it is retried for a while.
        count(&host, "held").await.unwrap_err();
        wait_for_state(&host, State::NeedsLogin).await;
        assert!(refused.elapsed() < Duration::from_secs(20), "{:?}", refused.elapsed());
        let error = count(&host, "never").await.unwrap_err();
        assert_eq!(error.code, Code::NeedsLogin, "{error}");
        assert_eq!(error.to_json()["needs_reauth"], true);
        assert!(error.hint.unwrap().contains("gripfast login demo"));
        assert_eq!(status(&host).supervision.state, State::NeedsLogin);
        assert!(server.counter_keys().is_empty());
        server.set_faults(Faults::default());
        host.reconnect(crate::http_host::NAME).unwrap();
        crate::http_host::wait_until_ready(&host).await;
        assert_eq!(count(&host, "one").await.as_deref(), Ok("1"));
    }
}

#[tokio::test]
async fn an_unresolvable_name_and_a_refused_connect_have_clear_causes() {
    let nowhere = free_address().await;
    for (url, cause) in [
        ("http://no-such-host.invalid/mcp".to_owned(), "its name does not resolve"),
        (format!("http://{nowhere}/mcp"), "connection refused"),
    ] {
        for transport in [UrlTransport::Auto, UrlTransport::Sse] {
            let host = host(spec_over(&url, transport));
            let away = wait_until(&host, |status| status.supervision.cause.is_some()).await.supervision;
            assert!(away.cause.as_ref().unwrap().contains(cause), "{url}: {away:?}");
            assert!(matches!(away.state, State::Starting | State::Reconnecting), "it may come up any moment");
        }
    }
}

#[tokio::test]
async fn b09_a_server_that_is_not_mcp_is_a_config_error_without_retry_storm() {
    let html = [("content-type", "text/html")];
    let answers = [
        (response(200, &html, "<html>welcome"), "text/html"),
        (response(404, &html, "<html>not here"), "HTTP 404"),
        (response(405, &[], ""), "HTTP 405"),
        (
            response(200, &[("content-type", "application/json")], "{\"status\":\"ok\"}"),
            "not a JSON-RPC response",
        ),
    ];
    for (answer, cause) in answers {
        let script = ScriptedServer::new(move |_| ScriptedAction::Respond(answer.clone())).await;
        let host = host(spec(&script.url()));
        let blocked = wait_for_state(&host, State::ConfigError).await.supervision;
        assert!(blocked.cause.as_ref().unwrap().contains(cause), "{cause}: {blocked:?}");
        assert_eq!(blocked.next_action, Some(NextAction::Configure));
        assert!(blocked.next_attempt.unwrap() > Duration::from_secs(30), "re-tried slowly: {blocked:?}");
        let asked = script.requests().len();
        assert!(asked <= 3, "modern, legacy, and the old stream: {asked}");
        let error = call(&host, "anything", json!({})).await.unwrap_err();
        assert_eq!((error.code, error.outcome), (Code::Unreachable, CallOutcome::NotSent), "{error}");
        assert!(error.text.contains(cause), "{error}");
        assert_eq!(script.requests().len(), asked, "a call does not touch it");
    }
}

#[tokio::test]
async fn b02_a_transient_handshake_error_is_retried_soon() {
    let moments = Arc::new(AtomicUsize::new(0));
    let script = ScriptedServer::new(move |request| match moments.fetch_add(1, Ordering::Relaxed) {
        0..=2 => ScriptedAction::Respond(response(503, &[("retry-after", "0")], "starting")),
        3..=5 => ScriptedAction::Respond(response(502, &[], "bad gateway")),
        _ => respond_normally(request),
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    call(&host, "act", json!({})).await.unwrap();
}

#[tokio::test]
async fn c01_a_url_with_secrets_is_never_shown_with_them() {
    let server = serve(legacy()).await;
    let url = server.url().replace("http://", "http://me:s3cret@") + "?api_key=s3cret";
    let host = ready_host(spec(&url)).await;
    let shown = format!("{:?}", host.status());
    assert!(!shown.contains("s3cret"), "{shown}");
    server.stop().await;
    let away = wait_for_state(&host, State::Reconnecting).await;
    assert!(!format!("{away:?}").contains("s3cret"));
}

#[tokio::test]
async fn a_secret_that_a_failing_server_repeats_is_redacted() {
    let server = ScriptedServer::new(|request| {
        let shown = ["authorization", "x-api-key"].map(|name| request.header(name).unwrap_or_default());
        respond_text(500, &format!("cannot look up {}", shown.join(" and ")))
    })
    .await;
    let spec = with_header(spec(&server.url()), "authorization", "Bearer correct-horse");
    let host = host(with_header(spec, "x-api-key", "battery-staple"));
    let cause =
        wait_until(&host, |status| status.supervision.cause.is_some()).await.supervision.cause.unwrap();
    let stars = |secret: &str| "*".repeat(secret.len());
    let shown = format!("cannot look up {} and {}", stars("Bearer correct-horse"), stars("battery-staple"));
    assert!(cause.contains(&shown), "{cause}");
}

#[tokio::test]
async fn the_transport_of_a_server_has_a_name_before_the_first_connect() {
    let nowhere = format!("http://{}/mcp", free_address().await);
    for (transport, word) in
        [(UrlTransport::Auto, "auto"), (UrlTransport::Http, "http"), (UrlTransport::Sse, "sse")]
    {
        for disabled in [false, true] {
            let host = host(ServerSpec { disabled, ..spec_over(&nowhere, transport) });
            assert_eq!(status(&host).transport, Some(word), "disabled: {disabled}");
        }
    }
    let server = serve(legacy()).await;
    assert_eq!(status(&ready_host(spec(&server.url())).await).transport, Some("http"));
}

//! Progress, concurrent calls, and cancellation.

use crate::http_host::{
    NAME, call, echo, legacy, modern, raw, ready_host, serve, spec_over, status, within_timeout,
};
use crate::scripted_server::{ScriptedAction, ScriptedServer, response};
use gripfast::config::UrlTransport;
use gripfast::transport::Listener;
use gripfast::{Answer, CallError, CallOptions, Host};
use gripfast_demo::{Options, RunningServer};
use gripfast_testkit::wait::until;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

struct Recorder(Arc<Mutex<Vec<Value>>>);

impl Listener for Recorder {
    fn on_message(&self, message: &[u8]) {
        self.0.lock().unwrap().push(serde_json::from_slice(message).unwrap());
    }
}

/// A message recorder, and the listener that fills it.
pub(crate) fn recorder() -> (Arc<Mutex<Vec<Value>>>, Arc<dyn Listener>) {
    let messages = Arc::<Mutex<Vec<Value>>>::default();
    (Arc::clone(&messages), Arc::new(Recorder(messages)))
}

/// All transports and eras of the sample server.
fn transports() -> [(Options, UrlTransport); 3] {
    [(legacy(), UrlTransport::Http), (modern(), UrlTransport::Http), (legacy(), UrlTransport::Sse)]
}

async fn connect((options, transport): (Options, UrlTransport)) -> (RunningServer, Host) {
    let server = serve(options).await;
    let url = if transport == UrlTransport::Sse { server.sse_url() } else { server.url() };
    let host = ready_host(spec_over(&url, transport)).await;
    if status(&host).era == Some("modern") {
        until("it listens", || server.in_flight() == 1).await;
    }
    (server, host)
}

/// Requests that are always open: the subscription stream of the modern era.
fn open_subscriptions(host: &Host) -> usize {
    usize::from(status(host).era == Some("modern"))
}

async fn sleep_with_token(host: &Host, ms: u64, token: Value) -> (Result<Answer, CallError>, Vec<Value>) {
    let (messages, listener) = recorder();
    let params = json!({ "name": "sleep", "arguments": { "ms": ms }, "_meta": { "progressToken": token } });
    let options = CallOptions { listener: Some(listener), ..CallOptions::default() };
    let answer = within_timeout(host.request_with(NAME, "tools/call", Some(&raw(&params)), options)).await;
    let messages = messages.lock().unwrap().clone();
    (answer, messages)
}

#[tokio::test]
async fn progress_has_the_callers_own_token() {
    for way in transports() {
        let (_server, host) = connect(way).await;
        for token in [json!("mine"), json!(7), json!(0.5)] {
            let (answer, messages) = sleep_with_token(&host, 250, token.clone()).await;
            answer.unwrap();
            let told: Vec<_> = messages
                .iter()
                .map(|said| (&said["params"]["progressToken"], &said["params"]["progress"]))
                .collect();
            assert_eq!(told, [(&token, &json!(100)), (&token, &json!(200))], "{messages:?}");
            assert!(messages.iter().all(|said| said["method"] == "notifications/progress"));
        }
    }
}

#[tokio::test]
async fn two_calls_with_the_same_token_get_only_their_own_progress() {
    for way in transports() {
        let (_server, host) = connect(way).await;
        let (one, two) =
            tokio::join!(sleep_with_token(&host, 250, json!("t")), sleep_with_token(&host, 350, json!("t")));
        for ((answer, messages), (total, times)) in [(one, (250, 2)), (two, (350, 3))] {
            answer.unwrap();
            assert_eq!(messages.len(), times, "{messages:?}");
            assert!(messages.iter().all(|said| said["params"]["total"] == total), "{messages:?}");
        }
    }
}

#[tokio::test]
async fn a_call_without_a_token_is_not_given_one() {
    let server = serve(modern()).await;
    let tap = ScriptedServer::in_front_of(server.addr()).await;
    let host = ready_host(crate::http_host::spec(&tap.url())).await;
    echo(&host, "hi").await.unwrap();
    assert!(tap.requests_for("tools/call")[0].json()["params"]["_meta"].get("progressToken").is_none());
}

#[tokio::test]
async fn c06_slow_calls_run_side_by_side() {
    for way in transports() {
        let (server, host) = connect(way).await;
        let standing = open_subscriptions(&host);
        let slow = || call(&host, "sleep", json!({ "ms": 400 }));
        let both = async { tokio::join!(slow(), slow()) };
        let seen = until("two at once", || server.in_flight() == standing + 2);
        let ((one, two), ()) = tokio::join!(both, seen);
        one.unwrap();
        two.unwrap();
    }
}

#[tokio::test]
async fn c06_more_calls_than_slots_wait_their_turn() {
    let server = serve(legacy()).await;
    let mut narrow = crate::http_host::spec(&server.url());
    narrow.supervision.max_in_flight = 2;
    narrow.supervision.max_waiting = 3;
    let host = ready_host(narrow).await;
    let calls = (0..6).map(|_| call(&host, "sleep", json!({ "ms": 100 })));
    let answers = futures_util::future::join_all(calls).await;
    let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!(refused.len(), 1, "2 go, 3 wait, 1 is too many: {refused:?}");
    assert_eq!(refused[0].code, gripfast::Code::Overloaded);
}

#[tokio::test]
async fn c07_a_dropped_call_is_cancelled_at_the_server_and_no_other_call() {
    for way in transports() {
        let (server, host) = connect(way).await;
        let standing = open_subscriptions(&host);
        let before = status(&host).supervision;
        let begin = |ms: u64| {
            let host = host.clone();
            tokio::spawn(async move { call(&host, "sleep", json!({ "ms": ms })).await })
        };
        let (dropped, other) = (begin(60_000), begin(500));
        until("both are there", || server.in_flight() == standing + 2).await;
        dropped.abort();
        until("the server has let go of it", || server.in_flight() == standing + 1).await;
        assert_eq!(status(&host).supervision.in_flight, 1, "its slot is free");
        assert_eq!(crate::http_host::text_of(&within_timeout(other).await.unwrap().unwrap()), "slept 500 ms");
        let after = status(&host).supervision;
        assert_eq!((after.epoch, after.restarts), (before.epoch, before.restarts), "C08: no reconnect");
        assert_eq!(after.consecutive_failures, 0, "B12: not counted");
        assert_eq!(echo(&host, "next").await.as_deref(), Ok("next"));
    }
}

#[tokio::test]
async fn c07_a_lost_cancellation_is_sent_again() {
    for transport in [UrlTransport::Http, UrlTransport::Sse] {
        let server = serve(legacy()).await;
        let (addr, lost) = (server.addr(), Arc::new(AtomicUsize::new(0)));
        let tap = ScriptedServer::new({
            let lost = Arc::clone(&lost);
            move |request| match request.rpc().as_str() {
                "notifications/cancelled" if lost.fetch_add(1, Ordering::Relaxed) < 2 => {
                    ScriptedAction::Respond(Vec::new())
                }
                _ => ScriptedAction::Forward(addr),
            }
        })
        .await;
        let url = if transport == UrlTransport::Sse { tap.url_for("/sse") } else { tap.url() };
        let host = ready_host(spec_over(&url, transport)).await;
        let calling = {
            let host = host.clone();
            tokio::spawn(async move { call(&host, "sleep", json!({ "ms": 60_000 })).await })
        };
        until("it is there", || server.in_flight() == 1).await;
        calling.abort();
        until("the server has let go of it", || server.in_flight() == 0).await;
        assert!(lost.load(Ordering::Relaxed) >= 3);
    }
}

#[tokio::test]
async fn c07_a_cancellation_that_overtakes_its_call_is_sent_again() {
    for transport in [UrlTransport::Http, UrlTransport::Sse] {
        let server = serve(legacy()).await;
        let (addr, cancelled, cancels) = (server.addr(), Arc::new(Notify::new()), AtomicUsize::new(0));
        let tap = ScriptedServer::new(move |request| match request.rpc().as_str() {
            "tools/call" => ScriptedAction::ForwardWhenNotified(Arc::clone(&cancelled), addr),
            // Response of a server to the cancellation of a call that it does not know yet.
            "notifications/cancelled" if cancels.fetch_add(1, Ordering::Relaxed) == 0 => {
                cancelled.notify_one();
                ScriptedAction::Respond(response(202, &[], ""))
            }
            _ => ScriptedAction::Forward(addr),
        })
        .await;
        let url = if transport == UrlTransport::Sse { tap.url_for("/sse") } else { tap.url() };
        let host = ready_host(spec_over(&url, transport)).await;
        let calling = {
            let host = host.clone();
            tokio::spawn(async move { call(&host, "sleep", json!({ "ms": 60_000 })).await })
        };
        until("it is on its way", || tap.requests_for("tools/call").len() == 1).await;
        calling.abort();
        until("it has been there", || server.calls() == 1).await;
        until("the server has let go of it", || server.in_flight() == 0).await;
    }
}

#[tokio::test]
async fn c08_many_dropped_calls_do_not_affect_the_link() {
    for way in transports() {
        let (server, host) = connect(way).await;
        let (standing, epoch) = (open_subscriptions(&host), status(&host).supervision.epoch);
        for _ in 0..10 {
            let host = host.clone();
            let calling =
                tokio::spawn(async move { call(&host, "misbehave", json!({ "how": "hang" })).await });
            until("it is there", || server.in_flight() == standing + 1).await;
            calling.abort();
            until("it is gone", || server.in_flight() == standing).await;
        }
        assert_eq!(echo(&host, "next").await.as_deref(), Ok("next"));
        assert_eq!(status(&host).supervision.epoch, epoch);
    }
}

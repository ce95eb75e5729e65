//! Progress, side by side, and changing one's mind.

use crate::script::{Act, Script, response};
use crate::stage::{
    NAME, call, echo, eventually, legacy, modern, promptly, raw, ready_host, serve, spec_over, status,
};
use gripfast::config::UrlTransport;
use gripfast::transport::Listener;
use gripfast::{Answer, CallError, CallOptions, Host};
use gripfast_demo::{Options, RunningServer};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

struct Recorder(Arc<Mutex<Vec<Value>>>);

impl Listener for Recorder {
    fn said(&self, message: &[u8]) {
        self.0.lock().unwrap().push(serde_json::from_slice(message).unwrap());
    }
}

/// What was heard, and who hears it.
pub(crate) fn recorder() -> (Arc<Mutex<Vec<Value>>>, Arc<dyn Listener>) {
    let heard = Arc::<Mutex<Vec<Value>>>::default();
    (Arc::clone(&heard), Arc::new(Recorder(heard)))
}

/// Every way to speak to the sample server.
fn ways() -> [(Options, UrlTransport); 3] {
    [(legacy(), UrlTransport::Http), (modern(), UrlTransport::Http), (legacy(), UrlTransport::Sse)]
}

async fn reach((options, transport): (Options, UrlTransport)) -> (RunningServer, Host) {
    let server = serve(options).await;
    let url = if transport == UrlTransport::Sse { server.sse_url() } else { server.url() };
    let host = ready_host(spec_over(&url, transport)).await;
    if status(&host).era == Some("modern") {
        eventually("it listens", || server.in_flight() == 1).await;
    }
    (server, host)
}

/// Requests that are always there: the subscription of the modern era.
fn standing(host: &Host) -> usize {
    usize::from(status(host).era == Some("modern"))
}

async fn sleep_with_token(host: &Host, ms: u64, token: Value) -> (Result<Answer, CallError>, Vec<Value>) {
    let (heard, listener) = recorder();
    let params = json!({ "name": "sleep", "arguments": { "ms": ms }, "_meta": { "progressToken": token } });
    let options = CallOptions { listener: Some(listener), ..CallOptions::default() };
    let answer = promptly(host.request_with(NAME, "tools/call", Some(raw(&params)), options)).await;
    let heard = heard.lock().unwrap().clone();
    (answer, heard)
}

#[tokio::test]
async fn progress_is_heard_under_the_callers_own_token() {
    for way in ways() {
        let (_server, host) = reach(way).await;
        for token in [json!("mine"), json!(7), json!(0.5)] {
            let (answer, heard) = sleep_with_token(&host, 250, token.clone()).await;
            answer.unwrap();
            let told: Vec<_> = heard
                .iter()
                .map(|said| (&said["params"]["progressToken"], &said["params"]["progress"]))
                .collect();
            assert_eq!(told, [(&token, &json!(100)), (&token, &json!(200))], "{heard:?}");
            assert!(heard.iter().all(|said| said["method"] == "notifications/progress"));
        }
    }
}

#[tokio::test]
async fn two_calls_with_the_same_token_hear_their_own_progress_only() {
    for way in ways() {
        let (_server, host) = reach(way).await;
        let (one, two) =
            tokio::join!(sleep_with_token(&host, 250, json!("t")), sleep_with_token(&host, 350, json!("t")));
        for ((answer, heard), (total, times)) in [(one, (250, 2)), (two, (350, 3))] {
            answer.unwrap();
            assert_eq!(heard.len(), times, "{heard:?}");
            assert!(heard.iter().all(|said| said["params"]["total"] == total), "{heard:?}");
        }
    }
}

#[tokio::test]
async fn a_call_without_a_token_is_not_given_one() {
    let server = serve(modern()).await;
    let tap = Script::in_front_of(server.addr()).await;
    let host = ready_host(crate::stage::spec(&tap.url())).await;
    echo(&host, "hi").await.unwrap();
    assert!(tap.calls_of("tools/call")[0].json()["params"]["_meta"].get("progressToken").is_none());
}

#[tokio::test]
async fn c06_slow_calls_run_side_by_side() {
    for way in ways() {
        let (server, host) = reach(way).await;
        let standing = standing(&host);
        let slow = || call(&host, "sleep", json!({ "ms": 400 }));
        let both = async { tokio::join!(slow(), slow()) };
        let seen = eventually("two at once", || server.in_flight() == standing + 2);
        let ((one, two), ()) = tokio::join!(both, seen);
        one.unwrap();
        two.unwrap();
    }
}

#[tokio::test]
async fn c06_more_calls_than_slots_wait_their_turn() {
    let server = serve(legacy()).await;
    let mut narrow = crate::stage::spec(&server.url());
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
async fn c07_a_dropped_call_reaches_the_server_and_no_other_call() {
    for way in ways() {
        let (server, host) = reach(way).await;
        let standing = standing(&host);
        let before = status(&host).supervision;
        let begin = |ms: u64| {
            let host = host.clone();
            tokio::spawn(async move { call(&host, "sleep", json!({ "ms": ms })).await })
        };
        let (dropped, other) = (begin(60_000), begin(500));
        eventually("both are there", || server.in_flight() == standing + 2).await;
        dropped.abort();
        eventually("the server has let go of it", || server.in_flight() == standing + 1).await;
        assert_eq!(status(&host).supervision.in_flight, 1, "its slot is free");
        assert_eq!(crate::stage::said(&promptly(other).await.unwrap().unwrap()), "slept 500 ms");
        let after = status(&host).supervision;
        assert_eq!((after.epoch, after.restarts), (before.epoch, before.restarts), "C08: no reconnect");
        assert_eq!(after.consecutive_failures, 0, "B12: not counted");
        assert_eq!(echo(&host, "next").await.as_deref(), Ok("next"));
    }
}

#[tokio::test]
async fn c07_a_cancel_that_gets_lost_on_the_way_is_said_again() {
    for transport in [UrlTransport::Http, UrlTransport::Sse] {
        let server = serve(legacy()).await;
        let (addr, lost) = (server.addr(), Arc::new(AtomicUsize::new(0)));
        let tap = Script::new({
            let lost = Arc::clone(&lost);
            move |heard| match heard.rpc().as_str() {
                "notifications/cancelled" if lost.fetch_add(1, Ordering::Relaxed) < 2 => Act::Say(Vec::new()),
                _ => Act::PassOn(addr),
            }
        })
        .await;
        let url = if transport == UrlTransport::Sse { tap.at("/sse") } else { tap.url() };
        let host = ready_host(spec_over(&url, transport)).await;
        let calling = {
            let host = host.clone();
            tokio::spawn(async move { call(&host, "sleep", json!({ "ms": 60_000 })).await })
        };
        eventually("it is there", || server.in_flight() == 1).await;
        calling.abort();
        eventually("the server has let go of it", || server.in_flight() == 0).await;
        assert!(lost.load(Ordering::Relaxed) >= 3);
    }
}

#[tokio::test]
async fn c07_a_cancel_that_overtakes_its_call_is_said_again() {
    for transport in [UrlTransport::Http, UrlTransport::Sse] {
        let server = serve(legacy()).await;
        let (addr, cancelled, cancels) = (server.addr(), Arc::new(Notify::new()), AtomicUsize::new(0));
        let tap = Script::new(move |heard| match heard.rpc().as_str() {
            "tools/call" => Act::PassOnOnce(Arc::clone(&cancelled), addr),
            // What a server says to the cancelling of a call that it does not know yet.
            "notifications/cancelled" if cancels.fetch_add(1, Ordering::Relaxed) == 0 => {
                cancelled.notify_one();
                Act::Say(response(202, &[], ""))
            }
            _ => Act::PassOn(addr),
        })
        .await;
        let url = if transport == UrlTransport::Sse { tap.at("/sse") } else { tap.url() };
        let host = ready_host(spec_over(&url, transport)).await;
        let calling = {
            let host = host.clone();
            tokio::spawn(async move { call(&host, "sleep", json!({ "ms": 60_000 })).await })
        };
        eventually("it is on its way", || tap.calls_of("tools/call").len() == 1).await;
        calling.abort();
        eventually("it has been there", || server.calls() == 1).await;
        eventually("the server has let go of it", || server.in_flight() == 0).await;
    }
}

#[tokio::test]
async fn c08_many_dropped_calls_do_not_trouble_the_link() {
    for way in ways() {
        let (server, host) = reach(way).await;
        let (standing, epoch) = (standing(&host), status(&host).supervision.epoch);
        for _ in 0..10 {
            let host = host.clone();
            let calling =
                tokio::spawn(async move { call(&host, "misbehave", json!({ "how": "hang" })).await });
            eventually("it is there", || server.in_flight() == standing + 1).await;
            calling.abort();
            eventually("it is gone", || server.in_flight() == standing).await;
        }
        assert_eq!(echo(&host, "next").await.as_deref(), Ok("next"));
        assert_eq!(status(&host).supervision.epoch, epoch);
    }
}

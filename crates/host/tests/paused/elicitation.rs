//! Requests of servers to clients, and the cost of a server that sends them without end.

use crate::memory_server::*;
use bytes::Bytes;
use gripfast::config::Isolation;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::{CallOptions, Client, ClientKey, Principal};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A client that never answers a request.
#[derive(Default)]
struct NeverAnswers {
    asked: AtomicUsize,
}

impl Listener for NeverAnswers {
    fn on_message(&self, _message: &[u8]) {}

    fn on_request(&self, _request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Some(Box::pin(std::future::pending()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_elicitations_in_a_call_is_bounded() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.stop_taking_answers();
    server.queue_actions([CallAction::AskMany(10_000)]);
    let caller = Arc::new(NeverAnswers::default());
    let listener: Arc<dyn Listener> = Arc::clone(&caller) as Arc<dyn Listener>;
    let options = CallOptions { listener: Some(listener), ..CallOptions::default() };
    let params = raw(json!({ "name": "act", "arguments": {} }));
    host.request_with("it", "tools/call", Some(&params), options).await.unwrap();
    assert_eq!(caller.asked.load(Ordering::Relaxed), 64, "the others were declined");
    run_ready_tasks().await;
    assert_eq!(server.answers_begun(), INITIALIZED + 8, "of the declined ones a few are on their way");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_reads_no_responses_causes_no_unbounded_work() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.stop_taking_answers();
    for number in 0..2000 {
        server.send_message(elicitation(number)).await;
    }
    run_ready_tasks().await;
    assert_eq!(server.answers_begun(), INITIALIZED + 8);
    call(&host, "act", "after").await.unwrap();
    assert_eq!(server.connects(), 1);
}

/// The one message of the handshake without a response.
const INITIALIZED: u64 = 1;

#[tokio::test(start_paused = true)]
async fn c06_calls_with_open_elicitations_free_their_slots_up_to_a_limit() {
    let mut few = spec();
    few.supervision.max_in_flight = 4;
    few.isolation = Isolation::Shared;
    let (host, server) = host_with_spec(LinkKind::Process, few).await;
    let caller = Arc::new(NeverAnswers::default());
    let of = |name: &str| {
        let (host, listener) = (host.clone(), Arc::clone(&caller) as Arc<dyn Listener>);
        let client = Some(Client::with_key(ClientKey::new(name)));
        let options = CallOptions { client, listener: Some(listener), ..CallOptions::default() };
        let params = raw(json!({ "name": "act", "arguments": { "key": name } }));
        async move { host.request_with("it", "tools/call", Some(&params), options).await }
    };
    server.set_default_action(CallAction::AskThenWork(Duration::ZERO));
    let asked: Vec<_> = (0..4).map(|_| tokio::spawn(of("ann"))).collect();
    run_ready_tasks().await;
    assert_eq!(caller.asked.load(Ordering::Relaxed), 4);
    server.set_default_action(CallAction::Answer);
    let started = Instant::now();
    of("ben").await.expect("elicitations of another principal block no call");
    assert_eq!(started.elapsed(), Duration::ZERO);
    let error = of("ann").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("overloaded", "not_sent"));
    assert!(error.text.contains("in 4 calls"), "{error}");
    for call in asked {
        call.abort();
        let _ = call.await;
    }
    run_ready_tasks().await;
    of("ann").await.expect("nothing is left of calls that were given up");
    let slow: Vec<_> = (0..5)
        .map(|_| {
            server.queue_actions([CallAction::AnswerAfter(Duration::from_secs(1))]);
            tokio::spawn(of("ben"))
        })
        .collect();
    for call in slow {
        call.await.unwrap().unwrap();
    }
    assert_eq!(
        server.most_in_flight(),
        5,
        "four that wait for a person and one beside them, then four at a time"
    );
}

#[tokio::test(start_paused = true)]
async fn c06_calls_with_open_elicitations_are_limited_per_principal() {
    let mut few = spec();
    few.supervision.max_in_flight = 4;
    few.isolation = Isolation::Shared;
    let (host, server) = host_with_spec(LinkKind::Process, few).await;
    let caller = Arc::new(NeverAnswers::default());
    let of = |principal: &str, session: u32| {
        let (host, listener) = (host.clone(), Arc::clone(&caller) as Arc<dyn Listener>);
        let client = Client::with_key(ClientKey::new(format!("{principal} {session}")));
        let client = Some(client.with_principal(Principal::new(principal.to_owned())));
        let options = CallOptions { client, listener: Some(listener), ..CallOptions::default() };
        let params = raw(json!({ "name": "act", "arguments": { "key": principal } }));
        async move { host.request_with("it", "tools/call", Some(&params), options).await }
    };
    server.set_default_action(CallAction::AskThenWork(Duration::ZERO));
    let asked: Vec<_> = (0..4).map(|session| tokio::spawn(of("ann", session))).collect();
    run_ready_tasks().await;
    assert_eq!(caller.asked.load(Ordering::Relaxed), 4);
    server.set_default_action(CallAction::Answer);
    let error = of("ann", 4).await.unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.outcome.as_str()),
        ("overloaded", "not_sent"),
        "in a fifth session"
    );
    of("ben", 0).await.expect("elicitations of another principal block no call");
    asked.iter().for_each(tokio::task::JoinHandle::abort);
    run_ready_tasks().await;
    of("ann", 4).await.expect("nothing is left of calls that were given up");
}

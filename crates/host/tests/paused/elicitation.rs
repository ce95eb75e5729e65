//! Servers that ask: whom, and what a server that asks without end costs.

use crate::world::*;
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

/// A caller that thinks about every question for ever.
#[derive(Default)]
struct Thoughtful {
    asked: AtomicUsize,
}

impl Listener for Thoughtful {
    fn said(&self, _message: &[u8]) {}

    fn asked(&self, _request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Some(Box::pin(std::future::pending()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_flooded_with_questions_asks_its_caller_a_bounded_number() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.stop_taking_answers();
    server.next_acts([Act::AskAtOnce(10_000)]);
    let caller = Arc::new(Thoughtful::default());
    let listener: Arc<dyn Listener> = Arc::clone(&caller) as Arc<dyn Listener>;
    let options = CallOptions { listener: Some(listener), ..CallOptions::default() };
    let params = raw(json!({ "name": "act", "arguments": {} }));
    host.request_with("it", "tools/call", Some(params), options).await.unwrap();
    assert_eq!(caller.asked.load(Ordering::Relaxed), 64, "the others were declined");
    settle().await;
    assert_eq!(server.answers_begun(), INITIALIZED + 8, "of the declined ones a few are on their way");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_outside_any_call_and_takes_no_answer_keeps_nobody_busy() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.stop_taking_answers();
    for number in 0..2000 {
        server.say(question(number)).await;
    }
    settle().await;
    assert_eq!(server.answers_begun(), INITIALIZED + 8);
    call(&host, "act", "after").await.unwrap();
    assert_eq!(server.dials(), 1);
}

/// The one message of the handshake that has no answer.
const INITIALIZED: u64 = 1;

#[tokio::test(start_paused = true)]
async fn c06_calls_that_wait_for_a_person_give_their_slots_back_and_are_bounded_for_each_client() {
    let mut few = spec();
    few.supervision.max_in_flight = 4;
    few.isolation = Isolation::Shared;
    let (host, server) = host_with_spec(LinkKind::Process, few).await;
    let caller = Arc::new(Thoughtful::default());
    let of = |name: &str| {
        let (host, listener) = (host.clone(), Arc::clone(&caller) as Arc<dyn Listener>);
        let client = Some(Client::one(ClientKey::new(name)));
        let options = CallOptions { client, listener: Some(listener), ..CallOptions::default() };
        let params = raw(json!({ "name": "act", "arguments": { "key": name } }));
        async move { host.request_with("it", "tools/call", Some(params), options).await }
    };
    server.always(Act::AskThenWork(Duration::ZERO));
    let asked: Vec<_> = (0..4).map(|_| tokio::spawn(of("ann"))).collect();
    settle().await;
    assert_eq!(caller.asked.load(Ordering::Relaxed), 4);
    server.always(Act::Answer);
    let begun = Instant::now();
    of("ben").await.expect("a question to somebody else blocks nobody");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let error = of("ann").await.unwrap_err();
    assert_eq!((error.code.word(), error.outcome.word()), ("overloaded", "not_sent"));
    assert!(error.text.contains("4 questions"), "{error}");
    for call in asked {
        call.abort();
        let _ = call.await;
    }
    settle().await;
    of("ann").await.expect("nothing is left of calls that were given up");
    let slow: Vec<_> = (0..5)
        .map(|_| {
            server.next_acts([Act::Slowly(Duration::from_secs(1))]);
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
async fn c06_calls_that_wait_for_a_person_are_bounded_for_each_principal_over_all_its_sessions() {
    let mut few = spec();
    few.supervision.max_in_flight = 4;
    few.isolation = Isolation::Shared;
    let (host, server) = host_with_spec(LinkKind::Process, few).await;
    let caller = Arc::new(Thoughtful::default());
    let of = |principal: &str, session: u32| {
        let (host, listener) = (host.clone(), Arc::clone(&caller) as Arc<dyn Listener>);
        let client = Client::one(ClientKey::new(format!("{principal} {session}")));
        let client = Some(client.on_behalf_of(Principal::named(principal.to_owned())));
        let options = CallOptions { client, listener: Some(listener), ..CallOptions::default() };
        let params = raw(json!({ "name": "act", "arguments": { "key": principal } }));
        async move { host.request_with("it", "tools/call", Some(params), options).await }
    };
    server.always(Act::AskThenWork(Duration::ZERO));
    let asked: Vec<_> = (0..4).map(|session| tokio::spawn(of("ann", session))).collect();
    settle().await;
    assert_eq!(caller.asked.load(Ordering::Relaxed), 4);
    server.always(Act::Answer);
    let error = of("ann", 4).await.unwrap_err();
    assert_eq!((error.code.word(), error.outcome.word()), ("overloaded", "not_sent"), "in a fifth session");
    of("ben", 0).await.expect("a question to somebody else blocks nobody");
    asked.iter().for_each(tokio::task::JoinHandle::abort);
    settle().await;
    of("ann", 4).await.expect("nothing is left of calls that were given up");
}

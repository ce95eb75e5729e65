//! Servers that ask: whom, and what a server that asks without end costs.

use crate::world::*;
use bytes::Bytes;
use gripfast::CallOptions;
use gripfast::transport::{BoxFuture, Listener};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

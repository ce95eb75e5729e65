//! A request that is given up while its transport is about to begin with it: whether it was sent is known only when it
//! has been withdrawn.

use crate::meddled::{Fate, Meddled, Meddler};
use crate::world::*;
use gripfast::transport::{Dialer, Outgoing, SentMark};
use gripfast::{Host, SpawnOptions, State};
use gripfast_core::supervise::upstream::LinkKind;
use std::sync::Arc;
use std::time::Duration;

/// Begins to write a call in the very moment in which it is withdrawn.
struct LateWriter;

struct WrittenAfterAll(Arc<SentMark>);

impl Drop for WrittenAfterAll {
    fn drop(&mut self) {
        self.0.set();
    }
}

impl Meddler for LateWriter {
    fn meddle(&self, request: &Outgoing) -> Option<Fate> {
        if request.method != "tools/call" {
            return None;
        }
        let written = WrittenAfterAll(Arc::clone(&request.sent));
        Some(Box::pin(async move {
            let _written = written;
            std::future::pending().await
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn c05_a_request_that_was_begun_while_it_was_withdrawn_is_not_said_to_be_unsent() {
    let (host, mut spec) = (Host::builder().build(), spec());
    spec.supervision.timeouts.call = Duration::from_secs(20);
    let server = Server::new(LinkKind::Process);
    let dialer: Arc<dyn Dialer> = Arc::new(Meddled(server, Arc::new(LateWriter)));
    host.spawn_with("it", spec, SpawnOptions { dialer: Some(dialer), ..SpawnOptions::default() }).unwrap();
    until(&host, State::Ready).await;
    let error = call(&host, "act", "late").await.unwrap_err();
    assert_eq!((error.code.word(), error.outcome.word()), ("timeout", "unknown"), "{error}");

    let stopped = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "act", "stopped").await }
    });
    settle().await;
    host.stop("it").unwrap();
    let error = stopped.await.unwrap().unwrap_err();
    assert_eq!((error.code.word(), error.outcome.word()), ("outcome_unknown", "unknown"), "{error}");
}

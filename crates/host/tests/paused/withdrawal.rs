//! A request that is cancelled while its transport is about to write it: only after the withdrawal is it known if it
//! was sent.

use crate::intercepting_link::{CallOutcome, InterceptedDialer, RequestInterceptor};
use crate::memory_server::*;
use gripfast::transport::{Dialer, Outgoing, SentFlag};
use gripfast::{Host, SpawnOptions, State};
use gripfast_core::supervise::upstream::LinkKind;
use std::sync::Arc;
use std::time::Duration;

/// Starts to write a call at the moment of its withdrawal.
struct LateWriter;

struct MarkSentOnDrop(Arc<SentFlag>);

impl Drop for MarkSentOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

impl RequestInterceptor for LateWriter {
    fn intercept(&self, request: &Outgoing<'_>) -> Option<CallOutcome> {
        if request.method != "tools/call" {
            return None;
        }
        let written = MarkSentOnDrop(Arc::clone(&request.sent));
        Some(Box::pin(async move {
            let _written = written;
            std::future::pending().await
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn c05_a_request_written_during_its_withdrawal_is_not_reported_as_unsent() {
    let (host, mut spec) = (Host::builder().build(), spec());
    spec.supervision.timeouts.call = Duration::from_secs(20);
    let server = MemoryServer::new(LinkKind::Process);
    let dialer: Arc<dyn Dialer> = Arc::new(InterceptedDialer(server, Arc::new(LateWriter)));
    host.spawn_with("it", spec, SpawnOptions { dialer: Some(dialer), ..SpawnOptions::default() }).unwrap();
    wait_for_state(&host, State::Ready).await;
    let error = call(&host, "act", "late").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("timeout", "unknown"), "{error}");

    let stopped = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "act", "stopped").await }
    });
    run_ready_tasks().await;
    host.stop("it").unwrap();
    let error = stopped.await.unwrap().unwrap_err();
    assert_eq!((error.code.as_str(), error.outcome.as_str()), ("outcome_unknown", "unknown"), "{error}");
}

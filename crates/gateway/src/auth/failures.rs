//! Failed authentications: each failure is recorded, and answers to an address that keeps failing are delayed more and
//! more. Requests with a valid credential are not affected.

use crate::server::quota::{Peer, Quota};
use axum::response::Response;
use gripfast::{AuthFailure, AuthFailures, AuthTarget, Host, RequestSource, network};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Failed authentications of the MCP endpoint or of the admin API.
pub(crate) struct FailedAuth {
    host: Host,
    /// Slots for delayed answers.
    delay_slots: Quota,
    shutdown: CancellationToken,
}

/// Maximum number of delayed answers, in total and per address. Each one occupies a connection, so that answers beyond
/// the limit are sent at once.
const MAX_DELAYED: usize = 1024;
const MAX_DELAYED_PER_ADDRESS: usize = 32;

impl FailedAuth {
    /// Records failures in `host`. `shutdown` ends all delays.
    pub(crate) fn new(host: Host, shutdown: CancellationToken) -> Self {
        Self { host, delay_slots: Quota::new(MAX_DELAYED_PER_ADDRESS, MAX_DELAYED), shutdown }
    }

    /// Records a failure and returns the delay of its answer.
    pub(crate) fn record(
        &self,
        source: RequestSource,
        target: AuthTarget,
        reason: AuthFailure,
        principal: Option<String>,
    ) -> Duration {
        self.host.record_auth_failure(AuthFailures { target, reason, principal, source, count: 1 })
    }

    /// Returns the answer after the delay. The caller must have dropped the request and its body.
    pub(crate) async fn respond_after(
        &self,
        source: RequestSource,
        delay: Duration,
        answer: Response,
    ) -> Response {
        let RequestSource::Address(address) = source else { return answer };
        if delay.is_zero() {
            return answer;
        }
        let Ok(_slot) = self.delay_slots.acquire(&Peer::Address(network(address)), 1) else { return answer };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = self.shutdown.cancelled() => {}
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn g05_delayed_answers_are_limited_per_address_and_end_at_shutdown() {
        let shutdown = CancellationToken::new();
        let failed = FailedAuth::new(Host::builder().build(), shutdown.clone());
        let (started, delay) = (Instant::now(), Duration::from_secs(5));
        let from = |last: u8| RequestSource::Address([192, 0, 2, last].into());
        let answer = || Response::new(Body::empty());
        let waiting = (0..MAX_DELAYED_PER_ADDRESS).map(|_| failed.respond_after(from(1), delay, answer()));
        let all = futures_util::future::join_all(waiting);
        let beyond = async {
            failed.respond_after(from(1), delay, answer()).await;
            assert_eq!(started.elapsed(), Duration::ZERO, "it occupies no connection for long");
            failed.respond_after(RequestSource::ControlSocket, delay, answer()).await;
            assert_eq!(started.elapsed(), Duration::ZERO, "commands on the control socket are not delayed");
            failed.respond_after(from(2), delay, answer()).await;
            assert_eq!(started.elapsed(), delay);
        };
        tokio::join!(all, beyond);
        shutdown.cancel();
        failed.respond_after(from(1), delay, answer()).await;
        assert_eq!(started.elapsed(), delay, "nothing is delayed any more");
    }
}

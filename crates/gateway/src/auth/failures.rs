//! Answers to requests that did not authenticate: each failure is recorded, and an address that goes on failing gets its
//! answers later and later. A request with a valid credential never comes here.

use crate::shares::{Peer, Shares};
use axum::response::Response;
use gripfast::{AuthFailure, AuthFailures, AuthTarget, Host, Source, network};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The failed authentications of one surface: the endpoint of clients, or the admin API.
pub(crate) struct FailedAuth {
    host: Host,
    /// Answers that wait.
    delayed: Shares,
    leaving: CancellationToken,
}

/// Answers that wait at a time, and of one address. Beyond it they are sent at once: each of them holds a connection.
const DELAYED: usize = 1024;
const DELAYED_OF_ONE: usize = 32;

impl FailedAuth {
    /// Of a gateway in front of `host`. No answer waits any more once it is `leaving`.
    pub(crate) fn new(host: Host, leaving: CancellationToken) -> Self {
        Self { host, delayed: Shares::new(DELAYED_OF_ONE, DELAYED), leaving }
    }

    /// Records a failure, and says how long its answer is to wait.
    pub(crate) fn record(
        &self,
        source: Source,
        target: AuthTarget,
        reason: AuthFailure,
        principal: Option<String>,
    ) -> Duration {
        self.host.auth_failed(AuthFailures { target, reason, principal, source, count: 1 })
    }

    /// The answer, when it is time for it. The caller has let go of the request and its body.
    pub(crate) async fn delayed(&self, source: Source, delay: Duration, answer: Response) -> Response {
        let Source::Address(address) = source else { return answer };
        if delay.is_zero() {
            return answer;
        }
        let Ok(_place) = self.delayed.take(&Peer::At(network(address)), 1) else { return answer };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = self.leaving.cancelled() => {}
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
    async fn g05_only_so_many_answers_of_one_address_wait_and_none_once_the_gateway_leaves() {
        let leaving = CancellationToken::new();
        let failed = FailedAuth::new(Host::builder().build(), leaving.clone());
        let (begun, delay) = (Instant::now(), Duration::from_secs(5));
        let from = |last: u8| Source::Address([192, 0, 2, last].into());
        let answer = || Response::new(Body::empty());
        let waiting = (0..DELAYED_OF_ONE).map(|_| failed.delayed(from(1), delay, answer()));
        let all = futures_util::future::join_all(waiting);
        let beyond = async {
            failed.delayed(from(1), delay, answer()).await;
            assert_eq!(begun.elapsed(), Duration::ZERO, "it takes no connection for long");
            failed.delayed(Source::ControlSocket, delay, answer()).await;
            assert_eq!(begun.elapsed(), Duration::ZERO, "commands of our own user wait for nothing");
            failed.delayed(from(2), delay, answer()).await;
            assert_eq!(begun.elapsed(), delay);
        };
        tokio::join!(all, beyond);
        leaving.cancel();
        failed.delayed(from(1), delay, answer()).await;
        assert_eq!(begun.elapsed(), delay, "nothing waits any more");
    }
}

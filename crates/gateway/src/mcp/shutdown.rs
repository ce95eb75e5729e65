//! Shutdown of the gateway within `shutdown_timeout`: calls in flight get a part of that time, those left are cut off
//! with an error, then servers are ended and records are written.

use super::Gateway;
use std::pin::pin;
use std::time::Duration;

/// Time that the process itself needs to exit.
const MARGIN: Duration = Duration::from_millis(300);
/// Time for clients to read the last answers after all servers have ended.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(1);

impl Gateway {
    /// Shuts down within `shutdown_timeout`. `finishing` completes when all clients have their answers; its output is
    /// returned if it did.
    pub async fn shut_down<T>(&self, finishing: impl Future<Output = T>) -> Option<T> {
        self.shut_down_within(self.shutdown_timeout, finishing).await
    }

    /// The same within `limit`, where a part of the timeout has passed already.
    pub(crate) async fn shut_down_within<T>(
        &self,
        limit: Duration,
        finishing: impl Future<Output = T>,
    ) -> Option<T> {
        let calls = self.host.in_flight_calls();
        let count: u32 = calls.iter().map(|(_, calls)| calls).sum();
        let of: Vec<String> = calls.into_iter().map(|(name, calls)| format!("{name}: {calls}")).collect();
        let calls_for = limit * 4 / 9;
        tracing::info!(
            calls = count,
            of = of.join(", "),
            ?calls_for,
            ?limit,
            "shutting down: waiting for calls in flight, then stopping the servers"
        );
        self.begin_shutdown();
        let mut finished = None;
        let everything = async {
            let mut finishing = pin!(async { finished = Some(finishing.await) });
            let mut closing = pin!(async {
                self.save_sessions().await;
                self.host.shutdown_with_grace(calls_for).await;
            });
            tokio::select! {
                () = &mut finishing => closing.await,
                () = &mut closing => drop(tokio::time::timeout(LAST_ANSWERS_TIMEOUT, finishing).await),
            }
            self.flush_telemetry().await;
        };
        if tokio::time::timeout(limit.saturating_sub(MARGIN), everything).await.is_err() {
            tracing::warn!(
                ?limit,
                "shutdown timeout reached; remaining calls and servers end with this process"
            );
        }
        finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Limits, TokenCipher};
    use gripfast::Host;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_reads_does_not_block_the_shutdown() {
        let cipher = TokenCipher::ephemeral().unwrap();
        let gateway = Gateway::new(Host::builder().build(), cipher, &Limits::default());
        let started = Instant::now();
        assert_eq!(gateway.shut_down(std::future::pending::<()>()).await, None);
        assert_eq!(started.elapsed(), LAST_ANSWERS_TIMEOUT);
        assert_eq!(gateway.shut_down(async { "done" }).await, Some("done"));
    }
}

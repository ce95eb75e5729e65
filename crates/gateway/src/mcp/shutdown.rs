//! The end of the gateway, within the time that the config gives it: calls in flight may finish for a while, those that
//! do not are cut and told so, servers are ended, and what has to be kept is written.

use super::Gateway;
use std::pin::pin;
use std::time::Duration;

/// The process itself needs a moment to end.
const MARGIN: Duration = Duration::from_millis(300);
/// Once all servers have ended, the last answers are read within this or not at all.
const LAST_ANSWERS_WITHIN: Duration = Duration::from_secs(1);

impl Gateway {
    /// Leaves within `shutdown_timeout`. `finishing` ends when all clients have their answers; its outcome, if it did.
    pub async fn shut_down<T>(&self, finishing: impl Future<Output = T>) -> Option<T> {
        let limit = self.shutdown_timeout;
        let calls = self.host.in_flight();
        let count: u32 = calls.iter().map(|(_, calls)| calls).sum();
        let of: Vec<String> = calls.into_iter().map(|(name, calls)| format!("{name}: {calls}")).collect();
        let calls_for = limit * 4 / 9;
        tracing::info!(
            calls = count,
            of = of.join(", "),
            ?calls_for,
            ?limit,
            "shutting down: calls in flight are waited for, then the servers are ended"
        );
        self.leave();
        let mut finished = None;
        let everything = async {
            let mut finishing = pin!(async { finished = Some(finishing.await) });
            let mut closing = pin!(async {
                self.note_sessions().await;
                self.host.shutdown_within(calls_for).await;
            });
            tokio::select! {
                () = &mut finishing => closing.await,
                () = &mut closing => drop(tokio::time::timeout(LAST_ANSWERS_WITHIN, finishing).await),
            }
            self.finish_telling().await;
        };
        if tokio::time::timeout(limit.saturating_sub(MARGIN), everything).await.is_err() {
            tracing::warn!(?limit, "not everything has ended in time; what is left ends with this process");
        }
        finished
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Seal, Terms};
    use super::*;
    use gripfast::Host;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_takes_its_answers_does_not_keep_the_gateway() {
        let seal = Seal::of_this_process().unwrap();
        let gateway = Gateway::new(Host::builder().build(), seal, &Terms::default());
        let begun = Instant::now();
        assert_eq!(gateway.shut_down(std::future::pending::<()>()).await, None);
        assert_eq!(begun.elapsed(), LAST_ANSWERS_WITHIN);
        assert_eq!(gateway.shut_down(async { "done" }).await, Some("done"));
    }
}

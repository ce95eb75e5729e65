//! The number of connected clients, and the time since the last of them left.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Counts connected clients.
#[derive(Debug, Clone)]
pub struct ClientCount(Arc<watch::Sender<usize>>);

/// A client that counts as connected until this is dropped.
#[derive(Debug)]
pub(crate) struct Connected(Arc<watch::Sender<usize>>);

impl Default for ClientCount {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl ClientCount {
    pub(crate) fn connect(&self) -> Connected {
        self.0.send_modify(|count| *count += 1);
        Connected(Arc::clone(&self.0))
    }

    /// Returns once no client was connected for this long.
    pub async fn idle_for(&self, linger: Duration) {
        let mut count = self.0.subscribe();
        loop {
            // The sender is ours: the channel stays open.
            let _ = count.wait_for(|count| *count == 0).await;
            tokio::select! {
                _ = count.changed() => {}
                () = tokio::time::sleep(linger) => return,
            }
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn a_gateway_is_idle_a_while_after_the_last_client_left_and_each_client_starts_the_while_again() {
        let (clients, begun) = (ClientCount::default(), Instant::now());
        let linger = Duration::from_secs(300);
        let visits = async {
            sleep(Duration::from_secs(200)).await;
            let (one, other) = (clients.connect(), clients.connect());
            sleep(Duration::from_secs(1000)).await;
            drop(one);
            sleep(Duration::from_secs(1000)).await;
            drop(other);
            sleep(Duration::from_secs(299)).await;
            // A client that only looks in counts too.
            drop(clients.connect());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = clients.idle_for(linger) => {}
            () = visits => {}
        }
        assert_eq!(begun.elapsed(), Duration::from_secs(200 + 2000 + 299 + 300));
    }
}

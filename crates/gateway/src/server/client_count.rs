//! Number of connected clients, and the time since the last one left.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Counts connected clients.
#[derive(Debug, Clone)]
pub struct ClientCount(Arc<watch::Sender<usize>>);

/// Connected client, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectedClient(Arc<watch::Sender<usize>>);

impl Default for ClientCount {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl ClientCount {
    pub(crate) fn connect(&self) -> ConnectedClient {
        self.0.send_modify(|count| *count += 1);
        ConnectedClient(Arc::clone(&self.0))
    }

    /// Returns when no client was connected for this time.
    pub async fn idle_for(&self, linger: Duration) {
        let mut count = self.0.subscribe();
        loop {
            // `self` holds the sender, so the channel stays open.
            let _ = count.wait_for(|count| *count == 0).await;
            tokio::select! {
                _ = count.changed() => {}
                () = tokio::time::sleep(linger) => return,
            }
        }
    }
}

impl Drop for ConnectedClient {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn the_idle_time_starts_again_with_each_client() {
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
            // A short connection counts too.
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

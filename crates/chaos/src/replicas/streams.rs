//! Streams for messages outside of calls: each legacy client keeps one open, and opens it again when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use tokio::task::JoinSet;

use crate::client::Client;
use gripfast_measure::Era;

/// Pause of a client whose stream ended or was refused.
const REOPEN_INTERVAL: Duration = Duration::from_millis(20);
/// Polling interval for a message.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Streams of several clients. Dropping them closes them.
#[derive(Debug)]
pub(super) struct Streams {
    seen: Vec<Arc<Seen>>,
    _listening: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Seen {
    /// True while a stream is open.
    open: AtomicUsize,
    ended: AtomicU64,
    list_changes: AtomicU64,
}

impl Streams {
    /// Opens a stream for each legacy client.
    pub(super) fn open(clients: &[Arc<Client>]) -> Self {
        let mut listening = JoinSet::new();
        let legacy = clients.iter().filter(|client| client.era() == Era::Legacy);
        let seen = legacy
            .map(|client| {
                let seen = Arc::new(Seen::default());
                listening.spawn(listen(Arc::clone(client), Arc::clone(&seen)));
                seen
            })
            .collect();
        Self { seen, _listening: listening }
    }

    /// Number of streams that have ended.
    pub(super) fn ended(&self) -> u64 {
        self.seen.iter().map(|seen| seen.ended.load(Ordering::Relaxed)).sum()
    }

    /// Waits until each client has an open stream. Returns whether this happened within the limit.
    pub(super) async fn until_open(&self, limit: Duration) -> bool {
        until(limit, || self.seen.iter().all(|seen| seen.open.load(Ordering::Relaxed) > 0)).await
    }

    /// List changes that each client has seen.
    pub(super) fn list_changes(&self) -> Vec<u64> {
        self.seen.iter().map(|seen| seen.list_changes.load(Ordering::Relaxed)).collect()
    }

    /// Waits until each client has seen a list change since `before`. Returns the number of clients that have not within
    /// the limit.
    pub(super) async fn without_change_since(&self, before: &[u64], limit: Duration) -> usize {
        let missing = || self.list_changes().iter().zip(before).filter(|(now, before)| now <= before).count();
        until(limit, || missing() == 0).await;
        missing()
    }
}

async fn until(limit: Duration, done: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !done() {
        if began.elapsed() > limit {
            return false;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    true
}

async fn listen(client: Arc<Client>, seen: Arc<Seen>) {
    const LIST_CHANGED: &[u8] = b"notifications/tools/list_changed";
    loop {
        if let Some(mut stream) = client.listen().await {
            seen.open.store(1, Ordering::Relaxed);
            while let Some(Ok(frame)) = stream.frame().await {
                let data = frame.data_ref().map_or(&[][..], |data| data);
                if data.windows(LIST_CHANGED.len()).any(|window| window == LIST_CHANGED) {
                    seen.list_changes.fetch_add(1, Ordering::Relaxed);
                }
            }
            seen.open.store(0, Ordering::Relaxed);
            seen.ended.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(REOPEN_INTERVAL).await;
    }
}

//! Keeps one Tokio timer due within 500 ms while requests are active. The runtime sleeps until its next timer, and a
//! request that sets an earlier one has to wake it with a system call and often a second thread. Nearly every request
//! sets timers and is answered long before they fire; with an earlier timer already set, none of them wakes the driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

/// Keeps a timer running while there are requests.
pub(crate) struct KeepWarm {
    inner: Arc<Inner>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Inner {
    state: AtomicU8,
    wanted: Notify,
}

const RESTING: u8 = 0;
/// The timer runs, and no request came since it last fired.
const BEATING: u8 = 1;
/// The timer runs, and a request came since.
const WANTED: u8 = 2;

impl KeepWarm {
    /// Shorter than the shortest timeout of a request.
    const INTERVAL: Duration = Duration::from_millis(500);

    /// Starts the task on this runtime, without a timer.
    pub(crate) fn start() -> Self {
        let inner = Arc::<Inner>::default();
        let task = tokio::spawn(run(Arc::clone(&inner)));
        Self { inner, _task: AbortOnDropHandle::new(task) }
    }

    /// Reports a request.
    pub(crate) fn touch(&self) {
        self.inner.request();
    }
}

async fn run(inner: Arc<Inner>) {
    loop {
        inner.wanted.notified().await;
        while inner.take_request() {
            tokio::time::sleep(KeepWarm::INTERVAL).await;
        }
    }
}

impl Inner {
    fn request(&self) {
        if self.state.load(Ordering::Relaxed) != WANTED
            && self.state.swap(WANTED, Ordering::AcqRel) == RESTING
        {
            self.wanted.notify_one();
        }
    }

    /// Returns true if a request came since the last call. Otherwise the timer stops.
    fn take_request(&self) -> bool {
        let came = self.state.compare_exchange(WANTED, BEATING, Ordering::AcqRel, Ordering::Acquire).is_ok();
        came || self.state.compare_exchange(BEATING, RESTING, Ordering::AcqRel, Ordering::Acquire).is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_timer_runs_while_there_are_requests_and_stops_soon_after() {
        let keep_warm = KeepWarm::start();
        let state = || keep_warm.inner.state.load(Ordering::Relaxed);
        for _ in 0..3 {
            keep_warm.touch();
            tokio::time::sleep(KeepWarm::INTERVAL / 2).await;
            assert_eq!(state(), BEATING);
            keep_warm.touch();
            assert_eq!(state(), WANTED, "it goes on");
            tokio::time::sleep(KeepWarm::INTERVAL * 3).await;
            assert_eq!(state(), RESTING);
        }
    }
}

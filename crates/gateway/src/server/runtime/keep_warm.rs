//! A timer that is never far away while there are requests. The runtime sleeps until its next timer, and a request
//! that sets an earlier one has to wake it for that, with a system call and often a second thread. Nearly every
//! request sets timers and is answered long before them; with a beat before all of these nobody need be woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

/// Beats while there are requests, and rests while there are none.
pub(super) struct Pulse {
    inner: Arc<Inner>,
    _beating: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Inner {
    state: AtomicU8,
    wanted: Notify,
}

const RESTING: u8 = 0;
/// It beats, and nobody came since it last did.
const BEATING: u8 = 1;
/// It beats, and somebody came since.
const WANTED: u8 = 2;

impl Pulse {
    /// Shorter than the shortest time that a request is given for anything.
    const EVERY: Duration = Duration::from_millis(500);

    /// A pulse on this runtime, which rests.
    pub(super) fn start() -> Self {
        let inner = Arc::<Inner>::default();
        let beating = tokio::spawn(beat(Arc::clone(&inner)));
        Self { inner, _beating: AbortOnDropHandle::new(beating) }
    }

    /// There is a request.
    pub(super) fn beat(&self) {
        self.inner.is_wanted();
    }
}

async fn beat(inner: Arc<Inner>) {
    loop {
        inner.wanted.notified().await;
        while inner.beats_on() {
            tokio::time::sleep(Pulse::EVERY).await;
        }
    }
}

impl Inner {
    fn is_wanted(&self) {
        if self.state.load(Ordering::Relaxed) != WANTED
            && self.state.swap(WANTED, Ordering::AcqRel) == RESTING
        {
            self.wanted.notify_one();
        }
    }

    /// Whether somebody came since this was last asked; if nobody did, it rests from now on.
    fn beats_on(&self) -> bool {
        let came = self.state.compare_exchange(WANTED, BEATING, Ordering::AcqRel, Ordering::Acquire).is_ok();
        came || self.state.compare_exchange(BEATING, RESTING, Ordering::AcqRel, Ordering::Acquire).is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_beats_while_there_are_requests_and_rests_soon_after() {
        let pulse = Pulse::start();
        let state = || pulse.inner.state.load(Ordering::Relaxed);
        for _ in 0..3 {
            pulse.beat();
            tokio::time::sleep(Pulse::EVERY / 2).await;
            assert_eq!(state(), BEATING);
            pulse.beat();
            assert_eq!(state(), WANTED, "it goes on");
            tokio::time::sleep(Pulse::EVERY * 3).await;
            assert_eq!(state(), RESTING);
        }
    }
}

//! Calls that wait for a slot or a link, each with a wake-up of its own: the machine says whose turn it is.

use gripfast_core::supervise::upstream::Wakeups;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The waiting calls by the numbers of their places. As many as the machine has places.
#[derive(Default)]
pub(super) struct Waiters(Mutex<HashMap<u64, Arc<Notify>>>);

impl Waiters {
    /// A call waits in the place of this number until the answer is dropped. It must be made before the machine is
    /// unlocked: then no wake-up is missed.
    pub(super) fn add(&self, number: u64) -> Waiter<'_> {
        let wakeup = Arc::new(Notify::new());
        self.lock().insert(number, Arc::clone(&wakeup));
        Waiter { among: self, number, wakeup }
    }

    /// Wakes those whose turn it is, and those who have lost their places.
    pub(super) fn wake(&self, wakeups: Wakeups, displaced: &[u64]) {
        if wakeups == Wakeups::None && displaced.is_empty() {
            return;
        }
        let waiters = self.lock();
        let one = match wakeups {
            Wakeups::None => None,
            Wakeups::One(number) => Some(number),
            Wakeups::All => return waiters.values().for_each(|wakeup| wakeup.notify_one()),
        };
        // One that is not here any more has left its place, and whose turn it is was asked again since.
        let woken = displaced.iter().copied().chain(one).filter_map(|number| waiters.get(&number));
        woken.for_each(|wakeup| wakeup.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that waits.
pub(super) struct Waiter<'a> {
    among: &'a Waiters,
    number: u64,
    wakeup: Arc<Notify>,
}

impl Waiter<'_> {
    /// Ends when it is to ask again, also if it was woken before.
    pub(super) async fn woken(&self) {
        self.wakeup.notified().await;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.among.lock().remove(&self.number);
    }
}

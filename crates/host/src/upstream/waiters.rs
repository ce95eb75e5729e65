//! Calls that wait for a slot or a connection. Each has its own wake-up, because the supervision machine decides
//! which call is next.

use crate::sync::Mutex;
use gripfast_core::supervise::upstream::Wakeups;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// The waiting calls by queue number; as many as the machine has queue places.
#[derive(Default)]
pub(super) struct Waiters(Mutex<HashMap<u64, Arc<Notify>>>);

impl Waiters {
    /// Registers a waiting call until the result is dropped. Call it before the machine is unlocked, so that no
    /// wake-up is missed.
    pub(super) fn add(&self, number: u64) -> Waiter<'_> {
        let wakeup = Arc::new(Notify::new());
        self.0.lock().insert(number, Arc::clone(&wakeup));
        Waiter { waiters: self, number, wakeup }
    }

    /// Wakes the calls that may go on, and those that lost their queue places.
    pub(super) fn wake(&self, wakeups: Wakeups, displaced: &[u64]) {
        if wakeups == Wakeups::None && displaced.is_empty() {
            return;
        }
        let waiters = self.0.lock();
        let one = match wakeups {
            Wakeups::None => None,
            Wakeups::One(number) => Some(number),
            Wakeups::All => return waiters.values().for_each(|wakeup| wakeup.notify_one()),
        };
        // A missing call has left the queue, and the machine has chosen another one since.
        let woken = displaced.iter().copied().chain(one).filter_map(|number| waiters.get(&number));
        woken.for_each(|wakeup| wakeup.notify_one());
    }
}

/// A registered waiting call.
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    number: u64,
    wakeup: Arc<Notify>,
}

impl Waiter<'_> {
    /// Waits until admission should be tried again; returns immediately if the call was woken before.
    pub(super) async fn woken(&self) {
        self.wakeup.notified().await;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.waiters.0.lock().remove(&self.number);
    }
}

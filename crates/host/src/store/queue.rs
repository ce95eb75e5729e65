//! What waits to be written: bounded, so that a disk that hangs fills no memory. What does not fit is lost, which
//! is said aloud once, with a count when there is room again.

use super::{Keep, Work};
use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, PoisonError};

/// What the writer is asked to do, in order.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    news: Condvar,
}

/// One thing to do.
pub(super) enum Task {
    Put { space: String, key: String, value: Vec<u8> },
    Retain { space: String, keep: Keep },
    Then(Work),
    Flush(SyncSender<()>),
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    bytes: usize,
    lost: u64,
    closed: bool,
}

impl Queue {
    /// Things that may wait, and what they may take together.
    const MOST: usize = 10_000;
    const MOST_BYTES: usize = 64 << 20;

    /// Adds something to do. Whether there was room for it.
    pub(super) fn push(&self, task: Task) -> bool {
        let mut state = self.lock();
        let bytes = state.bytes + task.bytes();
        if state.closed || state.tasks.len() >= Self::MOST || bytes > Self::MOST_BYTES {
            state.lost += 1;
            if state.lost == 1 {
                tracing::warn!(
                    "the state directory is too slow; what is new is not kept until it has caught up"
                );
            }
            return false;
        }
        state.bytes = bytes;
        state.tasks.push_back(task);
        drop(state);
        self.news.notify_one();
        true
    }

    /// Waits for the next thing to do; `None` when all is done and nothing more will come.
    pub(super) fn pop(&self) -> Option<Task> {
        let waits = |state: &mut State| state.tasks.is_empty() && !state.closed;
        let mut state = self.news.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        let task = state.tasks.pop_front()?;
        state.bytes -= task.bytes();
        if state.lost > 0 && state.tasks.is_empty() {
            let lost = std::mem::take(&mut state.lost);
            tracing::warn!(lost, "the state directory has caught up");
        }
        Some(task)
    }

    /// Nothing more will come. What waits is still done.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    fn bytes(&self) -> usize {
        match self {
            Self::Put { space, key, value } => space.len() + key.len() + value.len(),
            Self::Retain { space, keep: _ } => space.len(),
            Self::Then(_) | Self::Flush(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: usize) -> Task {
        Task::Put { space: String::new(), key: String::new(), value: vec![0; bytes] }
    }

    #[test]
    fn what_waits_for_a_disk_that_hangs_is_bounded_in_number_and_in_bytes() {
        let small = Queue::default();
        let fit = (0..2 * Queue::MOST).filter(|_| small.push(put(1))).count();
        assert_eq!(fit, Queue::MOST);
        assert!(small.pop().is_some() && small.push(put(1)), "whoever takes something makes room");
        let large = Queue::default();
        let fit = (0..100).filter(|_| large.push(put(Queue::MOST_BYTES / 8))).count();
        assert_eq!((fit, large.lock().lost), (8, 92));
    }

    #[test]
    fn what_waits_at_the_end_is_still_done_and_nothing_comes_after_it() {
        let queue = Queue::default();
        queue.push(put(1));
        queue.close();
        assert!(!queue.push(put(1)));
        assert!(queue.pop().is_some() && queue.pop().is_none());
        assert_eq!(queue.lock().bytes, 0);
    }
}

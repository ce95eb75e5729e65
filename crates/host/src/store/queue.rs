//! Bounded queue of writes, so that a disk that hangs fills no memory. Tasks that do not fit are lost, which is logged
//! once, and again with a count when the queue is empty. Values can be read before they are written.

use super::{RetainFn, StoreWork};
use crate::sync::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::SyncSender;

/// Tasks of the writer thread, in order.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    available: Condvar,
}

/// One task.
pub(super) enum Task {
    Put { space: String, key: String, value: Vec<u8> },
    Retain { space: String, keep: RetainFn },
    Run(StoreWork),
    Flush(SyncSender<()>),
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    /// Values that are not written yet, by space and key.
    unwritten: BTreeMap<String, BTreeMap<String, UnwrittenValue>>,
    /// Space and key of the put that the writer thread carries out now.
    writing: Option<(String, String)>,
    bytes: usize,
    lost: u64,
    closed: bool,
}

/// The last value of a key.
#[derive(Default)]
struct UnwrittenValue {
    value: Vec<u8>,
    /// Number of puts of the key that are not done yet.
    puts: usize,
}

impl Queue {
    /// Maximum number of tasks, and of their bytes together.
    const MAX_TASKS: usize = 10_000;
    const MAX_BYTES: usize = 64 << 20;

    /// Adds a task. Returns whether there was room for it.
    pub(super) fn push(&self, task: Task) -> bool {
        let mut state = self.state.lock();
        let bytes = state.bytes + task.bytes();
        if state.closed || state.tasks.len() >= Self::MAX_TASKS || bytes > Self::MAX_BYTES {
            state.lost += 1;
            if state.lost == 1 {
                tracing::warn!(
                    "the state directory is too slow: new entries are lost until it has caught up"
                );
            }
            return false;
        }
        state.bytes = bytes;
        if let Task::Put { space, key, value } = &task {
            let keys = state.unwritten.entry(space.clone()).or_default();
            let last = keys.entry(key.clone()).or_default();
            *last = UnwrittenValue { value: value.clone(), puts: last.puts + 1 };
        }
        state.tasks.push_back(task);
        drop(state);
        self.available.notify_one();
        true
    }

    /// Waits for the next task; `None` when the queue is empty and closed. The task before it is done.
    pub(super) fn pop(&self) -> Option<Task> {
        let waits = |state: &mut State| state.tasks.is_empty() && !state.closed;
        let mut state = self.state.lock();
        state.note_written();
        let mut state = self.available.wait_while(state, waits);
        let task = state.tasks.pop_front()?;
        state.bytes -= task.bytes();
        if let Task::Put { space, key, value: _ } = &task {
            state.writing = Some((space.clone(), key.clone()));
        }
        if state.lost > 0 && state.tasks.is_empty() {
            let lost = std::mem::take(&mut state.lost);
            tracing::warn!(lost, "the state directory has caught up");
        }
        Some(task)
    }

    /// The value of the last put of a key that is not done yet.
    pub(super) fn unwritten(&self, space: &str, key: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        state.unwritten.get(space)?.get(key).map(|last| last.value.clone())
    }

    /// The keys of a space whose puts are not done yet.
    pub(super) fn unwritten_keys(&self, space: &str) -> Vec<String> {
        let state = self.state.lock();
        state.unwritten.get(space).map(|keys| keys.keys().cloned().collect()).unwrap_or_default()
    }

    /// Closes the queue. Waiting tasks are still done.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.available.notify_one();
    }
}

impl State {
    /// Forgets the value of the put that was carried out, unless another put of its key follows.
    fn note_written(&mut self) {
        let Some((space, key)) = self.writing.take() else { return };
        let Some(keys) = self.unwritten.get_mut(&space) else { return };
        if let Some(last) = keys.get_mut(&key) {
            last.puts -= 1;
            if last.puts == 0 {
                keys.remove(&key);
            }
        }
        if keys.is_empty() {
            self.unwritten.remove(&space);
        }
    }
}

impl Task {
    fn bytes(&self) -> usize {
        match self {
            Self::Put { space, key, value } => space.len() + key.len() + value.len(),
            Self::Retain { space, keep: _ } => space.len(),
            Self::Run(_) | Self::Flush(_) => 0,
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
    fn the_queue_is_bounded_in_number_and_bytes() {
        let small = Queue::default();
        let fit = (0..2 * Queue::MAX_TASKS).filter(|_| small.push(put(1))).count();
        assert_eq!(fit, Queue::MAX_TASKS);
        assert!(small.pop().is_some() && small.push(put(1)), "a popped task makes room");
        let large = Queue::default();
        let fit = (0..100).filter(|_| large.push(put(Queue::MAX_BYTES / 8))).count();
        assert_eq!((fit, large.state.lock().lost), (8, 92));
    }

    #[test]
    fn a_closed_queue_finishes_its_tasks_and_accepts_none() {
        let queue = Queue::default();
        queue.push(put(1));
        queue.close();
        assert!(!queue.push(put(1)));
        assert!(queue.pop().is_some() && queue.pop().is_none());
        assert_eq!(queue.state.lock().bytes, 0);
    }
}

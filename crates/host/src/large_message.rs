//! Work on large messages. Parsing or copying many megabytes takes milliseconds; a Tokio worker thread that does so
//! first hands its other tasks to another thread, so that calls of other clients go on.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// Messages below this size are handled in place: handing tasks over costs more than it saves.
const LARGE: usize = 256 << 10;

static HAND_OVER: AtomicBool = AtomicBool::new(false);

/// Large messages take turns: together they use at most one processor and one set of buffers. A task that waits for its
/// turn occupies no thread.
static TURN: Semaphore = Semaphore::const_new(1);

/// Makes worker threads hand their tasks over from now on, in the whole process. For programs that serve many clients at
/// a time. It must not be used in a program that calls the host inside a [`tokio::task::LocalSet`], where Tokio cannot
/// hand tasks over and panics.
pub fn hand_over_tasks() {
    HAND_OVER.store(true, Ordering::Relaxed);
}

/// Runs `work`, which takes time in proportion to `bytes`. If the future is dropped before its turn, `work` does not run.
pub async fn process<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE {
        return work();
    }
    let flavor = Handle::try_current().ok().map(|handle| handle.runtime_flavor());
    if !hands_over(bytes, HAND_OVER.load(Ordering::Relaxed), flavor) {
        return work();
    }
    // The semaphore is never closed, so this does not fail.
    let _turn = TURN.acquire().await;
    tokio::task::block_in_place(work)
}

/// Decides whether the tasks of this thread are handed over. `is_enabled` is the choice of the program; only a runtime
/// with several threads can do it.
fn hands_over(bytes: usize, is_enabled: bool, flavor: Option<RuntimeFlavor>) -> bool {
    bytes >= LARGE && is_enabled && flavor == Some(RuntimeFlavor::MultiThread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn other_tasks_of_a_worker_thread_run_while_it_processes_a_large_message() {
        hand_over_tasks();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (sender, receiver) = mpsc::channel();
        let large = runtime.spawn(async move {
            tokio::spawn(async move { sender.send(()).unwrap() });
            process(LARGE, move || receiver.recv_timeout(Duration::from_secs(60))).await
        });
        assert_eq!(runtime.block_on(large).unwrap(), Ok(()));
    }

    #[test]
    fn large_messages_that_wait_for_their_turn_occupy_no_thread() {
        hand_over_tasks();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).max_blocking_threads(2).build().unwrap();
        let (sender, receiver) = mpsc::channel();
        let first = runtime.spawn(async move {
            for _ in 0..8 {
                tokio::spawn(process(LARGE, || ()));
            }
            tokio::spawn(async move { sender.send(()).unwrap() });
            process(LARGE, move || receiver.recv_timeout(Duration::from_secs(60))).await
        });
        assert_eq!(runtime.block_on(first).unwrap(), Ok(()));
    }

    #[test]
    fn only_a_large_message_in_a_program_that_enables_it_hands_tasks_over() {
        let many = || Some(RuntimeFlavor::MultiThread);
        assert!(hands_over(LARGE, true, many()));
        assert!(!hands_over(LARGE - 1, true, many()), "a small message");
        assert!(!hands_over(LARGE, false, many()), "a program that may use a LocalSet");
        assert!(!hands_over(LARGE, true, Some(RuntimeFlavor::CurrentThread)), "one thread");
        assert!(!hands_over(LARGE, true, None), "no runtime");
    }
}

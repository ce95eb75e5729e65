//! Work on large messages. Parsing or copying many megabytes takes milliseconds; a Tokio worker thread that does so
//! first hands its other tasks to another thread, so that calls of other clients go on.

use crate::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Messages below this size are handled in place: handing tasks over costs more than it saves.
const LARGE: usize = 256 << 10;

static HAND_OVER: AtomicBool = AtomicBool::new(false);

/// Large messages take turns: together they use at most one processor and one set of buffers.
static TURN: Mutex<()> = Mutex::new(());

/// Makes worker threads hand their tasks over from now on, in the whole process. For programs that serve many clients at
/// a time. It must not be used in a program that calls the host inside a [`tokio::task::LocalSet`], where Tokio cannot
/// hand tasks over and panics.
pub fn hand_over_tasks() {
    HAND_OVER.store(true, Ordering::Relaxed);
}

/// Runs `work`, which takes time in proportion to `bytes`.
pub fn process<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().ok().map(|handle| handle.runtime_flavor());
    if !hands_over(bytes, HAND_OVER.load(Ordering::Relaxed), flavor) {
        return work();
    }
    tokio::task::block_in_place(|| {
        let _turn = TURN.lock();
        work()
    })
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
            process(LARGE, || receiver.recv_timeout(Duration::from_secs(60)))
        });
        assert_eq!(runtime.block_on(large).unwrap(), Ok(()));
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

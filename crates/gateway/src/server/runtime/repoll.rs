//! Re-polls a future that wakes itself during poll, so that Tokio does not schedule another worker for it. Parts of one
//! task often wake each other: a call wakes its connection when the answer is there, and the connection is what polls
//! the call. Parts that were not woken are skipped meanwhile.

use futures_util::task::AtomicWaker;
use gripfast::sync::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Polls a future again while it wakes itself.
pub(crate) struct Repoll<F> {
    inner: F,
    flag: Arc<WakeFlag>,
    waker: Waker,
}

/// Waker of the future.
struct WakeFlag {
    state: AtomicU8,
    /// Waker of the task that the future runs in.
    task: Mutex<Option<Waker>>,
}

/// The future is not being polled: a wake goes to its task.
const WAITS: u8 = 0;
/// The future is being polled.
const RUNS: u8 = 1;
/// The future is being polled, and was woken meanwhile.
const RUNS_AGAIN: u8 = 2;

impl<F: Future + Unpin> Repoll<F> {
    /// Maximum number of polls in a row, so that other tasks get their turn.
    const MAX_POLLS: usize = 8;

    pub(crate) fn new(inner: F) -> Self {
        let flag = Arc::new(WakeFlag { state: AtomicU8::new(WAITS), task: Mutex::default() });
        let waker = Waker::from(Arc::clone(&flag));
        Self { inner, flag, waker }
    }
}

impl<F: Future + Unpin> Future for Repoll<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { inner, flag, waker } = self.get_mut();
        flag.set_task(cx.waker());
        for _ in 0..Self::MAX_POLLS {
            flag.state.store(RUNS, Ordering::Release);
            if let Poll::Ready(output) = Pin::new(&mut *inner).poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(output);
            }
            if flag.state.compare_exchange(RUNS, WAITS, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Poll::Pending;
            }
        }
        flag.state.store(WAITS, Ordering::Release);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl WakeFlag {
    fn set_task(&self, task: &Waker) {
        let mut known = self.task.lock();
        if !known.as_ref().is_some_and(|known| known.will_wake(task)) {
            *known = Some(task.clone());
        }
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let runs = self.state.compare_exchange(RUNS, RUNS_AGAIN, Ordering::AcqRel, Ordering::Acquire);
        if runs != Err(WAITS) {
            return;
        }
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// Part of a task that is polled only if it was woken: the connection polls all of its parts each time, and descending
/// into a call is slow.
pub(crate) struct RepollPart {
    wake: Arc<PartWaker>,
    waker: Waker,
}

#[derive(Default)]
struct PartWaker {
    /// The part was woken since it was last polled.
    woken: AtomicBool,
    /// Waker of the task.
    task: AtomicWaker,
}

impl RepollPart {
    pub(crate) fn new() -> Self {
        let wake = Arc::<PartWaker>::default();
        let waker = Waker::from(Arc::clone(&wake));
        Self { wake, waker }
    }

    /// Runs `work` as this part.
    pub(crate) async fn run<F: Future>(&self, work: impl FnOnce() -> F) -> F::Output {
        // Constructed here, so that the future is not copied.
        let mut work = std::pin::pin!(work());
        self.wake.woken.store(true, Ordering::Release);
        std::future::poll_fn(|cx| {
            // Registered first, so that no wake is missed.
            self.wake.task.register(cx.waker());
            if !self.wake.woken.swap(false, Ordering::AcqRel) {
                return Poll::Pending;
            }
            work.as_mut().poll(&mut Context::from_waker(&self.waker))
        })
        .await
    }
}

impl Wake for PartWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn polled<F: Future + Unpin>(repoll: &mut Repoll<F>, count: &Arc<Count>) -> Poll<F::Output> {
        Pin::new(repoll).poll(&mut Context::from_waker(&Waker::from(Arc::clone(count))))
    }

    #[test]
    fn wakes_during_poll_stay_inside_and_later_ones_reach_the_task() {
        let (count, kept) = (Arc::<Count>::default(), Arc::new(Mutex::new(None::<Waker>)));
        let (mut turns, keep) = (0, Arc::clone(&kept));
        let mut repoll = Repoll::new(poll_fn(move |cx| {
            turns += 1;
            if turns < 3 {
                cx.waker().wake_by_ref();
            }
            *keep.lock() = Some(cx.waker().clone());
            if turns == 4 { Poll::Ready(turns) } else { Poll::Pending }
        }));
        assert!(polled(&mut repoll, &count).is_pending());
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "it went on by itself until nothing was left to do");
        kept.lock().take().unwrap().wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(polled(&mut repoll, &count), Poll::Ready(4));
    }

    #[test]
    fn a_part_is_polled_only_after_a_wake() {
        let (count, kept) = (Arc::<Count>::default(), Arc::new(Mutex::new(None::<Waker>)));
        let (polls, part) = (AtomicUsize::new(0), RepollPart::new());
        let work = || {
            poll_fn(|cx| {
                *kept.lock() = Some(cx.waker().clone());
                if polls.fetch_add(1, Ordering::Relaxed) % 2 == 1 { Poll::Ready(()) } else { Poll::Pending }
            })
        };
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        for round in 0..2 {
            let mut doing = Box::pin(part.run(work));
            for _ in 0..3 {
                assert!(doing.as_mut().poll(&mut cx).is_pending());
            }
            assert_eq!(polls.load(Ordering::Relaxed), 2 * round + 1, "once, since nothing happened");
            assert_eq!(count.0.load(Ordering::Relaxed), round);
            kept.lock().take().unwrap().wake();
            assert_eq!(count.0.load(Ordering::Relaxed), round + 1, "its task hears of it");
            assert!(doing.as_mut().poll(&mut cx).is_ready());
        }
    }

    #[test]
    fn a_future_that_always_wakes_itself_yields() {
        let count = Arc::<Count>::default();
        let mut repoll = Repoll::new(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        assert!(polled(&mut repoll, &count).is_pending());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}

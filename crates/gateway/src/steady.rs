//! A future that does not hurry its runtime. Parts of one task wake each other all the time: a call tells its
//! connection that the answer is there, and the connection is what polls the call. To the runtime each of these is news
//! for which it looks for another thread. Here whoever is woken while being polled is polled again on the spot.

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Runs a future, and keeps to itself what wakes it while it runs.
pub(crate) struct Steady<F> {
    inner: F,
    bell: Arc<Bell>,
    waker: Waker,
}

/// Rung by whatever wakes the future.
struct Bell {
    state: AtomicU8,
    /// The task that the future runs in.
    task: Mutex<Option<Waker>>,
}

/// Nobody polls it: its task has to be woken.
const WAITS: u8 = 0;
/// It is being polled.
const RUNS: u8 = 1;
/// It is being polled, and was woken since that began.
const RUNS_AGAIN: u8 = 2;

impl<F: Future + Unpin> Steady<F> {
    /// In a row, so that others have their turn.
    const TURNS: usize = 8;

    pub(crate) fn new(inner: F) -> Self {
        let bell = Arc::new(Bell { state: AtomicU8::new(WAITS), task: Mutex::default() });
        let waker = Waker::from(Arc::clone(&bell));
        Self { inner, bell, waker }
    }
}

impl<F: Future + Unpin> Future for Steady<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { inner, bell, waker } = self.get_mut();
        bell.belongs_to(cx.waker());
        for _ in 0..Self::TURNS {
            bell.state.store(RUNS, Ordering::Release);
            if let Poll::Ready(output) = Pin::new(&mut *inner).poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(output);
            }
            if bell.state.compare_exchange(RUNS, WAITS, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Poll::Pending;
            }
        }
        bell.state.store(WAITS, Ordering::Release);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Bell {
    fn belongs_to(&self, task: &Waker) {
        let mut known = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.as_ref().is_some_and(|known| known.will_wake(task)) {
            *known = Some(task.clone());
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let runs = self.state.compare_exchange(RUNS, RUNS_AGAIN, Ordering::AcqRel, Ordering::Acquire);
        if runs != Err(WAITS) {
            return;
        }
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
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

    fn polled<F: Future + Unpin>(steady: &mut Steady<F>, count: &Arc<Count>) -> Poll<F::Output> {
        Pin::new(steady).poll(&mut Context::from_waker(&Waker::from(Arc::clone(count))))
    }

    #[test]
    fn what_wakes_it_while_it_runs_is_its_own_business_and_what_comes_later_is_not() {
        let (count, kept) = (Arc::<Count>::default(), Arc::new(Mutex::new(None::<Waker>)));
        let (mut turns, keep) = (0, Arc::clone(&kept));
        let mut steady = Steady::new(poll_fn(move |cx| {
            turns += 1;
            if turns < 3 {
                cx.waker().wake_by_ref();
            }
            *keep.lock().unwrap() = Some(cx.waker().clone());
            if turns == 4 { Poll::Ready(turns) } else { Poll::Pending }
        }));
        assert!(polled(&mut steady, &count).is_pending());
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "it went on by itself until nothing was left to do");
        kept.lock().unwrap().take().unwrap().wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(polled(&mut steady, &count), Poll::Ready(4));
    }

    #[test]
    fn one_that_never_rests_lets_others_have_their_turn() {
        let count = Arc::<Count>::default();
        let mut steady = Steady::new(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        assert!(polled(&mut steady, &count).is_pending());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}

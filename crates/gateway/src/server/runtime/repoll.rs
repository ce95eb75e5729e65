//! A future that does not hurry its runtime. Parts of one task wake each other all the time: a call tells its
//! connection that the answer is there, and the connection is what polls the call. To the runtime each of these is news
//! for which it looks for another thread. Here whoever is woken while being polled is polled again on the spot; and a
//! part that nothing happened to is left alone meanwhile.

use futures_util::task::AtomicWaker;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
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

/// A part of a task, which is polled only if something has happened to it: whoever drives the task looks at all of its
/// parts each time, and going down to the bottom of a call takes a while.
pub(crate) struct Part {
    door: Arc<Door>,
    waker: Waker,
}

#[derive(Default)]
struct Door {
    /// Something happened since it was last polled.
    knocked: AtomicBool,
    /// What drives the task.
    task: AtomicWaker,
}

impl Part {
    pub(crate) fn new() -> Self {
        let door = Arc::<Door>::default();
        let waker = Waker::from(Arc::clone(&door));
        Self { door, waker }
    }

    /// Does `work`, which is this part from now on.
    pub(crate) async fn does<F: Future>(&self, work: impl FnOnce() -> F) -> F::Output {
        // Made here, so that there is one copy of it.
        let mut work = std::pin::pin!(work());
        self.door.knocked.store(true, Ordering::Release);
        std::future::poll_fn(|cx| {
            // First, so that a knock from here on is heard.
            self.door.task.register(cx.waker());
            if !self.door.knocked.swap(false, Ordering::AcqRel) {
                return Poll::Pending;
            }
            work.as_mut().poll(&mut Context::from_waker(&self.waker))
        })
        .await
    }
}

impl Wake for Door {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.knocked.store(true, Ordering::Release);
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
    fn a_part_is_polled_when_something_happened_to_it_and_not_before() {
        let (count, kept) = (Arc::<Count>::default(), Arc::new(Mutex::new(None::<Waker>)));
        let (polls, part) = (AtomicUsize::new(0), Part::new());
        let work = || {
            poll_fn(|cx| {
                *kept.lock().unwrap() = Some(cx.waker().clone());
                if polls.fetch_add(1, Ordering::Relaxed) % 2 == 1 { Poll::Ready(()) } else { Poll::Pending }
            })
        };
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        for round in 0..2 {
            let mut doing = Box::pin(part.does(work));
            for _ in 0..3 {
                assert!(doing.as_mut().poll(&mut cx).is_pending());
            }
            assert_eq!(polls.load(Ordering::Relaxed), 2 * round + 1, "once, since nothing happened");
            assert_eq!(count.0.load(Ordering::Relaxed), round);
            kept.lock().unwrap().take().unwrap().wake();
            assert_eq!(count.0.load(Ordering::Relaxed), round + 1, "its task hears of it");
            assert!(doing.as_mut().poll(&mut cx).is_ready());
        }
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

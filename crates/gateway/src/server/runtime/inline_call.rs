//! Runs a call inside the task that waits for its answer, because most calls end there. A call that is dropped before
//! its end continues in a task of its own.

use futures_util::future::{AbortRegistration, Abortable, Aborted};
use gripfast::transport::{BoxFuture, box_future};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// Call in flight. Dropping it before its end spawns it as a task; the handle of its registration aborts it.
pub(crate) struct InlineCall<A: CallOutput> {
    rest: Option<BoxFuture<'static, Result<Option<A::Answer>, Aborted>>>,
    output: Arc<A>,
    /// Dropped after the output has ended.
    guard: Option<A::Guard>,
}

/// Receives the answer of a call that is not inline any more, or that has sent other messages before.
pub(crate) trait CallOutput: Send + Sync + 'static {
    type Answer: Send + 'static;
    /// Held until the call has ended.
    type Guard: Send + 'static;

    /// Returns true if the call has sent messages before its answer.
    fn has_messages(&self) -> bool;

    /// Ends the call, with its answer if there is one.
    fn finish(&self, answer: Option<Self::Answer>);
}

/// Result of waiting for a call.
pub(crate) enum CallProgress<A, T> {
    /// The call has ended, and nothing came before its answer.
    Answered(A),
    /// The wanted event came first.
    Wanted(T),
}

impl<A: CallOutput> InlineCall<A> {
    /// Creates a call. It starts when it is first driven or dropped.
    pub(crate) fn new<F>(
        output: Arc<A>,
        guard: Option<A::Guard>,
        registration: AbortRegistration,
        call: impl FnOnce() -> F,
    ) -> Self
    where
        F: Future<Output = Option<A::Answer>> + Send + 'static,
    {
        Self { rest: Some(box_future(|| Abortable::new(call(), registration))), output, guard }
    }

    /// Waits for `wanted`, and drives the call meanwhile. A call that ends without an answer, or after other messages,
    /// ends its output.
    pub(crate) async fn until<T>(&mut self, wanted: impl Future<Output = T>) -> CallProgress<A::Answer, T> {
        let mut wanted = pin!(wanted);
        poll_fn(|cx| {
            if let Some(rest) = &mut self.rest
                && let Poll::Ready(answer) = rest.as_mut().poll(cx)
            {
                self.rest = None;
                match answer.ok().flatten() {
                    Some(answer) if !self.output.has_messages() => {
                        return Poll::Ready(CallProgress::Answered(answer));
                    }
                    answer => self.output.finish(answer),
                }
            }
            wanted.as_mut().poll(cx).map(CallProgress::Wanted)
        })
        .await
    }

    /// Cancels the call.
    pub(crate) fn cancel(mut self) {
        self.rest = None;
        self.output.finish(None);
    }
}

impl<A: CallOutput> Drop for InlineCall<A> {
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        let (guard, end) = (self.guard.take(), EndOnDrop(Arc::clone(&self.output)));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let (_guard, end) = (guard, end);
                let answer = rest.await.ok().flatten();
                end.0.finish(answer);
            });
        }
    }
}

/// Ends the output of a call whose task is dropped.
struct EndOnDrop<A: CallOutput>(Arc<A>);

impl<A: CallOutput> Drop for EndOnDrop<A> {
    fn drop(&mut self) {
        self.0.finish(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::AbortHandle;
    use gripfast::sync::Mutex;
    use std::time::Duration;
    use tokio::sync::Notify;
    use tokio::time::{sleep, timeout};

    #[derive(Default)]
    struct Output {
        answers: Mutex<Vec<Option<&'static str>>>,
        ended: Notify,
        has_messages: bool,
    }

    impl CallOutput for Output {
        type Answer = &'static str;
        type Guard = ();

        fn has_messages(&self) -> bool {
            self.has_messages
        }

        fn finish(&self, answer: Option<&'static str>) {
            self.answers.lock().push(answer);
            self.ended.notify_one();
        }
    }

    fn begin(output: Output) -> (InlineCall<Output>, AbortHandle, Arc<Output>) {
        let (output, (handle, registration)) = (Arc::new(output), AbortHandle::new_pair());
        let call = InlineCall::new(Arc::clone(&output), None, registration, || async {
            sleep(Duration::from_secs(1)).await;
            Some("answer")
        });
        (call, handle, output)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_runs_inline_while_awaited_and_continues_when_dropped() {
        let (mut call, _handle, output) = begin(Output::default());
        let progress = call.until(std::future::pending::<()>()).await;
        assert!(matches!(progress, CallProgress::Answered("answer")));
        drop(call);
        assert!(output.answers.lock().is_empty(), "the waiting task has it");
        let (mut call, _handle, output) = begin(Output::default());
        let progress = call.until(sleep(Duration::from_millis(1))).await;
        assert!(matches!(progress, CallProgress::Wanted(())));
        drop(call);
        timeout(Duration::from_secs(2), output.ended.notified()).await.unwrap();
        assert_eq!(output.answers.lock()[0], Some("answer"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_after_other_messages_goes_to_the_output() {
        let (mut call, _handle, output) = begin(Output { has_messages: true, ..Output::default() });
        assert!(matches!(call.until(output.ended.notified()).await, CallProgress::Wanted(())));
        assert_eq!(*output.answers.lock(), [Some("answer")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_call_ends_inline_and_as_a_task() {
        let (mut call, handle, output) = begin(Output::default());
        let waiting = async { call.until(output.ended.notified()).await };
        let ended = async {
            tokio::task::yield_now().await;
            handle.abort();
        };
        assert!(matches!(tokio::join!(waiting, ended).0, CallProgress::Wanted(())));
        for is_dropped in [true, false] {
            let (call, handle, output) = begin(Output::default());
            if is_dropped {
                drop(call);
                handle.abort();
            } else {
                call.cancel();
            }
            timeout(Duration::from_millis(500), output.ended.notified()).await.unwrap();
            assert_eq!(output.answers.lock()[0], None);
        }
    }
}

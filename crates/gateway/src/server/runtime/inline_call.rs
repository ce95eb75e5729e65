//! Runs a call inside the task that waits for its answer, because most calls end there. A call that is dropped before
//! its end continues in a task of its own.

use futures_util::future::{AbortHandle, Abortable, Aborted};
use gripfast::transport::BoxFuture;
use std::future::poll_fn;
use std::pin::pin;

/// Call in flight. Dropping it before its end spawns it as a task; its handle aborts it.
pub(crate) struct InlineCall {
    rest: Option<BoxFuture<'static, Result<(), Aborted>>>,
}

impl InlineCall {
    /// Creates a call. It starts when it is first driven or dropped.
    pub(crate) fn new<F>(call: impl FnOnce() -> F) -> (Self, AbortHandle)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (handle, registration) = AbortHandle::new_pair();
        // Constructed in the box, because it is large.
        (Self { rest: Some(Box::pin(Abortable::new(call(), registration))) }, handle)
    }

    /// Waits for `wanted`, and drives the call meanwhile.
    pub(crate) async fn until<T>(&mut self, wanted: impl Future<Output = T>) -> T {
        let mut wanted = pin!(wanted);
        poll_fn(|cx| {
            if let Some(rest) = &mut self.rest
                && rest.as_mut().poll(cx).is_ready()
            {
                self.rest = None;
            }
            wanted.as_mut().poll(cx)
        })
        .await
    }

    /// Cancels the call.
    pub(crate) fn cancel(mut self) {
        self.rest = None;
    }
}

impl Drop for InlineCall {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::Notify;
    use tokio::time::{sleep, timeout};

    fn calling(answered: &Arc<Notify>) -> (InlineCall, AbortHandle) {
        let answered = Arc::clone(answered);
        InlineCall::new(|| async move {
            sleep(Duration::from_secs(1)).await;
            answered.notify_one();
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_runs_inline_while_awaited_and_continues_when_dropped() {
        let answered = Arc::new(Notify::new());
        let (mut call, _handle) = calling(&answered);
        call.until(answered.notified()).await;
        let (mut call, _handle) = calling(&answered);
        assert!(timeout(Duration::from_millis(1), call.until(answered.notified())).await.is_err());
        drop(call);
        timeout(Duration::from_secs(2), answered.notified()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_call_ends_inline_and_as_a_task() {
        let answered = Arc::new(Notify::new());
        let (mut call, handle) = calling(&answered);
        let waiting = async { timeout(Duration::from_secs(2), call.until(answered.notified())).await };
        let ended = async {
            tokio::task::yield_now().await;
            handle.abort();
        };
        assert!(tokio::join!(waiting, ended).0.is_err());
        let (call, handle) = calling(&answered);
        drop(call);
        handle.abort();
        assert!(timeout(Duration::from_secs(2), answered.notified()).await.is_err());
        let (call, _handle) = calling(&answered);
        call.cancel();
        assert!(timeout(Duration::from_secs(2), answered.notified()).await.is_err());
    }
}

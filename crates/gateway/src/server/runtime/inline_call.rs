//! A call of a client while it is under way. Most calls are over before anything else happens to them, so a call is
//! driven by whoever waits for its answer; one that nobody waits for any more goes on in a task of its own.

use futures_util::future::{AbortHandle, Abortable, Aborted};
use gripfast::transport::BoxFuture;
use std::future::poll_fn;
use std::pin::pin;

/// A call under way. Dropped before its end, it goes on by itself; its handle ends it.
pub(crate) struct Running {
    rest: Option<BoxFuture<'static, Result<(), Aborted>>>,
}

impl Running {
    /// Begins a call. Nothing of it happens before somebody waits for it, or lets go of it.
    pub(crate) fn new<F>(call: impl FnOnce() -> F) -> (Self, AbortHandle)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (handle, registration) = AbortHandle::new_pair();
        // Made where it stays: it is large.
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

    /// Gives it up.
    pub(crate) fn cancel(mut self) {
        self.rest = None;
    }
}

impl Drop for Running {
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

    fn calling(answered: &Arc<Notify>) -> (Running, AbortHandle) {
        let answered = Arc::clone(answered);
        Running::new(|| async move {
            sleep(Duration::from_secs(1)).await;
            answered.notify_one();
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_driven_by_whoever_waits_and_goes_on_when_nobody_does() {
        let answered = Arc::new(Notify::new());
        let (mut call, _handle) = calling(&answered);
        call.until(answered.notified()).await;
        let (mut call, _handle) = calling(&answered);
        assert!(timeout(Duration::from_millis(1), call.until(answered.notified())).await.is_err());
        drop(call);
        timeout(Duration::from_secs(2), answered.notified()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_ends_whoever_drives_it() {
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

//! Progress notifications and server requests during one call.
//!
//! Progress is forwarded with the caller's token and restarts the progress timeout: a server that reports and then
//! goes silent is not waited for until the deadline. Server requests are answered by the caller, or declined without
//! a listener; their time does not count against the server.

use super::Connection;
use super::call::is_request_too_deep;
use super::micros;
use super::notifications::{default_reply, too_deep_reply};
use super::replies::OpenQuestions;
use crate::clock::Clock;
use crate::sync::Mutex;
use crate::transport::{BoxFuture, CallListener, Listener};
use bytes::Bytes;
use gripfast_core::json_text::JsonText;
use gripfast_core::time::Mono;
use gripfast_wire::envelope::{Message, Request};
use gripfast_wire::era::meta;
use gripfast_wire::patch::{MessagePatch, Patch};
use gripfast_wire::results::Progress;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Listener of one call.
pub(super) struct CallWatch {
    clock: Clock,
    connection: Arc<Connection>,
    listener: Option<Arc<dyn Listener>>,
    /// Time of the last progress in microseconds of the monotonic clock; zero before the first.
    last_progress: AtomicU64,
    token: Mutex<Option<JsonText>>,
    /// The call must end because the server was stopped.
    is_stopped: AtomicBool,
    times: Mutex<Times>,
    changed: Notify,
    /// Server requests that wait for an answer; they end with the call.
    open_questions: OpenQuestions,
    /// This watch, for the guards of open requests.
    this: Weak<Self>,
}

/// Accounting of the open server requests of one call.
#[derive(Default)]
struct Times {
    open: u32,
    /// Start of the present period with open requests.
    since: Option<Mono>,
    /// Time spent in past periods with open requests.
    spent: Duration,
    /// Time at which the last request was closed.
    closed: Option<Mono>,
}

impl CallWatch {
    pub(super) fn new(
        clock: Clock,
        connection: &Arc<Connection>,
        listener: Option<Arc<dyn Listener>>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            clock,
            connection: Arc::clone(connection),
            listener,
            last_progress: AtomicU64::new(0),
            token: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            times: Mutex::default(),
            changed: Notify::new(),
            open_questions: OpenQuestions::default(),
            this: Weak::clone(this),
        })
    }

    /// Sets the caller's progress token, which replaces ours in forwarded progress.
    pub(super) fn set_caller_token(&self, token: JsonText) {
        *self.token.lock() = Some(token);
    }

    /// Returns true if the call must end, whatever the server still answers.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Waits for progress, for a request that was opened or closed, or for the end of the call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Start of the present silence of a server that reports progress. There is no silence while a request is open,
    /// and the timeout starts again after it.
    pub(super) fn last_activity(&self, now: Mono) -> Option<Mono> {
        let progress_at = self.last_progress.load(Ordering::Acquire);
        let progress_at = (progress_at > 0).then(|| Mono::from_origin(Duration::from_micros(progress_at)))?;
        let times = self.times.lock();
        Some(if times.open > 0 {
            now
        } else {
            times.closed.map_or(progress_at, |closed| closed.max(progress_at))
        })
    }

    /// Returns true while a server request waits for an answer.
    pub(super) fn has_open_question(&self) -> bool {
        self.times.lock().open > 0
    }

    /// Total time that server requests were open.
    pub(super) fn question_time(&self) -> Duration {
        let times = self.times.lock();
        times.spent + times.since.map_or(Duration::ZERO, |since| self.clock.mono() - since)
    }

    fn record_progress(&self) {
        self.last_progress.store(micros(self.clock.mono()).max(1), Ordering::Release);
        self.changed.notify_one();
    }

    fn answer(&self, message: &[u8], request: &Request<'_>) {
        self.connection.note_request(request);
        let request_client = || self.on_request(Bytes::copy_from_slice(message));
        let open = || OpenQuestion::open(self);
        if !self.open_questions.spawn(&self.connection.replies, request_client, open) {
            self.connection.replies.send(default_reply(request));
        }
    }
}

/// A server request that counts as open until this is dropped.
struct OpenQuestion(Weak<CallWatch>);

impl OpenQuestion {
    fn open(watch: &CallWatch) -> Self {
        let now = watch.clock.mono();
        let mut times = watch.times.lock();
        times.open += 1;
        times.since.get_or_insert(now);
        drop(times);
        watch.changed.notify_one();
        Self(Weak::clone(&watch.this))
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        // The call has ended.
        let Some(watch) = self.0.upgrade() else { return };
        let now = watch.clock.mono();
        let mut times = watch.times.lock();
        times.open -= 1;
        if times.open == 0
            && let Some(since) = times.since.take()
        {
            times.spent += now - since;
            times.closed = Some(now);
        }
        drop(times);
        watch.changed.notify_one();
    }
}

impl CallListener for CallWatch {
    fn pause(&self) -> Box<dyn Any + Send> {
        Box::new(OpenQuestion::open(self))
    }

    fn end(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.changed.notify_one();
    }
}

impl Listener for CallWatch {
    fn on_request(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        self.listener.as_ref()?.on_request(request)
    }

    fn on_message(&self, message: &[u8]) {
        let is_too_deep = is_request_too_deep(message, self.connection.max_nesting);
        let is_progress = match Message::parse(message) {
            Ok(Message::Request(request)) if is_too_deep => {
                return self.connection.replies.send(too_deep_reply(&request, self.connection.max_nesting));
            }
            Ok(Message::Request(request)) => return self.answer(message, &request),
            Ok(Message::Notification(_)) if is_too_deep => {
                return tracing::debug!("notification dropped: it is nested too deeply");
            }
            Ok(Message::Notification(notification)) => notification.method == Progress::METHOD,
            Ok(Message::Response(_)) | Err(_) => return,
        };
        if is_progress {
            self.record_progress();
        }
        let Some(listener) = &self.listener else { return };
        let token = self.token.lock().clone().filter(|_| is_progress);
        match token {
            None => listener.on_message(message),
            Some(token) => {
                let payload = Patch::new().set(meta::PROGRESS_TOKEN, &token);
                let patch = MessagePatch { payload, ..MessagePatch::default() };
                if let Ok(message) = patch.apply(message) {
                    listener.on_message(&message);
                }
            }
        }
    }
}

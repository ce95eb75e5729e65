//! What happens on the way to the answer of one call: progress and questions.
//!
//! Progress is passed on under the caller's own token, and its times are kept: a server that reports and
//! then falls silent is not waited for to the end. Questions are answered by the caller, or declined if
//! there is nobody to ask; the time they take is not the server's.

use super::Live;
use super::answers::Thinking;
use super::exchange::is_request_too_deep;
use super::listen::{own_answer, too_deep_answer};
use super::micros;
use crate::clock::Clock;
use crate::transport::{BoxFuture, CallEar, Listener};
use bytes::Bytes;
use gripfast_core::time::Mono;
use gripfast_wire::RawValue;
use gripfast_wire::envelope::{Message, Request};
use gripfast_wire::era::meta;
use gripfast_wire::patch::{MessagePatch, Patch};
use gripfast_wire::results::Progress;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Hears one call.
pub(super) struct CallWatch {
    clock: Clock,
    live: Arc<Live>,
    listener: Option<Arc<dyn Listener>>,
    /// When progress was last heard, in microseconds of the monotonic clock; zero while it never was.
    heard: AtomicU64,
    token: Mutex<Option<Box<RawValue>>>,
    /// The server was stopped.
    is_over: AtomicBool,
    questions: Arc<Questions>,
    /// Questions that somebody thinks about; they end with the call.
    thinking: Thinking,
}

/// The questions of one call.
#[derive(Default)]
struct Questions {
    times: Mutex<Times>,
    news: Notify,
}

#[derive(Default)]
struct Times {
    open: u32,
    /// Since when at least one has been open.
    since: Option<Mono>,
    /// Time spent on those that are closed.
    spent: Duration,
    /// When the last of them was closed.
    closed: Option<Mono>,
}

impl CallWatch {
    pub(super) fn new(clock: Clock, live: &Arc<Live>, listener: Option<Arc<dyn Listener>>) -> Self {
        Self {
            clock,
            live: Arc::clone(live),
            listener,
            heard: AtomicU64::new(0),
            token: Mutex::default(),
            is_over: AtomicBool::new(false),
            questions: Arc::default(),
            thinking: Thinking::default(),
        }
    }

    /// The caller's own token, which its progress is to carry.
    pub(super) fn restore(&self, token: Box<RawValue>) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
    }

    /// Whether it has to end, whatever the server is about to say.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Ends when there was progress, a question was opened or closed, or the call has to end.
    pub(super) async fn news(&self) {
        self.questions.news.notified().await;
    }

    /// Since when a server that reports progress is silent. While a question is open it is not, and after that it has
    /// its whole time again.
    pub(super) fn last_heard(&self, now: Mono) -> Option<Mono> {
        let heard = self.heard.load(Ordering::Acquire);
        let heard = (heard > 0).then(|| Mono::at(Duration::from_micros(heard)))?;
        let times = self.questions.lock();
        Some(if times.open > 0 { now } else { times.closed.map_or(heard, |closed| closed.max(heard)) })
    }

    /// Whether somebody thinks about a question.
    pub(super) fn is_asking(&self) -> bool {
        self.questions.lock().open > 0
    }

    /// How much of the call's time went into questions.
    pub(super) fn spent_on_questions(&self) -> Duration {
        let times = self.questions.lock();
        times.spent + times.since.map_or(Duration::ZERO, |since| self.clock.mono() - since)
    }

    fn heard_now(&self) {
        self.heard.store(micros(self.clock.mono()).max(1), Ordering::Release);
        self.questions.news.notify_one();
    }

    fn answer(&self, message: &[u8], request: &Request<'_>) {
        self.live.note(request);
        let ask = || self.asked(Bytes::copy_from_slice(message));
        let open = || Open::now(self.clock, &self.questions);
        if !self.thinking.about(&self.live.answers, ask, open) {
            self.live.answers.put(own_answer(request));
        }
    }
}

impl Questions {
    fn lock(&self) -> std::sync::MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that is open until this is dropped.
struct Open {
    clock: Clock,
    questions: Arc<Questions>,
}

impl Open {
    fn now(clock: Clock, questions: &Arc<Questions>) -> Self {
        let now = clock.mono();
        let mut times = questions.lock();
        times.open += 1;
        times.since.get_or_insert(now);
        drop(times);
        questions.news.notify_one();
        Self { clock, questions: Arc::clone(questions) }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let now = self.clock.mono();
        let mut times = self.questions.lock();
        times.open -= 1;
        if times.open == 0
            && let Some(since) = times.since.take()
        {
            times.spent += now - since;
            times.closed = Some(now);
        }
        drop(times);
        self.questions.news.notify_one();
    }
}

impl CallEar for CallWatch {
    fn pause(&self) -> Box<dyn Any + Send> {
        Box::new(Open::now(self.clock, &self.questions))
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.questions.news.notify_one();
    }
}

impl Listener for CallWatch {
    fn asked(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        self.listener.as_ref()?.asked(request)
    }

    fn said(&self, message: &[u8]) {
        let is_too_deep = is_request_too_deep(message, self.live.nesting);
        let is_progress = match Message::parse(message) {
            Ok(Message::Request(request)) if is_too_deep => {
                return self.live.answers.put(too_deep_answer(&request, self.live.nesting));
            }
            Ok(Message::Request(request)) => return self.answer(message, &request),
            Ok(Message::Notification(_)) if is_too_deep => {
                return tracing::debug!("a message of a server is nested too deeply and is left out");
            }
            Ok(Message::Notification(said)) => said.method == Progress::METHOD,
            Ok(Message::Response(_)) | Err(_) => return,
        };
        if is_progress {
            self.heard_now();
        }
        let Some(listener) = &self.listener else { return };
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone().filter(|_| is_progress);
        match token {
            None => listener.said(message),
            Some(token) => {
                let payload = Patch::new().set(meta::PROGRESS_TOKEN, &token);
                let patch = MessagePatch { payload, ..MessagePatch::default() };
                if let Ok(message) = patch.apply(message) {
                    listener.said(&message);
                }
            }
        }
    }
}

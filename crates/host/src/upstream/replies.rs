//! Our answers to what a server asks, and what else it is told without being asked for an answer, on their way to it. A few are sent at once and a bounded number wait,
//! so a server that asks faster than it listens costs no more than that.

use crate::transport::{BoxFuture, Link, Session};
use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// The way of answers over one link.
pub(super) struct Answers {
    way: AnswerWay,
    _sending: AbortOnDropHandle<()>,
}

/// A handle for whoever has an answer later.
#[derive(Clone)]
struct AnswerWay(mpsc::Sender<Vec<u8>>);

impl Answers {
    /// Answers that may wait for a server that does not take them.
    const WAITING: usize = 256;
    /// Answers sent at once: over HTTP each is a request of its own, and one may hang.
    const AT_ONCE: usize = 8;

    pub(super) fn over(link: &Arc<dyn Link>, session: Arc<Session>) -> Self {
        let (way, waiting) = mpsc::channel(Self::WAITING);
        let sending = tokio::spawn(send(Arc::downgrade(link), session, waiting));
        Self { way: AnswerWay(way), _sending: AbortOnDropHandle::new(sending) }
    }

    /// Sends an answer that is there already. One that does not fit is dropped: its server asks without
    /// taking answers, and goes on without this one too.
    pub(super) fn put(&self, message: Vec<u8>) {
        if self.way.0.try_send(message).is_err() {
            tracing::debug!("a server asks faster than it takes answers; one was left out");
        }
    }
}

/// Questions that somebody thinks about. They end with whatever this belongs to: a call, or a session. Most of these
/// never see one, so there is a set for them from the first one on.
#[derive(Default)]
pub(super) struct Thinking(Mutex<Option<JoinSet<()>>>);

impl Thinking {
    /// A server that asks more than this at once is not asking a person.
    const MOST: usize = 64;

    /// Has somebody think about a question, holding on to `meanwhile` for that time. Answers whether there
    /// was room, and anybody to ask.
    pub(super) fn about<T: Send + 'static>(
        &self,
        answers: &Answers,
        ask: impl FnOnce() -> Option<BoxFuture<'static, Vec<u8>>>,
        meanwhile: impl FnOnce() -> T,
    ) -> bool {
        let mut thinking = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let thinking = thinking.get_or_insert_default();
        while thinking.try_join_next().is_some() {}
        if thinking.len() >= Self::MOST {
            return false;
        }
        let Some(asked) = ask() else { return false };
        let (way, meanwhile) = (answers.way.clone(), meanwhile());
        thinking.spawn(async move {
            let response = asked.await;
            drop(meanwhile);
            // A link that is gone has nobody left who could miss it.
            let _ = way.0.send(response).await;
        });
        true
    }
}

async fn send(link: Weak<dyn Link>, session: Arc<Session>, mut waiting: mpsc::Receiver<Vec<u8>>) {
    poll_fn(move |context| waiting.poll_recv(context))
        .for_each_concurrent(Answers::AT_ONCE, |message| {
            let (link, session) = (link.upgrade(), Arc::clone(&session));
            async move {
                if let Some(link) = link {
                    // A server that cannot take the answer to its own question is noticed by the next call.
                    let _ = link.send(&session, message).await;
                }
            }
        })
        .await;
}

//! Replies to server requests, and notifications to the server, on their way to it. A few are sent concurrently and a
//! bounded number is queued, so a server that sends requests faster than it reads replies has a bounded cost.

use crate::sync::Mutex;
use crate::transport::{BoxFuture, Link, Session};
use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use std::sync::{Arc, Weak};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Queue of outgoing replies of one session.
pub(super) struct ReplySender {
    handle: ReplyHandle,
    _sending: AbortOnDropHandle<()>,
}

/// Handle for replies that are ready later.
#[derive(Clone)]
struct ReplyHandle(mpsc::Sender<Vec<u8>>);

impl ReplySender {
    /// Replies that may be queued for a slow server.
    const CAPACITY: usize = 256;
    /// Replies sent concurrently: over HTTP each is a request of its own, and one may hang.
    const MAX_CONCURRENT: usize = 8;

    pub(super) fn new(link: &Arc<dyn Link>, session: Arc<Session>) -> Self {
        let (handle, waiting) = mpsc::channel(Self::CAPACITY);
        let sending = tokio::spawn(send(Arc::downgrade(link), session, waiting));
        Self { handle: ReplyHandle(handle), _sending: AbortOnDropHandle::new(sending) }
    }

    /// Queues a message. It is dropped if the queue is full: the server does not read replies and will not miss this
    /// one.
    pub(super) fn send(&self, message: Vec<u8>) {
        if self.handle.0.try_send(message).is_err() {
            tracing::debug!("reply dropped: the server sends requests faster than it reads replies");
        }
    }
}

/// Server requests that wait for an answer. They end with their owner, a call or a session. Most owners never have
/// one, so the set is created on demand.
#[derive(Default)]
pub(super) struct OpenQuestions(Mutex<Option<JoinSet<()>>>);

impl OpenQuestions {
    /// Maximum number of open requests: more cannot be meant for a person.
    const MAX_OPEN: usize = 64;

    /// Waits for the answer to a server request in a task and then sends it, holding `meanwhile` until then. Returns
    /// false if there are too many or `ask` has no listener.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        answers: &ReplySender,
        ask: impl FnOnce() -> Option<BoxFuture<'static, Vec<u8>>>,
        meanwhile: impl FnOnce() -> T,
    ) -> bool {
        let mut open = self.0.lock();
        let open = open.get_or_insert_default();
        while open.try_join_next().is_some() {}
        if open.len() >= Self::MAX_OPEN {
            return false;
        }
        let Some(answer) = ask() else { return false };
        let (handle, meanwhile) = (answers.handle.clone(), meanwhile());
        open.spawn(async move {
            let response = answer.await;
            drop(meanwhile);
            // A closed link needs no reply.
            let _ = handle.0.send(response).await;
        });
        true
    }
}

async fn send(link: Weak<dyn Link>, session: Arc<Session>, mut waiting: mpsc::Receiver<Vec<u8>>) {
    poll_fn(move |context| waiting.poll_recv(context))
        .for_each_concurrent(ReplySender::MAX_CONCURRENT, |message| {
            let (link, session) = (link.upgrade(), Arc::clone(&session));
            async move {
                if let Some(link) = link {
                    // The next call notices a server that cannot receive replies.
                    let _ = link.send(&session, message).await;
                }
            }
        })
        .await;
}

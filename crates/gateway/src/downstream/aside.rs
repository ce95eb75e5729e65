//! What a legacy client hears outside its calls, from a server's instance that is its alone: log messages, and
//! questions. They go on its one channel, or on its GET stream while it has one open; a client that cannot
//! be reached is declined for.

use super::client::LeastSevere;
use super::questions::{Abilities, Questions};
use bytes::Bytes;
use gripfast::transport::{BoxFuture, Listener};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, mpsc};

/// Hears for one client outside its calls.
pub(crate) struct Aside<W> {
    pub(crate) way: W,
    pub(crate) abilities: Abilities,
    pub(crate) level: Arc<LeastSevere>,
    pub(crate) questions: Arc<Questions>,
}

/// A way to a client that may be closed.
pub(crate) trait Way: Send + Sync {
    fn is_open(&self) -> bool;

    fn send(&self, message: Bytes);
}

impl<W: Way + Clone + 'static> Listener for Aside<W> {
    fn said(&self, message: &[u8]) {
        if self.way.is_open() && self.level.wants(message) {
            self.way.send(Bytes::copy_from_slice(message));
        }
    }

    fn asked(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        if !self.way.is_open() {
            return None;
        }
        let way = self.way.clone();
        self.questions.ask(self.abilities, &request, move |message| way.send(message))
    }
}

/// A channel that is there for as long as its client. It is not kept open for this.
impl Way for mpsc::WeakSender<Bytes> {
    fn is_open(&self) -> bool {
        self.upgrade().is_some()
    }

    fn send(&self, message: Bytes) {
        // What does not fit is lost; a question then ends with its time.
        if let Some(out) = self.upgrade() {
            let _ = out.try_send(message);
        }
    }
}

/// The GET streams of a session, each message for one of them.
#[derive(Default)]
pub(crate) struct GetStreams {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    open: usize,
    waiting: VecDeque<Bytes>,
}

/// One GET stream, open until this is dropped.
pub(crate) struct GetStream(Arc<GetStreams>);

impl GetStreams {
    /// Messages that may wait for a stream; beyond it the oldest is lost.
    const MOST: usize = 64;

    pub(crate) fn open(self: &Arc<Self>) -> GetStream {
        self.lock().open += 1;
        GetStream(Arc::clone(self))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GetStream {
    /// The next message. Dropping the future loses nothing.
    pub(crate) async fn next(&self) -> Bytes {
        loop {
            let news = self.0.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if let Some(message) = self.0.lock().waiting.pop_front() {
                return message;
            }
            news.await;
        }
    }
}

impl Drop for GetStream {
    fn drop(&mut self) {
        self.0.lock().open -= 1;
        // Another one may take what this one was woken for.
        self.0.news.notify_waiters();
    }
}

impl Way for Arc<GetStreams> {
    fn is_open(&self) -> bool {
        self.lock().open > 0
    }

    fn send(&self, message: Bytes) {
        let mut state = self.lock();
        if state.waiting.len() == GetStreams::MOST {
            state.waiting.pop_front();
        }
        state.waiting.push_back(message);
        drop(state);
        self.news.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::RawValue;

    const FORM: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?"}}"#;
    const LOG: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}"#;

    fn aside<W>(way: W) -> Aside<W> {
        let can = RawValue::from_string(r#"{"elicitation":{}}"#.to_owned()).unwrap();
        let abilities = Abilities::read(Some(&can));
        Aside { way, abilities, level: Arc::default(), questions: Arc::default() }
    }

    #[tokio::test]
    async fn a_client_without_a_stream_is_declined_for_and_one_with_several_is_asked_once() {
        let streams = Arc::new(GetStreams::default());
        let aside = aside(Arc::clone(&streams));
        assert!(aside.asked(Bytes::from_static(FORM)).is_none());
        aside.said(LOG);
        let (one, two) = (streams.open(), streams.open());
        let _answer = aside.asked(Bytes::from_static(FORM)).unwrap();
        let asked = tokio::select! {
            asked = one.next() => asked,
            asked = two.next() => asked,
        };
        assert!(String::from_utf8(asked.to_vec()).unwrap().contains("gripfast-0"), "under an id of ours");
        assert!(streams.lock().waiting.is_empty(), "what was said to nobody is not kept");
        drop((one, two));
        assert!(aside.asked(Bytes::from_static(FORM)).is_none());
    }

    #[tokio::test]
    async fn what_waits_for_a_stream_is_bounded() {
        let streams = Arc::new(GetStreams::default());
        let (aside, stream) = (aside(Arc::clone(&streams)), streams.open());
        for _ in 0..1000 {
            aside.said(LOG);
        }
        assert_eq!(streams.lock().waiting.len(), GetStreams::MOST);
        assert_eq!(stream.next().await, LOG);
    }

    #[tokio::test]
    async fn a_channel_is_not_kept_open_for_what_might_be_said_on_it() {
        let (out, mut from) = mpsc::channel(4);
        let aside = aside(out.downgrade());
        aside.said(LOG);
        assert_eq!(from.recv().await.unwrap(), LOG);
        drop(out);
        assert_eq!(from.recv().await, None);
        assert!(aside.asked(Bytes::from_static(FORM)).is_none());
    }
}

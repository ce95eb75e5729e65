//! What a legacy client hears outside its calls, from a server's instance that is its alone: log messages, and
//! questions. They go on its one channel, or on its GET stream while it has one open; a client that cannot
//! be reached is declined for.

use super::client::LeastSevere;
use super::left_out::LeftOut;
use super::questions::{Abilities, Questions};
use crate::memory::ClientMemory;
use bytes::Bytes;
use gripfast::transport::{BoxFuture, Listener};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};

/// Hears for one client outside its calls.
pub(crate) struct Aside<W> {
    pub(crate) way: W,
    pub(crate) left_out: LeftOut,
    pub(crate) abilities: Abilities,
    pub(crate) level: Arc<LeastSevere>,
    pub(crate) questions: Arc<Questions>,
    /// What the messages are counted against.
    pub(crate) memory: Arc<ClientMemory>,
}

/// A way to a client that may be closed.
pub(crate) trait Way: Send + Sync {
    fn is_open(&self) -> bool;

    /// Says something that may be left out; answers whether it was not.
    fn say(&self, message: Bytes) -> bool;

    /// Says something that is never left out: a question, or its cancellation.
    fn send(&self, message: Bytes);
}

/// A client has at most 100 questions open. One that reads nothing while they are asked and withdrawn again and again is
/// not asked any more beyond this.
const MOST_QUESTIONS: usize = 1024;

impl<W: Way + Clone + 'static> Listener for Aside<W> {
    fn said(&self, message: &[u8]) {
        if self.way.is_open() && self.level.wants(message) {
            let say = |message| self.memory.hold(message).is_ok_and(|message| self.way.say(message));
            self.left_out.say(message, |notice| self.level.wants(notice), say);
        }
    }

    fn asked(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        if !self.way.is_open() || !self.memory.has_room(request.len()) {
            return None;
        }
        let (way, memory) = (self.way.clone(), Arc::clone(&self.memory));
        self.questions.ask(self.abilities, &request, move |message| way.send(memory.hold_always(message)))
    }
}

/// A channel that is there for as long as its client. It is not kept open for what might be said on it.
#[derive(Clone)]
pub(crate) struct Channel {
    out: mpsc::WeakSender<Bytes>,
    /// What must be said and did not fit, in its order.
    late: Arc<Mutex<VecDeque<Bytes>>>,
}

impl Channel {
    pub(crate) fn over(out: &mpsc::Sender<Bytes>) -> Self {
        Self { out: out.downgrade(), late: Arc::default() }
    }
}

impl Way for Channel {
    fn is_open(&self) -> bool {
        self.out.upgrade().is_some()
    }

    fn say(&self, message: Bytes) -> bool {
        self.out.upgrade().is_some_and(|out| out.try_send(message).is_ok())
    }

    fn send(&self, message: Bytes) {
        let Some(out) = self.out.upgrade() else { return };
        let mut late = lock(&self.late);
        if late.len() >= MOST_QUESTIONS {
            return;
        }
        if !late.is_empty() {
            return late.push_back(message);
        }
        if let Err(TrySendError::Full(message)) = out.try_send(message) {
            late.push_back(message);
            // Ends when all of it is said, or nobody can be told any more.
            tokio::spawn(say_late(out, Arc::clone(&self.late)));
        }
    }
}

async fn say_late(out: mpsc::Sender<Bytes>, late: Arc<Mutex<VecDeque<Bytes>>>) {
    loop {
        let Ok(room) = out.reserve().await else { return lock(&late).clear() };
        let mut late = lock(&late);
        if let Some(message) = late.pop_front() {
            room.send(message);
        }
        if late.is_empty() {
            return;
        }
    }
}

fn lock(late: &Mutex<VecDeque<Bytes>>) -> MutexGuard<'_, VecDeque<Bytes>> {
    late.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// With whether it may be left out.
    waiting: VecDeque<(Bytes, bool)>,
}

/// One GET stream, open until this is dropped.
pub(crate) struct GetStream(Arc<GetStreams>);

impl GetStreams {
    /// Log messages that may wait for a stream; further ones are left out.
    const MOST: usize = 64;

    pub(crate) fn open(self: &Arc<Self>) -> GetStream {
        self.lock().open += 1;
        GetStream(Arc::clone(self))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
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
            if let Some((message, _)) = self.0.lock().waiting.pop_front() {
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

    fn say(&self, message: Bytes) -> bool {
        let mut state = self.lock();
        let waiting = state.waiting.iter().filter(|(_, optional)| *optional).count();
        if waiting >= GetStreams::MOST {
            return false;
        }
        state.waiting.push_back((message, true));
        drop(state);
        self.news.notify_waiters();
        true
    }

    fn send(&self, message: Bytes) {
        let mut state = self.lock();
        if state.waiting.len() < MOST_QUESTIONS {
            state.waiting.push_back((message, false));
        }
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
        Aside {
            way,
            left_out: LeftOut::default(),
            abilities,
            level: Arc::default(),
            questions: Arc::default(),
            memory: ClientMemory::unbounded(),
        }
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
        let _answer = aside.asked(Bytes::from_static(FORM)).unwrap();
        assert_eq!(streams.lock().waiting.len(), GetStreams::MOST + 1);
        for _ in 0..GetStreams::MOST {
            assert_eq!(stream.next().await, LOG);
        }
        let asked = stream.next().await;
        assert!(
            String::from_utf8_lossy(&asked).contains("elicitation/create"),
            "a question is never left out"
        );
        aside.said(LOG);
        let notice = String::from_utf8(stream.next().await.to_vec()).unwrap();
        assert!(notice.contains("936 messages were left out"), "{notice}");
        assert_eq!(stream.next().await, LOG);
    }

    #[tokio::test]
    async fn c07_questions_and_their_cancellation_follow_a_burst_in_their_order() {
        let (out, mut from) = mpsc::channel(4);
        let aside = aside(Channel::over(&out));
        for _ in 0..1000 {
            aside.said(LOG);
        }
        drop(aside.asked(Bytes::from_static(FORM)).unwrap());
        let _answer = aside.asked(Bytes::from_static(FORM)).unwrap();
        let mut heard = Vec::new();
        for _ in 0..7 {
            heard.push(String::from_utf8(from.recv().await.unwrap().to_vec()).unwrap());
        }
        let is = |at: usize, method: &str, id: &str| heard[at].contains(method) && heard[at].contains(id);
        assert!(is(4, "elicitation/create", "gripfast-0"), "{heard:?}");
        assert!(is(5, "notifications/cancelled", "gripfast-0"), "{heard:?}");
        assert!(is(6, "elicitation/create", "gripfast-1"), "{heard:?}");
        aside.said(LOG);
        let notice = String::from_utf8(from.recv().await.unwrap().to_vec()).unwrap();
        assert!(notice.contains("996 messages were left out"), "{notice}");
    }

    #[tokio::test]
    async fn a_channel_is_not_kept_open_for_what_might_be_said_on_it() {
        let (out, mut from) = mpsc::channel(4);
        let aside = aside(Channel::over(&out));
        aside.said(LOG);
        assert_eq!(from.recv().await.unwrap(), LOG);
        drop(out);
        assert_eq!(from.recv().await, None);
        assert!(aside.asked(Bytes::from_static(FORM)).is_none());
    }
}

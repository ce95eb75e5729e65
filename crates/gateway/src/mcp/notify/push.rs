//! Messages to a legacy client outside its calls, from server instances that are dedicated to it: log messages and
//! elicitation. They go to its permanent channel, or to a GET stream while one is open; for a client without a stream
//! the gateway declines.

use super::log_level::MinLogLevel;
use crate::mcp::elicitation::{ElicitationSupport, PendingElicitations};
use crate::mcp::transport::dropped_messages::DroppedMessages;
use crate::server::memory::ClientMemory;
use bytes::Bytes;
use gripfast::sync::Mutex;
use gripfast::transport::{BoxFuture, Listener};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};

/// Listener for messages outside the calls of one client.
pub(crate) struct Push<W> {
    pub(crate) channel: W,
    pub(crate) dropped: DroppedMessages,
    pub(crate) abilities: ElicitationSupport,
    pub(crate) level: Arc<MinLogLevel>,
    pub(crate) elicitations: Arc<PendingElicitations>,
    /// Memory account for the messages.
    pub(crate) memory: Arc<ClientMemory>,
}

/// Channel to a client, which may be closed.
pub(crate) trait ClientChannel: Send + Sync {
    fn is_open(&self) -> bool;

    /// Sends a message that may be dropped. Returns false if it was.
    fn try_send(&self, message: Bytes) -> bool;

    /// Sends a message that must not be dropped: a request of a server, or its cancellation.
    fn send(&self, message: Bytes);
}

/// Maximum number of queued requests and cancellations. At most 100 requests are open per client, but a client that
/// reads nothing while they are sent and withdrawn again would fill the memory.
const MAX_ELICITATIONS: usize = 1024;

impl<W: ClientChannel + Clone + 'static> Listener for Push<W> {
    fn on_message(&self, message: &[u8]) {
        if self.channel.is_open() && self.level.wants(message) {
            let say = |message| self.memory.hold(message).is_ok_and(|message| self.channel.try_send(message));
            self.dropped.send_or_count(message, |notice| self.level.wants(notice), say);
        }
    }

    fn on_request(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        if !self.channel.is_open() || !self.memory.has_room(request.len()) {
            return None;
        }
        let (channel, memory) = (self.channel.clone(), Arc::clone(&self.memory));
        self.elicitations
            .elicit(self.abilities, &request, move |message| channel.send(memory.hold_unchecked(message)))
    }
}

/// Channel that exists as long as its client. Holds a weak sender, so that it does not keep the connection open.
#[derive(Clone)]
pub(crate) struct PermanentChannel {
    out: mpsc::WeakSender<Bytes>,
    /// Messages that must be sent and did not fit, in order.
    overflow: Arc<Mutex<VecDeque<Bytes>>>,
}

impl PermanentChannel {
    pub(crate) fn new(out: &mpsc::Sender<Bytes>) -> Self {
        Self { out: out.downgrade(), overflow: Arc::default() }
    }
}

impl ClientChannel for PermanentChannel {
    fn is_open(&self) -> bool {
        self.out.upgrade().is_some()
    }

    fn try_send(&self, message: Bytes) -> bool {
        self.out.upgrade().is_some_and(|out| out.try_send(message).is_ok())
    }

    fn send(&self, message: Bytes) {
        let Some(out) = self.out.upgrade() else { return };
        let mut overflow = self.overflow.lock();
        if overflow.len() >= MAX_ELICITATIONS {
            return;
        }
        if !overflow.is_empty() {
            return overflow.push_back(message);
        }
        if let Err(TrySendError::Full(message)) = out.try_send(message) {
            overflow.push_back(message);
            // Ends when everything is sent or the channel is closed.
            tokio::spawn(send_overflow(out, Arc::clone(&self.overflow)));
        }
    }
}

async fn send_overflow(out: mpsc::Sender<Bytes>, overflow: Arc<Mutex<VecDeque<Bytes>>>) {
    loop {
        let Ok(room) = out.reserve().await else { return overflow.lock().clear() };
        let mut overflow = overflow.lock();
        if let Some(message) = overflow.pop_front() {
            room.send(message);
        }
        if overflow.is_empty() {
            return;
        }
    }
}

/// GET streams of a session; each message goes to one of them.
#[derive(Default)]
pub(crate) struct GetStreams {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    open: usize,
    /// Message, and a flag that it may be dropped.
    waiting: VecDeque<(Bytes, bool)>,
}

/// One GET stream, open until this is dropped.
pub(crate) struct GetStream(Arc<GetStreams>);

impl GetStreams {
    /// Log messages that may wait for a stream; further ones are dropped.
    const MAX: usize = 64;

    pub(crate) fn open(self: &Arc<Self>) -> GetStream {
        self.state.lock().open += 1;
        GetStream(Arc::clone(self))
    }
}

impl GetStream {
    /// Next message. Cancel safe.
    pub(crate) async fn next(&self) -> Bytes {
        loop {
            let notified = self.0.changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if let Some((message, _)) = self.0.state.lock().waiting.pop_front() {
                return message;
            }
            notified.await;
        }
    }
}

impl Drop for GetStream {
    fn drop(&mut self) {
        self.0.state.lock().open -= 1;
        // Another stream may take the message that this one was woken for.
        self.0.changed.notify_waiters();
    }
}

impl ClientChannel for Arc<GetStreams> {
    fn is_open(&self) -> bool {
        self.state.lock().open > 0
    }

    fn try_send(&self, message: Bytes) -> bool {
        let mut state = self.state.lock();
        let waiting = state.waiting.iter().filter(|(_, optional)| *optional).count();
        if waiting >= GetStreams::MAX {
            return false;
        }
        state.waiting.push_back((message, true));
        drop(state);
        self.changed.notify_waiters();
        true
    }

    fn send(&self, message: Bytes) {
        let mut state = self.state.lock();
        if state.waiting.len() < MAX_ELICITATIONS {
            state.waiting.push_back((message, false));
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::JsonText;

    const FORM: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?"}}"#;
    const LOG: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}"#;

    fn push<W>(channel: W) -> Push<W> {
        let can = JsonText::parse(r#"{"elicitation":{}}"#.to_owned()).unwrap();
        let abilities = ElicitationSupport::from_capabilities(Some(&can));
        Push {
            channel,
            dropped: DroppedMessages::default(),
            abilities,
            level: Arc::default(),
            elicitations: Arc::default(),
            memory: ClientMemory::unbounded(),
        }
    }

    #[tokio::test]
    async fn a_request_is_declined_without_a_stream_and_sent_once_with_several() {
        let streams = Arc::new(GetStreams::default());
        let push = push(Arc::clone(&streams));
        assert!(push.on_request(Bytes::from_static(FORM)).is_none());
        push.on_message(LOG);
        let (one, two) = (streams.open(), streams.open());
        let _answer = push.on_request(Bytes::from_static(FORM)).unwrap();
        let request = tokio::select! {
            request = one.next() => request,
            request = two.next() => request,
        };
        let request = String::from_utf8(request.to_vec()).unwrap();
        assert!(request.contains(r#""id":"gripfast-"#), "under an id of the gateway: {request}");
        assert!(streams.state.lock().waiting.is_empty(), "a message without a stream is not kept");
        drop((one, two));
        assert!(push.on_request(Bytes::from_static(FORM)).is_none());
    }

    #[tokio::test]
    async fn messages_waiting_for_a_stream_are_bounded() {
        let streams = Arc::new(GetStreams::default());
        let (push, stream) = (push(Arc::clone(&streams)), streams.open());
        for _ in 0..1000 {
            push.on_message(LOG);
        }
        let _answer = push.on_request(Bytes::from_static(FORM)).unwrap();
        assert_eq!(streams.state.lock().waiting.len(), GetStreams::MAX + 1);
        for _ in 0..GetStreams::MAX {
            assert_eq!(stream.next().await, LOG);
        }
        let request = stream.next().await;
        assert!(
            String::from_utf8_lossy(&request).contains("elicitation/create"),
            "a request is never dropped"
        );
        push.on_message(LOG);
        let notice = String::from_utf8(stream.next().await.to_vec()).unwrap();
        assert!(notice.contains("936 messages were dropped"), "{notice}");
        assert_eq!(stream.next().await, LOG);
    }

    #[tokio::test]
    async fn c07_requests_and_cancellations_keep_their_order_after_a_burst() {
        let (out, mut from) = mpsc::channel(4);
        let push = push(PermanentChannel::new(&out));
        for _ in 0..1000 {
            push.on_message(LOG);
        }
        drop(push.on_request(Bytes::from_static(FORM)).unwrap());
        let _answer = push.on_request(Bytes::from_static(FORM)).unwrap();
        let mut received = Vec::new();
        for _ in 0..7 {
            received.push(String::from_utf8(from.recv().await.unwrap().to_vec()).unwrap());
        }
        let is = |at: usize, method: &str, number: u32| {
            received[at].contains(method) && received[at].contains(&format!("-{number}\""))
        };
        assert!(is(4, "elicitation/create", 0), "{received:?}");
        assert!(is(5, "notifications/cancelled", 0), "{received:?}");
        assert!(is(6, "elicitation/create", 1), "{received:?}");
        push.on_message(LOG);
        let notice = String::from_utf8(from.recv().await.unwrap().to_vec()).unwrap();
        assert!(notice.contains("996 messages were dropped"), "{notice}");
    }

    #[tokio::test]
    async fn push_does_not_keep_a_channel_open() {
        let (out, mut from) = mpsc::channel(4);
        let push = push(PermanentChannel::new(&out));
        push.on_message(LOG);
        assert_eq!(from.recv().await.unwrap(), LOG);
        drop(out);
        assert_eq!(from.recv().await, None);
        assert!(push.on_request(Bytes::from_static(FORM)).is_none());
    }
}

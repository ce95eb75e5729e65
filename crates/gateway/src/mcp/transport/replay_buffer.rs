//! Messages of one call in order, the answer last. They can be read from any position, so a client that lost its stream
//! resumes where it was. The buffer is bounded: the oldest progress and log messages are dropped, and the reader gets
//! their number. Requests of servers, their cancellations and the answer are never dropped.

use super::dropped_messages;
use super::streamable_http::CountedResponse;
use crate::mcp::client::Client;
use crate::mcp::notify::log_level::MinLogLevel;
use crate::mcp::session::state::SessionCall;
use crate::server::memory::ClientMemory;
use crate::server::runtime::inline_call::CallOutput;
use bytes::Bytes;
use gripfast::sync::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Notify;

/// Messages of one call.
#[derive(Default)]
pub(crate) struct ReplayBuffer {
    log: Mutex<Log>,
    changed: Notify,
    /// Minimum log level of the reader; `None` for all.
    level: Option<Arc<MinLogLevel>>,
    /// Memory account for the messages.
    memory: Option<Arc<ClientMemory>>,
}

#[derive(Default)]
struct Log {
    /// Messages before the answer.
    messages: VecDeque<Entry>,
    answer: Option<Entry>,
    /// Size of all messages.
    bytes: usize,
    /// Number of messages that may be dropped.
    optional: usize,
    /// Position of the next message.
    next: usize,
    done: bool,
    status: u16,
}

struct Entry {
    position: usize,
    message: Bytes,
    droppable: Droppable,
}

/// Marks messages that may be dropped if there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Droppable {
    /// Progress and log messages.
    Yes,
    /// Requests of servers, their cancellations, the answer.
    No,
}

impl Log {
    fn add(&mut self, message: Bytes, droppable: Droppable) {
        self.bytes += message.len();
        self.optional += usize::from(droppable == Droppable::Yes);
        self.messages.push_back(Entry { position: self.next, message, droppable });
        self.next += 1;
    }

    /// Drops the oldest message that may be dropped, but never the latest message. Returns false if there is none.
    fn drop_oldest_optional(&mut self) -> bool {
        let oldest = self.messages.iter().position(|entry| entry.droppable == Droppable::Yes);
        let Some(at) = oldest.filter(|at| at + 1 < self.messages.len()) else { return false };
        if let Some(entry) = self.messages.remove(at) {
            self.bytes -= entry.message.len();
            self.optional -= 1;
        }
        true
    }

    /// First message at or after `position`.
    fn from(&self, position: usize) -> Option<&Entry> {
        let message = self.messages.get(self.messages.partition_point(|entry| entry.position < position));
        message.or(self.answer.as_ref().filter(|answer| answer.position >= position))
    }
}

/// Item at the position of a reader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReplayItem {
    /// Message, and the position after it.
    Message(Bytes, usize),
    /// End of the call.
    End,
}

impl CallOutput for ReplayBuffer {
    type Answer = CountedResponse;
    type Guard = SessionCall;

    fn has_messages(&self) -> bool {
        self.log.lock().next > 0
    }

    fn finish(&self, answer: Option<CountedResponse>) {
        let mut log = self.log.lock();
        if log.done {
            return;
        }
        log.done = true;
        if let Some(CountedResponse { message, status }) = answer {
            log.bytes += message.len();
            log.answer = Some(Entry { position: log.next, message, droppable: Droppable::No });
            (log.next, log.status) = (log.next + 1, status);
        }
        drop(log);
        self.changed.notify_waiters();
    }
}

impl ReplayBuffer {
    /// Maximum number and size of the messages before the answer. The latest one is kept whatever its size.
    const MAX: usize = 1024;
    const MAX_BYTES: usize = 1 << 20;

    /// Creates the buffer for a call of `client`.
    pub(crate) fn for_client(client: &Client) -> Self {
        let (level, memory) = (Some(Arc::clone(&client.level)), Some(Arc::clone(&client.memory)));
        Self { level, memory, ..Self::default() }
    }

    /// Adds a progress or log message. It may be dropped later, and is dropped at once if there is no memory for it.
    pub(crate) fn push(&self, message: Bytes) {
        match self.memory.as_ref().map_or(Ok(message.clone()), |memory| memory.hold(message)) {
            Ok(message) => self.add(message, Droppable::Yes),
            Err(_) => self.log.lock().next += 1,
        }
    }

    /// Adds a request of a server, or its cancellation. The caller bounds their number.
    pub(crate) fn push_required(&self, message: Bytes) {
        self.add(self.counted(message), Droppable::No);
    }

    /// Counts a message against the memory of the client, even above the limit.
    pub(crate) fn counted(&self, message: Bytes) -> Bytes {
        match &self.memory {
            Some(memory) => memory.hold_unchecked(message),
            None => message,
        }
    }

    fn add(&self, message: Bytes, droppable: Droppable) {
        let mut log = self.log.lock();
        if log.done {
            return;
        }
        log.add(message, droppable);
        while log.optional > Self::MAX || log.bytes > Self::MAX_BYTES {
            if !log.drop_oldest_optional() {
                break;
            }
        }
        drop(log);
        self.changed.notify_waiters();
    }

    /// Adds the answer, if there is one, and ends the call.
    pub(crate) fn finish(&self, answer: Option<Bytes>) {
        CallOutput::finish(self, answer.map(|message| CountedResponse { message, status: 200 }));
    }

    /// The answer, if it is the only message from `position` on.
    pub(crate) fn sole_answer(&self, position: usize) -> Option<CountedResponse> {
        let log = self.log.lock();
        let answer = log.answer.as_ref().filter(|answer| answer.position == position)?;
        Some(CountedResponse { message: answer.message.clone(), status: log.status })
    }

    /// Size of the buffer, if the call has ended.
    pub(crate) fn end(&self) -> Option<usize> {
        let log = self.log.lock();
        log.done.then_some(log.bytes)
    }

    /// Position of the next message.
    pub(crate) fn next_position(&self) -> usize {
        self.log.lock().next
    }

    /// Tests if the message before `position` is the answer.
    pub(crate) fn is_answered_before(&self, position: usize) -> bool {
        let log = self.log.lock();
        log.answer.is_some() && position == log.next
    }

    /// Waits for the answer; `None` if the call ends without one.
    pub(crate) async fn answer(&self) -> Option<Bytes> {
        let mut position = 0;
        while let ReplayItem::Message(_, next) = self.next(position).await {
            position = next;
        }
        self.log.lock().answer.as_ref().map(|answer| answer.message.clone())
    }

    /// Waits for the message at `position`. Dropped messages are replaced by one notice with their number.
    pub(crate) async fn next(&self, position: usize) -> ReplayItem {
        loop {
            // Created before the check, so that no notification is missed.
            let notified = self.changed.notified();
            if let Some(next) = self.item_at(position) {
                return next;
            }
            notified.await;
        }
    }

    /// Item at `position`, if it exists already.
    fn item_at(&self, position: usize) -> Option<ReplayItem> {
        let log = self.log.lock();
        let Some(first) = log.from(position) else { return log.done.then_some(ReplayItem::End) };
        let notice = dropped_messages::notice(first.position - position);
        let wanted = |notice: &Bytes| self.level.as_ref().is_none_or(|level| level.wants(notice));
        Some(match notice.filter(wanted) {
            Some(notice) => ReplayItem::Message(notice, first.position),
            None => ReplayItem::Message(first.message.clone(), first.position + 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_can_start_at_any_position() {
        let buffer = ReplayBuffer::default();
        buffer.push(Bytes::from_static(b"one"));
        buffer.push(Bytes::from_static(b"two"));
        buffer.finish(Some(Bytes::from_static(b"answer")));
        assert_eq!(buffer.next(1).await, ReplayItem::Message(Bytes::from_static(b"two"), 2));
        assert_eq!(buffer.next(2).await, ReplayItem::Message(Bytes::from_static(b"answer"), 3));
        assert_eq!(buffer.next(3).await, ReplayItem::End);
        assert!(buffer.sole_answer(0).is_none() && buffer.sole_answer(2).is_some());
    }

    #[tokio::test]
    async fn a_flood_is_bounded_and_the_answer_still_comes() {
        let buffer = ReplayBuffer::default();
        for n in 0..5000 {
            buffer.push(Bytes::from(format!("{n}")));
        }
        buffer.finish(Some(Bytes::from_static(b"answer")));
        let ReplayItem::Message(notice, mut position) = buffer.next(0).await else {
            panic!("it has not ended")
        };
        assert_eq!(
            (&notice, position),
            (&dropped_messages::notice(5000 - ReplayBuffer::MAX).unwrap(), 5000 - ReplayBuffer::MAX)
        );
        let (mut last, mut count) = (Bytes::new(), 0);
        while let ReplayItem::Message(message, next) = buffer.next(position).await {
            (last, position, count) = (message, next, count + 1);
        }
        assert_eq!((last.as_ref(), position, count), (b"answer".as_slice(), 5001, ReplayBuffer::MAX + 1));
        assert_eq!(buffer.answer().await.as_deref(), Some(b"answer".as_slice()));
    }

    #[tokio::test]
    async fn large_messages_are_bounded_too_except_the_latest() {
        let buffer = ReplayBuffer::default();
        for _ in 0..10 {
            buffer.push(Bytes::from(vec![b'x'; ReplayBuffer::MAX_BYTES / 4]));
        }
        let first_kept = || buffer.log.lock().messages.front().map(|first| first.position);
        assert_eq!(first_kept(), Some(6));
        let large = Bytes::from(vec![b'y'; 3 * ReplayBuffer::MAX_BYTES]);
        buffer.push(large.clone());
        assert_eq!((first_kept(), buffer.next(10).await), (Some(10), ReplayItem::Message(large, 11)));
        buffer.push(Bytes::from_static(b"small"));
        assert_eq!(first_kept(), Some(11));
        buffer.finish(None);
        assert_eq!(buffer.end(), Some(5));
    }

    #[tokio::test]
    async fn c07_requests_and_cancellations_survive_any_number_of_log_messages() {
        let buffer = ReplayBuffer::default();
        let flood = || (0..5000).for_each(|_| buffer.push(Bytes::from(vec![b'x'; 1000])));
        flood();
        buffer.push_required(Bytes::from_static(b"question"));
        flood();
        buffer.push_required(Bytes::from_static(b"cancelled"));
        flood();
        buffer.finish(Some(Bytes::from_static(b"answer")));
        let (mut position, mut kept) = (0, Vec::new());
        while let ReplayItem::Message(message, next) = buffer.next(position).await {
            position = next;
            if !message.starts_with(b"x") {
                kept.push(message);
            }
        }
        let notice = |count| dropped_messages::notice(count).unwrap();
        let dropped_last = position - 10_003 - buffer.log.lock().optional;
        assert_eq!(
            kept,
            [
                notice(5000),
                "question".into(),
                notice(5000),
                "cancelled".into(),
                notice(dropped_last),
                "answer".into()
            ]
        );
        assert!(buffer.log.lock().bytes <= ReplayBuffer::MAX_BYTES + 100);
    }

    #[tokio::test]
    async fn a_reader_without_log_messages_gets_no_notice_of_dropped_ones() {
        let buffer = ReplayBuffer { level: Some(Arc::new(MinLogLevel::silent())), ..ReplayBuffer::default() };
        (0..5000).for_each(|_| buffer.push(Bytes::from_static(b"x")));
        assert_eq!(buffer.next(0).await, ReplayItem::Message("x".into(), 5001 - ReplayBuffer::MAX));
    }
}

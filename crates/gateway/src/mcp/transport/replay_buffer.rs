//! What one request is told, in order: events on the way, the answer last. It can be read from any point,
//! so a client that lost its stream picks it up where it was. It is bounded: of a talkative server the oldest progress
//! and log messages are left out, and the reader is told how many. Questions, their cancellation and the answer never are.

use super::client::{Client, LeastSevere};
use super::left_out;
use crate::memory::ClientMemory;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// The messages of one request.
#[derive(Default)]
pub(crate) struct Outbox {
    log: Mutex<Log>,
    news: Notify,
    /// The log messages that the reader wants; all of them, unless it said otherwise.
    level: Option<Arc<LeastSevere>>,
    /// What the messages are counted against.
    memory: Option<Arc<ClientMemory>>,
}

#[derive(Default)]
struct Log {
    messages: VecDeque<Entry>,
    /// What they take together.
    bytes: usize,
    /// Those of them that may be left out.
    optional: usize,
    /// The place of the next message.
    next: usize,
    done: bool,
    /// Whether the last message is the answer.
    answered: bool,
    status: u16,
    at_the_end: Option<Box<dyn FnOnce() + Send>>,
}

struct Entry {
    place: usize,
    message: Bytes,
    keep: Keep,
}

/// Whether a message may be left out if there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// Progress and log messages.
    Optional,
    /// Questions, their cancellation, the answer.
    Always,
}

impl Log {
    fn add(&mut self, message: Bytes, keep: Keep) {
        self.bytes += message.len();
        self.optional += usize::from(keep == Keep::Optional);
        self.messages.push_back(Entry { place: self.next, message, keep });
        self.next += 1;
    }

    /// Leaves out the oldest message that may be left out, but never the latest. Answers whether there was one.
    fn leave_one_out(&mut self) -> bool {
        let oldest = self.messages.iter().position(|entry| entry.keep == Keep::Optional);
        let Some(at) = oldest.filter(|at| at + 1 < self.messages.len()) else { return false };
        if let Some(entry) = self.messages.remove(at) {
            self.bytes -= entry.message.len();
            self.optional -= 1;
        }
        true
    }

    /// The first message at `place` or after it.
    fn from(&self, place: usize) -> Option<&Entry> {
        self.messages.get(self.messages.partition_point(|entry| entry.place < place))
    }
}

/// What a reader finds at its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A message, and the place after it.
    Message(Bytes, usize),
    /// Nothing more will come.
    End,
}

impl Outbox {
    /// Messages on the way that are kept, and what they may take together; a chatty server does not fill our
    /// memory. The latest one is kept whatever its size.
    const MOST: usize = 1024;
    const MOST_BYTES: usize = 1 << 20;

    /// The outbox of a call of `client`.
    pub(crate) fn to(client: &Client) -> Self {
        let (level, memory) = (Some(Arc::clone(&client.level)), Some(Arc::clone(&client.memory)));
        Self { level, memory, ..Self::default() }
    }

    /// Adds progress or a log message on the way to the answer. It may be left out later, and is left out at once if
    /// there is no memory for it.
    pub(crate) fn push(&self, message: Bytes) {
        match self.memory.as_ref().map_or(Ok(message.clone()), |memory| memory.hold(message)) {
            Ok(message) => self.add(message, Keep::Optional),
            Err(_) => self.lock().next += 1,
        }
    }

    /// Adds a question on the way to the answer, or its cancellation. How many there are is bounded by whoever asks.
    pub(crate) fn push_always(&self, message: Bytes) {
        self.add(self.counted(message), Keep::Always);
    }

    /// A message to the same client that is counted whether or not there is memory for it.
    pub(crate) fn counted(&self, message: Bytes) -> Bytes {
        match &self.memory {
            Some(memory) => memory.hold_always(message),
            None => message,
        }
    }

    fn add(&self, message: Bytes, keep: Keep) {
        let mut log = self.lock();
        if log.done {
            return;
        }
        log.add(message, keep);
        while log.optional > Self::MOST || log.bytes > Self::MOST_BYTES {
            if !log.leave_one_out() {
                break;
            }
        }
        drop(log);
        self.news.notify_waiters();
    }

    /// Adds the answer, the last message, with the HTTP status that fits it if it comes alone.
    pub(crate) fn finish_with_status(&self, answer: Bytes, status: u16) {
        self.lock().status = status;
        self.finish(Some(answer));
    }

    /// Adds the answer, if there is one: nothing follows it.
    pub(crate) fn finish(&self, answer: Option<Bytes>) {
        let mut log = self.lock();
        if log.done {
            return;
        }
        log.answered = answer.is_some();
        if let Some(answer) = answer {
            log.add(answer, Keep::Always);
        }
        log.done = true;
        let at_the_end = log.at_the_end.take();
        drop(log);
        if let Some(act) = at_the_end {
            act();
        }
        self.news.notify_waiters();
    }

    /// Does something once nothing more will come; at once if that is already so.
    pub(crate) fn when_done(&self, act: impl FnOnce() + Send + 'static) {
        let mut log = self.lock();
        if log.done {
            drop(log);
            act();
        } else {
            log.at_the_end = Some(Box::new(act));
        }
    }

    /// The answer and its status, if it is the only message from `place` on.
    pub(crate) fn only_the_answer(&self, place: usize) -> Option<(Bytes, u16)> {
        let log = self.lock();
        let answer = log.messages.back().filter(|last| log.done && last.place == place)?;
        Some((answer.message.clone(), log.status))
    }

    /// Whether nothing more will come, and what it takes to keep it.
    pub(crate) fn end(&self) -> Option<usize> {
        let log = self.lock();
        log.done.then_some(log.bytes)
    }

    /// The place of the next message to come.
    pub(crate) fn next_place(&self) -> usize {
        self.lock().next
    }

    /// Whether the message before `place` is the answer.
    pub(crate) fn is_answered_before(&self, place: usize) -> bool {
        let log = self.lock();
        log.answered && place == log.next
    }

    /// Waits for the answer; `None` if the call ends without one.
    pub(crate) async fn answer(&self) -> Option<Bytes> {
        let mut place = 0;
        while let Next::Message(_, next) = self.next(place).await {
            place = next;
        }
        let log = self.lock();
        log.messages.back().filter(|_| log.answered).map(|last| last.message.clone())
    }

    /// Waits for the message at `place`; in place of messages that were left out there is one that says how many.
    pub(crate) async fn next(&self, place: usize) -> Next {
        loop {
            // What is said from here on is heard, whether or not it is waited for yet.
            let news = self.news.notified();
            if let Some(next) = self.at(place) {
                return next;
            }
            news.await;
        }
    }

    /// What is at `place`, unless it is still to come.
    fn at(&self, place: usize) -> Option<Next> {
        let log = self.lock();
        let Some(first) = log.from(place) else { return log.done.then_some(Next::End) };
        let notice = left_out::notice(first.place - place);
        let wanted = |notice: &Bytes| self.level.as_ref().is_none_or(|level| level.wants(notice));
        Some(match notice.filter(wanted) {
            Some(notice) => Next::Message(notice, first.place),
            None => Next::Message(first.message.clone(), first.place + 1),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_can_begin_anywhere_and_misses_nothing() {
        let outbox = Outbox::default();
        outbox.push(Bytes::from_static(b"one"));
        outbox.push(Bytes::from_static(b"two"));
        outbox.finish(Some(Bytes::from_static(b"answer")));
        assert_eq!(outbox.next(1).await, Next::Message(Bytes::from_static(b"two"), 2));
        assert_eq!(outbox.next(2).await, Next::Message(Bytes::from_static(b"answer"), 3));
        assert_eq!(outbox.next(3).await, Next::End);
        assert_eq!(outbox.only_the_answer(0), None);
    }

    #[tokio::test]
    async fn a_flood_is_bounded_and_the_answer_still_comes() {
        let outbox = Outbox::default();
        for n in 0..5000 {
            outbox.push(Bytes::from(format!("{n}")));
        }
        outbox.finish(Some(Bytes::from_static(b"answer")));
        let Next::Message(notice, mut place) = outbox.next(0).await else { panic!("it has not ended") };
        assert_eq!((&notice, place), (&left_out::notice(5000 - Outbox::MOST).unwrap(), 5000 - Outbox::MOST));
        let (mut last, mut heard) = (Bytes::new(), 0);
        while let Next::Message(message, next) = outbox.next(place).await {
            (last, place, heard) = (message, next, heard + 1);
        }
        assert_eq!((last.as_ref(), place, heard), (b"answer".as_slice(), 5001, Outbox::MOST + 1));
        assert_eq!(outbox.answer().await.as_deref(), Some(b"answer".as_slice()));
    }

    #[tokio::test]
    async fn few_and_large_messages_are_bounded_too_and_the_latest_is_kept_whatever_its_size() {
        let outbox = Outbox::default();
        for _ in 0..10 {
            outbox.push(Bytes::from(vec![b'x'; Outbox::MOST_BYTES / 4]));
        }
        let first_kept = || outbox.lock().messages.front().map(|first| first.place);
        assert_eq!(first_kept(), Some(6));
        let large = Bytes::from(vec![b'y'; 3 * Outbox::MOST_BYTES]);
        outbox.push(large.clone());
        assert_eq!((first_kept(), outbox.next(10).await), (Some(10), Next::Message(large, 11)));
        outbox.push(Bytes::from_static(b"small"));
        assert_eq!(first_kept(), Some(11));
        outbox.finish(None);
        assert_eq!(outbox.end(), Some(5));
    }

    #[tokio::test]
    async fn c07_questions_and_their_cancellation_survive_any_number_of_log_messages() {
        let outbox = Outbox::default();
        let flood = || (0..5000).for_each(|_| outbox.push(Bytes::from(vec![b'x'; 1000])));
        flood();
        outbox.push_always(Bytes::from_static(b"question"));
        flood();
        outbox.push_always(Bytes::from_static(b"cancelled"));
        flood();
        outbox.finish(Some(Bytes::from_static(b"answer")));
        let (mut place, mut kept) = (0, Vec::new());
        while let Next::Message(message, next) = outbox.next(place).await {
            place = next;
            if !message.starts_with(b"x") {
                kept.push(message);
            }
        }
        let notice = |count| left_out::notice(count).unwrap();
        let dropped_last = place - 10_003 - outbox.lock().optional;
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
        assert!(outbox.lock().bytes <= Outbox::MOST_BYTES + 100);
    }

    #[tokio::test]
    async fn a_reader_that_wants_no_log_messages_is_not_told_how_many_were_left_out() {
        let outbox = Outbox { level: Some(Arc::new(LeastSevere::silent())), ..Outbox::default() };
        (0..5000).for_each(|_| outbox.push(Bytes::from_static(b"x")));
        assert_eq!(outbox.next(0).await, Next::Message("x".into(), 5001 - Outbox::MOST));
    }
}

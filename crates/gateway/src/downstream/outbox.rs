//! What one request is told, in order: events on the way, the answer last. It can be read from any point,
//! so a client that lost its stream picks it up where it was. It is bounded: a reader that falls too far
//! behind misses the oldest events, and is told so.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// The messages of one request.
#[derive(Default)]
pub(crate) struct Outbox {
    log: Mutex<Log>,
    news: Notify,
}

#[derive(Default)]
struct Log {
    messages: VecDeque<Bytes>,
    /// What they take together.
    bytes: usize,
    dropped: usize,
    done: bool,
    /// Whether the last message is the answer.
    answered: bool,
    status: u16,
    at_the_end: Option<Box<dyn FnOnce() + Send>>,
}

/// What a reader finds at its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A message, and the place after it.
    Message(Bytes, usize),
    /// Nothing more will come.
    End,
    /// What was here is not kept any more; this place is the first that is.
    Missed(usize),
}

impl Outbox {
    /// Messages on the way that are kept, and what they may take together; a chatty server does not fill our
    /// memory. The latest one is kept whatever its size.
    const MOST: usize = 1024;
    const MOST_BYTES: usize = 1 << 20;

    /// Adds a message on the way to the answer.
    pub(crate) fn push(&self, message: Bytes) {
        let mut log = self.lock();
        if log.done {
            return;
        }
        log.bytes += message.len();
        log.messages.push_back(message);
        while log.messages.len() > Self::MOST || (log.bytes > Self::MOST_BYTES && log.messages.len() > 1) {
            let oldest = log.messages.pop_front().unwrap_or_default();
            log.bytes -= oldest.len();
            log.dropped += 1;
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
        log.bytes += answer.as_ref().map_or(0, Bytes::len);
        log.messages.extend(answer);
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
        let left = log.messages.len().checked_sub(place.checked_sub(log.dropped)?)?;
        let answer = log.messages.back().filter(|_| log.done && left == 1)?;
        Some((answer.clone(), log.status))
    }

    /// Whether nothing more will come, and what it takes to keep it.
    pub(crate) fn end(&self) -> Option<usize> {
        let log = self.lock();
        log.done.then_some(log.bytes)
    }

    /// The place of the first message that is kept.
    pub(crate) fn first_kept(&self) -> usize {
        self.lock().dropped
    }

    /// Waits for the answer; `None` if the call ends without one.
    pub(crate) async fn answer(&self) -> Option<Bytes> {
        let mut place = 0;
        while let Some((_, next)) = self.next_kept(place).await {
            place = next;
        }
        let log = self.lock();
        log.messages.back().filter(|_| log.answered).cloned()
    }

    /// Waits for the message at `place`, or for the first one after it that is kept; `None` at the end. For
    /// readers to whom a gap does not matter.
    pub(crate) async fn next_kept(&self, mut place: usize) -> Option<(Bytes, usize)> {
        loop {
            match self.next(place).await {
                Next::Message(message, next) => return Some((message, next)),
                Next::Missed(kept) => place = kept,
                Next::End => return None,
            }
        }
    }

    /// Waits for the message at `place`.
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
        let Some(at) = place.checked_sub(log.dropped) else { return Some(Next::Missed(log.dropped)) };
        match log.messages.get(at) {
            Some(message) => Some(Next::Message(message.clone(), place + 1)),
            None => log.done.then_some(Next::End),
        }
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
        assert_eq!(outbox.next(0).await, Next::Missed(5000 - Outbox::MOST));
        let mut place = outbox.first_kept();
        let mut last = Bytes::new();
        while let Next::Message(message, next) = outbox.next(place).await {
            (last, place) = (message, next);
        }
        assert_eq!((last.as_ref(), place), (b"answer".as_slice(), 5001));
        assert_eq!(outbox.answer().await.as_deref(), Some(b"answer".as_slice()));
    }

    #[tokio::test]
    async fn few_and_large_messages_are_bounded_too_and_the_latest_is_kept_whatever_its_size() {
        let outbox = Outbox::default();
        for _ in 0..10 {
            outbox.push(Bytes::from(vec![b'x'; Outbox::MOST_BYTES / 4]));
        }
        assert_eq!(outbox.first_kept(), 6);
        let large = Bytes::from(vec![b'y'; 3 * Outbox::MOST_BYTES]);
        outbox.push(large.clone());
        assert_eq!((outbox.first_kept(), outbox.next(10).await), (10, Next::Message(large, 11)));
        outbox.push(Bytes::from_static(b"small"));
        assert_eq!(outbox.first_kept(), 11);
        outbox.finish(None);
        assert_eq!(outbox.end(), Some(5));
    }
}

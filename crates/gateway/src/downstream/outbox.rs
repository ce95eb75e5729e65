//! What one request is told, in order: events on the way, the answer last. It can be read from any point,
//! so a client that lost its stream picks it up where it was.

use bytes::Bytes;
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
    messages: Vec<Bytes>,
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
}

impl Outbox {
    /// Messages on the way that are kept; a chatty server does not fill our memory.
    const MOST: usize = 1024;

    /// Adds a message on the way to the answer.
    pub(crate) fn push(&self, message: Bytes) {
        let mut log = self.lock();
        if log.done {
            return;
        }
        if log.messages.len() == Self::MOST {
            log.messages.remove(0);
            log.dropped += 1;
        }
        log.messages.push(message);
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
        match log.messages.get(place.saturating_sub(log.dropped)..)? {
            [answer] if log.done && log.dropped <= place => Some((answer.clone(), log.status)),
            _ => None,
        }
    }

    /// Waits for the answer; `None` if the call ends without one.
    pub(crate) async fn answer(&self) -> Option<Bytes> {
        let mut place = 0;
        while let Next::Message(_, next) = self.next(place).await {
            place = next;
        }
        let log = self.lock();
        log.messages.last().filter(|_| log.answered).cloned()
    }

    /// Waits for the message at `place`.
    pub(crate) async fn next(&self, place: usize) -> Next {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            {
                let log = self.lock();
                let at = place.saturating_sub(log.dropped);
                if let Some(message) = log.messages.get(at) {
                    return Next::Message(message.clone(), log.dropped + at + 1);
                }
                if log.done {
                    return Next::End;
                }
            }
            news.await;
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
        let mut place = 0;
        let mut last = Bytes::new();
        while let Next::Message(message, next) = outbox.next(place).await {
            (last, place) = (message, next);
        }
        assert_eq!((last.as_ref(), place), (b"answer".as_slice(), 5001));
    }
}

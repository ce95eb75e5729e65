//! A stream of messages that outlives its reader: writers append, a reader continues from any event.
//!
//! Every HTTP answer, every GET stream and every HTTP+SSE session has one. A connected reader and a reader that resumes
//! with `Last-Event-ID` are the same: a position in the log.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::watch;

use crate::frame::Frame;

/// Number of events kept for readers that resume. A reader that is further behind continues with the oldest kept one;
/// the answer is the last event of its stream and so is never lost.
const MAX_EVENTS: usize = 256;

#[derive(Debug)]
pub(crate) struct Stream {
    id: u64,
    log: watch::Sender<Log>,
    /// The last event that any reader took.
    taken: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Log {
    events: VecDeque<(u64, Frame)>,
    last: u64,
    ended: bool,
    /// Number of the current reader, so that an older one notices that it was replaced.
    reader: u64,
}

impl Stream {
    pub(crate) fn new(id: u64) -> Self {
        Self { id, log: watch::Sender::new(Log::default()), taken: Arc::default() }
    }

    pub(crate) fn push(&self, frame: Frame) {
        self.log.send_modify(|log| {
            if log.ended {
                return;
            }
            log.last += 1;
            let number = log.last;
            log.events.push_back((number, frame));
            if log.events.len() > MAX_EVENTS {
                log.events.pop_front();
            }
        });
    }

    pub(crate) fn end(&self) {
        self.log.send_modify(|log| log.ended = true);
    }

    /// A reader of the stream after the given event (0: from its start). An older reader ends, so that no message is
    /// delivered twice.
    pub(crate) fn read_after(&self, event: u64) -> Reader {
        let mut turn = 0;
        self.log.send_modify(|log| {
            log.reader += 1;
            turn = log.reader;
        });
        let taken = Arc::clone(&self.taken);
        Reader { stream: self.id, log: self.log.subscribe(), after: event, turn, taken }
    }

    /// A reader that continues where the last reader stopped.
    pub(crate) fn read_on(&self) -> Reader {
        self.read_after(self.taken.load(Ordering::Acquire))
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

#[derive(Debug)]
pub(crate) struct Reader {
    stream: u64,
    log: watch::Receiver<Log>,
    after: u64,
    turn: u64,
    taken: Arc<AtomicU64>,
}

impl Reader {
    /// The next frame and its number, or `None` once the stream has ended or another reader took over.
    ///
    /// Cancel safe: a frame is consumed only when it is returned.
    pub(crate) async fn next(&mut self) -> Option<(u64, Frame)> {
        loop {
            {
                let log = self.log.borrow_and_update();
                if log.reader != self.turn {
                    return None;
                }
                if let Some((number, frame)) = log.events.iter().find(|(number, _)| *number > self.after) {
                    self.after = *number;
                    self.taken.fetch_max(*number, Ordering::Release);
                    return Some((*number, frame.clone()));
                }
                if log.ended {
                    return None;
                }
            }
            self.log.changed().await.ok()?;
        }
    }

    pub(crate) fn event_id(&self, number: u64) -> String {
        format!("{}-{number}", self.stream)
    }
}

/// Parses an event id into stream and number.
pub(crate) fn parse_event_id(text: &str) -> Option<(u64, u64)> {
    let (stream, number) = text.split_once('-')?;
    Some((stream.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    async fn read(reader: &mut Reader) -> Option<Value> {
        match reader.next().await? {
            (_, Frame::Message(value)) => Some(value),
            (_, other) => panic!("not a message: {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_reader_that_resumes_misses_nothing() {
        let stream = Stream::new(7);
        let mut first = stream.read_after(0);
        stream.push(Frame::Message(json!(1)));
        assert_eq!(read(&mut first).await, Some(json!(1)));
        drop(first);
        stream.push(Frame::Message(json!(2)));
        stream.end();

        let mut second = stream.read_after(1);
        assert_eq!(read(&mut second).await, Some(json!(2)));
        assert_eq!(read(&mut second).await, None);
    }

    #[tokio::test]
    async fn a_new_reader_replaces_the_old_one() {
        let stream = Stream::new(7);
        let mut old = stream.read_after(0);
        let mut new = stream.read_after(0);
        stream.push(Frame::Message(json!("for one of them")));
        assert_eq!(read(&mut old).await, None);
        assert_eq!(read(&mut new).await, Some(json!("for one of them")));
    }

    #[tokio::test]
    async fn the_log_is_bounded_and_keeps_the_newest() {
        let stream = Stream::new(7);
        for number in 0..=MAX_EVENTS {
            stream.push(Frame::Message(json!(number)));
        }
        assert_eq!(read(&mut stream.read_after(0)).await, Some(json!(1)), "0 was dropped");
    }

    #[test]
    fn event_ids_contain_stream_and_number() {
        let id = Stream::new(3).read_after(0).event_id(12);
        assert_eq!(parse_event_id(&id), Some((3, 12)));
        assert_eq!(parse_event_id("elsewhere"), None);
    }
}

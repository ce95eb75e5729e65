//! Server-sent events. [`Reader`] turns a byte stream, in chunks of any size, into events; [`Writer`] turns an event
//! into bytes. Neither interprets the data or decides about reconnecting.
//!
//! One deviation from the standard: a block that sets an id and has no data is returned as an event with empty data.
//! MCP servers start a stream with such a block so that the client has an id to resume from, and the host needs to see
//! it.

use crate::partial::extend_within;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The id this event set, if it set one. [`Reader::last_event_id`] remembers across events.
    pub id: Option<String>,
    /// Type; `message` unless the stream sets another one.
    pub event: Cow<'static, str>,
    /// Data lines, joined with line feeds. Empty for an event that only sets the id.
    pub data: String,
}

/// An event exceeds the reader's limit. The reader has dropped it and continues with the next event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {limit} bytes")]
pub struct TooLarge {
    /// The limit, in bytes.
    pub limit: usize,
    /// The first bytes of the data, which may contain the id of its request.
    pub beginning: Vec<u8>,
}

/// Reads events from chunks of any size. Feed it with [`Reader::push`], then call [`Reader::next_event`] until it
/// returns `None`. Lines without a final blank line at the end of the stream are not an event, and are dropped with the
/// reader.
#[derive(Debug)]
pub struct Reader {
    limit: usize,
    /// The start of an incomplete line.
    line: Vec<u8>,
    /// The last chunk ended with CR: a LF at the start of the next one belongs to it.
    after_cr: bool,
    /// No line has ended yet, so the first may carry a byte order mark.
    at_start: bool,
    block: Block,
    /// Complete events that were not taken yet.
    ready: VecDeque<Result<Event, TooLarge>>,
    last_event_id: Option<String>,
    retry: Option<Duration>,
}

/// The fields since the last blank line. Kept as bytes until the block ends, because replacing invalid UTF-8 makes the
/// text longer, and the limit applies to the bytes in the buffer.
#[derive(Debug, Default)]
struct Block {
    id: Option<Vec<u8>>,
    event: Vec<u8>,
    data: Option<Vec<u8>>,
    /// The block exceeds the limit: its lines are skipped until the blank one.
    discarded: bool,
    /// While discarding: whether the current line has any bytes.
    line_has_bytes: bool,
}

impl Reader {
    /// `limit` is the largest number of bytes that the reader buffers for one event.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            after_cr: false,
            at_start: true,
            block: Block::default(),
            ready: VecDeque::new(),
            last_event_id: None,
            retry: None,
        }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, mut chunk: &[u8]) {
        if self.after_cr && !chunk.is_empty() {
            self.after_cr = false;
            chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', chunk) {
            let (line, rest) = (&chunk[..end], &chunk[end + 1..]);
            let carriage_return = chunk[end] == b'\r';
            chunk = match rest.strip_prefix(b"\n") {
                Some(rest) if carriage_return => rest,
                _ => rest,
            };
            self.after_cr = carriage_return && rest.is_empty();
            self.line_ended(line);
        }
        self.line_continues(chunk);
    }

    /// The next complete event, in order. [`TooLarge`] replaces an event that was dropped.
    pub fn next_event(&mut self) -> Option<Result<Event, TooLarge>> {
        self.ready.pop_front()
    }

    /// The id to resume from: the last one that a complete event set.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// Time that the server asks clients to wait before they reconnect.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Number of bytes buffered for the incomplete event.
    pub fn buffered(&self) -> usize {
        self.line.len() + self.block.held()
    }

    /// The first bytes of the data of the incomplete event, which may contain the id of its request.
    pub fn beginning(&self) -> Vec<u8> {
        self.beginning_with(&[])
    }

    fn line_continues(&mut self, part: &[u8]) {
        if self.block.discarded {
            self.block.line_has_bytes |= !part.is_empty();
        } else if self.fits(part.len()) {
            extend_within(&mut self.line, part, self.limit);
        } else {
            self.discard(part);
            self.block.line_has_bytes = true;
        }
    }

    fn line_ended(&mut self, tail: &[u8]) {
        if self.block.discarded {
            let blank = tail.is_empty() && !self.block.line_has_bytes;
            self.block.line_has_bytes = false;
            if blank {
                self.block_ended();
            }
            return;
        }
        if !self.fits(tail.len()) {
            self.discard(tail);
            return;
        }
        // A line in one piece, the usual case, is read without a copy.
        if self.line.is_empty() {
            self.read_line(tail);
        } else {
            let mut line = std::mem::take(&mut self.line);
            extend_within(&mut line, tail, self.limit);
            self.read_line(&line);
            line.clear();
            // The buffer of a long line is freed; that of an ordinary one is reused.
            line.shrink_to(KEPT_LINE);
            self.line = line;
        }
    }

    fn read_line(&mut self, mut line: &[u8]) {
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.block_ended();
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &b""[..]),
        };
        match field {
            b"data" => self.block.add_data(value),
            b"event" => self.block.event = value.to_vec(),
            b"id" if !value.contains(&0) => self.block.id = Some(value.to_vec()),
            b"retry" => self.retry = milliseconds(value).or(self.retry),
            // Comments (an empty field name), ids with NUL and unknown fields.
            _ => {}
        }
    }

    fn block_ended(&mut self) {
        let block = std::mem::take(&mut self.block);
        let id = block.id.map(lossy);
        if id.is_some() {
            self.last_event_id.clone_from(&id);
        }
        if block.discarded || (block.data.is_none() && id.is_none()) {
            return;
        }
        self.ready.push_back(Ok(Event {
            id,
            event: match &*block.event {
                b"" | b"message" => "message".into(),
                _ => lossy(block.event).into(),
            },
            data: lossy(block.data.unwrap_or_default()),
        }));
    }

    fn fits(&self, more: usize) -> bool {
        self.buffered().saturating_add(more) <= self.limit
    }

    /// Drops the event but keeps its id: resuming from the id before it would only return the same event.
    fn discard(&mut self, part: &[u8]) {
        let beginning = self.beginning_with(part);
        self.line = Vec::new();
        self.at_start = false;
        self.block = Block { id: self.block.id.take(), discarded: true, ..Block::default() };
        self.ready.push_back(Err(TooLarge { limit: self.limit, beginning }));
    }

    /// The first bytes of the event's data, including those of `part` that fit into the limit.
    fn beginning_with(&self, part: &[u8]) -> Vec<u8> {
        const FIELD: &[u8] = b"data:";
        const LINE: usize = FIELD.len() + 1 + BEGINNING;
        let first = |bytes: &[u8], most: usize| bytes[..bytes.len().min(most)].to_vec();
        let Some(data) = &self.block.data else {
            let room = self.limit - self.buffered();
            let mut line = first(&self.line, LINE);
            line.extend(first(part, room.min(LINE - line.len())));
            let value = line.strip_prefix(FIELD).unwrap_or_default();
            return first(value.strip_prefix(b" ").unwrap_or(value), BEGINNING);
        };
        first(data, BEGINNING)
    }
}

impl Block {
    fn held(&self) -> usize {
        let id = self.id.as_ref().map_or(0, Vec::len);
        id + self.event.len() + self.data.as_ref().map_or(0, Vec::len)
    }

    fn add_data(&mut self, value: &[u8]) {
        match &mut self.data {
            None => self.data = Some(value.to_vec()),
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
        }
    }
}

/// Largest number of bytes kept of an event that is too large.
const BEGINNING: usize = 1024;

/// Capacity of the line buffer that is kept for the next line.
const KEPT_LINE: usize = 8 * 1024;

/// Decodes UTF-8 with replacement, as the standard requires; valid text is not copied.
fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn milliseconds(digits: &[u8]) -> Option<Duration> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok().map(Duration::from_millis)
}

/// Writes one event, field by field. A block ends with [`Writer::finish`].
#[derive(Clone, Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

/// A comment that keeps proxies and idle timers from closing a quiet stream.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

/// The end of data that [`Writer::open_data`] started, and of its event.
pub const END_OF_DATA: &[u8] = b"\n\n";

impl Writer {
    /// An empty block.
    pub fn new() -> Self {
        Self::default()
    }

    /// The usual event of MCP: type `message`, one message as data.
    pub fn message(data: &[u8]) -> Vec<u8> {
        let mut writer = Self { out: Vec::with_capacity(data.len() + 24) };
        writer.out.extend_from_slice(b"event: message\n");
        writer.data(data).finish()
    }

    /// A comment, which readers skip.
    #[must_use]
    pub fn comment(mut self, text: &str) -> Self {
        self.lines(b": ", text.as_bytes());
        self
    }

    /// The event's type. A type with a line break cannot be represented and is left out.
    #[must_use]
    pub fn event(self, name: &str) -> Self {
        self.field(b"event: ", name)
    }

    /// The event's id. An id with a line break or NUL cannot be represented and is left out.
    #[must_use]
    pub fn id(self, id: &str) -> Self {
        self.field(b"id: ", id)
    }

    /// Time that a client should wait before it reconnects, in whole milliseconds.
    #[must_use]
    pub fn retry(self, wait: Duration) -> Self {
        self.field(b"retry: ", &wait.as_millis().to_string())
    }

    /// The data. Each line break of any kind starts another data line and reads back as a line feed.
    #[must_use]
    pub fn data(mut self, data: &[u8]) -> Self {
        self.lines(b"data: ", data);
        self
    }

    /// The fields so far, and the start of data that follows in one line. [`END_OF_DATA`] ends it.
    pub fn open_data(mut self) -> Vec<u8> {
        self.out.extend_from_slice(b"data: ");
        self.out
    }

    /// The block with the blank line that ends it.
    pub fn finish(mut self) -> Vec<u8> {
        self.out.push(b'\n');
        self.out
    }

    fn field(mut self, name: &[u8], value: &str) -> Self {
        if memchr::memchr3(b'\n', b'\r', 0, value.as_bytes()).is_none() {
            self.line(name, value.as_bytes());
        }
        self
    }

    fn lines(&mut self, name: &[u8], mut text: &[u8]) {
        while let Some(end) = memchr::memchr2(b'\n', b'\r', text) {
            self.line(name, &text[..end]);
            let rest = &text[end + 1..];
            text = if text[end] == b'\r' { rest.strip_prefix(b"\n").unwrap_or(rest) } else { rest };
        }
        self.line(name, text);
    }

    fn line(&mut self, name: &[u8], text: &[u8]) {
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(text);
        self.out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typical_stream_is_read() {
        let stream = b"id: 1\ndata: \n\nevent: message\nid: 2\ndata: {\"a\":1}\n\n: keep-alive\n\nevent:endpoint\ndata:/m?s=1\n\n";
        let mut reader = Reader::new(1024);
        reader.push(stream);
        assert_eq!(
            events(&mut reader),
            [
                event(Some("1"), "message", ""),
                event(Some("2"), "message", r#"{"a":1}"#),
                event(None, "endpoint", "/m?s=1"),
            ]
        );
        assert_eq!(reader.last_event_id(), Some("2"));
    }

    #[test]
    fn a_priming_event_is_remembered_with_and_without_a_data_line() {
        for stream in ["id: p\ndata:\n\n", "id: p\ndata\n\n", "id: p\n\n"] {
            let mut reader = Reader::new(64);
            reader.push(stream.as_bytes());
            assert_eq!(events(&mut reader), [event(Some("p"), "message", "")], "{stream:?}");
            assert_eq!(reader.last_event_id(), Some("p"));
        }
    }

    #[test]
    fn blocks_without_data_and_id_are_no_events() {
        let mut reader = Reader::new(64);
        reader.push(b"\n\n: c\n\nevent: x\n\nretry: 5\n\ndatax: 1\n\ndata: y\n\n");
        assert_eq!(
            events(&mut reader),
            [event(None, "message", "y")],
            "and the type of an empty block is forgotten"
        );
    }

    #[test]
    fn all_three_line_endings_and_a_byte_order_mark_are_accepted() {
        for end in ["\n", "\r", "\r\n"] {
            let stream = ["\u{feff}data: a", "data:  b", "data", "", "\u{feff}data: c", ""].join(end) + end;
            let mut reader = Reader::new(64);
            reader.push(stream.as_bytes());
            assert_eq!(events(&mut reader), [event(None, "message", "a\n b\n")], "{end:?}");
        }
    }

    #[test]
    fn a_cr_at_the_end_of_a_chunk_ends_the_event_at_once() {
        let mut reader = Reader::new(64);
        reader.push(b"data: a\r\n\r");
        assert_eq!(events(&mut reader), [event(None, "message", "a")]);
        reader.push(b"");
        reader.push(b"\ndata: b\r");
        reader.push(b"\ndata: c\r");
        assert_eq!(events(&mut reader), [], "a LF that completes a CR is no blank line");
        reader.push(b"\r");
        assert_eq!(events(&mut reader), [event(None, "message", "b\nc")]);
    }

    #[test]
    fn replacing_invalid_utf8_does_not_exceed_the_limit() {
        let mut reader = Reader::new(24);
        reader.push(b"event:\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\n");
        assert!(reader.buffered() <= 24);
        reader.push(b"data:x\n\n");
        assert_eq!(events(&mut reader), [event(None, &"\u{fffd}".repeat(12), "x")]);
    }

    #[test]
    fn an_id_with_nul_and_an_invalid_retry_are_ignored() {
        let mut reader = Reader::new(64);
        reader.push(
            b"id: a\nretry: 1500\n\nid: b\0\nretry: 1s\nretry:\nretry: 99999999999999999999999\ndata: x\n\n",
        );
        assert_eq!(reader.last_event_id(), Some("a"));
        assert_eq!(reader.retry(), Some(Duration::from_millis(1500)));
    }

    #[test]
    fn an_empty_id_resets_the_last_one() {
        let mut reader = Reader::new(64);
        reader.push(b"id: a\n\nid\ndata: x\n\n");
        assert_eq!(reader.last_event_id(), Some(""));
    }

    #[test]
    fn an_event_without_its_blank_line_is_no_event() {
        let mut reader = Reader::new(64);
        reader.push(b"id: 1\ndata: half\n");
        assert_eq!(reader.next_event(), None);
        assert_eq!(reader.last_event_id(), None, "resuming after an incomplete event would lose it");
    }

    #[test]
    fn an_oversize_event_is_one_error_and_the_stream_continues() {
        let digits = "0123456789\n".repeat(5);
        for (stream, begins) in [
            (
                format!("data: a\n\nid: 7\ndata: {}\ndata: more\n\ndata: b\n\n", "x".repeat(100)),
                "x".repeat(57),
            ),
            (
                format!("data: a\n\nid: 7\n{}\ndata: b\n\n", "data: 0123456789\n".repeat(9)),
                digits.trim().to_owned(),
            ),
        ] {
            let mut reader = Reader::new(64);
            reader.push(stream.as_bytes());
            assert_eq!(reader.next_event(), Some(Ok(event(None, "message", "a"))));
            assert_eq!(
                reader.next_event(),
                Some(Err(TooLarge { limit: 64, beginning: begins.into_bytes() }))
            );
            assert_eq!(reader.next_event(), Some(Ok(event(None, "message", "b"))));
            assert_eq!(reader.last_event_id(), Some("7"), "or a resume would return it again");
        }
    }

    #[test]
    fn an_event_of_exactly_the_limit_passes() {
        let mut reader = Reader::new(16);
        reader.push(b"data: 0123456789\n\n");
        assert_eq!(events(&mut reader), [event(None, "message", "0123456789")]);
        reader.push(b"data: 0123456789X\n\n");
        assert_eq!(reader.next_event(), Some(Err(TooLarge { limit: 16, beginning: b"0123456789".to_vec() })));
    }

    #[test]
    fn an_endless_line_is_one_error_and_uses_bounded_memory() {
        let mut reader = Reader::new(1000);
        for _ in 0..1000 {
            reader.push(&[b'x'; 100]);
            assert!(reader.buffered() <= 1000);
        }
        assert_eq!(reader.next_event(), Some(Err(TooLarge { limit: 1000, beginning: Vec::new() })));
        assert_eq!(reader.next_event(), None);
    }

    #[test]
    fn fields_that_cannot_be_represented_are_not_written() {
        let block = Writer::new().id("a\nevent: evil").event("b\rdata: evil").id("c\0").data(b"x").finish();
        assert_eq!(block, b"data: x\n\n");
    }

    #[test]
    fn a_block_with_all_fields_is_written() {
        let block = Writer::new()
            .comment("hi")
            .event("e")
            .id("7")
            .retry(Duration::from_millis(2500))
            .data(b"a\r\nb\n")
            .finish();
        assert_eq!(block, b": hi\nevent: e\nid: 7\nretry: 2500\ndata: a\ndata: b\ndata: \n\n");
        assert_eq!(Writer::message(b"{}"), b"event: message\ndata: {}\n\n");
    }

    fn events(reader: &mut Reader) -> Vec<Event> {
        std::iter::from_fn(|| reader.next_event()).map(|event| event.unwrap()).collect()
    }

    fn event(id: Option<&str>, name: &str, data: &str) -> Event {
        Event { id: id.map(str::to_owned), event: name.to_owned().into(), data: data.to_owned() }
    }
}

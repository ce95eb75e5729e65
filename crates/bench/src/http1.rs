//! Minimal HTTP/1.1 for a client and a server that must cost less than the proxy between them: one buffer, no header
//! map, bodies with a length or in chunks. It trusts its peers and is not meant for other use.

use std::io;
use std::ops::Range;

use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// One connection, with its unread bytes.
#[derive(Debug)]
pub(crate) struct Connection<S = TcpStream> {
    stream: S,
    buffer: Vec<u8>,
    /// Length of the last message; it is removed from the buffer when the next one is read.
    consumed: usize,
}

/// A message that was read. It stays in the connection's buffer until the next one is read.
#[derive(Debug)]
pub(crate) struct Message {
    head: Range<usize>,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Buffered(Range<usize>),
    /// Joined from chunks.
    Joined(Vec<u8>),
}

/// Initial buffer size: a head and a small body. The buffer grows on demand.
const READ_SIZE: usize = 8 << 10;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::with_capacity(READ_SIZE), consumed: 0 }
    }

    pub(crate) async fn write(&mut self, message: &[u8]) -> io::Result<()> {
        self.stream.write_all(message).await
    }

    /// Reads the next message; `None` if the peer closed the connection between messages.
    pub(crate) async fn read(&mut self) -> io::Result<Option<Message>> {
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        let head = loop {
            if let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") {
                break 0..end + 4;
            }
            if !self.fill_buffer().await? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(truncated()) };
            }
        };
        let from = head.end;
        let body = if is_chunked(&self.buffer[head.clone()]) {
            self.read_chunked(from).await?
        } else {
            let length = content_length(&self.buffer[head.clone()]);
            self.buffer.reserve((from + length).saturating_sub(self.buffer.len()));
            while self.buffer.len() < from + length {
                if !self.fill_buffer().await? {
                    return Err(truncated());
                }
            }
            self.consumed = from + length;
            Body::Buffered(from..from + length)
        };
        Ok(Some(Message { head, body }))
    }

    /// Reads only a response head and returns its status; the body is left unread.
    pub(crate) async fn read_head(&mut self) -> io::Result<u16> {
        loop {
            if let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") {
                self.consumed = end + 4;
                return Ok(status(&self.buffer));
            }
            if !self.fill_buffer().await? {
                return Err(truncated());
            }
        }
    }

    pub(crate) fn head(&self, message: &Message) -> &[u8] {
        &self.buffer[message.head.clone()]
    }

    pub(crate) fn body<'a>(&'a self, message: &'a Message) -> &'a [u8] {
        match &message.body {
            Body::Buffered(place) => &self.buffer[place.clone()],
            Body::Joined(bytes) => bytes,
        }
    }

    async fn read_chunked(&mut self, from: usize) -> io::Result<Body> {
        let (mut at, mut body) = (from, Vec::new());
        loop {
            let line = loop {
                if let Some(length) = memmem::find(&self.buffer[at..], b"\r\n") {
                    break at..at + length;
                }
                if !self.fill_buffer().await? {
                    return Err(truncated());
                }
            };
            let size = std::str::from_utf8(&self.buffer[line.clone()]).ok();
            let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
            let size = size.ok_or_else(|| io::Error::other("a chunk without a size"))?;
            let chunk = line.end + 2..line.end + 2 + size;
            while self.buffer.len() < chunk.end + 2 {
                if !self.fill_buffer().await? {
                    return Err(truncated());
                }
            }
            body.extend_from_slice(&self.buffer[chunk.clone()]);
            at = chunk.end + 2;
            if size == 0 {
                self.consumed = at;
                return Ok(Body::Joined(body));
            }
        }
    }

    /// Reads available bytes; false at the end of the stream.
    async fn fill_buffer(&mut self) -> io::Result<bool> {
        if self.buffer.len() == self.buffer.capacity() {
            self.buffer.reserve(self.buffer.len().max(READ_SIZE));
        }
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }
}

impl Connection {
    /// True unless the peer has closed the connection. Bytes that the peer sent unasked count as closed too.
    pub(crate) fn is_open(&self) -> bool {
        let mut byte = [0];
        let read = self.stream.try_read(&mut byte);
        matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Value of a header in a head.
pub(crate) fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    head.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
        let (key, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        if !key.eq_ignore_ascii_case(name.as_bytes()) {
            return None;
        }
        std::str::from_utf8(value).ok().map(str::trim)
    })
}

/// Status in the head of a response.
pub(crate) fn status(head: &[u8]) -> u16 {
    let digits = head.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn content_length(head: &[u8]) -> usize {
    header(head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0)
}

fn is_chunked(head: &[u8]) -> bool {
    header(head, "transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
}

fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended in the middle of a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(bytes: &[u8], step: usize) -> Vec<(u16, Vec<u8>)> {
        let (near, mut far) = tokio::io::duplex(step);
        let mut connection = Connection::new(near);
        let sent = bytes.to_vec();
        let writer = tokio::spawn(async move { far.write_all(&sent).await });
        let mut read = Vec::new();
        while let Some(message) = connection.read().await.expect("well-formed") {
            read.push((status(connection.head(&message)), connection.body(&message).to_vec()));
        }
        writer.await.expect("not cancelled").expect("the other side reads");
        read
    }

    #[tokio::test]
    async fn messages_are_separated_for_every_chunk_size() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
            HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n\
            HTTP/1.1 202 Accepted\r\n\r\n";
        for step in [1, 7, 64, 4096] {
            let read = read_all(bytes, step).await;
            let messages: Vec<_> = read.iter().map(|(status, body)| (*status, body.as_slice())).collect();
            assert_eq!(
                messages,
                [(200, &b"hello"[..]), (404, b"abc0123456789"), (202, b"")],
                "{step} at a time"
            );
        }
    }
}

//! Strict framing of HTTP/1 requests, in front of hyper, which is lenient where two parsers may disagree about the end
//! of a request (request smuggling): lines that end with a bare LF, a second `Transfer-Encoding` or `Content-Length`,
//! or both of them.
//!
//! Nothing else is interpreted here. A byte that makes the request ambiguous is replaced by one that is invalid in a
//! request, so that hyper answers 400 and closes the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Replaces a byte that makes a request ambiguous.
const REFUSED: u8 = 0;
/// Length of the examined beginning of a line. No legitimate framing header is longer.
const KEPT: usize = 64;

/// Tracks the requests of one connection.
#[derive(Debug, Default)]
struct Framing {
    part: Part,
    /// Beginning of the current line.
    line: Vec<u8>,
    /// Last byte of the current line so far.
    last: u8,
    /// The line is longer than the examined beginning.
    is_long: bool,
    head: Head,
}

/// Part of a request that is being read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Request line and headers.
    #[default]
    Head,
    /// Remaining bytes of a body with `Content-Length`.
    Body(u64),
    /// Line before a chunk.
    ChunkSize,
    /// Remaining bytes of a chunk.
    Chunk(u64),
    /// Line end after a chunk.
    ChunkEnd,
    /// Trailers after the last chunk.
    Trailers,
    /// Request was refused; hyper closes the connection.
    Refused,
}

/// Framing headers of the current head so far.
#[derive(Debug, Default, Clone, Copy)]
struct Head {
    has_begun: bool,
    length: Option<u64>,
    is_chunked: bool,
}

/// A request that two parsers could read differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ambiguous;

impl Framing {
    /// Reads on, and replaces the byte that makes a request ambiguous.
    fn read(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.part {
                Part::Refused => return,
                Part::Body(left) => {
                    let (taken, left) = take(left, rest.len());
                    at += taken;
                    self.part = if left == 0 { Part::Head } else { Part::Body(left) };
                }
                Part::Chunk(left) => {
                    let (taken, left) = take(left, rest.len());
                    at += taken;
                    self.part = if left == 0 { Part::ChunkEnd } else { Part::Chunk(left) };
                }
                Part::Head | Part::ChunkSize | Part::ChunkEnd | Part::Trailers => {
                    let Some(end) = memchr::memchr(b'\n', rest) else {
                        self.keep(rest);
                        return;
                    };
                    at += end;
                    if self.part == Part::Head && self.is_other_header(&rest[..end]) {
                        at += 1;
                        continue;
                    }
                    self.keep(&rest[..end]);
                    if self.end_line().is_err() {
                        bytes[at] = REFUSED;
                        self.part = Part::Refused;
                        return;
                    }
                    at += 1;
                }
            }
        }
    }

    /// Tests if this is a whole header line that says nothing about framing, as most lines are.
    fn is_other_header(&self, line: &[u8]) -> bool {
        let is_whole = self.line.is_empty() && self.last == 0;
        let is_known = matches!(line, [b'c' | b'C' | b't' | b'T' | b'\r', ..]);
        self.head.has_begun && is_whole && !is_known && line.last() == Some(&b'\r')
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = KEPT.saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.is_long |= bytes.len() > room;
        self.last = bytes.last().copied().unwrap_or(self.last);
    }

    fn end_line(&mut self) -> Result<(), Ambiguous> {
        if self.last != b'\r' {
            return Err(Ambiguous);
        }
        if !self.is_long {
            self.line.pop();
        }
        let part = match self.part {
            Part::Head => self.head_line()?,
            Part::ChunkSize => self.chunk_size(),
            Part::ChunkEnd => Part::ChunkSize,
            Part::Trailers if self.line.is_empty() => Part::Head,
            Part::Trailers => Part::Trailers,
            Part::Body(_) | Part::Chunk(_) | Part::Refused => self.part,
        };
        self.part = part;
        self.line.clear();
        (self.last, self.is_long) = (0, false);
        Ok(())
    }

    fn head_line(&mut self) -> Result<Part, Ambiguous> {
        if self.line.is_empty() {
            if !self.head.has_begun {
                return Ok(Part::Head);
            }
            let Head { length, is_chunked, .. } = std::mem::take(&mut self.head);
            return match (is_chunked, length) {
                (true, Some(_)) => Err(Ambiguous),
                (true, None) => Ok(Part::ChunkSize),
                (false, Some(0) | None) => Ok(Part::Head),
                (false, Some(length)) => Ok(Part::Body(length)),
            };
        }
        if !self.head.has_begun {
            self.head.has_begun = true;
            return Ok(Part::Head);
        }
        let colon = self.line.iter().position(|byte| *byte == b':').unwrap_or(self.line.len());
        let (name, value) = self.line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let digits =
                std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
            let length = digits.and_then(|digits| digits.parse().ok()).filter(|_| !self.is_long);
            if self.head.length.is_some() || length.is_none() {
                return Err(Ambiguous);
            }
            self.head.length = length;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.head.is_chunked || self.is_long || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Ambiguous);
            }
            self.head.is_chunked = true;
        }
        Ok(Part::Head)
    }

    /// A size that cannot be parsed is refused by hyper.
    fn chunk_size(&self) -> Part {
        let end = self.line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(self.line.len());
        let digits = std::str::from_utf8(&self.line[..end]).unwrap_or_default();
        match u64::from_str_radix(digits, 16) {
            Ok(0) => Part::Trailers,
            Ok(size) => Part::Chunk(size),
            Err(_) => Part::Refused,
        }
    }
}

/// Bytes of `left` within `there`, and the remaining ones.
fn take(left: u64, there: usize) -> (usize, u64) {
    let taken = usize::try_from(left).map_or(there, |left| left.min(there));
    (taken, left - taken as u64)
}

/// Connection whose requests are checked for ambiguous framing.
pub(crate) struct StrictFraming<S> {
    stream: S,
    framing: Framing,
}

impl<S> StrictFraming<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, framing: Framing::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StrictFraming<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.framing.read(&mut buffer.filled_mut()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StrictFraming<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Tests if a connection passes unchanged, read in pieces of this size.
    fn passes(text: &str, piece: usize) -> bool {
        let (mut framing, mut read) = (Framing::default(), text.as_bytes().to_vec());
        read.chunks_mut(piece).for_each(|piece| framing.read(piece));
        assert!(read == text.as_bytes() || framing.part == Part::Refused);
        read == text.as_bytes()
    }

    fn in_any_pieces(text: &str) -> bool {
        let whole = passes(text, text.len());
        assert!((1..text.len()).all(|piece| passes(text, piece) == whole), "{text:?}");
        whole
    }

    const PLAIN: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    const SIZED: &str = "POST / HTTP/1.1\r\nhost: a\r\nContent-Length: 4\r\n\r\na\nb\n";
    const CHUNKED: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\na\nb\r\n0a\r\n\n\n\n\n\n\n\n\n\n\n\r\n0\r\nt: 1\r\n\r\n";

    #[test]
    fn g05_unambiguous_requests_pass_in_any_pieces() {
        for text in [PLAIN, SIZED, CHUNKED, "\r\n\r\n"] {
            assert!(in_any_pieces(text), "{text:?}");
            for before in [PLAIN, SIZED, CHUNKED] {
                assert!(in_any_pieces(&format!("{before}{text}")), "{text:?} after {before:?}");
            }
        }
    }

    #[test]
    fn g05_ambiguous_requests_are_refused_in_any_pieces() {
        for text in [
            "GET / HTTP/1.1\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked, chunked\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: identity\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding:\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 4\r\ncontent-length: 4\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 4, 4\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: +4\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n",
        ] {
            for before in ["", PLAIN, SIZED, CHUNKED] {
                assert!(!in_any_pieces(&format!("{before}{text}")), "{text:?} after {before:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn g05_the_bytes_of_a_body_never_change(
            body in prop::collection::vec(any::<u8>(), 0..300),
            piece in 1_usize..100,
        ) {
            let mut sent = format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
            sent.extend_from_slice(&body);
            sent.extend_from_slice(format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len() + 1).as_bytes());
            sent.extend_from_slice(&body);
            sent.extend_from_slice(b"\n\r\n0\r\n\r\n");
            sent.extend_from_slice(PLAIN.as_bytes());
            let (mut framing, mut read) = (Framing::default(), sent.clone());
            read.chunks_mut(piece).for_each(|piece| framing.read(piece));
            prop_assert_eq!(read, sent);
            prop_assert_eq!(framing.part, Part::Head);
        }
    }
}

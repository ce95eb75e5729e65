//! Heads of requests: finds the end, and reads what the head says about the body and the connection. No input or output
//! here.
//!
//! Heads that two readers could read differently are refused: lines that end without CR, a second `Transfer-Encoding` or
//! `Content-Length`, both of them, an encoding other than `chunked`, `chunked` in HTTP/1.0.

use crate::{BodyReader, Chunks, HeaderKind, HeaderLines, Malformed};
use bytes::{Buf, BytesMut};
use http::{Method, Request, StatusCode, Uri, Version};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Maximum number of headers.
const MAX_HEADERS: usize = 100;
const BARE_LINE_END: Malformed = Malformed("a line ends without CR");

/// Head of a request.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) request: Request<()>,
    pub(super) body: BodyReader,
    /// The connection can carry another request after the response.
    pub(super) keeps_connection: bool,
    /// The client waits for an interim response before it sends the body.
    pub(super) expects_continue: bool,
}

/// Reason why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadError {
    Malformed(Malformed),
    TooLarge,
}

impl HeadError {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        }
    }
}

impl From<Malformed> for HeadError {
    fn from(fault: Malformed) -> Self {
        Self::Malformed(fault)
    }
}

/// Finds the heads of requests in received bytes.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    /// Bytes of an incomplete head that are known not to contain its end.
    searched: usize,
    lines: HeaderLines,
}

impl HeadReader {
    /// Takes the head from the received bytes; `None` if it is incomplete.
    pub(super) fn next(
        &mut self,
        received: &mut BytesMut,
        max: usize,
    ) -> Result<Option<RequestHead>, HeadError> {
        // Most heads arrive whole. The first bytes of another one are checked, because a client that does not speak HTTP
        // may wait for an answer.
        if self.searched == 0
            && !matches!(received.first(), None | Some(b'\r' | b'\n'))
            && let Some(head) = self.read(received, max)?
        {
            return Ok(Some(head));
        }
        let end = self.end_of_head(received)?;
        if end.unwrap_or(received.len()) > max {
            return Err(HeadError::TooLarge);
        }
        if end.is_none() {
            return Ok(None);
        }
        self.searched = 0;
        self.read(received, max)?.map(Some).ok_or(Malformed("bad head").into())
    }

    /// Position after the empty line that ends the head. Empty lines before it are discarded.
    fn end_of_head(&mut self, received: &mut BytesMut) -> Result<Option<usize>, Malformed> {
        loop {
            let Some(at) = memchr::memchr(b'\n', &received[self.searched..]) else {
                self.searched = received.len();
                return Ok(None);
            };
            let at = self.searched + at;
            if at == 0 || received[at - 1] != b'\r' {
                return Err(BARE_LINE_END);
            }
            self.searched = at + 1;
            if at == 1 {
                received.advance(2);
                self.searched = 0;
            } else if received[at - 2] == b'\n' {
                return Ok(Some(at + 1));
            }
        }
    }

    /// Takes a head from the received bytes, if it is complete.
    fn read(&mut self, received: &mut BytesMut, max: usize) -> Result<Option<RequestHead>, HeadError> {
        let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut []);
        let end = match parsed.parse_with_uninit_headers(received, &mut headers) {
            Ok(httparse::Status::Complete(end)) if end <= max => end,
            Ok(httparse::Status::Partial) => return Ok(None),
            Ok(httparse::Status::Complete(_)) | Err(httparse::Error::TooManyHeaders) => {
                return Err(HeadError::TooLarge);
            }
            Err(httparse::Error::Version) => return Err(Malformed("no HTTP/1 version").into()),
            Err(_) => return Err(Malformed("bad head").into()),
        };
        // Each line ends before the name of the next header, or with the head.
        if !received[..end].ends_with(b"\r\n\r\n") {
            return Err(BARE_LINE_END.into());
        }
        let ends_line = |name: &str| received[..span(received, name.as_bytes()).start].ends_with(b"\r\n");
        if !parsed.headers.iter().all(|header| ends_line(header.name)) {
            return Err(BARE_LINE_END.into());
        }
        let mut framing = FramingHeaders::default();
        let headers = self.lines.read(parsed.headers, |kind, value| framing.note(kind, value))?;
        let mut request = Request::new(());
        *request.method_mut() = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes())
            .map_err(|_| Malformed("bad method"))?;
        let version = if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
        *request.version_mut() = version;
        let target = span(received, parsed.path.unwrap_or_default().as_bytes());
        let bytes = received.split_to(end).freeze();
        *request.uri_mut() =
            Uri::from_maybe_shared(bytes.slice(target)).map_err(|_| Malformed("bad target"))?;
        *request.headers_mut() = headers;
        // A connection of HTTP/1.0 is closed after the answer, even if the client asks to keep it.
        let keeps_connection = version == Version::HTTP_11 && !framing.closes;
        let expects_continue = version == Version::HTTP_11 && framing.expects_continue;
        Ok(Some(RequestHead { request, body: framing.body(version)?, keeps_connection, expects_continue }))
    }
}

/// Position of a part of `whole`.
fn span(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

/// Headers about the body and the connection.
#[derive(Default)]
struct FramingHeaders {
    is_chunked: bool,
    length: Option<u64>,
    closes: bool,
    expects_continue: bool,
}

impl FramingHeaders {
    fn note(&mut self, kind: HeaderKind, value: &[u8]) -> Result<(), Malformed> {
        match kind {
            HeaderKind::None => {}
            HeaderKind::Length => {
                let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                let length = is_number.then(|| str::from_utf8(value).ok()?.parse().ok()).flatten();
                if length.is_none() || self.length.is_some() {
                    return Err(Malformed("bad Content-Length"));
                }
                self.length = length;
            }
            HeaderKind::Encoding => {
                if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Malformed("unknown transfer encoding"));
                }
                self.is_chunked = true;
            }
            HeaderKind::Connection => self.closes |= closes(value),
            HeaderKind::Expectation => self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue"),
        }
        Ok(())
    }

    fn body(&self, version: Version) -> Result<BodyReader, Malformed> {
        match (self.is_chunked, self.length) {
            (true, Some(_)) => Err(Malformed("both Content-Length and Transfer-Encoding")),
            (true, None) if version == Version::HTTP_10 => Err(Malformed("unknown transfer encoding")),
            (true, None) => Ok(BodyReader::Chunked(Chunks::default())),
            (false, Some(0) | None) => Ok(BodyReader::Ended),
            (false, Some(length)) => Ok(BodyReader::Length(length)),
        }
    }
}

/// Returns whether a `Connection` header has the option `close`.
pub(super) fn closes(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 10;

    /// Heads in `text`, received in pieces of this size, up to the first error.
    fn heads(text: &str, piece: usize) -> (Vec<RequestHead>, Option<HeadError>) {
        let (mut reader, mut received, mut heads) = (HeadReader::default(), BytesMut::new(), Vec::new());
        for piece in text.as_bytes().chunks(piece) {
            received.extend_from_slice(piece);
            loop {
                match reader.next(&mut received, MAX) {
                    Ok(Some(head)) => heads.push(head),
                    Ok(None) => break,
                    Err(error) => return (heads, Some(error)),
                }
            }
        }
        (heads, None)
    }

    /// Body and reuse of the connection of each head, if all are read, in whatever pieces they arrive.
    fn framing(text: &str) -> Option<Vec<(BodyReader, bool)>> {
        let framing = |piece| {
            let (heads, error) = heads(text, piece);
            let facts = heads.iter().map(|head| (head.body, head.keeps_connection)).collect();
            (facts, error.map(HeadError::status))
        };
        let (whole, error): (Vec<_>, _) = framing(text.len());
        assert!((1..text.len()).all(|piece| framing(piece) == (whole.clone(), error)), "{text:?}");
        error.is_none().then_some(whole)
    }

    const PLAIN: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    #[test]
    fn g05_a_head_says_how_the_body_ends_and_whether_the_connection_stays_open() {
        let chunked = BodyReader::Chunked(Chunks::default());
        for (version, lines, expected) in [
            ("1.1", "", (BodyReader::Ended, true)),
            ("1.1", "Content-Length: 4\r\n", (BodyReader::Length(4), true)),
            ("1.1", "content-length: 0\r\n", (BodyReader::Ended, true)),
            ("1.1", "Transfer-Encoding: Chunked\r\n", (chunked, true)),
            ("1.1", "connection: x, Close\r\n", (BodyReader::Ended, false)),
            ("1.1", "connection: x\r\nconnection: close\r\n", (BodyReader::Ended, false)),
            ("1.0", "content-length: 4\r\nconnection: keep-alive\r\n", (BodyReader::Length(4), false)),
        ] {
            for before in ["", "\r\n", "\r\n\r\n"] {
                let text = format!("{before}POST / HTTP/{version}\r\nhost: a\r\n{lines}\r\n");
                assert_eq!(framing(&text), Some(vec![expected]), "{text:?}");
            }
        }
        assert_eq!(framing(&PLAIN.repeat(3)), Some(vec![(BodyReader::Ended, true); 3]));
        assert_eq!(framing("\r\n\r\n"), Some(Vec::new()));
    }

    #[test]
    fn g05_ambiguous_heads_are_refused_in_any_pieces() {
        for text in [
            "GET / HTTP/1.1\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n\n",
            "\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\rb: c\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n b\r\n\r\n",
            "GET / HTTP/1.1\r\nhost : a\r\n\r\n",
            "GET  / HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET / HTTP/2.0\r\nhost: a\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked, chunked\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: identity\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding:\r\n\r\n",
            "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 4\r\ncontent-length: 4\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 4, 4\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: +4\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
        ] {
            for before in ["", PLAIN] {
                assert_eq!(framing(&format!("{before}{text}")), None, "{text:?} after {before:?}");
            }
        }
    }

    #[test]
    fn g05_a_head_is_bounded_in_size_and_headers() {
        let line = format!("x: {}", "y".repeat(MAX));
        for piece in [1, 100, 5000] {
            let (heads, error) = heads(&format!("GET / HTTP/1.1\r\n{line}"), piece);
            assert!(heads.is_empty() && error == Some(HeadError::TooLarge), "{error:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x:y\r\n".repeat(MAX_HEADERS + 1));
        assert_eq!(heads(&many, many.len()).1, Some(HeadError::TooLarge));
    }

    #[test]
    fn another_protocol_is_noticed_at_its_first_bytes() {
        let (_, error) = heads("\x16\x03\x01 hello", 5);
        assert_eq!(error.map(HeadError::status), Some(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn a_client_may_wait_for_an_interim_response() {
        for (line, expected) in [("Expect: 100-Continue\r\n", true), ("expect: 101\r\n", false), ("", false)]
        {
            let (heads, _) = heads(&format!("POST / HTTP/1.1\r\n{line}content-length: 4\r\n\r\n"), 200);
            assert_eq!(heads[0].expects_continue, expected, "{line:?}");
        }
    }
}

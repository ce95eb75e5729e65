//! Heads of the responses of HTTP/1 servers, and what they say about the body. No input or output here.
//!
//! Stricter than the standard where two readers could disagree about the end of a response: then the connection is not
//! used again, or the response is refused. Lines of a head may end without CR, as the standard allows.

use bytes::{Buf as _, BytesMut};
use gripfast_http1::{BodyReader, Chunks, HeaderKind, HeaderLines, Malformed};
use http::{Method, Response, StatusCode, Version};
use std::mem::MaybeUninit;
use thiserror::Error;

/// Maximum size of a response head.
const MAX_HEAD: usize = 256 << 10;
/// Maximum number of headers.
const MAX_HEADERS: usize = 100;
/// Maximum number of interim responses (1xx) before a response.
const MAX_INTERIM: usize = 32;

/// Error in a response. Nothing that follows on the connection can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("invalid HTTP response: {0}")]
pub(crate) struct MalformedResponse(&'static str);

impl From<Malformed> for MalformedResponse {
    fn from(Malformed(fault): Malformed) -> Self {
        Self(fault)
    }
}

/// Head of a response, and what it says about the body and the connection.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) response: Response<()>,
    pub(super) body: BodyReader,
    /// The connection can carry another request after the body.
    pub(super) keeps_connection: bool,
}

/// Finds the heads of responses in received bytes.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    /// Bytes that are known not to contain the end of the head.
    searched: usize,
    /// Number of interim responses that were skipped.
    interim: usize,
    lines: HeaderLines,
}

impl HeadReader {
    /// Begins to read the response to another request.
    pub(super) fn begin(&mut self) {
        (self.searched, self.interim) = (0, 0);
    }

    /// Takes the head from the received bytes; `None` if it is incomplete. Interim responses (1xx) are skipped.
    pub(super) fn next(
        &mut self,
        received: &mut BytesMut,
        method: &Method,
    ) -> Result<Option<ResponseHead>, MalformedResponse> {
        loop {
            let Some(end) = end_of_head(received, self.searched.saturating_sub(2)) else {
                if self.searched == 0 && !received.is_empty() {
                    // A peer that does not speak HTTP may wait for us, so its first bytes are checked.
                    parse(received, |_| ())?;
                }
                self.searched = received.len();
                return if received.len() > MAX_HEAD {
                    Err(MalformedResponse("head too large"))
                } else {
                    Ok(None)
                };
            };
            if end > MAX_HEAD {
                return Err(MalformedResponse("head too large"));
            }
            self.searched = 0;
            let head = parse(&received[..end], |parsed| read_head(parsed, &mut self.lines, method))?;
            let head = head.ok_or(MalformedResponse("no status line"))??;
            received.advance(end);
            if !head.response.status().is_informational()
                || head.response.status() == StatusCode::SWITCHING_PROTOCOLS
            {
                return Ok(Some(head));
            }
            self.interim += 1;
            if self.interim > MAX_INTERIM {
                return Err(MalformedResponse("too many interim responses"));
            }
        }
    }
}

/// Position after the empty line that ends a head.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    memchr::memchr_iter(b'\n', &bytes[from..]).find_map(|at| {
        let next = from + at + 1;
        match bytes[next..] {
            [b'\n', ..] => Some(next + 1),
            [b'\r', b'\n', ..] => Some(next + 2),
            _ => None,
        }
    })
}

/// Parses a head, and reads it if it is complete.
fn parse<T>(
    bytes: &[u8],
    read: impl FnOnce(&httparse::Response<'_, '_>) -> T,
) -> Result<Option<T>, MalformedResponse> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut parsed, bytes, &mut headers) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => Ok(Some(read(&parsed))),
        Ok(httparse::Status::Complete(_)) => Err(MalformedResponse("two heads")),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(MalformedResponse("too many headers")),
        Err(httparse::Error::Version) => Err(MalformedResponse("no HTTP/1 version")),
        Err(httparse::Error::Status) => Err(MalformedResponse("bad status")),
        Err(_) => Err(MalformedResponse("bad header")),
    }
}

fn read_head(
    parsed: &httparse::Response<'_, '_>,
    lines: &mut HeaderLines,
    method: &Method,
) -> Result<ResponseHead, MalformedResponse> {
    let mut response = Response::new(());
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    *response.status_mut() = status.ok_or(MalformedResponse("bad status"))?;
    let version = if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    *response.version_mut() = version;
    let mut framing = FramingHeaders::default();
    *response.headers_mut() = lines.read(parsed.headers, |kind, value| framing.note(kind, value))?;
    let (body, is_certain) = match response.status().as_u16() {
        // No upgrade was requested.
        101 => (BodyReader::Ended, false),
        204 | 304 => (BodyReader::Ended, true),
        _ if *method == Method::HEAD => (BodyReader::Ended, true),
        _ => framing.body(version)?,
    };
    let keeps_connection = is_certain && framing.keeps_connection(version);
    Ok(ResponseHead { response, body, keeps_connection })
}

/// Headers about the body and the connection.
#[derive(Default)]
struct FramingHeaders {
    is_chunked: bool,
    length: Option<u64>,
    closes: bool,
    keeps: bool,
}

impl FramingHeaders {
    fn note(&mut self, kind: HeaderKind, value: &[u8]) -> Result<(), Malformed> {
        match kind {
            HeaderKind::Length => {
                let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                let length = is_number.then(|| str::from_utf8(value).ok()?.parse().ok()).flatten();
                if length.is_none() || self.length.is_some_and(|known| Some(known) != length) {
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
            HeaderKind::Connection => {
                for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    self.closes |= option.eq_ignore_ascii_case(b"close");
                    self.keeps |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            HeaderKind::Expectation | HeaderKind::None => {}
        }
        Ok(())
    }

    /// Finds how the body ends, and whether two readers would agree about it.
    fn body(&self, version: Version) -> Result<(BodyReader, bool), MalformedResponse> {
        match (self.is_chunked, self.length) {
            (true, _) if version == Version::HTTP_10 => Err(MalformedResponse("unknown transfer encoding")),
            (true, length) => Ok((BodyReader::Chunked(Chunks::default()), length.is_none())),
            (false, Some(0)) => Ok((BodyReader::Ended, true)),
            (false, Some(length)) => Ok((BodyReader::Length(length), true)),
            (false, None) => Ok((BodyReader::UntilClose, false)),
        }
    }

    fn keeps_connection(&self, version: Version) -> bool {
        !self.closes && (version == Version::HTTP_11 || self.keeps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the heads in `text`, received in pieces of this size.
    fn head(text: &str, piece: usize) -> Result<Option<ResponseHead>, MalformedResponse> {
        let (mut reader, mut received) = (HeadReader::default(), BytesMut::new());
        for piece in text.as_bytes().chunks(piece) {
            received.extend_from_slice(piece);
            if let Some(head) = reader.next(&mut received, &Method::POST)? {
                return Ok(Some(head));
            }
        }
        Ok(None)
    }

    fn in_any_pieces(text: &str) -> Result<Option<ResponseHead>, MalformedResponse> {
        let facts = |head: &Result<Option<ResponseHead>, _>| {
            let fact = |head: &ResponseHead| (head.response.status(), head.body, head.keeps_connection);
            head.as_ref().map(|head| head.as_ref().map(fact)).ok()
        };
        let whole = head(text, text.len());
        assert!((1..text.len()).all(|piece| facts(&head(text, piece)) == facts(&whole)), "{text:?}");
        whole
    }

    /// Body and reuse of a response with these header lines.
    fn framing(status: &str, lines: &str) -> Option<(BodyReader, bool)> {
        let head = in_any_pieces(&format!("HTTP/{status}\r\n{lines}\r\n")).ok()?.expect("complete");
        Some((head.body, head.keeps_connection))
    }

    #[test]
    fn a_head_says_how_the_body_ends_and_whether_the_connection_stays_open() {
        let chunked = BodyReader::Chunked(Chunks::default());
        for (status, lines, expected) in [
            ("1.1 200 OK", "Content-Length: 5\r\n", (BodyReader::Length(5), true)),
            ("1.1 200 OK", "content-length: 0\r\n", (BodyReader::Ended, true)),
            ("1.1 200 OK", "content-length: 5\r\ncontent-length: 5\r\n", (BodyReader::Length(5), true)),
            ("1.1 200 OK", "content-length: 5\r\nconnection: Close\r\n", (BodyReader::Length(5), false)),
            ("1.1 200 OK", "content-length: 5\r\nconnection: x, close\r\n", (BodyReader::Length(5), false)),
            ("1.1 200 OK", "transfer-encoding: Chunked\r\n", (chunked, true)),
            ("1.1 200 OK", "transfer-encoding: chunked\r\ncontent-length: 5\r\n", (chunked, false)),
            ("1.1 200", "", (BodyReader::UntilClose, false)),
            ("1.1 204 No Content", "", (BodyReader::Ended, true)),
            ("1.1 304 Not Modified", "content-length: 5\r\n", (BodyReader::Ended, true)),
            ("1.1 101 Switching Protocols", "", (BodyReader::Ended, false)),
            ("1.0 200 OK", "content-length: 5\r\n", (BodyReader::Length(5), false)),
            ("1.0 200 OK", "content-length: 5\r\nconnection: keep-alive\r\n", (BodyReader::Length(5), true)),
        ] {
            assert_eq!(framing(status, lines), Some(expected), "{status} {lines:?}");
        }
    }

    #[test]
    fn a_head_whose_end_or_length_is_ambiguous_is_refused() {
        for (status, lines) in [
            ("1.1 200 OK", "content-length: 5\r\ncontent-length: 6\r\n"),
            ("1.1 200 OK", "content-length: 5, 5\r\n"),
            ("1.1 200 OK", "content-length: +5\r\n"),
            ("1.1 200 OK", "content-length:\r\n"),
            ("1.1 200 OK", "content-length: 99999999999999999999\r\n"),
            ("1.1 200 OK", "transfer-encoding: gzip, chunked\r\n"),
            ("1.1 200 OK", "transfer-encoding: identity\r\n"),
            ("1.1 200 OK", "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"),
            ("1.0 200 OK", "transfer-encoding: chunked\r\n"),
            ("1.1 200 OK", "content-length : 5\r\n"),
            ("1.1 200 OK", "a: b\r\n c\r\n"),
            ("1.1 20 OK", ""),
            ("2.0 200 OK", ""),
        ] {
            assert_eq!(framing(status, lines), None, "{status} {lines:?}");
        }
    }

    #[test]
    fn interim_responses_are_skipped() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
        let head = in_any_pieces(text).unwrap().unwrap();
        assert_eq!(head.response.status(), StatusCode::ACCEPTED);
        assert!(head.response.headers().get("link").is_none());
    }

    #[test]
    fn a_head_is_bounded_and_other_protocols_are_noticed_at_once() {
        assert_eq!(head("SSH-2.0-OpenSSH\r\n", 4).unwrap_err(), MalformedResponse("no HTTP/1 version"));
        let long = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(MAX_HEAD));
        assert_eq!(head(&long, 4096).unwrap_err(), MalformedResponse("head too large"));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1));
        assert_eq!(head(&many, many.len()).unwrap_err(), MalformedResponse("too many headers"));
    }

    #[test]
    fn interim_responses_are_bounded() {
        let interim = "HTTP/1.1 103 Early Hints\r\n\r\n";
        let end = "HTTP/1.1 200 OK\r\n\r\n";
        assert!(head(&format!("{}{end}", interim.repeat(MAX_INTERIM)), 100).unwrap().is_some());
        let flood = head(&format!("{}{end}", interim.repeat(MAX_INTERIM + 1)), 100);
        assert_eq!(flood.unwrap_err(), MalformedResponse("too many interim responses"));
    }
}

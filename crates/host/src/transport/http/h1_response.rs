//! Responses of HTTP/1 servers: reads the head, and finds the end of the body. No input or output here.
//!
//! Stricter than the standard where two readers could disagree about the end of a response: then the connection is not
//! used again, or the response is refused.

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version};
use std::mem::MaybeUninit;
use thiserror::Error;

/// Maximum size of a response head.
const MAX_HEAD: usize = 256 << 10;
/// Maximum number of headers.
const MAX_HEADERS: usize = 100;
/// Maximum length of the line before a chunk, with its extensions.
const MAX_CHUNK_LINE: usize = 1024;
/// Maximum number of interim responses (1xx) before a response.
const MAX_INTERIM: usize = 32;
/// Maximum size of all chunk extensions and trailers of a body, which are discarded.
const MAX_DISCARDED: usize = 16 << 10;

/// Error in a response. Nothing that follows on the connection can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("invalid HTTP response: {0}")]
pub(crate) struct MalformedResponse(&'static str);

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
}

impl HeadReader {
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
            let bytes = received.split_to(end).freeze();
            let head = parse(&bytes, |parsed| read_head(parsed, &bytes, method))?;
            let head = head.ok_or(MalformedResponse("no status line"))??;
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
    bytes: &Bytes,
    method: &Method,
) -> Result<ResponseHead, MalformedResponse> {
    let mut response = Response::new(());
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    *response.status_mut() = status.ok_or(MalformedResponse("bad status"))?;
    let version = if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    *response.version_mut() = version;
    let mut headers = HeaderMap::with_capacity(parsed.headers.len());
    let mut framing = FramingHeaders::default();
    for header in &*parsed.headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(header.value));
        let (Ok(name), Ok(value)) = (name, value) else { return Err(MalformedResponse("bad header")) };
        framing.note(&name, header.value)?;
        headers.append(name, value);
    }
    *response.headers_mut() = headers;
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
    fn note(&mut self, name: &HeaderName, value: &[u8]) -> Result<(), MalformedResponse> {
        let value = value.trim_ascii();
        if *name == CONTENT_LENGTH {
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let length = is_number.then(|| str::from_utf8(value).ok()?.parse().ok()).flatten();
            if length.is_none() || self.length.is_some_and(|known| Some(known) != length) {
                return Err(MalformedResponse("bad Content-Length"));
            }
            self.length = length;
        } else if *name == TRANSFER_ENCODING {
            if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(MalformedResponse("unknown transfer encoding"));
            }
            self.is_chunked = true;
        } else if *name == CONNECTION {
            for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                self.closes |= option.eq_ignore_ascii_case(b"close");
                self.keeps |= option.eq_ignore_ascii_case(b"keep-alive");
            }
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

/// Reads a body up to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyReader {
    /// Remaining bytes, by `Content-Length`.
    Length(u64),
    Chunked(Chunks),
    /// The end of the connection is the end of the body.
    UntilClose,
    Ended,
}

/// Position in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Chunks {
    next: ChunkPart,
    /// Bytes of extensions and trailers so far.
    discarded: usize,
}

/// Part of a chunked body that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ChunkPart {
    /// Line before a chunk.
    #[default]
    Size,
    /// Remaining bytes of a chunk.
    Data(u64),
    /// Line end after a chunk.
    DataEnd,
    Trailers,
}

/// Next step of reading a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyStep {
    Data(Bytes),
    NeedsMore,
    End,
}

impl BodyReader {
    /// Takes the next bytes of the body from the received ones.
    pub(super) fn next(&mut self, received: &mut BytesMut) -> Result<BodyStep, MalformedResponse> {
        loop {
            match self {
                Self::Ended => return Ok(BodyStep::End),
                _ if received.is_empty() => return Ok(BodyStep::NeedsMore),
                Self::UntilClose => return Ok(BodyStep::Data(received.split().freeze())),
                Self::Length(left) => {
                    let data = take(left, received);
                    if *left == 0 {
                        *self = Self::Ended;
                    }
                    return Ok(BodyStep::Data(data));
                }
                Self::Chunked(chunks) => {
                    if let ChunkPart::Data(left) = &mut chunks.next {
                        let data = take(left, received);
                        if *left == 0 {
                            chunks.next = ChunkPart::DataEnd;
                        }
                        return Ok(BodyStep::Data(data));
                    }
                    let limit = if chunks.next == ChunkPart::DataEnd { 2 } else { MAX_CHUNK_LINE };
                    let Some(line) = line(received, limit)? else { return Ok(BodyStep::NeedsMore) };
                    match chunks.after(&line)? {
                        Some(next) => chunks.next = next,
                        None => *self = Self::Ended,
                    }
                }
            }
        }
    }

    /// Whether the body is complete if the connection ends now.
    pub(super) fn may_end_with_connection(self) -> bool {
        matches!(self, Self::UntilClose | Self::Ended)
    }
}

impl Chunks {
    /// Returns the part after this line, which is not part of a chunk's data; `None` at the end of the body.
    fn after(&mut self, line: &[u8]) -> Result<Option<ChunkPart>, MalformedResponse> {
        Ok(match self.next {
            ChunkPart::Size => {
                let (size, extensions) = chunk_size(line)?;
                self.discard(extensions)?;
                Some(if size == 0 { ChunkPart::Trailers } else { ChunkPart::Data(size) })
            }
            ChunkPart::DataEnd if line.is_empty() => Some(ChunkPart::Size),
            ChunkPart::Trailers if line.is_empty() => None,
            ChunkPart::Trailers => {
                self.discard(line.len())?;
                Some(ChunkPart::Trailers)
            }
            ChunkPart::Data(_) | ChunkPart::DataEnd => {
                return Err(MalformedResponse("bad end of a chunk"));
            }
        })
    }

    fn discard(&mut self, bytes: usize) -> Result<(), MalformedResponse> {
        self.discarded += bytes;
        let is_too_large = self.discarded > MAX_DISCARDED;
        if is_too_large { Err(MalformedResponse("chunk extensions or trailers too large")) } else { Ok(()) }
    }
}

/// Takes up to `left` of the received bytes.
fn take(left: &mut u64, received: &mut BytesMut) -> Bytes {
    let count = usize::try_from(*left).map_or(received.len(), |left| left.min(received.len()));
    *left -= count as u64;
    received.split_to(count).freeze()
}

/// Takes a line without its end, which must be CR LF; `None` if it is incomplete.
fn line(received: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, MalformedResponse> {
    let searched = &received[..received.len().min(limit)];
    let Some(end) = memchr::memchr(b'\n', searched) else {
        let is_too_long = received.len() >= limit;
        return if is_too_long { Err(MalformedResponse("line too long")) } else { Ok(None) };
    };
    if end == 0 || memchr::memchr(b'\r', &searched[..end]) != Some(end - 1) {
        return Err(MalformedResponse("bad line end"));
    }
    let line = received.split_to(end - 1).freeze();
    received.advance(2);
    Ok(Some(line))
}

/// Size of a chunk, and the length of the line beyond the digits of the largest size: extensions, spaces and zeros.
fn chunk_size(line: &[u8]) -> Result<(u64, usize), MalformedResponse> {
    const MAX_DIGITS: usize = 16;
    let end = memchr::memchr(b';', line).unwrap_or(line.len());
    let end = line[..end].iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |last| last + 1);
    let digits = &line[..end];
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let size = is_number.then(|| u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()).flatten();
    size.map(|size| (size, line.len().saturating_sub(MAX_DIGITS)))
        .ok_or(MalformedResponse("bad size of a chunk"))
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

    /// Data of a chunked body, received in pieces of this size, and the bytes after its end.
    fn chunks(text: &str, piece: usize) -> Result<(String, String), MalformedResponse> {
        let (mut reader, mut received, mut data) =
            (BodyReader::Chunked(Chunks::default()), BytesMut::new(), Vec::new());
        for piece in text.as_bytes().chunks(piece) {
            received.extend_from_slice(piece);
            while let BodyStep::Data(more) = reader.next(&mut received)? {
                data.extend_from_slice(&more);
            }
        }
        let data = String::from_utf8(data).unwrap();
        match reader {
            BodyReader::Ended => Ok((data, String::from_utf8(received.to_vec()).unwrap())),
            _ => Err(MalformedResponse("unfinished")),
        }
    }

    #[test]
    fn a_chunked_body_ends_after_its_last_chunk_and_its_trailers() {
        let text = "3;x=1\r\na\nb\r\n00A \r\n0123456789\r\n0\r\nt: 1\r\n\r\nrest";
        for piece in 1..=text.len() {
            assert_eq!(chunks(text, piece), Ok(("a\nb0123456789".to_owned(), "rest".to_owned())));
        }
        for text in [
            "3\nabc\r\n0\r\n\r\n",
            "3\r\nabc\n0\r\n\r\n",
            "3\r\nabcd\r\n0\r\n\r\n",
            "\r\nabc\r\n0\r\n\r\n",
            "-3\r\nabc\r\n0\r\n\r\n",
            "0x3\r\nabc\r\n0\r\n\r\n",
            "3 3\r\nabc\r\n0\r\n\r\n",
            "3\x0c\r\nabc\r\n0\r\n\r\n",
            "3;a\rb\r\nabc\r\n0\r\n\r\n",
            "fffffffffffffffff\r\nabc\r\n",
            "3\r\nabc\r\n0\r\nt: 1\n\r\n",
        ] {
            assert!((1..=text.len()).all(|piece| chunks(text, piece).is_err()), "{text:?}");
        }
        let long = format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(MAX_CHUNK_LINE));
        assert_eq!(chunks(&long, 100), Err(MalformedResponse("line too long")));
        let trailers = format!("0\r\n{}\r\n", format!("{}\r\n", "t".repeat(1000)).repeat(20));
        assert_eq!(chunks(&trailers, 100), Err(MalformedResponse("chunk extensions or trailers too large")));
    }

    #[test]
    fn chunk_extensions_and_interim_responses_are_bounded() {
        let extended = format!("1;{}\r\na\r\n", "x".repeat(1000));
        let few = format!("{}0\r\n\r\n", extended.repeat(16));
        assert_eq!(chunks(&few, 100), Ok(("a".repeat(16), String::new())));
        let many = format!("{}0\r\n\r\n", extended.repeat(17));
        assert!(chunks(&many, 100).is_err());
        let zeros = format!("{}1\r\na\r\n", "0".repeat(1000));
        assert!(chunks(&format!("{}0\r\n\r\n", zeros.repeat(17)), 100).is_err());
        let plain = format!("{}0\r\n\r\n", "1\r\na\r\n".repeat(10_000));
        assert_eq!(chunks(&plain, 4096).unwrap().0.len(), 10_000);
        let interim = "HTTP/1.1 103 Early Hints\r\n\r\n";
        let end = "HTTP/1.1 200 OK\r\n\r\n";
        assert!(head(&format!("{}{end}", interim.repeat(MAX_INTERIM)), 100).unwrap().is_some());
        let flood = head(&format!("{}{end}", interim.repeat(MAX_INTERIM + 1)), 100);
        assert_eq!(flood.unwrap_err(), MalformedResponse("too many interim responses"));
    }

    #[test]
    fn only_a_body_without_a_length_may_end_with_the_connection() {
        let (mut until_close, mut received) = (BodyReader::UntilClose, BytesMut::from("abc"));
        assert_eq!(until_close.next(&mut received), Ok(BodyStep::Data(Bytes::from("abc"))));
        assert!(until_close.may_end_with_connection() && BodyReader::Ended.may_end_with_connection());
        assert!(!BodyReader::Length(1).may_end_with_connection());
        assert!(!BodyReader::Chunked(Chunks::default()).may_end_with_connection());
    }
}

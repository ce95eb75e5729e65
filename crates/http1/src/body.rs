//! Framing of a body: finds its end, by length, by chunks or by the end of the connection. No input or output here.
//!
//! Stricter than the standard where two readers could disagree about the end: then the body is refused.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderName, HeaderValue};
use thiserror::Error;

/// Maximum length of a line before a chunk, or of a trailer, with its end.
const MAX_CHUNK_LINE: usize = 1024;
/// Maximum size of all chunk extensions and trailers of a body, which are discarded.
const MAX_DISCARDED: usize = 16 << 10;

/// Fault in a message. Nothing that follows on the connection can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Reads a body up to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyReader {
    /// Remaining bytes, by `Content-Length`.
    Length(u64),
    Chunked(Chunks),
    /// The end of the connection is the end of the body.
    UntilClose,
    Ended,
    /// Its framing is invalid. Nothing after the fault is read.
    Failed(Malformed),
}

/// Position in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chunks {
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
pub enum BodyStep {
    Data(Bytes),
    NeedsMore,
    End,
}

impl BodyReader {
    /// Takes the next bytes of the body from the received ones. A fault is repeated from then on.
    pub fn next(&mut self, received: &mut BytesMut) -> Result<BodyStep, Malformed> {
        self.step(received).inspect_err(|fault| *self = Self::Failed(*fault))
    }

    fn step(&mut self, received: &mut BytesMut) -> Result<BodyStep, Malformed> {
        loop {
            match self {
                Self::Ended => return Ok(BodyStep::End),
                Self::Failed(fault) => return Err(*fault),
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

    /// Remaining bytes, if they are known.
    pub fn remaining_bytes(self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(left),
            Self::Ended => Some(0),
            Self::Chunked(_) | Self::UntilClose | Self::Failed(_) => None,
        }
    }

    /// Whether the body is complete if the connection ends now.
    pub fn may_end_with_connection(self) -> bool {
        matches!(self, Self::UntilClose | Self::Ended)
    }
}

impl Chunks {
    /// Returns the part after this line, which is not part of a chunk's data; `None` at the end of the body.
    fn after(&mut self, line: &[u8]) -> Result<Option<ChunkPart>, Malformed> {
        Ok(match self.next {
            ChunkPart::Size => {
                let (size, extensions) = chunk_size(line)?;
                self.discard(extensions)?;
                Some(if size == 0 { ChunkPart::Trailers } else { ChunkPart::Data(size) })
            }
            ChunkPart::DataEnd if line.is_empty() => Some(ChunkPart::Size),
            ChunkPart::Trailers if line.is_empty() => None,
            ChunkPart::Trailers if is_header(line) => {
                self.discard(line.len())?;
                Some(ChunkPart::Trailers)
            }
            ChunkPart::Trailers => return Err(Malformed("bad trailer")),
            ChunkPart::Data(_) | ChunkPart::DataEnd => {
                return Err(Malformed("bad end of a chunk"));
            }
        })
    }

    fn discard(&mut self, bytes: usize) -> Result<(), Malformed> {
        self.discarded += bytes;
        let is_too_large = self.discarded > MAX_DISCARDED;
        if is_too_large { Err(Malformed("chunk extensions or trailers too large")) } else { Ok(()) }
    }
}

/// Takes up to `left` of the received bytes.
fn take(left: &mut u64, received: &mut BytesMut) -> Bytes {
    let count = usize::try_from(*left).map_or(received.len(), |left| left.min(received.len()));
    *left -= count as u64;
    received.split_to(count).freeze()
}

/// Takes a line without its end, which must be CR LF; `None` if it is incomplete.
fn line(received: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, Malformed> {
    let searched = &received[..received.len().min(limit)];
    let Some(end) = memchr::memchr(b'\n', searched) else {
        let is_too_long = received.len() >= limit;
        return if is_too_long { Err(Malformed("line too long")) } else { Ok(None) };
    };
    if end == 0 || memchr::memchr(b'\r', &searched[..end]) != Some(end - 1) {
        return Err(Malformed("bad line end"));
    }
    let line = received.split_to(end - 1).freeze();
    received.advance(2);
    Ok(Some(line))
}

/// Size of a chunk, and the length of the line beyond the digits of the largest size: extensions, spaces and zeros.
fn chunk_size(line: &[u8]) -> Result<(u64, usize), Malformed> {
    const MAX_DIGITS: usize = 16;
    let end = memchr::memchr(b';', line).unwrap_or(line.len());
    let end = line[..end].iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |last| last + 1);
    let digits = &line[..end];
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let size = is_number.then(|| u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()).flatten();
    size.map(|size| (size, line.len().saturating_sub(MAX_DIGITS))).ok_or(Malformed("bad size of a chunk"))
}

/// Returns whether a line is a header. Another reader might take any other line after the last chunk for the next message.
fn is_header(line: &[u8]) -> bool {
    memchr::memchr(b':', line).is_some_and(|colon| {
        HeaderName::from_bytes(&line[..colon]).is_ok() && HeaderValue::from_bytes(&line[colon + 1..]).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data of a chunked body, received in pieces of this size, and the bytes after its end.
    fn chunks(text: &str, piece: usize) -> Result<(String, String), Malformed> {
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
            _ => Err(Malformed("unfinished")),
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
            "3\r\nabc\r\n0\r\n0\r\n\r\n",
            "3\r\nabc\r\n0\r\nt : 1\r\n\r\n",
            "3\r\nabc\r\n0\r\nt: 1\r\n u: 2\r\n\r\n",
            "3\r\nabc\r\n0\r\n: 1\r\n\r\n",
            "3\r\nabc\r\n0\r\nt: \x01\r\n\r\n",
            "3\r\nabc\r\n0\r\nGET http://a/ HTTP/1.1\r\nhost: a\r\n\r\n",
        ] {
            assert!((1..=text.len()).all(|piece| chunks(text, piece).is_err()), "{text:?}");
        }
        let long = format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(MAX_CHUNK_LINE));
        assert_eq!(chunks(&long, 100), Err(Malformed("line too long")));
        let trailers = format!("0\r\n{}\r\n", format!("t:{}\r\n", "x".repeat(1000)).repeat(20));
        assert_eq!(chunks(&trailers, 100), Err(Malformed("chunk extensions or trailers too large")));
    }

    #[test]
    fn chunk_extensions_are_bounded() {
        let extended = format!("1;{}\r\na\r\n", "x".repeat(1000));
        let few = format!("{}0\r\n\r\n", extended.repeat(16));
        assert_eq!(chunks(&few, 100), Ok(("a".repeat(16), String::new())));
        let many = format!("{}0\r\n\r\n", extended.repeat(17));
        assert!(chunks(&many, 100).is_err());
        let zeros = format!("{}1\r\na\r\n", "0".repeat(1000));
        assert!(chunks(&format!("{}0\r\n\r\n", zeros.repeat(17)), 100).is_err());
        let plain = format!("{}0\r\n\r\n", "1\r\na\r\n".repeat(10_000));
        assert_eq!(chunks(&plain, 4096).unwrap().0.len(), 10_000);
    }

    #[test]
    fn g05_nothing_is_read_after_a_fault() {
        let mut reader = BodyReader::Chunked(Chunks::default());
        let mut received = BytesMut::from("zz\r\n0\r\n\r\n");
        let fault = reader.next(&mut received).unwrap_err();
        assert_eq!(reader.next(&mut received), Err(fault));
        assert_eq!(received, "0\r\n\r\n");
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

//! Heads of responses: status line, headers, and the framing of the body.

use super::head::closes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::response::Parts;
use http::{HeaderMap, Method, StatusCode, Version};
use http_body::SizeHint;
use httpdate::HttpDate;
use std::time::{Duration, SystemTime};

/// Framing of the body of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// No body.
    None,
    /// No body, because the request is a HEAD. Its length may be named.
    Omitted,
    /// This many bytes.
    Length(u64),
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// Facts of a request on which the framing of its response depends.
#[derive(Debug, Clone)]
pub(super) struct RequestFacts {
    pub(super) is_head: bool,
    pub(super) version: Version,
}

impl RequestFacts {
    pub(super) fn of(method: &Method, version: Version) -> Self {
        Self { is_head: *method == Method::HEAD, version }
    }
}

impl BodyFraming {
    pub(super) fn new(request: &RequestFacts, status: StatusCode, size: &SizeHint) -> Self {
        let has_none =
            status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        match size.exact() {
            _ if has_none => Self::None,
            _ if request.is_head => Self::Omitted,
            Some(length) => Self::Length(length),
            None if request.version == Version::HTTP_11 => Self::Chunked,
            None => Self::UntilClose,
        }
    }
}

/// The `Date` header of responses, formatted at most once a second.
#[derive(Debug)]
pub(super) struct DateHeader {
    unix_time: fn() -> Duration,
    second: u64,
    text: String,
}

impl DateHeader {
    pub(super) fn new(unix_time: fn() -> Duration) -> Self {
        Self { unix_time, second: u64::MAX, text: String::new() }
    }

    fn text(&mut self) -> &str {
        let second = (self.unix_time)().as_secs();
        if second != self.second {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            (self.second, self.text) = (second, HttpDate::from(now).to_string());
        }
        &self.text
    }
}

/// Returns whether the headers of a response end the connection.
pub(super) fn ends_connection(headers: &HeaderMap) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| closes(value.as_bytes()))
}

/// Writes the head of a response. Its own headers about the framing of the body are left out.
pub(super) fn write_head(
    out: &mut Vec<u8>,
    response: &Parts,
    framing: BodyFraming,
    keeps_connection: bool,
    date: &mut DateHeader,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(response.status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(response.status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
    let (mut has_date, mut says_close) = (false, false);
    for (name, value) in &response.headers {
        if *name == TRANSFER_ENCODING || (*name == CONTENT_LENGTH && framing != BodyFraming::Omitted) {
            continue;
        }
        has_date |= *name == DATE;
        says_close |= *name == CONNECTION && closes(value.as_bytes());
        push_header(out, name.as_str(), value.as_bytes());
    }
    if !has_date {
        push_header(out, "date", date.text().as_bytes());
    }
    if !keeps_connection && !says_close {
        push_header(out, "connection", b"close");
    }
    match framing {
        BodyFraming::Length(length) => {
            push_header(out, "content-length", itoa::Buffer::new().format(length).as_bytes());
        }
        BodyFraming::Chunked => push_header(out, "transfer-encoding", b"chunked"),
        BodyFraming::None | BodyFraming::Omitted | BodyFraming::UntilClose => {}
    }
    out.extend_from_slice(b"\r\n");
}

fn push_header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;

    fn head(response: &Response<()>, framing: BodyFraming, keeps_connection: bool) -> String {
        let mut out = Vec::new();
        let (parts, ()) = response.clone().into_parts();
        let mut date = DateHeader::new(|| Duration::from_secs(784_111_777));
        write_head(&mut out, &parts, framing, keeps_connection, &mut date);
        String::from_utf8(out).unwrap()
    }

    const DATE_LINE: &str = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

    #[test]
    fn a_head_has_the_framing_of_its_body_and_no_other() {
        let response = Response::builder().header("content-length", "7").header("transfer-encoding", "x");
        let response = response.body(()).unwrap();
        for (framing, line) in [
            (BodyFraming::Length(3), "content-length: 3\r\n"),
            (BodyFraming::Chunked, "transfer-encoding: chunked\r\n"),
            (BodyFraming::UntilClose, ""),
        ] {
            assert_eq!(head(&response, framing, true), format!("HTTP/1.1 200 OK\r\n{DATE_LINE}{line}\r\n"));
        }
        assert_eq!(head(&response, BodyFraming::None, true), format!("HTTP/1.1 200 OK\r\n{DATE_LINE}\r\n"));
        let named = format!("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n{DATE_LINE}\r\n");
        assert_eq!(head(&response, BodyFraming::Omitted, true), named);
    }

    #[test]
    fn a_head_says_once_that_the_connection_is_closed() {
        let plain = Response::new(());
        let closing = Response::builder().header("connection", "close").body(()).unwrap();
        let line = "connection: close\r\n";
        let count = |response, keeps| head(response, BodyFraming::Length(0), keeps).matches(line).count();
        assert_eq!((count(&plain, true), count(&plain, false), count(&closing, false)), (0, 1, 1));
        assert!(ends_connection(closing.headers()) && !ends_connection(plain.headers()));
    }

    #[test]
    fn the_framing_follows_from_the_request_and_the_size_of_the_body() {
        let (known, unknown) = (SizeHint::with_exact(5), SizeHint::default());
        let framing = |method: Method, version, status: u16, size| {
            let status = StatusCode::from_u16(status).unwrap();
            BodyFraming::new(&RequestFacts::of(&method, version), status, size)
        };
        let (new, old) = (Version::HTTP_11, Version::HTTP_10);
        assert_eq!(framing(Method::GET, new, 200, &known), BodyFraming::Length(5));
        assert_eq!(framing(Method::GET, new, 200, &unknown), BodyFraming::Chunked);
        assert_eq!(framing(Method::GET, old, 200, &unknown), BodyFraming::UntilClose);
        assert_eq!(framing(Method::HEAD, new, 200, &known), BodyFraming::Omitted);
        for status in [204, 304] {
            assert_eq!(framing(Method::GET, new, status, &known), BodyFraming::None);
        }
    }
}

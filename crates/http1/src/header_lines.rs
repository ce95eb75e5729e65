//! Headers of the heads that one connection receives. Most of them are the same in each head, so they are compared with those
//! of the last one instead of being read again.

use crate::Malformed;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Maximum number of headers, and size of all of them, that are kept.
const MAX_KEPT_LINES: usize = 32;
const MAX_KEPT_SIZE: usize = 4 << 10;

/// Headers of the last head.
#[derive(Debug, Default)]
pub struct HeaderLines(Vec<HeaderLine>);

#[derive(Debug)]
struct HeaderLine {
    /// The name as the peer spells it.
    spelling: Box<str>,
    name: HeaderName,
    kind: HeaderKind,
    value: HeaderValue,
}

/// Kind of a header, as far as it concerns the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderKind {
    /// `Content-Length`
    Length,
    /// `Transfer-Encoding`
    Encoding,
    /// `Connection`
    Connection,
    /// `Expect`
    Expectation,
    /// Any other header.
    None,
}

impl HeaderLines {
    /// Reads the headers of a head. `note` gets the kind and the value of each.
    pub fn read(
        &mut self,
        headers: &[httparse::Header<'_>],
        mut note: impl FnMut(HeaderKind, &[u8]) -> Result<(), Malformed>,
    ) -> Result<HeaderMap, Malformed> {
        let mut map = HeaderMap::with_capacity(headers.len());
        let mut size = 0;
        self.0.truncate(headers.len());
        for (index, header) in headers.iter().enumerate() {
            let line = match self.0.get_mut(index) {
                Some(line) if line.is(header) => line,
                known => {
                    let line = HeaderLine::new(header).ok_or(Malformed("bad header"))?;
                    match known {
                        Some(place) => *place = line,
                        None => self.0.push(line),
                    }
                    &mut self.0[index]
                }
            };
            note(line.kind, header.value.trim_ascii())?;
            map.append(&line.name, line.value.clone());
            size += header.name.len() + header.value.len();
        }
        if headers.len() > MAX_KEPT_LINES || size > MAX_KEPT_SIZE {
            self.0 = Vec::new();
        }
        Ok(map)
    }
}

impl HeaderLine {
    fn new(header: &httparse::Header<'_>) -> Option<Self> {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        let kind = match &name {
            name if *name == CONTENT_LENGTH => HeaderKind::Length,
            name if *name == TRANSFER_ENCODING => HeaderKind::Encoding,
            name if *name == CONNECTION => HeaderKind::Connection,
            name if *name == EXPECT => HeaderKind::Expectation,
            _ => HeaderKind::None,
        };
        // A copy, so that it does not keep the buffer of a whole read.
        let value = HeaderValue::from_bytes(header.value).ok()?;
        Some(Self { spelling: header.name.into(), name, kind, value })
    }

    fn is(&self, header: &httparse::Header<'_>) -> bool {
        *self.spelling == *header.name && self.value.as_bytes() == header.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_last_head_are_used_only_for_the_same_headers() {
        let mut lines = HeaderLines::default();
        for head in [
            ["host: a", "Accept: b", "x-own: c"],
            ["HOST: d", "accept: e", "X-Own: f"],
            ["HOST: d", "accept: e", "X-Own: g"],
            ["content-length: 0", "accept: e", "X-Own: g"],
            ["x-own: g", "host: h", "x-other: i"],
            ["host: ", "x-own: j", "x-own: j"],
        ] {
            let parsed = head.map(|line| {
                let (name, value) = line.split_once(": ").unwrap();
                httparse::Header { name, value: value.as_bytes() }
            });
            let mut kinds = Vec::new();
            let map = lines
                .read(&parsed, |kind, _| {
                    kinds.push(kind);
                    Ok(())
                })
                .unwrap();
            let mut expected = HeaderMap::new();
            for header in parsed {
                let name = HeaderName::from_bytes(header.name.as_bytes()).unwrap();
                expected.append(name, HeaderValue::from_bytes(header.value).unwrap());
            }
            assert_eq!(map, expected);
            let has_length = kinds.contains(&HeaderKind::Length);
            assert_eq!(has_length, map.contains_key(CONTENT_LENGTH));
        }
    }

    #[test]
    fn only_few_and_small_headers_are_kept() {
        let large = "x".repeat(MAX_KEPT_SIZE);
        for (count, value, is_kept) in [(3, "x", true), (MAX_KEPT_LINES + 1, "x", false), (3, &*large, false)]
        {
            let mut lines = HeaderLines::default();
            let parsed = vec![httparse::Header { name: "x", value: value.as_bytes() }; count];
            assert_eq!(lines.read(&parsed, |_, _| Ok(())).unwrap().len(), count);
            assert_eq!(!lines.0.is_empty(), is_kept);
        }
    }
}

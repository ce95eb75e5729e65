//! Walks one level of a JSON object and returns each member as decoded key and raw value. Checks that the bytes are
//! JSON; does not know which members matter, or whether one may be repeated.
//!
//! Values are skipped by `serde_json`'s iterative scanner, so a hundred thousand nested arrays cost memory in
//! proportion to the input and no stack. Skipped text is checked for grammar and UTF-8; escapes inside it are decoded
//! by the code that reads the value.

use std::borrow::Cow;
use std::fmt;

use gripfast_core::json_text::Json;
use serde::de::{DeserializeSeed, Deserializer as _, MapAccess, Visitor};

use crate::raw;

/// Reason why the bytes are not a JSON object.
pub(crate) enum ScanError {
    NotJson { line: usize, column: usize },
    Array,
    Scalar,
}

/// Calls `member` for each member in order, repeated keys included, and fails if the bytes are not one JSON
/// object.
pub(crate) fn each_member<'a>(
    bytes: &'a [u8],
    member: impl FnMut(Cow<'a, str>, &'a Json),
) -> Result<(), ScanError> {
    if first_byte(bytes) != Some(b'{') {
        return Err(match serde_json::from_slice::<&Json>(bytes) {
            Ok(array) if array.get().starts_with('[') => ScanError::Array,
            Ok(_) => ScanError::Scalar,
            Err(error) => not_json(&error),
        });
    }
    match std::str::from_utf8(bytes) {
        // UTF-8 is checked once instead of value by value.
        Ok(text) => walk(serde_json::Deserializer::from_str(text), member),
        // This fails too, and gives the position of the error.
        Err(_) => walk(serde_json::Deserializer::from_slice(bytes), member),
    }
}

fn walk<'a, R: serde_json::de::Read<'a>>(
    mut json: serde_json::Deserializer<R>,
    member: impl FnMut(Cow<'a, str>, &'a Json),
) -> Result<(), ScanError> {
    let walked = json.deserialize_map(Walk { member }).and_then(|()| json.end());
    walked.map_err(|error| not_json(&error))
}

/// Calls `member` for each member, as [`each_member`] does, of a known JSON value: only
/// the ends of values are searched for, without further checks. `None` if it is not an object, or if a key has invalid
/// escapes.
pub(crate) fn each_known_member<'a>(
    value: &'a Json,
    mut member: impl FnMut(Cow<'a, str>, &'a Json),
) -> Option<()> {
    let mut rest = value.get().trim_ascii_start().strip_prefix('{')?;
    loop {
        rest = rest.trim_ascii_start();
        if rest.starts_with('}') {
            return Some(());
        }
        let quoted = end_of_text(rest.as_bytes(), 0);
        let (key, behind) = rest.split_at_checked(quoted.end)?;
        let key = if quoted.has_escapes {
            raw::unquoted(key)?
        } else {
            key.strip_prefix('"')?.strip_suffix('"')?.into()
        };
        rest = behind.trim_ascii_start().strip_prefix(':')?.trim_ascii_start();
        let (value, behind) = rest.split_at_checked(length_of(rest))?;
        member(key, raw::part(value));
        rest = behind.trim_ascii_start();
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// Length of the JSON value that the text starts with.
fn length_of(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_text(bytes, at).end,
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            // The value ends before a separator or the end of its container.
            b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return at,
            b'}' | b']' => (at, depth) = (at + 1, depth - 1),
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

/// Extent of a JSON string.
struct Quoted {
    /// Index after its closing quote.
    end: usize,
    has_escapes: bool,
}

/// Finds the end of the string whose opening quote is at `from`.
fn end_of_text(bytes: &[u8], from: usize) -> Quoted {
    /// Most strings are shorter than this, and a plain loop is faster for them than `memchr`.
    const NEAR: usize = 16;
    let (mut at, mut has_escapes) = (from + 1, false);
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let (near, far) = rest.split_at(rest.len().min(NEAR));
        let found = near.iter().position(|byte| matches!(byte, b'"' | b'\\'));
        let found = found.or_else(|| Some(near.len() + memchr::memchr2(b'"', b'\\', far)?));
        match found {
            None => return Quoted { end: bytes.len(), has_escapes },
            Some(found) if rest[found] == b'"' => return Quoted { end: at + found + 1, has_escapes },
            Some(found) => (at, has_escapes) = (at + found + 2, true),
        }
    }
}

/// Calls `member` for each complete member of an object that may be truncated anywhere. Returns the key of the
/// truncated value.
pub(crate) fn each_whole_member<'a>(
    bytes: &'a [u8],
    mut member: impl FnMut(&str, &'a Json),
) -> Option<Cow<'a, str>> {
    let mut cut = None;
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    // An error is expected, because the object is truncated.
    let _ = deserializer.deserialize_map(Beginning { member: &mut member, cut: &mut cut });
    cut
}

/// The first byte that is not JSON whitespace.
pub(crate) fn first_byte(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
}

/// Returns whether a case-insensitive parser would take `key` for `known`, although they differ.
///
/// Go's standard decoder is such a parser, and it folds two letters from outside ASCII as well. `known` is lower-case
/// or camel-case ASCII.
pub(crate) fn looks_like(key: &str, known: &str) -> bool {
    let folded = key.chars().map(|letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    key != known && folded.eq(known.chars().map(|letter| letter.to_ascii_lowercase()))
}

fn not_json(error: &serde_json::Error) -> ScanError {
    ScanError::NotJson { line: error.line(), column: error.column() }
}

struct Walk<F> {
    member: F,
}

impl<'a, F: FnMut(Cow<'a, str>, &'a Json)> Visitor<'a> for Walk<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(Key)? {
            (self.member)(key, map.next_value()?);
        }
        Ok(())
    }
}

struct Beginning<'s, 'a, F> {
    member: &'s mut F,
    /// The key whose value is being read.
    cut: &'s mut Option<Cow<'a, str>>,
}

impl<'a, F: FnMut(&str, &'a Json)> Visitor<'a> for Beginning<'_, 'a, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(Key)? {
            let key = self.cut.insert(key);
            (self.member)(key, map.next_value()?);
            *self.cut = None;
        }
        Ok(())
    }
}

/// Borrows a key when it has no escapes; serde's own `Cow` always allocates.
struct Key;

impl<'a> DeserializeSeed<'a> for Key {
    type Value = Cow<'a, str>;

    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'a> for Key {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'a str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

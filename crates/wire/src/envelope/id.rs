//! Request ids. The peer's spelling is kept, because it expects its own id back; equality is by value, because a JSON
//! library may turn `7` into `7.0` or `"é"` into `"\u00e9"`.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

use gripfast_core::json_text::Json;

use super::{Malformed, spliced};
use crate::raw;

/// An id, borrowed from a message.
#[derive(Clone, Copy)]
pub struct Id<'a> {
    /// One valid JSON string or number.
    spelling: &'a str,
}

/// An id that outlives the message it came in. Equal and hashed by value.
#[derive(Clone)]
pub struct RequestId {
    spelling: Box<str>,
}

impl<'a> Id<'a> {
    /// Takes a JSON string or number; anything else is [`Malformed::BadId`].
    pub fn from_raw(raw: &'a Json) -> Result<Self, Malformed> {
        let spelling = raw.get();
        match spelling.as_bytes().first() {
            Some(b'0'..=b'9' | b'-') => Ok(Self { spelling }),
            // A string with invalid escapes has no value to compare.
            Some(b'"') if raw::unquoted(spelling).is_some() => Ok(Self { spelling }),
            _ => Err(Malformed::BadId),
        }
    }

    /// Takes the spelling of an id that was checked before.
    pub(super) fn assume_valid(spelling: &'a str) -> Self {
        Self { spelling }
    }

    /// The JSON text, ready to be written into a message.
    pub fn as_raw(&self) -> &'a str {
        self.spelling
    }

    /// The number, for ids that gripfast created. A peer that answers `7.0` to `7` means the same request.
    pub fn as_u64(&self) -> Option<u64> {
        if let Ok(number) = self.spelling.parse::<u64>() {
            return Some(number);
        }
        raw::integer(self.spelling).and_then(|number| u64::try_from(number).ok())
    }

    /// The number of an id or token that gripfast created, even if the peer has turned it into a string.
    pub fn as_minted(&self) -> Option<u64> {
        self.as_u64().or_else(|| {
            let text = self.as_text()?;
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
        })
    }

    /// The decoded text, for ids that are strings.
    pub fn as_text(&self) -> Option<Cow<'a, str>> {
        raw::unquoted(self.spelling)
    }

    /// A copy that can be stored.
    pub fn to_request_id(&self) -> RequestId {
        RequestId { spelling: self.spelling.into() }
    }

    /// `source` with this id replaced by `new`, and every other byte unchanged. `None` if this id was not borrowed from
    /// `source`.
    pub fn replace_in(&self, source: &[u8], new: Id<'_>) -> Option<Vec<u8>> {
        Some(spliced(source, raw::span_in(source, self.spelling)?, new.spelling))
    }

    fn value(&self) -> Value<'a> {
        if let Some(text) = raw::unquoted(self.spelling) {
            return Value::Text(text);
        }
        raw::integer(self.spelling).map_or(Value::Spelling(self.spelling), Value::Integer)
    }
}

impl RequestId {
    /// A copy of a JSON string or number; anything else is [`Malformed::BadId`].
    pub fn from_raw(raw: &Json) -> Result<Self, Malformed> {
        Id::from_raw(raw).map(|id| id.to_request_id())
    }

    /// Borrowed, for the functions that write messages.
    pub fn as_id(&self) -> Id<'_> {
        Id { spelling: &self.spelling }
    }

    /// The JSON text.
    pub fn as_raw(&self) -> &str {
        &self.spelling
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        Self { spelling: number.to_string().into() }
    }
}

impl From<&str> for RequestId {
    fn from(text: &str) -> Self {
        Self { spelling: raw::quoted(text).get().into() }
    }
}

impl From<Id<'_>> for RequestId {
    fn from(id: Id<'_>) -> Self {
        id.to_request_id()
    }
}

/// Value by which ids are compared. Numbers beyond an `i64` or with a fraction are compared by spelling.
#[derive(PartialEq, Eq, Hash)]
enum Value<'a> {
    Text(Cow<'a, str>),
    Integer(i64),
    Spelling(&'a str),
}

impl PartialEq for Id<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.spelling == other.spelling || self.value() == other.value()
    }
}

impl Eq for Id<'_> {}

impl Hash for Id<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value().hash(state);
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.as_id() == other.as_id()
    }
}

impl Eq for RequestId {}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_id().hash(state);
    }
}

impl fmt::Debug for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spelling)
    }
}

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spelling)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelling)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelling)
    }
}

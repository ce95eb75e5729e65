//! Walks one level of a JSON object and returns each member as decoded key and raw value. Checks that the bytes are
//! JSON; does not know which members matter, or whether one may be repeated.
//!
//! Nothing here is recursive: a hundred thousand nested arrays cost a bit each and no stack. Skipped text is checked for
//! grammar and UTF-8; escapes inside it are decoded by the code that reads the value.

use std::borrow::Cow;
use std::collections::BTreeMap;

use gripfast_core::json_text::Json;

use crate::raw;

/// Reason why the bytes are not a JSON object.
pub(crate) enum ScanError {
    NotJson { line: usize, column: usize },
    Array,
    Scalar,
}

/// Calls `member` for each member in order, repeated keys included, and fails if the bytes are not one JSON
/// object. Returns the bytes as text.
pub(crate) fn each_member<'a>(
    bytes: &'a [u8],
    member: impl FnMut(Cow<'a, str>, &'a Json),
) -> Result<&'a str, ScanError> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Err(fault_in(bytes)) };
    let mut scanner = Scanner::<CHECKED>::new(text);
    match scanner.members(member) {
        Ok(()) if scanner.is_at_end() => Ok(text),
        Ok(()) | Err(_) => Err(fault_in(bytes)),
    }
}

/// Calls `member` for each member, as [`each_member`] does, of a known JSON value, whose text is not checked again.
/// `None` if it is not an object, or if a key has invalid escapes.
pub(crate) fn each_known_member<'a>(
    value: &'a Json,
    member: impl FnMut(Cow<'a, str>, &'a Json),
) -> Option<()> {
    Scanner::<KNOWN>::new(value.get()).members(member).ok()
}

/// Calls `member` for each member, as [`each_member`] does, and `inner_member` for each member of the object that is the
/// value of the key `inner`, in the same pass. Returns whether all keys of that object could be decoded.
pub(crate) fn each_member_and_inner<'a>(
    bytes: &'a [u8],
    inner: &str,
    member: impl FnMut(Cow<'a, str>, &'a Json),
    mut inner_member: impl FnMut(Cow<'a, str>, &'a Json),
) -> Result<bool, ScanError> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Err(fault_in(bytes)) };
    let (mut scanner, mut is_decoded) = (Scanner::<CHECKED>::new(text), true);
    let walked = scanner.walk(member, |scanner, key| {
        let start = scanner.at;
        if key == inner && scanner.byte() == Some(b'{') && scanner.members(&mut inner_member).is_ok() {
            return Some(());
        }
        // Another kind of value, or a key with escapes that have no meaning.
        is_decoded &= scanner.at == start;
        scanner.at = start;
        scanner.skip_value()
    });
    match walked {
        Ok(()) if scanner.is_at_end() => Ok(is_decoded),
        Ok(()) | Err(_) => Err(fault_in(bytes)),
    }
}

/// Calls `member` for each complete member of an object that may be truncated anywhere. Returns the key of the
/// truncated value.
pub(crate) fn each_whole_member<'a>(
    bytes: &'a [u8],
    mut member: impl FnMut(&str, &'a Json),
) -> Option<Cow<'a, str>> {
    let text = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    // An error is expected, because the object is truncated.
    Scanner::<CHECKED>::new(text).members(|key, value| member(&key, value)).err().and_then(|cut| cut.key)
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

/// Returns whether a text needs no escapes in JSON.
pub(crate) fn is_plain(text: &str) -> bool {
    length_of_plain(text.as_bytes(), CHECKED) == text.len()
}

/// The reason why the bytes are not an object, from a slower parser that knows the position.
fn fault_in(bytes: &[u8]) -> ScanError {
    let error = match serde_json::from_slice::<&Json>(bytes) {
        Ok(array) if array.get().starts_with('[') => return ScanError::Array,
        Ok(object) if object.get().starts_with('{') => {
            serde_json::from_slice::<BTreeMap<String, &Json>>(bytes).err()
        }
        Ok(_) => return ScanError::Scalar,
        Err(error) => Some(error),
    };
    let (line, column) = error.map_or((1, 1), |error| (error.line(), error.column()));
    ScanError::NotJson { line, column }
}

/// Text of unknown origin, which is checked.
const CHECKED: bool = true;
/// Text that is known to be JSON.
const KNOWN: bool = false;

/// Position in a JSON text.
struct Scanner<'a, const CHECK: bool> {
    text: &'a str,
    at: usize,
}

/// End of the walk before the end of the object.
struct Cut<'a> {
    /// Key of the member whose value is not complete.
    key: Option<Cow<'a, str>>,
}

impl<'a, const CHECK: bool> Scanner<'a, CHECK> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Calls `member` for each member of the object at this position.
    fn members(&mut self, member: impl FnMut(Cow<'a, str>, &'a Json)) -> Result<(), Cut<'a>> {
        self.walk(member, |scanner, _| scanner.skip_value())
    }

    /// Calls `member` for each member of the object at this position; `read_value` moves behind the value of a key.
    #[inline(always)]
    fn walk(
        &mut self,
        mut member: impl FnMut(Cow<'a, str>, &'a Json),
        mut read_value: impl FnMut(&mut Self, &str) -> Option<()>,
    ) -> Result<(), Cut<'a>> {
        let cut = || Cut { key: None };
        self.skip_space();
        self.expect(b'{').ok_or_else(cut)?;
        self.skip_space();
        if self.expect(b'}').is_some() {
            return Ok(());
        }
        loop {
            let key = self.key().ok_or_else(cut)?;
            let start = self.at;
            if read_value(self, &key).is_none() {
                return Err(Cut { key: Some(key) });
            }
            member(key, raw::part(&self.text[start..self.at]));
            self.skip_space();
            if self.expect(b',').is_none() {
                return self.expect(b'}').ok_or_else(cut);
            }
            self.skip_space();
        }
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.at == self.text.len()
    }

    #[inline(always)]
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline(always)]
    fn expect(&mut self, byte: u8) -> Option<()> {
        let found = self.byte() == Some(byte);
        self.at += usize::from(found);
        found.then_some(())
    }

    #[inline(always)]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte() {
            self.at += 1;
        }
    }

    /// Reads a key and the colon behind it.
    fn key(&mut self) -> Option<Cow<'a, str>> {
        let start = self.at;
        let has_escapes = self.skip_text()?;
        let quoted = &self.text[start..self.at];
        let key = if has_escapes { raw::unquoted(quoted)? } else { quoted[1..quoted.len() - 1].into() };
        self.skip_colon()?;
        Some(key)
    }

    fn skip_colon(&mut self) -> Option<()> {
        self.skip_space();
        self.expect(b':')?;
        self.skip_space();
        Some(())
    }

    /// Skips a value of any depth.
    fn skip_value(&mut self) -> Option<()> {
        let mut open = OpenContainers::default();
        loop {
            // A value begins here.
            match self.byte()? {
                b'"' => self.skip_text().map(drop)?,
                opening @ (b'{' | b'[') => {
                    self.at += 1;
                    self.skip_space();
                    let container = if opening == b'{' { Container::Object } else { Container::Array };
                    if self.expect(container.end()).is_none() {
                        open.push(container);
                        if container == Container::Object {
                            self.skip_text()?;
                            self.skip_colon()?;
                        }
                        continue;
                    }
                }
                b't' => self.skip_word("true")?,
                b'f' => self.skip_word("false")?,
                b'n' => self.skip_word("null")?,
                _ => self.skip_number()?,
            }
            // A value has ended here, and perhaps its containers with it.
            loop {
                let Some(container) = open.last() else { return Some(()) };
                self.skip_space();
                if self.expect(b',').is_some() {
                    self.skip_space();
                    if container == Container::Object {
                        self.skip_text()?;
                        self.skip_colon()?;
                    }
                    break;
                }
                self.expect(container.end())?;
                open.pop();
            }
        }
    }

    /// Skips a quoted text. Returns whether it has escapes.
    #[inline(always)]
    fn skip_text(&mut self) -> Option<bool> {
        self.expect(b'"')?;
        self.skip_plain();
        if self.expect(b'"').is_some() {
            return Some(false);
        }
        self.skip_rest_of_text()
    }

    #[inline(always)]
    fn skip_plain(&mut self) {
        self.at += length_of_plain(&self.text.as_bytes()[self.at..], CHECK);
    }

    /// Skips a text from its first escape on.
    fn skip_rest_of_text(&mut self) -> Option<bool> {
        loop {
            // Anything else is a control character.
            self.expect(b'\\')?;
            match self.byte()? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
                b'u' => {
                    let digits = self.text.as_bytes().get(self.at + 1..self.at + 5)?;
                    digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                    self.at += 5;
                }
                _ => return None,
            }
            self.skip_plain();
            if self.expect(b'"').is_some() {
                return Some(true);
            }
        }
    }

    fn skip_word(&mut self, word: &str) -> Option<()> {
        self.text.as_bytes()[self.at..].starts_with(word.as_bytes()).then(|| self.at += word.len())
    }

    fn skip_number(&mut self) -> Option<()> {
        let _ = self.expect(b'-');
        if self.expect(b'0').is_none() {
            self.skip_digits()?;
        }
        if self.expect(b'.').is_some() {
            self.skip_digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.skip_digits()?;
        }
        Some(())
    }

    fn skip_digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

/// Number of bytes before the first quote, backslash or control character. Known text has no control characters.
#[inline(always)]
fn length_of_plain(bytes: &[u8], checked: bool) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    // The lowest byte with its high bit set is the first that is equal to, or less than, a byte below 128.
    let equal = |word: u64, byte: u8| {
        let other = word ^ (ONES * u64::from(byte));
        other.wrapping_sub(ONES) & !other
    };
    let less = |word: u64, byte: u8| word.wrapping_sub(ONES * u64::from(byte)) & !word;
    let mut rest = bytes;
    while let Some((word, behind)) = rest.split_first_chunk() {
        let word = u64::from_le_bytes(*word);
        let found = (equal(word, b'"') | equal(word, b'\\') | less(word, b' ')) & HIGH;
        if found != 0 {
            return bytes.len() - rest.len() + found.trailing_zeros() as usize / 8;
        }
        rest = behind;
        // A long text is searched with vectors, if it need not be checked.
        if !checked && bytes.len() - rest.len() == 64 {
            return 64 + memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        }
    }
    let found = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..b' '));
    bytes.len() - rest.len() + found.unwrap_or(rest.len())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    Array,
    Object,
}

impl Container {
    fn end(self) -> u8 {
        match self {
            Self::Array => b']',
            Self::Object => b'}',
        }
    }
}

/// Kinds of the containers that a value is in, one bit each.
#[derive(Default)]
struct OpenContainers {
    depth: usize,
    /// The innermost up to 64.
    near: u64,
    /// The others, 64 in each number.
    far: Vec<u64>,
}

impl OpenContainers {
    fn push(&mut self, container: Container) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.far.push(self.near);
        }
        self.near = self.near << 1 | u64::from(container == Container::Object);
        self.depth += 1;
    }

    fn last(&self) -> Option<Container> {
        let container = if self.near & 1 == 1 { Container::Object } else { Container::Array };
        (self.depth > 0).then_some(container)
    }

    fn pop(&mut self) {
        self.near >>= 1;
        self.depth -= 1;
        if self.depth > 0
            && self.depth.is_multiple_of(64)
            && let Some(outer) = self.far.pop()
        {
            self.near = outer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(json: &str) -> Option<Vec<(String, String)>> {
        let mut members = Vec::new();
        let walked = each_member(json.as_bytes(), |key, value| {
            members.push((key.into_owned(), value.get().to_owned()));
        });
        walked.is_ok().then_some(members)
    }

    #[test]
    fn values_of_any_depth_are_skipped_and_their_ends_are_matched() {
        for depth in [1, 63, 64, 65, 128, 129, 1000] {
            let (open, close) = ("[{\"k\":".repeat(depth), "}]".repeat(depth));
            let value = format!("{open}1{close}");
            let whole = format!(r#"{{"a":{value},"b":2}}"#);
            let expected = [("a".to_owned(), value), ("b".to_owned(), "2".to_owned())];
            assert_eq!(members(&whole).as_deref(), Some(&expected[..]), "{depth}");
            let known = Json::parse(&whole).unwrap();
            assert_eq!(each_known_member(known, |_, _| {}), Some(()));
            let crossed = format!(r#"{{"a":{open}1{}}}"#, "]}".repeat(depth));
            assert!(members(&crossed).is_none(), "{depth}");
        }
    }

    #[test]
    fn texts_of_any_length_end_at_their_quote() {
        for length in 0..80 {
            let plain = "é".repeat(length / 2) + &"x".repeat(length % 2);
            for special in ["", r#"\""#, r"\\", r"\u00e9"] {
                let value = format!("\"{plain}{special}{plain}\"");
                let whole = format!(r#"{{"a":{value}}}"#);
                assert_eq!(members(&whole), Some(vec![("a".to_owned(), value.clone())]));
                let (mut known, json) = (String::new(), Json::parse(&whole).unwrap());
                each_known_member(json, |_, value| known = value.get().to_owned());
                assert_eq!(known, value);
            }
            for wrong in ["\n", "\u{1f}", r"\x", r"\u12g4"] {
                assert!(members(&format!("{{\"a\":\"{plain}{wrong}{plain}\"}}")).is_none(), "{wrong:?}");
            }
        }
    }
}

//! Reads scalars from a [`Json`], and finds the position of a value inside a larger text. Knows JSON, but nothing
//! about MCP.

use std::borrow::Cow;
use std::ops::Range;

use gripfast_core::json_text::{Json, JsonText};

use crate::scan;

/// A value inside a text that is known to be JSON.
pub(crate) fn part(spelling: &str) -> &Json {
    debug_assert!(Json::parse(spelling).is_ok(), "a part of a value is a value");
    Json::assume_valid(spelling)
}

/// The decoded text of a JSON string; `None` for any other value, and for invalid escapes.
pub(crate) fn text(raw: &Json) -> Option<Cow<'_, str>> {
    unquoted(raw.get())
}

/// [`text`] for a spelling that is known to be one valid JSON value.
pub(crate) fn unquoted(spelling: &str) -> Option<Cow<'_, str>> {
    let inner = spelling.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(spelling).ok().map(Cow::Owned)
}

pub(crate) fn boolean(raw: &Json) -> Option<bool> {
    match raw.get() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// An integer however it is spelled: `5`, `5.0` and `5e0` are the same number to the peers that send them.
/// Fractional spellings count only inside the range where a double is exact.
pub(crate) fn integer(spelling: &str) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_991.0;
    if let Ok(number) = spelling.parse::<i64>() {
        return Some(number);
    }
    let float = spelling.parse::<f64>().ok()?;
    (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i64)
}

pub(crate) fn is_null(raw: &Json) -> bool {
    raw.get() == "null"
}

pub(crate) fn is_object(raw: &Json) -> bool {
    raw.get().starts_with('{')
}

/// The elements of a JSON array, in order; `None` when the value is not an array.
pub(crate) fn items(raw: &Json) -> Option<Vec<&Json>> {
    raw.get().starts_with('[').then(|| serde_json::from_str(raw.get()).ok()).flatten()
}

/// The range of `part` inside `whole`; `None` if it is not a piece of that memory.
pub(crate) fn span_in(whole: &[u8], part: &str) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}

/// Appends `text` as a JSON string.
pub(crate) fn push_quoted(out: &mut String, text: &str) {
    if scan::is_plain(text) {
        out.extend(["\"", text, "\""]);
    } else {
        out.push_str(quoted(text).get());
    }
}

/// `text` as a JSON string.
pub(crate) fn quoted(text: &str) -> JsonText {
    if scan::is_plain(text) {
        return JsonText::assume_valid(["\"", text, "\""].concat());
    }
    JsonText::of(text).expect("a string can always be written to memory")
}

/// Turns bytes into a JSON value. They must be valid, because they were spliced together from valid values.
pub(crate) fn owned(json: Vec<u8>) -> JsonText {
    JsonText::assume_valid(String::from_utf8(json).expect("splicing text into text gives text"))
}

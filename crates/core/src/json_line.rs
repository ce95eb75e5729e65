//! Writer of one JSON line, member by member, into a buffer. Several lines are written per call, so it allocates
//! nothing but the buffer, and does not scan constants for characters to escape.

use crate::json::Digest;
use crate::json_text::Json;
use crate::time::Wall;
use std::time::Duration;

/// A line that is being written: an object to which members are appended.
pub struct JsonLine<'o> {
    out: &'o mut Vec<u8>,
    before_next: u8,
}

impl<'o> JsonLine<'o> {
    /// Starts a line at the end of `out`.
    pub fn begin(out: &'o mut Vec<u8>) -> Self {
        Self { out, before_next: b'{' }
    }

    /// Continues a line whose first members are in `out`.
    pub fn resume(out: &'o mut Vec<u8>) -> Self {
        Self { out, before_next: b',' }
    }

    /// Appends any text.
    pub fn text(&mut self, key: &'static str, text: &str) {
        self.key(key);
        // Without early exit, so that the compiler vectorises the loop.
        let plain = |all: bool, byte: u8| all & (byte >= b' ') & (byte != b'"') & (byte != b'\\');
        if text.bytes().fold(true, plain) {
            self.out.push(b'"');
            self.out.extend_from_slice(text.as_bytes());
            self.out.push(b'"');
        } else {
            serde_json::to_writer(&mut *self.out, text).expect("text can be written to memory");
        }
    }

    /// Appends a constant, which needs no escaping.
    pub fn constant(&mut self, key: &'static str, word: &'static str) {
        self.key(key);
        self.out.push(b'"');
        self.out.extend_from_slice(word.as_bytes());
        self.out.push(b'"');
    }

    /// Appends a constant, or `null`.
    pub fn constant_or_null(&mut self, key: &'static str, word: Option<&'static str>) {
        match word {
            Some(word) => self.constant(key, word),
            None => self.raw(key, "null"),
        }
    }

    /// Appends a text, or `null`.
    pub fn text_or_null(&mut self, key: &'static str, text: Option<&str>) {
        match text {
            Some(text) => self.text(key, text),
            None => self.raw(key, "null"),
        }
    }

    /// Appends a whole number.
    pub fn number(&mut self, key: &'static str, number: u64) {
        self.key(key);
        self.digits(number);
    }

    /// Appends a point in time, in milliseconds since the Unix epoch.
    pub fn timestamp(&mut self, key: &'static str, at: Wall) {
        let since = at.since_epoch();
        let millis = since.as_secs().saturating_mul(1000);
        self.number(key, millis.saturating_add(since.subsec_millis().into()));
    }

    /// Appends a duration in milliseconds with one decimal, rounded.
    pub fn millis(&mut self, key: &'static str, span: Duration) {
        let tenths = span.as_secs().saturating_mul(10_000);
        let tenths = tenths.saturating_add((u64::from(span.subsec_nanos()) + 50_000) / 100_000);
        self.key(key);
        self.digits(tenths / 10);
        self.out.extend_from_slice(&[b'.', b'0' + (tenths % 10) as u8]);
    }

    /// Appends a duration in whole microseconds.
    pub fn micros(&mut self, key: &'static str, span: Duration) {
        let micros = span.as_secs().saturating_mul(1_000_000);
        self.number(key, micros.saturating_add(span.subsec_micros().into()));
    }

    /// Appends a digest in hexadecimal.
    pub fn digest(&mut self, key: &'static str, digest: Digest) {
        self.key(key);
        self.out.push(b'"');
        self.out.extend_from_slice(&digest.hex());
        self.out.push(b'"');
    }

    /// Appends any JSON, on one line.
    pub fn json(&mut self, key: &'static str, json: &Json) {
        self.key(key);
        // A line break in JSON is white space, but would end the line here.
        let one_line = |byte: u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte };
        self.out.extend(json.get().bytes().map(one_line));
    }

    /// Appends a JSON literal such as `null`.
    pub fn raw(&mut self, key: &'static str, word: &'static str) {
        self.key(key);
        self.out.extend_from_slice(word.as_bytes());
    }

    /// Ends the line.
    pub fn end(self) {
        self.out.extend_from_slice(b"}\n");
    }

    fn key(&mut self, key: &'static str) {
        self.out.extend_from_slice(&[self.before_next, b'"']);
        self.before_next = b',';
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn digits(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut from = digits.len();
        // Two digits at a time: half as many divisions.
        while number >= 10 {
            from -= 2;
            digits[from..from + 2].copy_from_slice(&PAIRS[(number % 100) as usize]);
            number /= 100;
        }
        if number > 0 || from == digits.len() {
            from -= 1;
            digits[from] = b'0' + number as u8;
        }
        self.out.extend_from_slice(&digits[from..]);
    }
}

/// `00` to `99`.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_text::JsonText;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn read(write: impl FnOnce(&mut JsonLine<'_>)) -> Value {
        let mut out = Vec::new();
        let mut line = JsonLine::begin(&mut out);
        write(&mut line);
        line.end();
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1, "{}", String::from_utf8_lossy(&out));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn members_are_written_in_the_order_in_which_they_are_added() {
        let mut out = Vec::new();
        let mut line = JsonLine::begin(&mut out);
        line.timestamp("at_ms", Wall::from_unix_epoch(Duration::new(1, 999_999_999)));
        line.text_or_null("who", None);
        line.digest("sha256", Digest::of(b""));
        JsonLine::resume(&mut out).micros("took_us", Duration::new(2, 3_999));
        JsonLine::resume(&mut out).end();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"at_ms\":1999,\"who\":null,\
             \"sha256\":\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\",\"took_us\":2000003}\n"
        );
    }

    #[test]
    fn a_duration_has_one_decimal() {
        for (nanos, millis) in
            [(0, 0.0), (49_999, 0.0), (50_000, 0.1), (12_340_000, 12.3), (999_950_000, 1000.0)]
        {
            let span = Duration::from_nanos(nanos);
            assert_eq!(read(|line| line.millis("t", span)), json!({ "t": millis }));
        }
    }

    proptest! {
        #[test]
        fn numbers_are_written_without_leading_zeros(number: u64, shift in 0..64_u32) {
            let mut out = Vec::new();
            JsonLine::begin(&mut out).number("n", number >> shift);
            prop_assert_eq!(String::from_utf8(out).unwrap(), format!("{{\"n\":{}", number >> shift));
        }

        #[test]
        fn written_lines_parse_to_the_same_values(text in ".*", number: u64) {
            let raw = JsonText::parse(serde_json::to_string_pretty(&json!([text])).unwrap()).unwrap();
            let line = read(|line| {
                line.text("text", &text);
                line.number("number", number);
                line.json("json", &raw);
            });
            prop_assert_eq!(line, json!({ "text": text, "number": number, "json": [text] }));
        }
    }
}

//! Finds the ids of answers in bytes that cannot be parsed as messages: NaN, another encoding, raw control characters,
//! a byte order mark, a log prefix, a missing `jsonrpc`. The calls with these ids will get no other answer.

/// Largest number of objects that are searched in one line or event.
const MAX_OBJECTS: usize = 16;

/// The numeric ids that invalid bytes seem to answer: an object with the id, a `result` or `error` (or at least
/// `jsonrpc`), and no `method`. An id that was turned into a string counts.
pub fn damaged_answers(bytes: &[u8]) -> Vec<u64> {
    let mut ids = Vec::new();
    let mut at = 0;
    for _ in 0..MAX_OBJECTS {
        let Some(brace) = memchr::memchr(b'{', &bytes[at..]) else { break };
        let mut object = Scan { bytes, at: at + brace + 1 };
        let found = object.members();
        if let Some(id) = found.id.filter(|_| found.is_answer && !found.has_method) {
            ids.push(id);
            at = object.at;
        } else {
            // This brace may have been part of a log line.
            at += brace + 1;
        }
    }
    ids
}

#[derive(Default)]
struct Found {
    id: Option<u64>,
    is_answer: bool,
    has_method: bool,
}

/// Reads the keys of one object. Values are skipped, whatever their content, if their braces and quotes are balanced.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    /// Reads the members of the object whose brace was just read, up to the end or the first error.
    fn members(&mut self) -> Found {
        let mut found = Found::default();
        while let Some(key) = self.key() {
            match key {
                b"id" => found.id = self.number(),
                b"result" | b"error" | b"jsonrpc" => found.is_answer = true,
                b"method" => found.has_method = true,
                _ => {}
            }
            if !self.skip_value() {
                break;
            }
        }
        found
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Reads a key and its colon; `None` at the end of the object, or at something else.
    fn key(&mut self) -> Option<&'a [u8]> {
        self.skip_space();
        let key = self.quoted()?;
        self.skip_space();
        (self.peek() == Some(b':')).then(|| self.at += 1)?;
        self.skip_space();
        Some(key)
    }

    /// Reads a string; returns it without its quotes.
    fn quoted(&mut self) -> Option<&'a [u8]> {
        if self.peek() != Some(b'"') {
            return None;
        }
        let begin = self.at + 1;
        let mut at = begin;
        loop {
            at += memchr::memchr2(b'"', b'\\', self.bytes.get(at..)?)?;
            if self.bytes[at] == b'"' {
                self.at = at + 1;
                return Some(&self.bytes[begin..at]);
            }
            at += 2;
        }
    }

    /// The next value, if it is a number or a string of digits.
    fn number(&self) -> Option<u64> {
        let rest = &self.bytes[self.at..];
        let rest = rest.strip_prefix(b"\"").unwrap_or(rest);
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let ends = rest.get(digits).is_none_or(|byte| matches!(byte, b',' | b'}' | b'"' | b'.'));
        if !ends && !rest[digits].is_ascii_whitespace() {
            return None;
        }
        std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
    }

    /// Skips a value and the comma after it. `false` at the end of the object, or of the bytes.
    fn skip_value(&mut self) -> bool {
        let mut depth = 0usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    if self.quoted().is_none() {
                        self.at = self.bytes.len();
                    }
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 0 => {
                    self.at += 1;
                    return false;
                }
                b'}' | b']' => depth -= 1,
                b',' if depth == 0 => {
                    self.at += 1;
                    return true;
                }
                _ => {}
            }
            self.at += 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Message;
    use proptest::prelude::*;

    #[test]
    fn g07_the_ids_of_nearly_valid_answers_are_found() {
        for line in [
            br#"{"jsonrpc":"2.0","id":7,"result":{"score":NaN}}"#.as_slice(),
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"caf\xe9\"}}",
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"a\tb\"}}",
            b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}",
            br#"INFO {app} {"jsonrpc":"2.0","id":7,"result":{}}"#,
            br#"{"id":7,"result":{}}"#,
            br#"{"jsonrpc":"2.0","id":"7","result":{}}"#,
            br#"{"jsonrpc":"2.0","id":7}"#,
            br#"{"jsonrpc":"2.0","error":{"code":1,"message":"x"},"id": 7 }"#,
            br#"{"jsonrpc":"2.0","id":7,"result":{"text":"cut in the middle"#,
            br#"{"id":7.0,"result":{"a":[1,{"b":"}"}],"c":"\"}"},}"#,
            br#"[{"id":7,"result":NaN}"#,
        ] {
            assert_eq!(damaged_answers(line), [7], "{}", String::from_utf8_lossy(line));
        }
        let batch = br#"[{"id":7,"result":NaN},{"id":8,"error":NaN}]"#;
        assert_eq!(damaged_answers(batch), [7, 8]);
    }

    #[test]
    fn g07_log_lines_requests_and_ids_inside_results_are_ignored() {
        for line in [
            br#"{"level":"info","id":7,"msg":"done"}"#.as_slice(),
            br#"{"jsonrpc":"2.0","id":7,"method":"roots/list","result":NaN}"#,
            br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"id":7}}"#,
            br#"{"result":{"id":7,"x":NaN}}"#,
            br#"{"id":"seven","result":NaN}"#,
            br#"{"id":-7,"result":NaN}"#,
            br#"{"id":7a,"result":NaN}"#,
            b"listening on {7}",
            b"",
            b"{",
            b"{\"id\":",
        ] {
            assert_eq!(damaged_answers(line), [0; 0], "{}", String::from_utf8_lossy(line));
        }
    }

    proptest! {
        #[test]
        fn g07_arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = damaged_answers(&bytes);
        }

        #[test]
        fn g07_damage_inside_the_result_leaves_the_id_readable(id in any::<u64>(), junk in "[^\"\\\\{}\\[\\]]{0,20}") {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"text\":\"{junk}\t\"}}}}");
            prop_assert!(Message::parse(line.as_bytes()).is_err());
            prop_assert_eq!(damaged_answers(line.as_bytes()), [id]);
        }
    }
}

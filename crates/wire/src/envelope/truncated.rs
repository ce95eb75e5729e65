//! What can be told of a message that is too large to be kept: its beginning and its end say whom it is for, though
//! nobody will ever read what lies between.

use serde_json::value::RawValue;

use super::{Id, RequestId};
use crate::scan;

/// Whom a message is for of which only the beginning and the end are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressee {
    /// It answers the request of this id, which is one that we minted.
    Answer(u64),
    /// Nobody waits for it: a request or a notification, or no message at all.
    Nobody,
    /// It may be an answer, and does not say to what where it can be seen.
    Unknown,
}

/// Looks at the first bytes of a message, and at its last ones where those are known. Any number of bytes will do; a
/// few hundred of each show what there is to see.
pub fn addressee(beginning: &[u8], end: &[u8]) -> Addressee {
    match scan::first_byte(beginning) {
        Some(b'{') => {}
        // A batch may hold an answer among others.
        Some(b'[') => return Addressee::Unknown,
        Some(_) | None => return Addressee::Nobody,
    }
    let (mut id, mut has_method) = (None, false);
    let cut = scan::each_whole_member(beginning, |key, value| match key {
        "id" => id = number(value),
        "method" => has_method = true,
        _ => {}
    });
    let is_answer = matches!(cut.as_deref(), Some("result" | "error"));
    match id.filter(|_| is_answer).or_else(|| last_id(end)) {
        _ if has_method => Addressee::Nobody,
        Some(id) => Addressee::Answer(id),
        None => Addressee::Unknown,
    }
}

/// The id of a request of which only the beginning and the end are known, so that it can be answered.
pub fn request_id(beginning: &[u8], end: &[u8]) -> Option<RequestId> {
    if scan::first_byte(beginning) != Some(b'{') {
        return None;
    }
    let (mut id, mut is_answer) = (None, false);
    let cut = scan::each_whole_member(beginning, |key, value| match key {
        "id" => id = RequestId::from_raw(value).ok(),
        "result" | "error" => is_answer = true,
        _ => {}
    });
    is_answer |= matches!(cut.as_deref(), Some("result" | "error"));
    let at_end =
        || RequestId::from_raw(&RawValue::from_string(last_id_as_written(end)?.to_owned()).ok()?).ok();
    id.or_else(at_end).filter(|_| !is_answer)
}

fn number(value: &RawValue) -> Option<u64> {
    Id::from_raw(value).ok()?.as_u64()
}

fn last_id(end: &[u8]) -> Option<u64> {
    last_id_as_written(end)?.parse().ok()
}

/// Some write the id last. The brace that ends the message closes its outermost object, so a member that stands right
/// before it is one of the message's own.
fn last_id_as_written(end: &[u8]) -> Option<&str> {
    let end = end.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let end = match end.strip_suffix(br#""jsonrpc":"2.0""#) {
        Some(before) => before.trim_ascii_end().strip_suffix(b",")?.trim_ascii_end(),
        None => end,
    };
    let length = match end.strip_suffix(b"\"") {
        // A text with anything in it that has to be escaped is not looked for.
        Some(text) => 2 + text.iter().rev().take_while(|byte| !matches!(byte, b'"' | b'\\')).count(),
        None => end.iter().rev().take_while(|byte| byte.is_ascii_digit()).count(),
    };
    let (before, id) = end.split_at_checked(end.len().checked_sub(length)?)?;
    let before = before.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end().strip_suffix(br#""id""#)?;
    // Whatever is quoted inside a text has a backslash here.
    before.trim_ascii_end().strip_suffix(b",")?;
    std::str::from_utf8(id).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(message: &str) -> Addressee {
        let (beginning, end) = message.split_at(message.len() / 2);
        addressee(beginning.as_bytes(), end.as_bytes())
    }

    #[test]
    fn g07_an_answer_is_known_by_an_id_before_or_after_its_result() {
        let long = "x".repeat(200);
        assert_eq!(
            of(&format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"t":"{long}"}}}}"#)),
            Addressee::Answer(7)
        );
        assert_eq!(
            of(&format!(r#"{{"result":{{"t":"{long}"}},"jsonrpc":"2.0","id":7}}"#)),
            Addressee::Answer(7)
        );
        assert_eq!(
            of(&format!(r#"{{"result":{{"t":"{long}"}}, "id" : 7 , "jsonrpc":"2.0" }}"#)),
            Addressee::Answer(7)
        );
        let error = format!(r#"{{"jsonrpc":"2.0","id":8,"error":{{"code":1,"message":"{long}"}}}}"#);
        assert_eq!(of(&error), Addressee::Answer(8));
    }

    #[test]
    fn g07_a_request_is_known_by_an_id_before_or_after_its_params() {
        let long = "x".repeat(200);
        let of = |message: &str| {
            let (beginning, end) = message.split_at(message.len() / 2);
            request_id(beginning.as_bytes(), end.as_bytes()).map(|id| id.as_raw().to_owned())
        };
        for id in ["7", "\"seven\"", "\"\""] {
            for request in [
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":"{long}"}}"#),
                format!(r#"{{"method":"m","params":"{long}","jsonrpc":"2.0","id":{id}}}"#),
                format!(r#"{{"method":"m","params":"{long}","id": {id}, "jsonrpc":"2.0"}}"#),
            ] {
                assert_eq!(of(&request).as_deref(), Some(id), "{request}");
            }
        }
        for nobodys in [
            format!(r#"{{"jsonrpc":"2.0","method":"m","params":"{long}"}}"#),
            format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"t":"{long}","id":7}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":"{long}"}}"#),
            format!(r#"[{{"jsonrpc":"2.0","id":7,"method":"m","params":"{long}"}}]"#),
            long.clone(),
            String::new(),
        ] {
            assert_eq!(of(&nobodys), None, "{nobodys}");
        }
    }

    #[test]
    fn g07_what_the_server_says_unasked_is_nobodys_answer_whatever_id_it_has() {
        let long = "x".repeat(200);
        let request =
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":"{long}"}}"#);
        assert_eq!(of(&request), Addressee::Nobody);
        assert_eq!(of(&format!(r#"{{"jsonrpc":"2.0","method":"n","params":"{long}"}}"#)), Addressee::Nobody);
        assert_eq!(of(&long), Addressee::Nobody, "junk");
        assert_eq!(of(""), Addressee::Nobody);
    }

    #[test]
    fn g07_an_id_inside_the_result_is_not_the_messages_own() {
        let long = "x".repeat(200);
        assert_eq!(of(&format!(r#"{{"result":{{"t":"{long}","id":7}}}}"#)), Addressee::Unknown);
        assert_eq!(of(&format!(r#"{{"result":"{long},\"id\":7"}}"#)), Addressee::Unknown);
        assert_eq!(of(&format!(r#"{{"id":7,"params":"{long}","method":"m"}}"#)), Addressee::Unknown);
        assert_eq!(of(&format!(r#"[{{"id":7,"result":"{long}"}}]"#)), Addressee::Unknown);
    }
}

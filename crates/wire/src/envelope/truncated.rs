//! Finds the id of a message that is too large to be stored, from its beginning and its end.

use gripfast_core::json_text::{Json, JsonText};

use super::{Id, RequestId};
use crate::scan;

/// Request that a truncated message answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressee {
    /// Answers the request with this id, which gripfast created.
    Answer(u64),
    /// A request or a notification, or not a message.
    NotAnAnswer,
    /// Possibly an answer, but without an id in the bytes that are known.
    Unknown,
}

/// Determines the addressee from the first bytes of a message, and from its last ones if they are known. Any number of
/// bytes is accepted; a few hundred of each are enough.
pub fn addressee(beginning: &[u8], end: &[u8]) -> Addressee {
    match scan::first_byte(beginning) {
        Some(b'{') => {}
        // A batch may hold an answer among others.
        Some(b'[') => return Addressee::Unknown,
        Some(_) | None => return Addressee::NotAnAnswer,
    }
    let (mut id, mut has_method) = (None, false);
    let cut = scan::each_whole_member(beginning, |key, value| match key {
        "id" => id = number(value),
        "method" => has_method = true,
        _ => {}
    });
    let is_answer = matches!(cut.as_deref(), Some("result" | "error"));
    match id.filter(|_| is_answer).or_else(|| last_id(end)) {
        _ if has_method => Addressee::NotAnAnswer,
        Some(id) => Addressee::Answer(id),
        None => Addressee::Unknown,
    }
}

/// The id of a truncated request, so that it can be answered.
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
    let at_end = || RequestId::from_raw(&JsonText::parse(last_id_text(end)?.to_owned()).ok()?).ok();
    id.or_else(at_end).filter(|_| !is_answer)
}

fn number(value: &Json) -> Option<u64> {
    Id::from_raw(value).ok()?.as_u64()
}

fn last_id(end: &[u8]) -> Option<u64> {
    last_id_text(end)?.parse().ok()
}

/// The id at the end of the message, where some peers write it. The last brace closes the outermost object, so a member
/// right before it belongs to the message itself.
fn last_id_text(end: &[u8]) -> Option<&str> {
    let end = end.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let end = match end.strip_suffix(br#""jsonrpc":"2.0""#) {
        Some(before) => before.trim_ascii_end().strip_suffix(b",")?.trim_ascii_end(),
        None => end,
    };
    let length = match end.strip_suffix(b"\"") {
        // Strings with escapes are not recognised.
        Some(text) => 2 + text.iter().rev().take_while(|byte| !matches!(byte, b'"' | b'\\')).count(),
        None => end.iter().rev().take_while(|byte| byte.is_ascii_digit()).count(),
    };
    let (before, id) = end.split_at_checked(end.len().checked_sub(length)?)?;
    let before = before.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end().strip_suffix(br#""id""#)?;
    // A quote inside a string would have a backslash here.
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
    fn g07_the_id_of_an_answer_is_found_before_or_after_its_result() {
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
    fn g07_the_id_of_a_request_is_found_before_or_after_its_params() {
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
        for other in [
            format!(r#"{{"jsonrpc":"2.0","method":"m","params":"{long}"}}"#),
            format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"t":"{long}","id":7}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":"{long}"}}"#),
            format!(r#"[{{"jsonrpc":"2.0","id":7,"method":"m","params":"{long}"}}]"#),
            long.clone(),
            String::new(),
        ] {
            assert_eq!(of(&other), None, "{other}");
        }
    }

    #[test]
    fn g07_requests_and_notifications_of_a_server_are_not_answers() {
        let long = "x".repeat(200);
        let request =
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":"{long}"}}"#);
        assert_eq!(of(&request), Addressee::NotAnAnswer);
        assert_eq!(
            of(&format!(r#"{{"jsonrpc":"2.0","method":"n","params":"{long}"}}"#)),
            Addressee::NotAnAnswer
        );
        assert_eq!(of(&long), Addressee::NotAnAnswer, "junk");
        assert_eq!(of(""), Addressee::NotAnAnswer);
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

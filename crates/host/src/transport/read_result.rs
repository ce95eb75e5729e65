//! A result that was read when its message arrived, so that the message is not parsed again.

use gripfast_core::json_text::SharedJson;
use gripfast_wire::envelope::{Malformed, Message, Response};
use gripfast_wire::patch::Object;
use gripfast_wire::results::ResultType;
use gripfast_wire::{Json, Outcome};

/// A result with the members that the gateway acts on.
#[derive(Debug, Clone)]
pub(crate) struct ReadResult {
    pub(crate) json: SharedJson,
    pub(crate) members: Members,
}

/// The members of a result that the gateway acts on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Members {
    /// `isError` is true: the tool reports a failure.
    pub is_error: bool,
    /// `resultType` says that input is required first.
    pub input_required: bool,
    /// `resultType` is present.
    pub result_type: bool,
    /// `ttlMs` or `cacheScope`.
    pub freshness: bool,
    /// `structuredContent`.
    pub structured_content: bool,
    /// Start and end of `resultType`, if the result is complete and no other of these members is in the way of a legacy
    /// client.
    pub only_modern_part: Option<(usize, usize)>,
}

impl ReadResult {
    /// Larger results are copied only when their call handles them, because a link may hold many of them.
    const MAX: usize = 64 << 10;

    /// Copies a result; `members` are those of an object.
    pub(crate) fn new(result: &Json, members: Option<&Object<'_>>) -> Self {
        Self { json: result.into(), members: members.map(Members::of).unwrap_or_default() }
    }

    /// Parses a message. A result that is not large is returned too.
    pub(super) fn parse(message: &[u8]) -> Result<(Message<'_>, Option<Self>), Malformed> {
        let (message, members) = Message::parse_with_result(message)?;
        let result = match &message {
            Message::Response(Response { outcome: Outcome::Result(result), .. }) => Some(*result),
            Message::Response(_) | Message::Request(_) | Message::Notification(_) => None,
        };
        let result = result.filter(|result| result.get().len() <= Self::MAX);
        let read = result.map(|result| Self::new(result, members.as_ref()));
        Ok((message, read))
    }
}

impl Members {
    fn of(result: &Object<'_>) -> Self {
        let has = |member| result.has(member);
        let (result_type, freshness) = (ResultType::read(result), has("ttlMs") || has("cacheScope"));
        let structured_content = has("structuredContent");
        let is_legacy_otherwise = result_type == ResultType::Complete && !freshness && !structured_content;
        let span = result.removable_span("resultType").map(|span| (span.start, span.end));
        Self {
            is_error: result.flag("isError"),
            input_required: result_type == ResultType::InputRequired,
            result_type: span.is_some(),
            freshness,
            structured_content,
            only_modern_part: span.filter(|_| is_legacy_otherwise),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &str) -> Option<ReadResult> {
        ReadResult::parse(message.as_bytes()).unwrap().1
    }

    #[test]
    fn a_result_is_read_with_its_message() {
        let complete = read(r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}"#);
        let complete = complete.unwrap();
        assert_eq!(complete.json.get(), r#"{"resultType":"complete","content":[]}"#);
        assert_eq!(complete.members.only_modern_part, Some((1, 25)));
        let text = read(r#"{"jsonrpc":"2.0","id":1,"result":"text"}"#).unwrap();
        assert_eq!((text.json.get(), text.members), (r#""text""#, Members::default()));
    }

    #[test]
    fn errors_other_messages_and_large_results_are_not_copied() {
        let large = |length| {
            let text = "x".repeat(length - 2);
            read(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{text}"}}"#)).is_some()
        };
        assert!(large(ReadResult::MAX) && !large(ReadResult::MAX + 1));
        for other in [
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
        ] {
            assert!(read(other).is_none(), "{other}");
        }
        assert!(ReadResult::parse(b"{}").is_err());
    }

    #[test]
    fn members_that_only_one_era_knows_are_found() {
        for other in
            [r#"{"resultType":"complete","ttlMs":1}"#, r#"{"resultType":"task"}"#, r#"{"content":[]}"#]
        {
            let result = Object::parse(Json::parse(other).unwrap()).unwrap();
            assert_eq!(Members::of(&result).only_modern_part, None, "{other}");
        }
    }
}

//! W3C trace context as MCP carries it: two members of `_meta`, and two HTTP headers of the same names, which
//! instrumented programs read and write without knowing MCP. Says which of them count; knows no spans.

use std::borrow::Cow;

use crate::era::meta;
use crate::patch::{MessagePatch, Object, Patch};
use crate::{Message, RawValue};

/// The trace that a request is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext<'a> {
    /// `traceparent`: the trace, and the span that asks.
    pub parent: Cow<'a, str>,
    /// `tracestate`: what those who trace tell each other.
    pub state: Option<Cow<'a, str>>,
}

impl<'a> TraceContext<'a> {
    /// A longer state is not carried on. The specification wants 512 letters to pass.
    const LONGEST_STATE: usize = 4 << 10;

    /// What the `_meta` of a request says.
    pub fn in_meta(said: &Object<'a>) -> Option<Self> {
        Self::of(said.text(meta::TRACEPARENT)?, said.text(meta::TRACESTATE))
    }

    /// What the headers of a request say: the values of `traceparent` and of `tracestate`, as often as they are
    /// there. Two parents are none, since nobody knows which is meant; several states are parts of one.
    pub fn in_headers(
        parents: impl IntoIterator<Item = &'a [u8]>,
        states: impl IntoIterator<Item = &'a [u8]>,
    ) -> Option<Self> {
        let mut parents = parents.into_iter();
        let parent = parents.next().filter(|_| parents.next().is_none())?;
        let states: Result<Vec<&str>, _> = states.into_iter().map(std::str::from_utf8).collect();
        let state = states.ok().filter(|states| !states.is_empty()).map(|states| states.join(","));
        Self::of(std::str::from_utf8(parent).ok()?.into(), state.map(Cow::Owned))
    }

    fn of(parent: Cow<'a, str>, state: Option<Cow<'a, str>>) -> Option<Self> {
        let is_state = |state: &Cow<'_, str>| {
            let printable = state.bytes().all(|letter| matches!(letter, 0x20..=0x7e));
            printable && !state.is_empty() && state.len() <= Self::LONGEST_STATE
        };
        is_parent(&parent).then(|| Self { parent, state: state.filter(is_state) })
    }

    /// The request with this context in its `_meta`; `None` where the request says itself what it is part of, which
    /// counts, and where the message is no request or cannot be changed.
    pub fn written_into(&self, message: &[u8]) -> Option<Vec<u8>> {
        let Ok(Message::Request(request)) = Message::parse(message) else { return None };
        if request.params.is_some_and(says_of_itself) {
            return None;
        }
        let mut said = Patch::new().set_text(meta::TRACEPARENT, &self.parent);
        if let Some(state) = &self.state {
            said = said.set_text(meta::TRACESTATE, state);
        }
        MessagePatch { meta: said, ..MessagePatch::default() }.apply(message).ok()
    }
}

/// Whether parameters name a trace, be it in a way that nobody can read.
fn says_of_itself(params: &RawValue) -> bool {
    let said = Object::parse(params).ok().and_then(|params| params.object("_meta"));
    said.is_some_and(|said| [meta::TRACEPARENT, meta::TRACESTATE].into_iter().any(|key| said.has(key)))
}

/// Whether a text is a `traceparent`: version, trace, span, flags. Versions to come may have more behind it.
fn is_parent(text: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|letter| matches!(letter, b'0'..=b'9' | b'a'..=b'f'));
    let is_id = |part: &str| is_hex(part) && part.bytes().any(|letter| letter != b'0');
    let mut parts = text.splitn(5, '-');
    let mut next = |length: usize| parts.next().filter(|part| part.len() == length);
    let known = (|| Some((next(2)?, next(32)?, next(16)?, next(2)?)))();
    let Some((version, trace, span, flags)) = known else { return false };
    let ends = match version {
        "ff" => false,
        "00" => parts.next().is_none(),
        _ => text.len() <= 256 && text.bytes().all(|letter| matches!(letter, 0x21..=0x7e)),
    };
    is_hex(version) && is_id(trace) && is_id(span) && is_hex(flags) && ends
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers<'a>(parents: &[&'a str], states: &[&'a str]) -> Option<TraceContext<'a>> {
        let bytes = |values: &[&'a str]| values.iter().map(|value| value.as_bytes()).collect::<Vec<_>>();
        TraceContext::in_headers(bytes(parents), bytes(states))
    }

    fn written(message: &str) -> Option<String> {
        let context = headers(&[PARENT], &["a=1", "b=2"]).unwrap();
        context.written_into(message.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn a_parent_is_what_the_specification_calls_one() {
        assert!(is_parent(PARENT));
        assert!(is_parent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-is-to-come"));
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1\n",
        ] {
            assert!(!is_parent(wrong), "{wrong}");
        }
    }

    #[test]
    fn headers_go_where_nothing_is_said() {
        assert_eq!(
            written(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#).unwrap(),
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"_meta":{{"traceparent":"{PARENT}","tracestate":"a=1,b=2"}}}}}}"#
            )
        );
        let own = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"traceparent":"mine"}}}"#;
        assert_eq!(written(own), None, "what the request says itself counts, however it says it");
        let half = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"tracestate":"mine"}}}"#;
        assert_eq!(written(half), None, "two halves make no whole");
        for other in [
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#,
            "[]",
            "",
        ] {
            assert_eq!(written(other), None, "{other}");
        }
    }

    #[test]
    fn what_could_not_be_a_header_again_is_left_behind() {
        assert_eq!(headers(&[PARENT, PARENT], &[]), None);
        assert_eq!(headers(&["00-1-2-3"], &["a=1"]), None);
        let long = "a".repeat(TraceContext::LONGEST_STATE + 1);
        for state in ["", "a=\u{e9}", "a\r\nb: c", &long] {
            assert_eq!(headers(&[PARENT], &[state]).unwrap().state, None, "{state}");
        }
        let said = format!(r#"{{"traceparent":"{PARENT}","tracestate":"a=1\r\nhost: b"}}"#);
        let said = Object::parse_slice(said.as_bytes()).unwrap();
        assert_eq!(TraceContext::in_meta(&said).unwrap(), headers(&[PARENT], &[]).unwrap());
    }
}

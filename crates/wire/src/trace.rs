//! W3C trace context in MCP: two members of `_meta`, and two HTTP headers of the same names, which instrumented
//! programs read and write without knowing MCP. Validates them and decides which apply; does not create spans.

use std::borrow::Cow;

use crate::era::meta;
use crate::patch::{MessagePatch, Object, Patch};
use crate::{Json, Message};

/// The trace that a request is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext<'a> {
    /// `traceparent`: the trace, and the span of the caller.
    pub parent: Cow<'a, str>,
    /// `tracestate`: data of the tracing vendors.
    pub state: Option<Cow<'a, str>>,
}

impl<'a> TraceContext<'a> {
    /// A longer state is dropped. The specification requires that at least 512 characters are propagated.
    const MAX_STATE: usize = 4 << 10;

    /// Reads the trace context in the `_meta` of a request.
    pub fn from_meta(meta_object: &Object<'a>) -> Option<Self> {
        Self::new(meta_object.text(meta::TRACEPARENT)?, meta_object.text(meta::TRACESTATE))
    }

    /// Reads the trace context in the headers of a request: all values of `traceparent` and of `tracestate`. Two
    /// parents are ignored, because it is unknown which one applies; several states are parts of one.
    pub fn from_headers(
        parents: impl IntoIterator<Item = &'a [u8]>,
        states: impl IntoIterator<Item = &'a [u8]>,
    ) -> Option<Self> {
        let mut parents = parents.into_iter();
        let parent = parents.next().filter(|_| parents.next().is_none())?;
        let states: Result<Vec<&str>, _> = states.into_iter().map(std::str::from_utf8).collect();
        let state = states.ok().filter(|states| !states.is_empty()).map(|states| states.join(","));
        Self::new(std::str::from_utf8(parent).ok()?.into(), state.map(Cow::Owned))
    }

    fn new(parent: Cow<'a, str>, state: Option<Cow<'a, str>>) -> Option<Self> {
        let is_state = |state: &Cow<'_, str>| {
            let printable = state.bytes().all(|letter| matches!(letter, 0x20..=0x7e));
            printable && !state.is_empty() && state.len() <= Self::MAX_STATE
        };
        is_traceparent(&parent).then(|| Self { parent, state: state.filter(is_state) })
    }

    /// The request with this context in its `_meta`; `None` if the request already has one, which takes precedence, or
    /// if the message is not a request or cannot be changed.
    pub fn inject(&self, message: &[u8]) -> Option<Vec<u8>> {
        let Ok(Message::Request(request)) = Message::parse(message) else { return None };
        if request.params.is_some_and(has_trace_context) {
            return None;
        }
        let mut patch = Patch::new().set_text(meta::TRACEPARENT, &self.parent);
        if let Some(state) = &self.state {
            patch = patch.set_text(meta::TRACESTATE, state);
        }
        MessagePatch { meta: patch, ..MessagePatch::default() }.apply(message).ok()
    }
}

/// Returns whether parameters have a trace context, valid or not.
fn has_trace_context(params: &Json) -> bool {
    let found = Object::parse(params).ok().and_then(|params| params.object("_meta"));
    found.is_some_and(|found| [meta::TRACEPARENT, meta::TRACESTATE].into_iter().any(|key| found.has(key)))
}

/// Returns whether a text is a `traceparent`: version, trace, span, flags. Later versions may append more.
fn is_traceparent(text: &str) -> bool {
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
        TraceContext::from_headers(bytes(parents), bytes(states))
    }

    fn written(message: &str) -> Option<String> {
        let context = headers(&[PARENT], &["a=1", "b=2"]).unwrap();
        context.inject(message.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn a_traceparent_is_valid_only_as_the_specification_says() {
        assert!(is_traceparent(PARENT));
        assert!(is_traceparent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-is-to-come"));
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
            assert!(!is_traceparent(wrong), "{wrong}");
        }
    }

    #[test]
    fn headers_are_injected_only_into_requests_without_a_trace_context() {
        assert_eq!(
            written(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#).unwrap(),
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"_meta":{{"traceparent":"{PARENT}","tracestate":"a=1,b=2"}}}}}}"#
            )
        );
        let own = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"traceparent":"mine"}}}"#;
        assert_eq!(written(own), None, "the request's own context takes precedence, valid or not");
        let half = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"tracestate":"mine"}}}"#;
        assert_eq!(written(half), None, "a parent and a state of two origins are not combined");
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
    fn values_that_are_not_valid_headers_are_dropped() {
        assert_eq!(headers(&[PARENT, PARENT], &[]), None);
        assert_eq!(headers(&["00-1-2-3"], &["a=1"]), None);
        let long = "a".repeat(TraceContext::MAX_STATE + 1);
        for state in ["", "a=\u{e9}", "a\r\nb: c", &long] {
            assert_eq!(headers(&[PARENT], &[state]).unwrap().state, None, "{state}");
        }
        let both = format!(r#"{{"traceparent":"{PARENT}","tracestate":"a=1\r\nhost: b"}}"#);
        let both = Object::parse_slice(both.as_bytes()).unwrap();
        assert_eq!(TraceContext::from_meta(&both).unwrap(), headers(&[PARENT], &[]).unwrap());
    }
}

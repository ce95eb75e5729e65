//! The context of a modern request in `params._meta`: version, client and capabilities. Writes and reads it; does not
//! choose a version or check capabilities.

use std::borrow::Cow;

use gripfast_core::json_text::{Json, JsonText};

use super::{ProtocolVersion, meta};
use crate::patch::{NotAnObject, Object, Patch, patch_payload};
use crate::raw;

/// The context that gripfast sends with each request to a modern server.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// Protocol version of the request.
    pub version: ProtocolVersion,
    /// Name and version of the client, as a JSON object; optional in the specification.
    pub client_info: Option<JsonText>,
    /// Capabilities of the client, as a JSON object.
    pub capabilities: JsonText,
    /// Least severe log level that the client wants; `None` for no log messages.
    pub log_level: Option<String>,
}

impl RequestContext {
    /// `params` with this context in its `_meta`, and everything else unchanged.
    pub fn apply_to(&self, params: Option<&Json>) -> Result<JsonText, NotAnObject> {
        patch_payload(params, &Patch::new(), &self.meta_patch())
    }

    /// The context as a patch of `_meta`, to be combined with other patches. It removes the log level of an earlier
    /// context.
    pub fn meta_patch(&self) -> Patch<'_> {
        let mut patch = Patch::new()
            .set_text(meta::PROTOCOL_VERSION, self.version.as_str())
            .set(meta::CLIENT_CAPABILITIES, &self.capabilities);
        patch = match &self.client_info {
            Some(info) => patch.set(meta::CLIENT_INFO, info),
            None => patch.remove(meta::CLIENT_INFO),
        };
        match &self.log_level {
            Some(level) => patch.set_text(meta::LOG_LEVEL, level),
            None => patch.remove(meta::LOG_LEVEL),
        }
    }
}

/// The context of a received modern request, borrowed from its `params`.
#[derive(Clone, Debug)]
pub struct ModernContext<'a> {
    /// Protocol version of the request; may be an unsupported one.
    pub version: ProtocolVersion,
    /// Name and version that the client claims, without proof.
    pub client_info: Option<&'a Json>,
    /// Capabilities of the client: a JSON object.
    pub capabilities: &'a Json,
    /// Least severe log level that the client wants.
    pub log_level: Option<Cow<'a, str>>,
    /// Token for progress notifications, if the client wants them.
    pub progress_token: Option<&'a Json>,
}

/// Reason why a request has no modern context.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContextFault {
    /// No protocol version in `_meta`, as in a legacy request.
    #[error("the request has no protocol version (`_meta` has no `{key}`)", key = meta::PROTOCOL_VERSION)]
    Absent,
    /// A required member is missing beside the version.
    #[error("`_meta` has no `{0}`, which every request of this protocol version must carry")]
    Missing(&'static str),
    /// A member has the wrong type.
    #[error("`{0}` in `_meta` has the wrong type")]
    BadType(&'static str),
    /// `params` or `_meta` cannot be read as an object.
    #[error("`params` or its `_meta` cannot be read")]
    Unreadable(#[from] NotAnObject),
}

impl<'a> ModernContext<'a> {
    /// Reads the context of a request.
    pub fn from_params(params: Option<&'a Json>) -> Result<Self, ContextFault> {
        let Some(params) = params else { return Err(ContextFault::Absent) };
        if raw::is_object(params) && !may_have_meta(params) {
            return Err(ContextFault::Absent);
        }
        let params = Object::parse(params)?;
        let Some(found) = params.get_strict("_meta")? else { return Err(ContextFault::Absent) };
        let found = Object::parse(found)?;
        let version = found.get_strict(meta::PROTOCOL_VERSION)?.ok_or(ContextFault::Absent)?;
        let version = raw::text(version).ok_or(ContextFault::BadType(meta::PROTOCOL_VERSION))?;
        let capabilities =
            found.get(meta::CLIENT_CAPABILITIES).ok_or(ContextFault::Missing(meta::CLIENT_CAPABILITIES))?;
        let client_info = found.get(meta::CLIENT_INFO);
        for (key, value) in
            [(meta::CLIENT_CAPABILITIES, Some(capabilities)), (meta::CLIENT_INFO, client_info)]
        {
            if value.is_some_and(|value| !raw::is_object(value)) {
                return Err(ContextFault::BadType(key));
            }
        }
        let log_level = found.get(meta::LOG_LEVEL);
        Ok(Self {
            version: ProtocolVersion::new(&version),
            client_info,
            capabilities,
            log_level: log_level
                .map(|level| raw::text(level).ok_or(ContextFault::BadType(meta::LOG_LEVEL)))
                .transpose()?,
            progress_token: found.get(meta::PROGRESS_TOKEN),
        })
    }
}

/// Returns whether parameters may have a `_meta`, or a member that some parsers would take for it. Many have none, and
/// searching for the word is faster than parsing. A key may be written with escapes.
pub fn may_have_meta(params: &Json) -> bool {
    let text = params.get().as_bytes();
    memchr::memchr2_iter(b'_', b'\\', text).any(|at| {
        let rest = &text[at..];
        rest.starts_with(b"\\u") || rest.get(..5).is_some_and(|word| word.eq_ignore_ascii_case(b"_meta"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_that_may_have_a_meta_in_any_spelling_are_parsed() {
        for mentions in
            [r#"{"_meta":{}}"#, r#"{"_META":1}"#, r#"{"a_b":"\"_\n","_Meta":1}"#, r#"{"\u005fmeta":1}"#]
        {
            assert!(may_have_meta(&json(mentions)), "{mentions}");
        }
        for silent in ["{}", r#"{"meta":1,"_met":2,"a":"\n_"}"#, r#"{"m_eta":"_m\\eta"}"#, r#""_""#] {
            assert!(!may_have_meta(&json(silent)), "{silent}");
        }
        let fault = |params: &str| ModernContext::from_params(Some(&json(params))).unwrap_err();
        assert_eq!(fault(r#"{"name":"a_b"}"#), ContextFault::Absent);
        assert!(matches!(fault("[1]"), ContextFault::Unreadable(_)));
        assert!(matches!(fault(r#"{"_Meta":{}}"#), ContextFault::Unreadable(_)));
    }

    #[test]
    fn a_context_reads_back_and_leaves_the_rest_of_params_unchanged() {
        let params = json(r#"{ "name" : "echo", "n": 1.0e+5, "_meta": {"progressToken":7 , "x":[ ]} }"#);
        let stamped = context(Some("info")).apply_to(Some(&params)).unwrap();
        assert!(
            stamped
                .get()
                .starts_with(r#"{ "name" : "echo", "n": 1.0e+5, "_meta": {"progressToken":7 , "x":[ ],"#)
        );
        let read = ModernContext::from_params(Some(&stamped)).unwrap();
        assert_eq!(read.version, ProtocolVersion::MODERN);
        assert_eq!(read.capabilities.get(), r#"{"roots":{}}"#);
        assert_eq!(read.client_info.unwrap().get(), r#"{"name":"c"}"#);
        assert_eq!(read.log_level.as_deref(), Some("info"));
        assert_eq!(read.progress_token.unwrap().get(), "7");
    }

    #[test]
    fn a_request_without_params_gets_them() {
        let stamped = context(None).apply_to(None).unwrap();
        let read = ModernContext::from_params(Some(&stamped)).unwrap();
        let again = RequestContext {
            version: read.version.clone(),
            client_info: read.client_info.map(ToOwned::to_owned),
            capabilities: read.capabilities.to_owned(),
            log_level: read.log_level.clone().map(Cow::into_owned),
        };
        assert_eq!(again.apply_to(None).unwrap().get(), stamped.get());
        assert!(!stamped.get().contains(meta::LOG_LEVEL));
    }

    #[test]
    fn another_clients_log_level_does_not_leak_into_our_context() {
        let theirs = context(Some("debug")).apply_to(None).unwrap();
        let ours = context(None).apply_to(Some(&theirs)).unwrap();
        assert_eq!(ModernContext::from_params(Some(&ours)).unwrap().log_level, None);
    }

    #[test]
    fn a_legacy_request_is_distinguished_from_an_incomplete_modern_one() {
        let fault = |params: &str| ModernContext::from_params(Some(&json(params))).map(|_| ()).unwrap_err();
        assert_eq!(fault("{}"), ContextFault::Absent);
        assert_eq!(fault(r#"{"_meta":{"progressToken":1}}"#), ContextFault::Absent);
        assert_eq!(
            fault(r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#),
            ContextFault::Missing(meta::CLIENT_CAPABILITIES)
        );
        assert_eq!(
            fault(r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":3}}"#),
            ContextFault::BadType(meta::PROTOCOL_VERSION)
        );
        assert!(matches!(fault(r#"{"_meta":{},"_meta":{}}"#), ContextFault::Unreadable(_)));
        assert!(matches!(fault(r#"{"_meta":{},"_Meta":{}}"#), ContextFault::Unreadable(_)));
    }

    fn context(log_level: Option<&str>) -> RequestContext {
        RequestContext {
            version: ProtocolVersion::MODERN,
            client_info: Some(json(r#"{"name":"c"}"#)),
            capabilities: json(r#"{"roots":{}}"#),
            log_level: log_level.map(str::to_owned),
        }
    }

    fn json(text: &str) -> JsonText {
        JsonText::parse(text.to_owned()).unwrap()
    }
}

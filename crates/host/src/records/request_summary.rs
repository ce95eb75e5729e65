//! Summary of a request for the ledger and the audit log. The parameters are read, and the arguments digested, at most
//! once, and only if something is recorded.

use crate::transport::Secrets;
use gripfast_core::json::Digest;
use gripfast_core::json_text::{Json, JsonText};
use gripfast_core::redact;
use gripfast_wire::patch::Object;
use ring::digest::SHA256;
use serde_json::Value;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

/// Parameters of one request, for its records.
pub(crate) struct RequestSummary<'a> {
    params: Option<&'a Json>,
    /// Secrets of the server that the request is for.
    secrets: Option<Arc<Secrets>>,
    members: OnceCell<Option<Object<'a>>>,
    digest: OnceCell<Option<Digest>>,
}

impl<'a> RequestSummary<'a> {
    /// Maximum number of recorded characters of a name or a URI.
    const MAX_NAME_CHARS: usize = 512;
    /// Maximum number of recorded bytes of arguments; of larger ones only the digest is recorded.
    const MAX_ARGUMENTS_BYTES: usize = 16 << 10;

    pub(crate) fn new(params: Option<&'a Json>) -> Self {
        Self { params, secrets: None, members: OnceCell::new(), digest: OnceCell::new() }
    }

    /// Sets the secrets to redact.
    pub(crate) fn with_secrets(self, secrets: Option<Arc<Secrets>>) -> Self {
        Self { secrets, ..self }
    }

    /// Returns the members of the parameters; `None` if they are not an object.
    pub(crate) fn members(&self) -> Option<&Object<'a>> {
        let read = || self.params.and_then(|params| Object::parse(params).ok());
        self.members.get_or_init(read).as_ref()
    }

    /// Returns a member that is a string.
    pub(crate) fn text(&self, member: &str) -> Option<Cow<'a, str>> {
        self.members()?.text(member)
    }

    /// Returns a name for the record: redacted and truncated.
    pub(crate) fn redacted_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        // A name of this many bytes has no more characters.
        let beyond = if name.len() <= Self::MAX_NAME_CHARS {
            None
        } else {
            name.char_indices().nth(Self::MAX_NAME_CHARS)
        };
        let name = beyond.map_or(name, |(end, _)| &name[..end]);
        self.secrets.as_ref().map_or_else(|| redact::name(name), |secrets| secrets.redact_name(name))
    }

    /// Returns the arguments of a call for the record, redacted; `None` if they are too large.
    pub(crate) fn redacted_arguments(&self) -> Option<JsonText> {
        let arguments = self.members()?.get("arguments")?.get();
        if arguments.len() > Self::MAX_ARGUMENTS_BYTES {
            return None;
        }
        let mut value: Value = serde_json::from_str(arguments).ok()?;
        redact::json(&mut value);
        if let Some(secrets) = &self.secrets {
            secrets.mask_json(&mut value);
        }
        JsonText::parse(value.to_string()).ok()
    }

    /// Returns the digest of the arguments, as they are spelled.
    pub(crate) fn digest(&self) -> Option<Digest> {
        let made = || Some(digest_of(self.members()?.get("arguments")?.get().as_bytes()));
        *self.digest.get_or_init(made)
    }
}

/// SHA-256 by ring: every call needs it, and ring is fast on processors without instructions for it too.
fn digest_of(bytes: &[u8]) -> Digest {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&SHA256, bytes).as_ref());
    digest.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_name_and_a_digest_of_the_arguments() {
        let params = JsonText::parse(r#"{"name":"a","arguments":{"x": 1}}"#.to_owned()).unwrap();
        let summary = RequestSummary::new(Some(&params));
        assert_eq!(summary.text("name").as_deref(), Some("a"));
        assert_eq!(summary.redacted_arguments().as_deref().map(Json::get), Some(r#"{"x":1}"#));
        assert_eq!(summary.digest(), Some(Digest::of(br#"{"x": 1}"#)));
    }

    #[test]
    fn a_name_is_cut_at_a_character_boundary() {
        let summary = RequestSummary::new(None);
        for name in ["x", "ü", ""] {
            assert_eq!(summary.redacted_name(name), name);
            assert_eq!(summary.redacted_name(&name.repeat(1000)), name.repeat(512));
        }
        assert_eq!(summary.redacted_name("ghp_0123456789abcdef"), "*".repeat(20));
    }

    #[test]
    fn g05_names_and_arguments_are_recorded_without_secrets() {
        let params = serde_json::json!({ "name": "a", "arguments": {
            "to": "bob", "password": "hunter2", "note": "use ghp_0123456789abcdef", "q": "x%2fy-z \"é",
        } });
        let params = JsonText::parse(params.to_string()).unwrap();
        let secrets = Secrets::default();
        secrets.set_for_link(["x/y-z \"é"].into_iter().collect());
        let summary = RequestSummary::new(Some(&params)).with_secrets(Some(Arc::new(secrets)));
        let kept: Value = serde_json::from_str(summary.redacted_arguments().unwrap().get()).unwrap();
        assert_eq!((&kept["to"], &kept["password"]), (&"bob".into(), &redact::REDACTED.into()));
        let text = kept.to_string();
        assert!(!text.contains("0123456789abcdef") && !text.contains("y-z"), "{text}");
        assert_eq!(summary.redacted_name("get x%2Fy-z%20%22%C3%A9!"), format!("get {}!", "*".repeat(19)));
        let large =
            JsonText::parse(serde_json::json!({ "arguments": "x".repeat(20_000) }).to_string()).unwrap();
        assert!(RequestSummary::new(Some(&large)).redacted_arguments().is_none());
    }

    #[test]
    fn a_request_without_an_object_as_parameters_has_no_summary() {
        let odd = JsonText::parse("[1]".to_owned()).unwrap();
        for summary in [RequestSummary::new(None), RequestSummary::new(Some(&odd))] {
            assert!(
                summary.members().is_none() && summary.text("name").is_none() && summary.digest().is_none()
            );
        }
    }
}

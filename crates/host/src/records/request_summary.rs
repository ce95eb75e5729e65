//! What the parameters of a request say that is written down about it. They are read once, and their arguments
//! digested once, however many write; not at all if nobody does.

use crate::transport::Secrets;
use gripfast_core::json::Digest;
use gripfast_core::redact;
use gripfast_wire::RawValue;
use gripfast_wire::patch::Object;
use serde_json::Value;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

/// The parameters of one request, for those who write it down.
pub(crate) struct Said<'a> {
    params: Option<&'a RawValue>,
    /// The secrets of the server that the request is for.
    secrets: Option<Arc<Secrets>>,
    members: OnceCell<Option<Object<'a>>>,
    digest: OnceCell<Option<Digest>>,
}

impl<'a> Said<'a> {
    /// Characters of a name or a URI that are written down.
    const LONGEST_NAME: usize = 512;
    /// Bytes of arguments that are written down; of larger ones only the digest is.
    const LARGEST_ARGUMENTS: usize = 16 << 10;

    pub(crate) fn in_params(params: Option<&'a RawValue>) -> Self {
        Self { params, secrets: None, members: OnceCell::new(), digest: OnceCell::new() }
    }

    /// The same, for a server with these secrets.
    pub(crate) fn knowing(self, secrets: Option<Arc<Secrets>>) -> Self {
        Self { secrets, ..self }
    }

    /// All that they say; `None` if they are no object.
    pub(crate) fn members(&self) -> Option<&Object<'a>> {
        let read = || self.params.and_then(|params| Object::parse(params).ok());
        self.members.get_or_init(read).as_ref()
    }

    /// A member that is a text.
    pub(crate) fn text(&self, member: &str) -> Option<Cow<'a, str>> {
        self.members()?.text(member)
    }

    /// A name as it may be written down: without secrets, and not endless.
    pub(crate) fn redacted_name(&self, name: &str) -> String {
        // No name of so many bytes has more letters.
        let beyond =
            if name.len() <= Self::LONGEST_NAME { None } else { name.char_indices().nth(Self::LONGEST_NAME) };
        let name = beyond.map_or(name, |(end, _)| &name[..end]);
        self.secrets.as_ref().map_or_else(|| redact::name(name).into_owned(), |secrets| secrets.name(name))
    }

    /// The arguments of a call as they may be written down: without what is or looks like a secret.
    pub(crate) fn redacted_arguments(&self) -> Option<Box<RawValue>> {
        let arguments = self.members()?.get("arguments")?.get();
        if arguments.len() > Self::LARGEST_ARGUMENTS {
            return None;
        }
        let mut value: Value = serde_json::from_str(arguments).ok()?;
        redact::json(&mut value);
        if let Some(secrets) = &self.secrets {
            secrets.mask_json(&mut value);
        }
        RawValue::from_string(value.to_string()).ok()
    }

    /// The digest of the arguments, as they are spelled.
    pub(crate) fn digest(&self) -> Option<Digest> {
        let made = || Some(Digest::of(self.members()?.spelling("arguments")?.as_bytes()));
        *self.digest.get_or_init(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_what_it_names_and_has_a_digest_of_its_arguments() {
        let params = RawValue::from_string(r#"{"name":"a","arguments":{"x": 1}}"#.to_owned()).unwrap();
        let said = Said::in_params(Some(&params));
        assert_eq!(said.text("name").as_deref(), Some("a"));
        assert_eq!(said.redacted_arguments().as_deref().map(RawValue::get), Some(r#"{"x":1}"#));
        assert_eq!(said.digest(), Some(Digest::of(br#"{"x": 1}"#)));
    }

    #[test]
    fn a_name_is_cut_where_a_letter_ends() {
        let said = Said::in_params(None);
        for name in ["x", "ü", ""] {
            assert_eq!(said.redacted_name(name), name);
            assert_eq!(said.redacted_name(&name.repeat(1000)), name.repeat(512));
        }
        assert_eq!(said.redacted_name("ghp_0123456789abcdef"), "*".repeat(20));
    }

    #[test]
    fn g05_names_and_arguments_are_written_down_without_secrets() {
        let params = serde_json::json!({ "name": "a", "arguments": {
            "to": "bob", "password": "hunter2", "note": "use ghp_0123456789abcdef", "q": "x%2fy-z \"é",
        } });
        let params = RawValue::from_string(params.to_string()).unwrap();
        let secrets = Secrets::default();
        secrets.filled_in(["x/y-z \"é"].into_iter().collect());
        let said = Said::in_params(Some(&params)).knowing(Some(Arc::new(secrets)));
        let kept: Value = serde_json::from_str(said.redacted_arguments().unwrap().get()).unwrap();
        assert_eq!((&kept["to"], &kept["password"]), (&"bob".into(), &redact::REDACTED.into()));
        let text = kept.to_string();
        assert!(!text.contains("0123456789abcdef") && !text.contains("y-z"), "{text}");
        assert_eq!(said.redacted_name("get x%2Fy-z%20%22%C3%A9!"), format!("get {}!", "*".repeat(19)));
        let large = RawValue::from_string(serde_json::json!({ "arguments": "x".repeat(20_000) }).to_string())
            .unwrap();
        assert!(Said::in_params(Some(&large)).redacted_arguments().is_none());
    }

    #[test]
    fn a_request_without_parameters_or_with_odd_ones_says_nothing() {
        let odd = RawValue::from_string("[1]".to_owned()).unwrap();
        for said in [Said::in_params(None), Said::in_params(Some(&odd))] {
            assert!(said.members().is_none() && said.text("name").is_none() && said.digest().is_none());
        }
    }
}

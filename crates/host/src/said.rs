//! What the parameters of a request say that is written down about it. They are read once, and their arguments
//! digested once, however many write; not at all if nobody does.

use gripfast_core::json::Digest;
use gripfast_wire::RawValue;
use gripfast_wire::patch::Object;
use std::borrow::Cow;
use std::cell::OnceCell;

/// The parameters of one request, for those who write it down.
pub(crate) struct Said<'a> {
    params: Option<&'a RawValue>,
    members: OnceCell<Option<Object<'a>>>,
    digest: OnceCell<Option<Digest>>,
}

impl<'a> Said<'a> {
    pub(crate) fn in_params(params: Option<&'a RawValue>) -> Self {
        Self { params, members: OnceCell::new(), digest: OnceCell::new() }
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

    /// The arguments of a call.
    pub(crate) fn arguments(&self) -> Option<&'a RawValue> {
        self.members()?.get("arguments")
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
        assert_eq!(said.arguments().map(RawValue::get), Some(r#"{"x": 1}"#));
        assert_eq!(said.digest(), Some(Digest::of(br#"{"x": 1}"#)));
    }

    #[test]
    fn a_request_without_parameters_or_with_odd_ones_says_nothing() {
        let odd = RawValue::from_string("[1]".to_owned()).unwrap();
        for said in [Said::in_params(None), Said::in_params(Some(&odd))] {
            assert!(said.members().is_none() && said.text("name").is_none() && said.digest().is_none());
        }
    }
}

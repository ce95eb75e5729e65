//! Patches a message in one copy: its id, the members of its payload, and the members of the `_meta` inside. Knows that
//! a payload is `params` or `result` and that it may have a `_meta`, but not the meaning of any member.

use gripfast_core::json_text::{Json, JsonText};

use super::{NotAnObject, Object, Patch, Splice};
use crate::{Id, Malformed, Message, Outcome, raw};

/// Changes to a whole message in one copy: its id, members of `params` (or of `result`), and members of the `_meta`
/// inside. Missing objects are created.
#[derive(Clone, Debug, Default)]
pub struct MessagePatch<'p> {
    /// The new id.
    pub id: Option<Id<'p>>,
    /// Changes to the payload's own members, except `_meta`.
    pub payload: Patch<'p>,
    /// Changes to `_meta` inside the payload.
    pub meta: Patch<'p>,
}

/// Reason why a message cannot be patched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// Not a message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// `params`, `result` or the `_meta` inside is not an object, or has duplicate keys.
    #[error("the payload cannot be changed")]
    Payload(#[from] NotAnObject),
    /// An error response, which has no payload.
    #[error("an error response has no payload to change")]
    NoPayload,
}

impl MessagePatch<'_> {
    /// The message with the changes made.
    pub fn apply(&self, bytes: &[u8]) -> Result<Vec<u8>, PatchError> {
        let envelope = match Object::parse_slice(bytes) {
            Ok(envelope) => envelope,
            // The envelope parser gives a more precise error.
            Err(fault) => {
                return Err(Message::parse(bytes).err().map_or(fault.into(), PatchError::Malformed));
            }
        };
        let message = Message::from_object(&envelope)?;
        let (mut outer, mut merged) = (Patch::new(), None);
        let mut splice = Splice::default();
        let id;
        if let Some(new) = self.id {
            if matches!(message, Message::Notification(_)) {
                return Err(Malformed::NoId.into());
            }
            id = raw::owned(new.as_raw().into());
            outer = outer.set("id", &id);
        }
        if !(self.payload.is_empty() && self.meta.is_empty()) {
            let name = match &message {
                Message::Request(_) | Message::Notification(_) => "params",
                Message::Response(response) => match response.outcome {
                    Outcome::Result(_) => "result",
                    Outcome::Error(_) => return Err(PatchError::NoPayload),
                },
            };
            match envelope.get(name).filter(|value| !raw::is_null(value)) {
                Some(payload) => {
                    let offset = envelope.span_of(payload).start;
                    splice_payload((&self.payload, &self.meta), payload, offset, &mut merged, &mut splice)?;
                }
                None => outer = outer.set_owned(name, new_payload(&self.payload, &self.meta)),
            }
        }
        outer.splice_into(&envelope, 0, &mut splice);
        Ok(splice.finish(envelope.source).into_bytes())
    }
}

/// `params` (or a result) with members changed and members of its `_meta` changed; missing objects are created.
pub fn patch_payload(
    payload: Option<&Json>,
    members: &Patch<'_>,
    meta: &Patch<'_>,
) -> Result<JsonText, NotAnObject> {
    let Some(payload) = payload.filter(|payload| !raw::is_null(payload)) else {
        return Ok(new_payload(members, meta));
    };
    let mut merged = None;
    let mut splice = Splice::default();
    splice_payload((members, meta), payload, 0, &mut merged, &mut splice)?;
    Ok(JsonText::assume_valid(splice.finish(payload.get())))
}

fn new_payload(members: &Patch<'_>, meta: &Patch<'_>) -> JsonText {
    if meta.is_empty() {
        return members.to_object();
    }
    members.clone().set_owned("_meta", meta.to_object()).to_object()
}

/// Adds the changes of a payload. `merged` keeps the changes of its members, if they are not those of the caller.
fn splice_payload<'s, 'p>(
    (members, meta): (&'s Patch<'p>, &'s Patch<'p>),
    payload: &Json,
    offset: usize,
    merged: &'s mut Option<Patch<'p>>,
    splice: &mut Splice<'s>,
) -> Result<(), NotAnObject> {
    let object = Object::parse(payload)?;
    if meta.is_empty() {
        members.splice_into(&object, offset, splice);
        return Ok(());
    }
    let mut members = members.clone();
    match object.get("_meta").filter(|value| !raw::is_null(value)) {
        Some(old) => {
            members.changes.retain(|(key, _)| key != "_meta");
            meta.splice_into(&Object::parse(old)?, offset + object.span_of(old).start, splice);
        }
        None => members = members.set_owned("_meta", meta.to_object()),
    }
    merged.insert(members).splice_into(&object, offset, splice);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_payload_and_meta_change_in_one_copy() {
        let message = br#"{"id":"a","x":[ ],"method":"tools/call","params":{ "name":"s__t", "_meta":{ "k":1.0 } },"jsonrpc":"2.0"} "#;
        let id = crate::RequestId::from(7);
        let patch = MessagePatch {
            id: Some(id.as_id()),
            payload: Patch::new().set_text("name", "t"),
            meta: Patch::new().set_text("p", "v").remove("k"),
        };
        assert_eq!(
            text(patch.apply(message)),
            r#"{"id":7,"x":[ ],"method":"tools/call","params":{ "name":"t", "_meta":{ "p":"v" } },"jsonrpc":"2.0"} "#
        );
    }

    #[test]
    fn missing_objects_are_created() {
        let meta = MessagePatch { meta: Patch::new().set_text("p", "v"), ..MessagePatch::default() };
        for (from, to) in [
            (r#""method":"m""#, r#""method":"m","params":{"_meta":{"p":"v"}}"#),
            (r#""params":null,"method":"m""#, r#""params":{"_meta":{"p":"v"}},"method":"m""#),
            (r#""method":"m","params":{}"#, r#""method":"m","params":{"_meta":{"p":"v"}}"#),
            (r#""method":"m","params":{"a":1}"#, r#""method":"m","params":{"a":1,"_meta":{"p":"v"}}"#),
            (r#""method":"m","params":{"_meta":null}"#, r#""method":"m","params":{"_meta":{"p":"v"}}"#),
            (r#""id":1,"result":{"_meta":{}}"#, r#""id":1,"result":{"_meta":{"p":"v"}}"#),
        ] {
            let whole = |members| format!(r#"{{"jsonrpc":"2.0",{members}}}"#);
            assert_eq!(text(meta.apply(whole(from).as_bytes())), whole(to));
        }
    }

    #[test]
    fn messages_that_cannot_be_patched_are_refused() {
        let meta = MessagePatch { meta: Patch::new().set_text("p", "v"), ..MessagePatch::default() };
        let refused =
            |members: &str| meta.apply(format!(r#"{{"jsonrpc":"2.0",{members}}}"#).as_bytes()).unwrap_err();
        assert_eq!(refused(r#""method":"m","params":[1]"#), PatchError::Payload(NotAnObject::OtherValue));
        assert_eq!(
            refused(r#""method":"m","params":{"_meta":"s"}"#),
            PatchError::Payload(NotAnObject::OtherValue)
        );
        assert_eq!(refused(r#""id":1,"error":{"code":1}"#), PatchError::NoPayload);
        assert_eq!(refused(r#""method":"m","method":"m""#), Malformed::DuplicateKey("method").into());
        let id = crate::RequestId::from(7);
        let renamed = MessagePatch { id: Some(id.as_id()), ..MessagePatch::default() };
        assert_eq!(renamed.apply(br#"{"jsonrpc":"2.0","method":"m"}"#), Err(Malformed::NoId.into()));
    }

    fn text(bytes: Result<Vec<u8>, PatchError>) -> String {
        String::from_utf8(bytes.unwrap()).unwrap()
    }
}

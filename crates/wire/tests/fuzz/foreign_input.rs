//! Untrusted bytes never cause a panic, and an accepted message is still accepted after it was changed.

use crate::text::{members, value, written};
use gripfast_wire::envelope::{self, Message};
use gripfast_wire::era::{InitializeResult, ModernContext, probe};
use gripfast_wire::headers::{MirroredHeaders, ParamHeaders, decode_value, encode_value, standard_headers};
use gripfast_wire::patch::{MessagePatch, NotAnObject, Object, Patch};
use gripfast_wire::results::{CallResult, List, Page};
use gripfast_wire::{JsonText, Outcome, RequestId, batch, schema};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200)) {
        examine(&bytes)?;
    }

    #[test]
    fn damaged_messages_do_not_panic(message in message(), damage in vec(damage(), 0..4)) {
        examine(&damage.into_iter().fold(message.into_bytes(), |bytes, damage| damage.done_to(bytes)))?;
    }

    #[test]
    fn generated_objects_do_not_panic(members in members(8)) {
        examine(written(&members).as_bytes())?;
    }

    #[test]
    fn damaged_objects_are_read_as_by_another_parser(members in members(8), damage in vec(damage(), 1..3)) {
        let bytes = written(&members).into_bytes();
        agrees_with_serde(&damage.into_iter().fold(bytes, |bytes, damage| damage.done_to(bytes)))?;
    }

    #[test]
    fn any_text_survives_a_header(text in any::<String>()) {
        let header = encode_value(&text);
        prop_assert!(header.bytes().all(|byte| byte == b'\t' || (0x20..0x7f).contains(&byte)));
        prop_assert_eq!(header.trim_matches([' ', '\t']), &*header);
        prop_assert_eq!(decode_value(header.as_bytes()).unwrap(), &*text);
    }

    #[test]
    fn any_json_is_accepted_in_place_of_a_schema(json in value(), arguments in value()) {
        let raw = |json: &str| JsonText::parse(json.to_owned()).unwrap();
        if let Ok(tool) = ParamHeaders::from_input_schema(&raw(&json)) {
            let _ = tool.for_arguments(Some(&raw(&arguments)));
        }
        if let Ok(wrapped) = schema::wrap_schema(&raw(&json)) {
            prop_assert!(schema::is_object_schema(&wrapped));
        }
    }
}

/// Compares our own parser with another one: both accept the same bytes and find the same members.
fn agrees_with_serde(bytes: &[u8]) -> Result<(), TestCaseError> {
    let expected = serde_json::from_slice::<BTreeMap<String, &RawValue>>(bytes);
    match Object::parse_slice(bytes) {
        Ok(object) => {
            let found: BTreeMap<_, _> =
                object.iter().map(|(key, value)| (key.to_owned(), value.get())).collect();
            let expected = expected.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(found, expected.into_iter().map(|(key, value)| (key, value.get())).collect());
        }
        Err(NotAnObject::DuplicateKey(_)) => prop_assert!(expected.is_ok()),
        Err(_) => prop_assert!(expected.is_err()),
    }
    Ok(())
}

/// Passes the bytes to every parser; an accepted message must still be accepted after a change.
fn examine(bytes: &[u8]) -> Result<(), TestCaseError> {
    agrees_with_serde(bytes)?;
    let _ = decode_value(bytes);
    let (beginning, end) = bytes.split_at(bytes.len() / 2);
    let _ = envelope::addressee(beginning, end);
    for part in batch::split(bytes, 4).unwrap_or_default() {
        prop_assert!(bytes.len() >= part.len());
    }
    let id = RequestId::from("fresh");
    let renamed = envelope::with_id(bytes, id.as_id());
    one_scan_finds_what_two_find(bytes)?;
    let Ok(message) = Message::parse(bytes) else { return Ok(()) };
    if let Ok(renamed) = renamed {
        let again = Message::parse(&renamed);
        prop_assert_eq!(again.ok().and_then(|again| again.id().map(RequestId::from)), Some(id));
    } else {
        prop_assert!(matches!(message, Message::Notification(_)), "only a notification has no id");
    }
    let meta = MessagePatch { meta: Patch::new().set_text("k", "v").remove("a"), ..MessagePatch::default() };
    if let Ok(patched) = meta.apply(bytes) {
        prop_assert!(Message::parse(&patched).is_ok());
        prop_assert_eq!(meta.apply(&patched), Ok(patched), "a patch applied twice is applied once");
    }
    let _ = ModernContext::from_params(message.params());
    match &message {
        Message::Request(request) => {
            let _ = standard_headers(&request.method, request.params);
            let _ = MirroredHeaders::collect([("mcp-method", &b"m"[..]), ("mcp-name", b"n")])
                .verify(request, None);
        }
        Message::Notification(_) => {}
        Message::Response(response) => {
            let _ = probe::verdict(probe::ProbeAnswer::from_outcome(&response.outcome, Some(400)));
            if let Outcome::Result(result) = response.outcome {
                let _ = (
                    InitializeResult::read(result),
                    CallResult::read(result),
                    Page::read(result, List::Tools),
                );
            }
        }
    }
    Ok(())
}

/// Compares the members of `result` from the scan of the message with those from a scan of their own.
fn one_scan_finds_what_two_find(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (one, two) = (Message::parse_with_result(bytes), Message::parse(bytes));
    prop_assert_eq!(
        one.as_ref().map(|(message, _)| format!("{message:?}")),
        two.as_ref().map(|message| format!("{message:?}"))
    );
    let (Ok((_, found)), Ok(Message::Response(response))) = (one, two) else { return Ok(()) };
    let Outcome::Result(result) = response.outcome else { return Ok(()) };
    let expected = Object::parse(result).ok();
    prop_assert_eq!(found.map(|found| format!("{found:?}")), expected.map(|object| format!("{object:?}")));
    Ok(())
}

fn message() -> impl Strategy<Value = String> {
    let shape = select(vec![
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":$,"_meta":{"a":$}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":$}"#,
        r#"{"jsonrpc":"2.0","id":"x","result":{"tools":[$],"_meta":$,"nextCursor":$}}"#,
        r#"{"jsonrpc":"2.0","id":2,"result":$}"#,
        r#"{"jsonrpc":"2.0","id":2,"result":{"a":$,"\u0061":1}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m","data":$}}"#,
        r#"{"jsonrpc":"2.0","error":$}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"m"},$]"#,
    ]);
    (shape, value()).prop_map(|(shape, value)| shape.replace('$', &value))
}

#[derive(Clone, Debug)]
enum Damage {
    Insert(Index, u8),
    Delete(Index),
    Overwrite(Index, u8),
    Truncate(Index),
}

impl Damage {
    fn done_to(self, mut bytes: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Insert(at, byte) => bytes.insert(at.index(bytes.len() + 1), byte),
            _ if bytes.is_empty() => {}
            Self::Delete(at) => drop(bytes.remove(at.index(bytes.len()))),
            Self::Overwrite(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            Self::Truncate(at) => bytes.truncate(at.index(bytes.len())),
        }
        bytes
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let byte = || prop_oneof![select(b"{}[]\",:\\0un \n\x00\xff".to_vec()), any::<u8>()];
    prop_oneof![
        3 => (any::<Index>(), byte()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        3 => any::<Index>().prop_map(Damage::Delete),
        3 => (any::<Index>(), byte()).prop_map(|(at, byte)| Damage::Overwrite(at, byte)),
        1 => any::<Index>().prop_map(Damage::Truncate),
    ]
}

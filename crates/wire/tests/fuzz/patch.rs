//! Members that are not named in a patch stay unchanged byte for byte.

use crate::text::{Change, Member, change, fixed, members, patched, space, value, written};
use gripfast_wire::envelope::{self, Message};
use gripfast_wire::patch::{MessagePatch, Object, Patch, patch_payload};
use gripfast_wire::{JsonText, RequestId};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn members_not_named_in_the_patch_stay_unchanged((members, changes, added) in a_patched_object(6)) {
        let source = written(&members);
        let (source, patch) = (raw(&source), patch(&members, &changes, &added));
        let object = Object::parse(&source).unwrap();
        let got = patch.apply(&object);
        prop_assert_eq!(got.get(), patched(&members, &changes, &added));
    }

    #[test]
    fn an_object_shows_its_members_in_order_and_as_written(members in members(20)) {
        let source = raw(&written(&members));
        let object = Object::parse(&source).unwrap();
        let seen: Vec<_> = object.iter().map(|(key, value)| (key.to_owned(), value.get().to_owned())).collect();
        let pairs: Vec<_> = members.iter().map(|member| (member.key.clone(), member.value.clone())).collect();
        prop_assert_eq!(&seen, &pairs);
        for (key, value) in pairs {
            prop_assert_eq!(object.get(&key).unwrap().get(), value);
        }
    }

    #[test]
    fn a_new_id_leaves_every_other_byte_unchanged(
        (mut members, at) in envelope_and_place("id"),
        old in id(),
        new in id(),
        (before, after) in (space(), space()),
    ) {
        members[at].value = old;
        let source = format!("{before}{}{after}", written(&members));
        let new = RequestId::from_raw(&raw(&new)).unwrap();
        members[at].value = new.as_raw().to_owned();
        let expected = format!("{before}{}{after}", written(&members)).into_bytes();
        prop_assert_eq!(envelope::with_id(source.as_bytes(), new.as_id()).unwrap(), expected.clone());
        let old = Message::parse(source.as_bytes()).unwrap().id().unwrap();
        prop_assert_eq!(old.replace_in(source.as_bytes(), new.as_id()).unwrap(), expected);
    }

    #[test]
    fn a_message_patch_reaches_id_payload_and_meta_and_nothing_else(
        (mut outer, at) in envelope_and_place("params"),
        (mut payload, mut payload_changes, payload_added) in a_patched_object(4),
        (meta, meta_changes, meta_added) in a_patched_object(4),
        place in any::<prop::sample::Index>(),
    ) {
        payload.retain(|member| member.key != "_meta");
        payload_changes.truncate(payload.len());
        let place = place.index(payload.len() + 1);
        payload.insert(place, fixed("_meta", &written(&meta)));
        payload_changes.insert(place, Change::Keep);
        outer[at].value = written(&payload);
        outer.push(fixed("id", "1"));
        let source = written(&outer);

        let (payload_patch, meta_patch) =
            (patch(&payload, &payload_changes, &payload_added), patch(&meta, &meta_changes, &meta_added));
        let id = RequestId::from("new");
        let whole = MessagePatch { id: Some(id.as_id()), payload: payload_patch.clone(), meta: meta_patch.clone() };
        let got = whole.apply(source.as_bytes()).unwrap();

        payload_changes[place] = Change::Set(patched(&meta, &meta_changes, &meta_added));
        let expected = patched(&payload, &payload_changes, &payload_added);
        let alone = patch_payload(Some(&raw(&outer[at].value)), &payload_patch, &meta_patch).unwrap();
        prop_assert_eq!(alone.get(), &expected);
        outer[at].value = expected;
        outer.last_mut().unwrap().value = "\"new\"".to_owned();
        prop_assert_eq!(String::from_utf8(got).unwrap(), written(&outer));
    }
}

/// An object, a change for each member, and members that are new to it.
fn a_patched_object(most: usize) -> impl Strategy<Value = (Vec<Member>, Vec<Change>, Vec<(String, String)>)> {
    (members(most), vec(value(), 0..3)).prop_flat_map(|(members, added)| {
        let changes = vec(change(), members.len());
        let new = added.into_iter().enumerate().map(|(n, value)| (format!("new\n{n}\u{1}"), value)).collect();
        (Just(members), changes, Just(new))
    })
}

/// The members of a message in any order among unknown ones, and the index of `key`.
fn envelope_and_place(key: &'static str) -> impl Strategy<Value = (Vec<Member>, usize)> {
    let known = vec![fixed("jsonrpc", "\"2.0\""), fixed("method", "\"m\""), fixed(key, "null")];
    let unknown = members(4).prop_map(move |mut all| {
        all.retain(|member| !member.key.is_ascii() || member.key.len() < 2);
        all.extend(known.clone());
        all
    });
    unknown.prop_shuffle().prop_map(move |all| {
        let at = all.iter().position(|member| member.key == key).expect("just put there");
        (all, at)
    })
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<u64>().prop_map(|number| number.to_string()),
        Just("1.0e+5".to_owned()),
        Just(r#""\u0061""#.to_owned()),
        any::<String>().prop_map(|text| serde_json::to_string(&text).expect("a string is JSON")),
    ]
}

fn patch(members: &[Member], changes: &[Change], added: &[(String, String)]) -> Patch<'static> {
    let mut patch = Patch::new().remove("an absent key");
    for (member, change) in members.iter().zip(changes) {
        patch = match change {
            Change::Keep => patch,
            Change::Set(value) => patch.set_owned(member.key.clone(), raw(value)),
            Change::Remove => patch.remove(member.key.clone()),
        };
    }
    added.iter().fold(patch, |patch, (key, value)| patch.set_owned(key.clone(), raw(value)))
}

fn raw(json: &str) -> JsonText {
    JsonText::parse(json.to_owned()).expect("generated JSON is JSON")
}

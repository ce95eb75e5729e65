//! Generates JSON text with everything that a rewriting gateway would lose: unusual whitespace, number spellings,
//! escapes, key order. Also a model of patching that works on the generated pieces, so that it shares no code with the
//! implementation.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;

/// One member of an object as the pieces of its text.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Whitespace before the key, around the colon, and after the value.
    pub(crate) space: [&'static str; 4],
    pub(crate) key: String,
    /// The key as written, quotes included.
    pub(crate) spelled: String,
    pub(crate) value: String,
}

/// Change of one key by a patch.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Keep,
    Set(String),
    Remove,
}

pub(crate) fn space() -> impl Strategy<Value = &'static str> {
    select(vec!["", "", "", " ", "\n", "\t ", "\r\n  "])
}

/// Any JSON value.
pub(crate) fn value() -> impl Strategy<Value = String> {
    let odd = select(vec![
        "null",
        "true",
        "0",
        "-0",
        "1.0e+5",
        "1E-7",
        "12345678901234567890123",
        "50.00",
        "\"\"",
        r#""\u0061\/\"\\""#,
        r#""}],{:""#,
        r#""é\ud83d\ude00""#,
        "[ ]",
        "{ }",
    ]);
    let text = any::<String>().prop_map(|text| serde_json::to_string(&text).expect("a string is JSON"));
    let leaf = prop_oneof![4 => odd.prop_map(str::to_owned), 1 => text];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            (vec(inner.clone(), 0..4), space())
                .prop_map(|(items, space)| format!("[{space}{}{space}]", items.join(&format!("{space},")))),
            (vec((key(), inner), 0..4), space()).prop_map(|(members, space)| {
                let members: Vec<String> = members
                    .into_iter()
                    .map(|(key, value)| format!("{}{space}:{value}", spelled(&key)))
                    .collect();
                format!("{{{space}{}}}", members.join(&format!("{space},{space}")))
            }),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => select(vec!["a", "name", "Name", "_m", "é", "a\"b", "\\", "", "}", ":", ",", "x-y"]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

/// Objects whose keys are all different, as members in order.
pub(crate) fn members(most: usize) -> impl Strategy<Value = Vec<Member>> {
    let member = (value(), [space(), space(), space(), space()], any::<bool>());
    btree_map(key(), member, 0..most)
        .prop_map(|members| {
            let member = |(key, (value, space, escape)): (String, (String, [&'static str; 4], bool))| {
                Member { space, spelled: if escape { escaped(&key) } else { spelled(&key) }, key, value }
            };
            members.into_iter().map(member).collect::<Vec<_>>()
        })
        .prop_shuffle()
}

pub(crate) fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        2 => Just(Change::Keep),
        1 => value().prop_map(Change::Set),
        1 => Just(Change::Remove),
    ]
}

pub(crate) fn fixed(key: &str, value: &str) -> Member {
    Member { space: [""; 4], key: key.to_owned(), spelled: spelled(key), value: value.to_owned() }
}

/// The object's text.
pub(crate) fn written(members: &[Member]) -> String {
    patched(members, &vec![Change::Keep; members.len()], &[])
}

/// The object's text after the changes, and with `added` at its end.
pub(crate) fn patched(members: &[Member], changes: &[Change], added: &[(String, String)]) -> String {
    let mut out = String::from("{");
    let mut any = false;
    out.push_str(members.first().map_or("", |first| first.space[0]));
    for (index, (member, change)) in members.iter().zip(changes).enumerate() {
        let value = match change {
            Change::Keep => &member.value,
            Change::Set(value) => value,
            Change::Remove => continue,
        };
        if any {
            out.push_str(members[index - 1].space[3]);
            out.push(',');
            out.push_str(member.space[0]);
        }
        any = true;
        out.push_str(&[&member.spelled, member.space[1], ":", member.space[2], value].concat());
    }
    for (key, value) in added {
        out.push_str(if any { "," } else { "" });
        any = true;
        out.push_str(&[&spelled(key), ":", value].concat());
    }
    out.push_str(members.last().map_or("", |last| last.space[3]));
    out.push('}');
    out
}

fn spelled(key: &str) -> String {
    serde_json::to_string(key).expect("a string is JSON")
}

/// Every character as an escape.
fn escaped(key: &str) -> String {
    let units: String = key.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{units}\"")
}

//! Changes members of a JSON object without rewriting it. [`Object`] is a one-level view in document order, [`Patch`]
//! is a set of changes, and the result differs from the source only in the changed members. [`MessagePatch`] applies
//! patches to the parts of a message. Nothing here knows the meaning of members.
//!
//! Keys are compared by their decoded text, so `"a"` and `"\u0061"` are one key, and an object with both is refused:
//! another parser might use the other one.

use std::borrow::Cow;
use std::ops::Range;

use gripfast_core::json_text::{Json, JsonText};
use smallvec::SmallVec;

pub use self::message::{MessagePatch, PatchError, patch_payload};
use crate::raw;
use crate::scan::{self, looks_like};

mod message;

/// The members of a JSON object, in order, borrowed from its text.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    source: &'a str,
    members: ObjectMembers<'a>,
}

/// Each key, decoded, with its value. Most parameters and results have few members, which need no memory of their own.
pub(crate) type ObjectMembers<'a> = SmallVec<[(Cow<'a, str>, &'a Json); 4]>;

/// Reason why a value cannot be viewed as an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAnObject {
    /// Not JSON, or JSON of another type.
    #[error("expected a JSON object")]
    OtherValue,
    /// A key appears twice.
    #[error("the member `{0}` appears more than once")]
    DuplicateKey(String),
    /// A key that a case-insensitive parser would take for the requested one.
    #[error("the member `{0}` differs from `{1}` only in letter case")]
    LookAlikeKey(String, &'static str),
}

impl<'a> Object<'a> {
    /// Views a value that is known to be JSON.
    pub fn parse(value: &'a Json) -> Result<Self, NotAnObject> {
        let mut members = ObjectMembers::new();
        scan::each_known_member(value, |key, value| members.push((key, value)))
            .ok_or(NotAnObject::OtherValue)?;
        Self::from_members(value.get(), members)
    }

    /// Views bytes of unknown origin.
    pub fn parse_slice(source: &'a [u8]) -> Result<Self, NotAnObject> {
        let mut members = ObjectMembers::new();
        let text = scan::each_member(source, |key, value| members.push((key, value)))
            .map_err(|_| NotAnObject::OtherValue)?;
        Self::from_members(text, members)
    }

    /// Views an object whose members are known.
    pub(crate) fn of(object: &'a Json, members: ObjectMembers<'a>) -> Result<Self, NotAnObject> {
        Self::from_members(object.get(), members)
    }

    fn from_members(source: &'a str, members: ObjectMembers<'a>) -> Result<Self, NotAnObject> {
        match duplicate_key(&members) {
            Some(key) => Err(NotAnObject::DuplicateKey(key.to_owned())),
            None => Ok(Self { source, members }),
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&'a Json> {
        self.members.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// Returns whether there is a `key`, whatever its value.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The value of a key that decides something: refuses an object that also has a look-alike of it, such as `Name`
    /// next to `name`, because a server that ignores letter case might use the other one.
    pub fn get_strict(&self, key: &'static str) -> Result<Option<&'a Json>, NotAnObject> {
        self.reject_look_alike(key).map(|()| self.get(key))
    }

    /// The decoded text of a key that decides something, if it is a string; see [`Object::get_strict`].
    pub fn text_strict(&self, key: &'static str) -> Result<Option<Cow<'a, str>>, NotAnObject> {
        self.reject_look_alike(key).map(|()| self.text(key))
    }

    fn reject_look_alike(&self, key: &'static str) -> Result<(), NotAnObject> {
        match self.members.iter().find(|(name, _)| looks_like(name, key)) {
            Some((name, _)) => Err(NotAnObject::LookAlikeKey(name.to_string(), key)),
            None => Ok(()),
        }
    }

    /// The decoded text of `key`, if it is a string.
    pub fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        self.get(key).and_then(raw::text)
    }

    /// The value of `key`, if it is an object without duplicate keys.
    pub fn object(&self, key: &str) -> Option<Self> {
        self.get(key).and_then(|value| Self::parse(value).ok())
    }

    /// `true` only if `key` is present and `true`.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).map(Json::get) == Some("true")
    }

    /// The object with `key` set to a JSON string: in its old position if it has one, otherwise at the end.
    pub fn with_text(&self, key: &str, text: &str) -> JsonText {
        let Some(value) = self.get(key) else { return Patch::new().set_text(key, text).apply(self) };
        let span = self.span_of(value);
        let mut out = String::with_capacity(self.source.len() - span.len() + text.len() + 2);
        out.push_str(&self.source[..span.start]);
        raw::push_quoted(&mut out, text);
        out.push_str(&self.source[span.end..]);
        JsonText::assume_valid(out)
    }

    /// Members in document order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a Json)> {
        self.members.iter().map(|(key, value)| (&**key, *value))
    }

    /// The position of a member together with its separator: without it the text is the object without the member.
    pub fn removable_span(&self, key: &str) -> Option<Range<usize>> {
        let index = self.members.iter().position(|(name, _)| name == key)?;
        let end = self.value_span(index).end;
        Some(match index {
            0 if self.len() > 1 => self.key_start(0)..self.key_start(1),
            0 => self.key_start(0)..end,
            _ => self.value_span(index - 1).end..end,
        })
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The position of a member's value.
    fn span_of(&self, value: &Json) -> Range<usize> {
        raw::span_in(self.source.as_bytes(), value.get()).expect("members are borrowed from the source")
    }

    fn value_span(&self, index: usize) -> Range<usize> {
        self.span_of(self.members[index].1)
    }

    /// Start of the member's quoted key: the first quote after the previous value.
    fn key_start(&self, index: usize) -> usize {
        let from = if index == 0 { 0 } else { self.value_span(index - 1).end };
        from + memchr::memchr(b'"', &self.source.as_bytes()[from..]).expect("every member has a quoted key")
    }
}

/// Changes to the members of one object. Of two changes to the same key the later one applies.
#[derive(Clone, Debug, Default)]
pub struct Patch<'p> {
    changes: Vec<(Cow<'p, str>, Option<Cow<'p, Json>>)>,
}

impl<'p> Patch<'p> {
    /// A patch without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`: in its old position if it has one, otherwise at the end.
    #[must_use]
    pub fn set(self, key: impl Into<Cow<'p, str>>, value: &'p Json) -> Self {
        self.change(key.into(), Some(Cow::Borrowed(value)))
    }

    /// [`Patch::set`] with an owned value.
    #[must_use]
    pub fn set_owned(self, key: impl Into<Cow<'p, str>>, value: JsonText) -> Self {
        self.change(key.into(), Some(Cow::Owned(value)))
    }

    /// [`Patch::set`] with a JSON string.
    #[must_use]
    pub fn set_text(self, key: impl Into<Cow<'p, str>>, text: &str) -> Self {
        self.set_owned(key, raw::quoted(text))
    }

    /// Removes `key` and its comma.
    #[must_use]
    pub fn remove(self, key: impl Into<Cow<'p, str>>) -> Self {
        self.change(key.into(), None)
    }

    /// These changes, followed by the later ones.
    #[must_use]
    pub fn merge(self, later: Self) -> Self {
        later.changes.into_iter().fold(self, |patch, (key, value)| patch.change(key, value))
    }

    /// Returns whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The object with the changes applied.
    pub fn apply(&self, object: &Object<'_>) -> JsonText {
        let mut splice = Splice::default();
        self.splice_into(object, 0, &mut splice);
        JsonText::assume_valid(splice.finish(object.source))
    }

    /// An object with just the members that the patch sets.
    pub fn to_object(&self) -> JsonText {
        let mut json = String::from("{");
        for (key, value) in &self.changes {
            if let Some(value) = value {
                if json.len() > 1 {
                    json.push(',');
                }
                push_member(&mut json, key, value);
            }
        }
        json.push('}');
        JsonText::assume_valid(json)
    }

    fn change(mut self, key: Cow<'p, str>, value: Option<Cow<'p, Json>>) -> Self {
        self.changes.retain(|(earlier, _)| *earlier != key);
        self.changes.push((key, value));
        self
    }

    fn find(&self, key: &str) -> Option<&Option<Cow<'p, Json>>> {
        self.changes.iter().find(|(changed, _)| changed == key).map(|(_, value)| value)
    }

    /// Adds the changes as edits to a text in which `object` starts at `offset`.
    fn splice_into<'s>(&'s self, object: &Object<'_>, offset: usize, splice: &mut Splice<'s>) {
        if self.is_empty() {
            return;
        }
        // Members that are removed before the first remaining one take the separator behind them, later ones the
        // separator in front.
        let mut one_stays = false;
        let mut leading: Option<Range<usize>> = None;
        for (index, (key, _)) in object.members.iter().enumerate() {
            let value = object.value_span(index);
            match self.find(key) {
                Some(None) if one_stays => {
                    splice.cut(offset, object.value_span(index - 1).end..value.end);
                }
                Some(None) => {
                    let start = leading.map_or_else(|| object.key_start(index), |cut| cut.start);
                    leading = Some(start..value.end);
                }
                kept => {
                    if let Some(cut) = leading.take() {
                        splice.cut(offset, cut.start..object.key_start(index));
                    }
                    one_stays = true;
                    if let Some(Some(new)) = kept {
                        splice.replace(offset, value, new.get());
                    }
                }
            }
        }
        if let Some(cut) = leading {
            splice.cut(offset, cut);
        }
        let mut added = String::new();
        for (key, value) in &self.changes {
            if let Some(value) = value
                && !object.has(key)
            {
                if one_stays || !added.is_empty() {
                    added.push(',');
                }
                push_member(&mut added, key, value);
            }
        }
        let end = match object.len() {
            0 => object.source.find('{').expect("an object starts with a brace") + 1,
            len => object.value_span(len - 1).end,
        };
        if !added.is_empty() {
            splice.replace(offset, end..end, added);
        }
    }
}

/// Disjoint replacements in one text.
#[derive(Default)]
struct Splice<'s> {
    edits: Vec<(Range<usize>, Cow<'s, str>)>,
}

impl<'s> Splice<'s> {
    fn cut(&mut self, offset: usize, range: Range<usize>) {
        self.replace(offset, range, "");
    }

    fn replace(&mut self, offset: usize, range: Range<usize>, new: impl Into<Cow<'s, str>>) {
        self.edits.push((range.start + offset..range.end + offset, new.into()));
    }

    fn finish(mut self, source: &str) -> String {
        // An insertion is at the end of the text before it, so a cut that ends there comes first.
        self.edits.sort_by_key(|(range, _)| (range.start, range.end));
        let length = self.edits.iter().fold(source.len(), |all, (old, new)| all + new.len() - old.len());
        let mut out = String::with_capacity(length);
        let mut done = 0;
        for (range, new) in &self.edits {
            out.push_str(&source[done..range.start]);
            out.push_str(new);
            done = range.end;
        }
        out.push_str(&source[done..]);
        out
    }
}

fn push_member(out: &mut String, key: &str, value: &Json) {
    raw::push_quoted(out, key);
    out.push(':');
    out.push_str(value.get());
}

/// A key that is repeated, if there is one. Small objects are compared pairwise; large ones are sorted, so that a
/// hostile object with many members does not cost the square of their number.
fn duplicate_key<'m>(members: &'m [(Cow<'_, str>, &Json)]) -> Option<&'m str> {
    const PAIRWISE: usize = 16;
    if members.len() <= PAIRWISE {
        let seen_before =
            |index: usize, key: &str| members[..index].iter().any(|(earlier, _)| earlier == key);
        return members
            .iter()
            .enumerate()
            .find(|(index, (key, _))| seen_before(*index, key))
            .map(|(_, (key, _))| &**key);
    }
    let mut keys: Vec<&str> = members.iter().map(|(key, _)| &**key).collect();
    keys.sort_unstable();
    keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_is_refused_even_if_written_with_escapes() {
        assert_eq!(fault(r#"{"a":1,"b":2,"a":3}"#), NotAnObject::DuplicateKey("a".into()));
        assert_eq!(fault(r#"{"a":1,"\u0061":2}"#), NotAnObject::DuplicateKey("a".into()));
        let many: String = (0..500).map(|n| format!("\"k{n}\":0,")).collect();
        assert_eq!(fault(&format!("{{{many}\"k7\":1}}")), NotAnObject::DuplicateKey("k7".into()));
        assert_eq!(Object::parse_slice(format!("{{{many}\"k\":1}}").as_bytes()).unwrap().len(), 501);
    }

    #[test]
    fn a_text_is_set_as_by_a_patch() {
        for json in ["{}", r#"{"name":"a"}"#, r#"{ "x":[1], "n\u0061me" : 7 ,"y":{}}"#] {
            let object = Object::parse_slice(json.as_bytes()).unwrap();
            let patched = Patch::new().set_text("name", "b\"c").apply(&object);
            assert_eq!(object.with_text("name", "b\"c"), patched, "{json}");
        }
    }

    #[test]
    fn other_values_are_refused() {
        for other in ["[]", "1", "null", "\"{}\"", "", "{", "{\"a\"}", "{} {}", "{\"a\":1,}"] {
            assert_eq!(fault(other), NotAnObject::OtherValue, "{other}");
        }
    }

    #[test]
    fn a_trusted_value_is_viewed_like_one_of_unknown_origin() {
        for json in [
            "{}",
            "{ }",
            r#"{"a":1}"#,
            r#"{ "a" : -1.5e+7 , "b":null,"c" :true }"#,
            r#"{"a":[{"b":"]}"},[[]]],"c":{"d":"\\","e":"\"}"}}"#,
            r#"{"\u0061\"":"\\\"","é":"\ud800"}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"\ud800":1}"#,
            "[1]",
            "\"{}\"",
            "7",
        ] {
            let value = JsonText::parse(json.to_owned()).unwrap();
            let (known, unknown) = (Object::parse(&value), Object::parse_slice(json.as_bytes()));
            assert_eq!(known.map(|known| known.members), unknown.map(|unknown| unknown.members), "{json}");
        }
    }

    #[test]
    fn look_alikes_of_a_strict_key_are_refused() {
        let look = |json: &str| {
            Object::parse_slice(json.as_bytes()).unwrap().get_strict("taskId").map(|v| v.is_some())
        };
        assert_eq!(look(r#"{"taskId":1}"#), Ok(true));
        assert_eq!(look(r#"{"task":1}"#), Ok(false));
        for evil in
            [r#"{"taskId":1,"taskid":2}"#, r#"{"TASKID":2}"#, r#"{"ta\u017fkId":1}"#, r#"{"tas\u212aId":1}"#]
        {
            assert!(look(evil).is_err(), "{evil}");
            assert!(Object::parse_slice(evil.as_bytes()).unwrap().text_strict("taskId").is_err(), "{evil}");
        }
    }

    #[test]
    fn a_set_replaces_an_existing_value_in_place_and_appends_a_new_one() {
        let patch = Patch::new().set_text("b", "x").set_text("new", "\"").set_text("z", "1");
        assert_eq!(
            patched(r#" { "a" : 1.0e+5 , "b":[ 1, 2 ] , "c":{} } "#, &patch),
            r#" { "a" : 1.0e+5 , "b":"x" , "c":{},"new":"\"","z":"1" } "#
        );
        assert_eq!(patched("{ }", &patch), r#"{"b":"x","new":"\"","z":"1" }"#);
    }

    #[test]
    fn a_member_is_removed_with_its_separator() {
        let object = r#" { "a":1 , "b":{"c":2} ,"d":3 } "#;
        for (gone, left) in [
            ("a", r#" { "b":{"c":2} ,"d":3 } "#),
            ("b", r#" { "a":1 ,"d":3 } "#),
            ("d", r#" { "a":1 , "b":{"c":2} } "#),
        ] {
            let span = Object::parse_slice(object.as_bytes()).unwrap().removable_span(gone).unwrap();
            assert_eq!([&object[..span.start], &object[span.end..]].concat(), left);
        }
        assert_eq!(Object::parse_slice(br#"{"a":1}"#).unwrap().removable_span("a"), Some(1..6));
        assert_eq!(Object::parse_slice(b"{}").unwrap().removable_span("a"), None);
    }

    #[test]
    fn a_key_spelled_with_escapes_is_found_and_keeps_its_spelling() {
        assert_eq!(patched(r#"{"\u0061":1}"#, &Patch::new().set_text("a", "x")), r#"{"\u0061":"x"}"#);
    }

    #[test]
    fn a_removed_member_takes_its_comma_at_any_position() {
        let object = r#"{ "a":1 , "b":2 ,"c":3 }"#;
        for (gone, left) in [
            (&["a"][..], r#"{ "b":2 ,"c":3 }"#),
            (&["b"], r#"{ "a":1 ,"c":3 }"#),
            (&["c"], r#"{ "a":1 , "b":2 }"#),
            (&["a", "b"], r#"{ "c":3 }"#),
            (&["b", "c"], r#"{ "a":1 }"#),
            (&["a", "c"], r#"{ "b":2 }"#),
            (&["a", "b", "c"], "{  }"),
            (&["absent"], object),
        ] {
            let patch = gone.iter().fold(Patch::new(), |patch, key| patch.remove(*key));
            assert_eq!(patched(object, &patch), left);
        }
    }

    #[test]
    fn the_later_of_two_changes_applies() {
        assert_eq!(patched(r#"{"a":1}"#, &Patch::new().set_text("a", "x").remove("a")), "{}");
        assert_eq!(patched(r#"{"a":1}"#, &Patch::new().remove("a").set_text("a", "x")), r#"{"a":"x"}"#);
    }

    fn fault(json: &str) -> NotAnObject {
        Object::parse_slice(json.as_bytes()).unwrap_err()
    }

    fn patched(json: &str, patch: &Patch<'_>) -> String {
        let mut splice = Splice::default();
        patch.splice_into(&Object::parse_slice(json.as_bytes()).unwrap(), 0, &mut splice);
        splice.finish(json)
    }
}

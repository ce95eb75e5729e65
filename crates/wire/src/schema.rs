//! The one change to a JSON Schema that bridging the eras needs: the legacy era knows only objects as the output
//! of a tool, the modern one any value. [`wrapped`] puts a schema of any value under the member `result` of an
//! object, and everything in it that points to its own root keeps pointing there. Does not validate, does not
//! follow references.

use serde_json::value::RawValue;

use crate::patch::{NotAnObject, Object, Patch};
use crate::raw;

/// Where the wrapped schema is, as seen from the root of the wrapper.
const PLACE: &str = "/properties/result";
/// Deeper schemas are refused. Rewriting costs depth times size, and the schema comes from a stranger.
const DEEPEST: usize = 64;

/// Why a schema cannot be wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema has repeated keys or is nested too deeply to be rewritten")]
pub struct Unreadable;

impl From<NotAnObject> for Unreadable {
    fn from(_: NotAnObject) -> Self {
        Self
    }
}

/// Whether a schema is one that the legacy era takes for an output: its root says that it is an object.
pub fn is_of_object(schema: &RawValue) -> bool {
    Object::parse(schema).is_ok_and(|root| root.text("type").is_some_and(|kind| kind == "object"))
}

/// `{"type":"object","properties":{"result":SCHEMA},"required":["result"]}`, with the dialect that the schema
/// names at the root, where it is looked for.
pub fn wrapped(schema: &RawValue) -> Result<Box<RawValue>, Unreadable> {
    let inside = moved(schema, 0)?;
    let mut wrapper = Patch::new();
    if let Some(dialect) = Object::parse(schema).ok().and_then(|root| root.get("$schema")) {
        wrapper = wrapper.set("$schema", dialect);
    }
    let wrapper = wrapper
        .set_text("type", "object")
        .set_owned("properties", wrapped_value(inside.as_deref().unwrap_or(schema)))
        .set_owned("required", raw::owned(br#"["result"]"#.to_vec()));
    Ok(wrapper.to_object())
}

/// `{"result":VALUE}`: what a wrapped schema describes.
pub fn wrapped_value(value: &RawValue) -> Box<RawValue> {
    Patch::new().set("result", value).to_object()
}

/// The same schema for its new place; `None` if nothing in it has to change.
fn moved(schema: &RawValue, depth: usize) -> Result<Option<Box<RawValue>>, Unreadable> {
    if depth > DEEPEST {
        return Err(Unreadable);
    }
    if let Some(items) = raw::items(schema) {
        return moved_items(schema, &items, depth);
    }
    if !raw::is_object(schema) {
        return Ok(None);
    }
    let object = Object::parse(schema)?;
    // Whatever has an address of its own takes its references along. `#name` is only an anchor in older drafts.
    if object.get("$id").is_some_and(|id| !raw::text(id).is_some_and(|id| id.starts_with('#'))) {
        return Ok(None);
    }
    let mut patch = Patch::new();
    for (keyword, value) in object.iter() {
        let changed = match keyword {
            "$ref" | "$dynamicRef" => moved_pointer(value),
            // The keys of these are names: a property called `$ref` refers to nothing.
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
            | "dependencies" => moved_named(value, depth + 1)?,
            // Data, not schema.
            "const" | "default" | "enum" | "example" | "examples" => None,
            _ => moved(value, depth + 1)?,
        };
        if let Some(changed) = changed {
            patch = patch.set_owned(keyword.to_owned(), changed);
        }
    }
    Ok((!patch.is_empty()).then(|| patch.apply(&object)))
}

fn moved_items(
    whole: &RawValue,
    items: &[&RawValue],
    depth: usize,
) -> Result<Option<Box<RawValue>>, Unreadable> {
    let mut text = String::new();
    let mut done = 0;
    for item in items {
        if let Some(changed) = moved(item, depth + 1)? {
            let span =
                raw::span_in(whole.get().as_bytes(), item.get()).expect("items are borrowed from the array");
            text.push_str(&whole.get()[done..span.start]);
            text.push_str(changed.get());
            done = span.end;
        }
    }
    if done == 0 {
        return Ok(None);
    }
    text.push_str(&whole.get()[done..]);
    Ok(Some(raw::owned(text.into_bytes())))
}

fn moved_named(schemas: &RawValue, depth: usize) -> Result<Option<Box<RawValue>>, Unreadable> {
    if !raw::is_object(schemas) {
        return Ok(None);
    }
    let object = Object::parse(schemas)?;
    let mut patch = Patch::new();
    for (name, schema) in object.iter() {
        if let Some(changed) = moved(schema, depth)? {
            patch = patch.set_owned(name.to_owned(), changed);
        }
    }
    Ok((!patch.is_empty()).then(|| patch.apply(&object)))
}

/// A pointer from the root: `#` and `#/…`. Anchors and other documents are where they were.
fn moved_pointer(reference: &RawValue) -> Option<Box<RawValue>> {
    let text = raw::text(reference)?;
    let from_root = text.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
    Some(raw::quoted(&format!("#{PLACE}{from_root}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrap(schema: &str) -> Result<String, Unreadable> {
        wrapped(&json(schema)).map(|wrapped| wrapped.get().to_owned())
    }

    fn json(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn around(inside: &str) -> String {
        format!(r#"{{"type":"object","properties":{{"result":{inside}}},"required":["result"]}}"#)
    }

    #[test]
    fn only_a_root_that_says_object_is_one() {
        for (schema, is) in [
            (r#"{"type":"object"}"#, true),
            (r#"{"type":"array"}"#, false),
            (r#"{"type":["object","null"]}"#, false),
            (r##"{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}"##, false),
            ("{}", false),
            ("true", false),
        ] {
            assert_eq!(is_of_object(&json(schema)), is, "{schema}");
        }
    }

    #[test]
    fn a_schema_without_references_is_wrapped_byte_for_byte() {
        for schema in ["true", "{}", r#"{ "type" : "array", "items":{"const":1.0e+5} , "x-later":[ ] }"#] {
            assert_eq!(wrap(schema).unwrap(), around(schema));
        }
    }

    #[test]
    fn references_to_the_root_and_into_it_follow_it_and_all_other_bytes_stay() {
        let schema = r##"{ "anyOf":[ {"$ref":"#"} ,{"type":"array","items":{"$ref" : "#/$defs/a%20b"}},7 ],"$defs":{"a b":{"properties":{"next":{"$dynamicRef":"#\/$defs/a%20b"}}}}}"##;
        let moved = r##"{ "anyOf":[ {"$ref":"#/properties/result"} ,{"type":"array","items":{"$ref" : "#/properties/result/$defs/a%20b"}},7 ],"$defs":{"a b":{"properties":{"next":{"$dynamicRef":"#/properties/result/$defs/a%20b"}}}}}"##;
        assert_eq!(wrap(schema).unwrap(), around(moved));
    }

    #[test]
    fn what_only_looks_like_a_reference_is_left_alone() {
        for schema in [
            r##"{"const":{"$ref":"#/a"},"default":{"$ref":"#"},"enum":[{"$ref":"#"}],"examples":[{"$ref":"#"}]}"##,
            r##"{"$ref":"#anchor"}"##,
            r##"{"$ref":"https://example.com/s#/a"}"##,
            r##"{"$id":"https://example.com/s","items":{"$ref":"#/$defs/a"}}"##,
            r##"{"items":{"$id":"item","$ref":"#/$defs/a"}}"##,
            r##"{"$ref":{"type":"string"}}"##,
        ] {
            assert_eq!(wrap(schema).unwrap(), around(schema));
        }
        let named = r##"{"properties":{"$ref":{"$ref":"#/a"},"const":{"$ref":"#/a"},"$id":{"$ref":"#/a"}}}"##;
        assert_eq!(wrap(named).unwrap(), around(&named.replace("#/a", "#/properties/result/a")));
        let anchored = r##"{"$id":"#item","items":{"$ref":"#"}}"##;
        assert_eq!(
            wrap(anchored).unwrap(),
            around(&anchored.replace(r##""#"}"##, r##""#/properties/result"}"##))
        );
    }

    #[test]
    fn the_dialect_is_named_where_it_is_looked_for() {
        let schema = r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"array"}"#;
        let wrapped = wrap(schema).unwrap();
        assert!(
            wrapped.starts_with(r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object""#)
        );
    }

    #[test]
    fn a_bottomless_or_ambiguous_schema_is_refused_without_a_stack_to_match() {
        let deep = format!(r##"{}{{"$ref":"#"}}{}"##, r#"{"not":"#.repeat(50_000), "}".repeat(50_000));
        assert_eq!(wrap(&deep), Err(Unreadable));
        let nested = format!(r##"{{"anyOf":{}{{"$ref":"#"}}{}}}"##, "[".repeat(50_000), "]".repeat(50_000));
        assert_eq!(wrap(&nested), Err(Unreadable));
        assert_eq!(wrap(r#"{"type":"array","items":{"a":1,"a":2}}"#), Err(Unreadable));
    }
}

//! Converts output schemas for legacy clients: in the legacy era the output of a tool is always an object, in the
//! modern one any value. [`wrap_schema`] puts a schema under the member `result` of an object schema and adjusts the
//! references to its root. It does not validate and does not follow references.

use gripfast_core::json_text::{Json, JsonText};

use crate::patch::{NotAnObject, Object, Patch};
use crate::raw;

/// JSON pointer to the wrapped schema, from the root of the wrapper.
const WRAPPED_POINTER: &str = "/properties/result";
/// Deeper schemas are refused. Rewriting costs depth times size, and the schema comes from an untrusted server.
const MAX_DEPTH: usize = 64;

/// The schema cannot be wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema has repeated keys or is nested too deeply to be rewritten")]
pub struct Unreadable;

impl From<NotAnObject> for Unreadable {
    fn from(_: NotAnObject) -> Self {
        Self
    }
}

/// Returns whether the root of a schema has the type `object`, which the legacy era requires of outputs.
pub fn is_object_schema(schema: &Json) -> bool {
    Object::parse(schema).is_ok_and(|root| root.text("type").is_some_and(|kind| kind == "object"))
}

/// `{"type":"object","properties":{"result":SCHEMA},"required":["result"]}`, with the `$schema` of the inner schema at
/// the root, where validators expect it.
pub fn wrap_schema(schema: &Json) -> Result<JsonText, Unreadable> {
    let inside = relocate(schema, 0)?;
    let mut wrapper = Patch::new();
    if let Some(dialect) = Object::parse(schema).ok().and_then(|root| root.get("$schema")) {
        wrapper = wrapper.set("$schema", dialect);
    }
    let wrapper = wrapper
        .set_text("type", "object")
        .set_owned("properties", wrap_value(inside.as_deref().unwrap_or(schema)))
        .set_owned("required", raw::owned(br#"["result"]"#.to_vec()));
    Ok(wrapper.to_object())
}

/// `{"result":VALUE}`: a value for a wrapped schema.
pub fn wrap_value(value: &Json) -> JsonText {
    Patch::new().set("result", value).to_object()
}

/// The schema with adjusted references; `None` if nothing in it has to change.
fn relocate(schema: &Json, depth: usize) -> Result<Option<JsonText>, Unreadable> {
    if depth > MAX_DEPTH {
        return Err(Unreadable);
    }
    if let Some(items) = raw::items(schema) {
        return relocate_items(schema, &items, depth);
    }
    if !raw::is_object(schema) {
        return Ok(None);
    }
    let object = Object::parse(schema)?;
    // References inside a schema with its own `$id` are relative to it. In older drafts `#name` is only an anchor.
    if object.get("$id").is_some_and(|id| !raw::text(id).is_some_and(|id| id.starts_with('#'))) {
        return Ok(None);
    }
    let mut patch = Patch::new();
    for (keyword, value) in object.iter() {
        let changed = match keyword {
            "$ref" | "$dynamicRef" => relocate_pointer(value),
            // The keys of these are names: a property called `$ref` refers to nothing.
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
            | "dependencies" => relocate_named(value, depth + 1)?,
            // Data, not schema.
            "const" | "default" | "enum" | "example" | "examples" => None,
            _ => relocate(value, depth + 1)?,
        };
        if let Some(changed) = changed {
            patch = patch.set_owned(keyword.to_owned(), changed);
        }
    }
    Ok((!patch.is_empty()).then(|| patch.apply(&object)))
}

fn relocate_items(whole: &Json, items: &[&Json], depth: usize) -> Result<Option<JsonText>, Unreadable> {
    let mut text = String::new();
    let mut done = 0;
    for item in items {
        if let Some(changed) = relocate(item, depth + 1)? {
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

fn relocate_named(schemas: &Json, depth: usize) -> Result<Option<JsonText>, Unreadable> {
    if !raw::is_object(schemas) {
        return Ok(None);
    }
    let object = Object::parse(schemas)?;
    let mut patch = Patch::new();
    for (name, schema) in object.iter() {
        if let Some(changed) = relocate(schema, depth)? {
            patch = patch.set_owned(name.to_owned(), changed);
        }
    }
    Ok((!patch.is_empty()).then(|| patch.apply(&object)))
}

/// Adjusts a pointer from the root: `#` and `#/…`. References to anchors and other documents stay as they are.
fn relocate_pointer(reference: &Json) -> Option<JsonText> {
    let text = raw::text(reference)?;
    let from_root = text.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
    Some(raw::quoted(&format!("#{WRAPPED_POINTER}{from_root}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrap(schema: &str) -> Result<String, Unreadable> {
        wrap_schema(&json(schema)).map(|wrapped| wrapped.get().to_owned())
    }

    fn json(text: &str) -> JsonText {
        JsonText::parse(text.to_owned()).unwrap()
    }

    fn around(inside: &str) -> String {
        format!(r#"{{"type":"object","properties":{{"result":{inside}}},"required":["result"]}}"#)
    }

    #[test]
    fn only_a_root_of_type_object_is_an_object_schema() {
        for (schema, is) in [
            (r#"{"type":"object"}"#, true),
            (r#"{"type":"array"}"#, false),
            (r#"{"type":["object","null"]}"#, false),
            (r##"{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}"##, false),
            ("{}", false),
            ("true", false),
        ] {
            assert_eq!(is_object_schema(&json(schema)), is, "{schema}");
        }
    }

    #[test]
    fn a_schema_without_references_is_wrapped_byte_for_byte() {
        for schema in ["true", "{}", r#"{ "type" : "array", "items":{"const":1.0e+5} , "x-later":[ ] }"#] {
            assert_eq!(wrap(schema).unwrap(), around(schema));
        }
    }

    #[test]
    fn references_from_the_root_are_adjusted_and_all_other_bytes_stay() {
        let schema = r##"{ "anyOf":[ {"$ref":"#"} ,{"type":"array","items":{"$ref" : "#/$defs/a%20b"}},7 ],"$defs":{"a b":{"properties":{"next":{"$dynamicRef":"#\/$defs/a%20b"}}}}}"##;
        let moved = r##"{ "anyOf":[ {"$ref":"#/properties/result"} ,{"type":"array","items":{"$ref" : "#/properties/result/$defs/a%20b"}},7 ],"$defs":{"a b":{"properties":{"next":{"$dynamicRef":"#/properties/result/$defs/a%20b"}}}}}"##;
        assert_eq!(wrap(schema).unwrap(), around(moved));
    }

    #[test]
    fn values_that_only_look_like_references_are_left_unchanged() {
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
    fn the_dialect_is_copied_to_the_root_of_the_wrapper() {
        let schema = r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"array"}"#;
        let wrapped = wrap(schema).unwrap();
        assert!(
            wrapped.starts_with(r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object""#)
        );
    }

    #[test]
    fn a_very_deep_or_ambiguous_schema_is_refused() {
        let deep = format!(r##"{}{{"$ref":"#"}}{}"##, r#"{"not":"#.repeat(50_000), "}".repeat(50_000));
        assert_eq!(wrap(&deep), Err(Unreadable));
        let nested = format!(r##"{{"anyOf":{}{{"$ref":"#"}}{}}}"##, "[".repeat(50_000), "]".repeat(50_000));
        assert_eq!(wrap(&nested), Err(Unreadable));
        assert_eq!(wrap(r#"{"type":"array","items":{"a":1,"a":2}}"#), Err(Unreadable));
    }
}

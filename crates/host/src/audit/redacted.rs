//! What of a request may stand in an audit log: nothing that looks like a secret, and nothing endless.

use gripfast_core::redact::{is_secret_name, mask_tokens, masked};
use gripfast_wire::RawValue;
use serde_json::Value;
use serde_json::value::to_raw_value;
use std::borrow::Cow;

/// More of a name or URI than anybody needs to recognise it.
const LONGEST_ITEM: usize = 512;
/// Larger arguments are kept as their digest alone.
const LARGEST_ARGUMENTS: usize = 16 << 10;

/// The name of a tool or prompt, or the URI of a resource.
pub(super) fn item(name: &str) -> Cow<'_, str> {
    // No name of so many bytes has more letters.
    let beyond = if name.len() <= LONGEST_ITEM { None } else { name.char_indices().nth(LONGEST_ITEM) };
    masked(beyond.map_or(name, |(end, _)| &name[..end]))
}

/// Arguments, without what looks like a secret by its name or by its shape.
pub(super) fn arguments(arguments: &RawValue) -> Option<Box<RawValue>> {
    if arguments.get().len() > LARGEST_ARGUMENTS {
        return None;
    }
    let mut value = serde_json::from_str(arguments.get()).ok()?;
    redact(&mut value);
    to_raw_value(&value).ok()
}

fn redact(value: &mut Value) {
    match value {
        Value::String(text) => *text = mask_tokens(text),
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if is_secret_name(name) {
                    *member = Value::from("[redacted]");
                } else {
                    redact(member);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_is_cut_where_a_letter_ends() {
        for name in ["x", "ü", ""] {
            assert_eq!(item(name), name);
            assert_eq!(item(&name.repeat(1000)), name.repeat(512));
        }
        assert_eq!(item("ghp_0123456789abcdef"), "*".repeat(20));
    }

    #[test]
    fn g05_arguments_are_kept_without_what_looks_like_a_secret() {
        let said = json!({
            "to": "bob", "password": "hunter2", "nested": [{ "apiKey": 7, "note": "use ghp_0123456789abcdef" }],
        });
        let raw = RawValue::from_string(said.to_string()).unwrap();
        let kept: Value = serde_json::from_str(arguments(&raw).unwrap().get()).unwrap();
        assert_eq!(kept["to"], "bob");
        assert_eq!(
            (&kept["password"], &kept["nested"][0]["apiKey"]),
            (&json!("[redacted]"), &json!("[redacted]"))
        );
        assert!(!kept.to_string().contains("0123456789abcdef"), "{kept}");
        let large = RawValue::from_string(json!("x".repeat(20_000)).to_string()).unwrap();
        assert!(arguments(&large).is_none());
    }
}

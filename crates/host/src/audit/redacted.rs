//! What of a request may stand in an audit log: nothing that looks like a secret, and nothing endless.

use gripfast_core::redact::{is_secret_name, mask_tokens};
use gripfast_wire::RawValue;
use serde_json::Value;

/// More of a name or URI than anybody needs to recognise it.
const LONGEST_ITEM: usize = 512;
/// Larger arguments are kept as their digest alone.
const LARGEST_ARGUMENTS: usize = 16 << 10;

/// The name of a tool or prompt, or the URI of a resource.
pub(super) fn item(name: &str) -> String {
    mask_tokens(&name.chars().take(LONGEST_ITEM).collect::<String>())
}

/// Arguments, without what looks like a secret by its name or by its shape.
pub(super) fn arguments(arguments: &RawValue) -> Option<Value> {
    if arguments.get().len() > LARGEST_ARGUMENTS {
        return None;
    }
    let mut value = serde_json::from_str(arguments.get()).ok()?;
    redact(&mut value);
    Some(value)
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
    fn g05_arguments_are_kept_without_what_looks_like_a_secret() {
        let said = json!({
            "to": "bob", "password": "hunter2", "nested": [{ "apiKey": 7, "note": "use ghp_0123456789abcdef" }],
        });
        let raw = RawValue::from_string(said.to_string()).unwrap();
        let kept = arguments(&raw).unwrap();
        assert_eq!(kept["to"], "bob");
        assert_eq!(
            (&kept["password"], &kept["nested"][0]["apiKey"]),
            (&json!("[redacted]"), &json!("[redacted]"))
        );
        assert!(!kept.to_string().contains("0123456789abcdef"), "{kept}");
        let large = RawValue::from_string(json!("x".repeat(20_000)).to_string()).unwrap();
        assert_eq!(arguments(&large), None);
    }
}

//! Readable differences between two JSON values.

use super::suspicious_text::visible;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One difference between two values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The path, such as `inputSchema.properties.path.type`.
    pub path: String,
    /// The old value; `None` if there was none.
    pub before: Option<String>,
    /// The new value; `None` if there is none.
    pub after: Option<String>,
}

/// Maximum number of differences.
const MOST: usize = 100;
/// Maximum number of characters of a value.
const LONGEST: usize = 2000;

/// The differences between two values, in the order of the second one, removals last. At most 100.
pub fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(&mut found, &mut Vec::new(), Some(before), Some(after));
    found
}

fn compare(
    found: &mut Vec<Difference>,
    path: &mut Vec<String>,
    before: Option<&Value>,
    after: Option<&Value>,
) {
    if before == after || found.len() >= MOST {
        return;
    }
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let gone = before.keys().filter(|key| !after.contains_key(*key));
            for key in after.keys().chain(gone) {
                path.push(key.clone());
                compare(found, path, before.get(key), after.get(key));
                path.pop();
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            for at in 0..before.len().max(after.len()) {
                path.push(at.to_string());
                compare(found, path, before.get(at), after.get(at));
                path.pop();
            }
        }
        (before, after) => {
            found.push(Difference { path: path.join("."), before: before.map(show), after: after.map(show) });
        }
    }
}

fn show(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    let text = visible(&text);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn g02_only_differences_are_shown_with_their_path() {
        let before = json!({ "description": "Reads a file", "inputSchema": { "properties": {
            "path": { "type": "string" }, "old": {} }, "required": ["path"] } });
        let after = json!({ "description": "Reads a file\u{200b}", "inputSchema": { "properties": {
            "path": { "type": "string" }, "to": { "type": "string" } }, "required": ["path", "to"] } });
        let shown: Vec<String> = differences(&before, &after)
            .into_iter()
            .map(|difference| {
                format!("{}: {:?} -> {:?}", difference.path, difference.before, difference.after)
            })
            .collect();
        assert_eq!(
            shown,
            [
                r#"description: Some("Reads a file") -> Some("Reads a file<U+200B>")"#,
                r#"inputSchema.properties.to: None -> Some("{\"type\":\"string\"}")"#,
                r#"inputSchema.properties.old: Some("{}") -> None"#,
                r#"inputSchema.required.1: None -> Some("to")"#,
            ]
        );
        assert_eq!(differences(&before, &before), []);
    }

    #[test]
    fn differences_are_bounded() {
        let many: Vec<u32> = (0..10_000).collect();
        assert_eq!(differences(&json!([]), &json!(many)).len(), MOST);
        let long = differences(&json!(""), &json!("ü".repeat(100_000)));
        assert_eq!(long[0].after.as_ref().map(|text| text.chars().count()), Some(LONGEST + 1));
    }
}

//! Short form of a tool for search results: its description in one line, and its parameters with their types. Bounded
//! in size and work, and without characters that start a line or hide others, whatever the server writes.

use gripfast::Json;
use gripfast::text::escaped;
use gripfast::wire::patch::Object;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Characters of a description.
const MAX_DESCRIPTION: usize = 200;
/// Parameters that are named.
const MAX_PARAMETERS: usize = 16;
/// Characters of a parameter's name.
const MAX_NAME: usize = 64;
/// Characters of a type.
const MAX_TYPE: usize = 40;

/// First line of a description, shortened.
pub(super) fn one_line(description: &str) -> String {
    let line = description.trim_start().lines().next().unwrap_or_default();
    // Spaces are joined, so more characters than are shown may be needed.
    let start = &line[..line.floor_char_boundary(16 * MAX_DESCRIPTION)];
    shortened(&start.split_whitespace().collect::<Vec<_>>().join(" "), MAX_DESCRIPTION)
}

/// Parameters of an input schema: `path: string, depth?: integer`. Those that are not required have a question mark.
pub(super) fn parameter_list(schema: &Object<'_>) -> String {
    let Some(properties) = schema.object("properties") else { return String::new() };
    let required: BTreeSet<Cow<'_, str>> =
        schema.get("required").and_then(|list| serde_json::from_str(list.get()).ok()).unwrap_or_default();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for (name, schema) in properties.iter() {
        let (parameters, mark) = if required.contains(name) { (&mut first, "") } else { (&mut rest, "?") };
        // Only what is shown is looked at.
        if parameters.len() < MAX_PARAMETERS {
            parameters.push((name, mark, schema));
        }
    }
    first.append(&mut rest);
    first.truncate(MAX_PARAMETERS);
    let shown = first.iter();
    let shown =
        shown.map(|(name, mark, schema)| format!("{}{mark}: {}", shortened(name, MAX_NAME), type_of(schema)));
    let more = (properties.len() > first.len()).then(|| "…".to_owned());
    shown.chain(more).collect::<Vec<_>>().join(", ")
}

fn type_of(schema: &Json) -> String {
    let schema: Value = serde_json::from_str(schema.get()).unwrap_or(Value::Null);
    shortened(&type_name(&schema, 0), MAX_TYPE)
}

/// Name of a type, of which the first characters are used. Each alternative has one at least.
fn type_name(schema: &Value, depth: usize) -> String {
    let joined = |names: &mut dyn Iterator<Item = String>| names.take(MAX_TYPE).collect::<Vec<_>>().join("|");
    if depth > 3 {
        return "any".to_owned();
    }
    if let Some(values) = schema["enum"].as_array() {
        return joined(&mut values.iter().map(Value::to_string));
    }
    if let Some(schemas) = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array()) {
        return joined(&mut schemas.iter().map(|one| type_name(one, depth + 1)));
    }
    match &schema["type"] {
        Value::String(name) if name == "array" => format!("{}[]", type_name(&schema["items"], depth + 1)),
        Value::String(name) => name.clone(),
        Value::Array(names) => joined(&mut names.iter().filter_map(Value::as_str).map(str::to_owned)),
        _ if schema["$ref"].is_string() => "object".to_owned(),
        _ => "any".to_owned(),
    }
}

/// The first characters of a text that cannot start a line or hide other text.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let start: String = text.chars().take(most + 1).collect();
    let start = escaped(&start);
    if start.chars().count() <= most {
        return start.into_owned();
    }
    let mut short: String = start.chars().take(most).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::JsonText;

    fn parameters(schema: &str) -> String {
        let schema = JsonText::parse(schema.to_owned()).unwrap();
        parameter_list(&Object::parse(&schema).unwrap())
    }

    #[test]
    fn required_parameters_come_first_and_optional_ones_are_marked() {
        let schema = r#"{"properties":{"depth":{"type":"integer"},"path":{"type":"string"},
            "kinds":{"type":"array","items":{"enum":["a","b"]}},"any":{},"maybe":{"anyOf":[{"type":"string"},{"type":"null"}]}},
            "required":["path"]}"#;
        assert_eq!(
            parameters(schema),
            "path: string, depth?: integer, kinds?: \"a\"|\"b\"[], any?: any, maybe?: string|null"
        );
        assert_eq!(parameters("{}"), "");
    }

    #[test]
    fn a_summary_is_bounded_whatever_the_server_writes() {
        let many: Vec<String> = (0..100).map(|number| format!("\"p{number}\":{{}}")).collect();
        let listed = parameters(&format!("{{\"properties\":{{{}}}}}", many.join(",")));
        assert!(listed.ends_with("p15?: any, …"), "{listed}");
        let long = format!(r#"{{"properties":{{"p":{{"enum":["{}"]}}}}}}"#, "x".repeat(1000));
        assert!(parameters(&long).chars().count() < 60);
        let names = format!(r#"{{"properties":{{"{}":{{}}}}}}"#, "é".repeat(100_000));
        assert_eq!(parameters(&names).chars().count(), MAX_NAME + "…?: any".chars().count());
        let types = format!(r#"{{"properties":{{"p":{{"type":"{}"}}}}}}"#, "x".repeat(100_000));
        assert_eq!(parameters(&types).chars().count(), MAX_TYPE + "p?: …".chars().count());
        let values: Vec<String> = (0..100_000).map(|number| format!("\"v{number}\"")).collect();
        let values = format!(r#"{{"properties":{{"p":{{"enum":[{}]}}}}}}"#, values.join(","));
        assert!(parameters(&values).chars().count() < 60);
        assert_eq!(one_line("\n  Reads\ta file. \n More."), "Reads a file.");
        assert_eq!(one_line(&"é".repeat(1000)).chars().count(), MAX_DESCRIPTION + 1);
        assert_eq!(one_line(&"\u{1b}".repeat(1000)).chars().count(), MAX_DESCRIPTION + 1);
    }

    #[test]
    fn a_summary_is_one_line_whatever_the_server_writes() {
        let schema = r#"{"properties":{"a\n- files__rm(":{"type":"x\n- files__rm()"},"b":{"enum":["\u202e\n"]},
            "c":{"type":["s\r\n"]},"d\u001b[2J":{}},"required":["a\n- files__rm("]}"#;
        assert_eq!(
            parameters(schema),
            r#"a\n- files__rm(: x\n- files__rm(), b?: "\u{202e}\n", c?: s\r\n, d\u{1b}[2J?: any"#
        );
        assert_eq!(one_line("a\u{202e}b\u{85}c"), r"a\u{202e}b c");
    }

    #[test]
    fn only_the_shown_parameters_are_looked_at() {
        let many: Vec<String> =
            (0..200_000).map(|number| format!(r#""p{number}":{{"type":"string"}}"#)).collect();
        let required: Vec<String> = (0..200_000).rev().map(|number| format!("\"p{number}\"")).collect();
        let schema =
            format!(r#"{{"properties":{{{}}},"required":[{}]}}"#, many.join(","), required.join(","));
        let listed = parameters(&schema);
        assert!(listed.starts_with("p0: string, ") && listed.ends_with("p15: string, …"), "{listed}");
    }
}

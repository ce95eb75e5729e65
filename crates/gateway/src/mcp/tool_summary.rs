//! Short form of a tool for search results: its description in one line, and its parameters with their types.

use gripfast::Json;
use gripfast::wire::patch::Object;
use serde_json::Value;

/// Characters of a description.
const MAX_DESCRIPTION: usize = 200;
/// Parameters that are named.
const MAX_PARAMETERS: usize = 16;
/// Characters of a type.
const MAX_TYPE: usize = 40;

/// First line of a description, shortened.
pub(super) fn one_line(description: &str) -> String {
    let line = description.trim().lines().next().unwrap_or_default();
    shortened(&line.split_whitespace().collect::<Vec<_>>().join(" "), MAX_DESCRIPTION)
}

/// Parameters of an input schema: `path: string, depth?: integer`. Those that are not required have a question mark.
pub(super) fn parameter_list(schema: &Object<'_>) -> String {
    let Some(properties) = schema.object("properties") else { return String::new() };
    let required: Vec<String> =
        schema.get("required").and_then(|list| serde_json::from_str(list.get()).ok()).unwrap_or_default();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for (name, schema) in properties.iter() {
        if required.iter().any(|required| required == name) {
            first.push(format!("{name}: {}", type_of(schema)));
        } else {
            rest.push(format!("{name}?: {}", type_of(schema)));
        }
    }
    first.append(&mut rest);
    if first.len() > MAX_PARAMETERS {
        first.truncate(MAX_PARAMETERS);
        first.push("…".to_owned());
    }
    first.join(", ")
}

fn type_of(schema: &Json) -> String {
    let schema: Value = serde_json::from_str(schema.get()).unwrap_or(Value::Null);
    shortened(&type_name(&schema, 0), MAX_TYPE)
}

fn type_name(schema: &Value, depth: usize) -> String {
    let alternatives =
        |schemas: &[Value]| schemas.iter().map(|one| type_name(one, depth + 1)).collect::<Vec<_>>().join("|");
    if depth > 3 {
        return "any".to_owned();
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(Value::to_string).collect::<Vec<_>>().join("|");
    }
    if let Some(schemas) = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array()) {
        return alternatives(schemas);
    }
    match &schema["type"] {
        Value::String(name) if name == "array" => format!("{}[]", type_name(&schema["items"], depth + 1)),
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
        _ if schema["$ref"].is_string() => "object".to_owned(),
        _ => "any".to_owned(),
    }
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most).collect();
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
        assert_eq!(one_line("\n  Reads\ta file. \n More."), "Reads a file.");
        assert_eq!(one_line(&"é".repeat(1000)).chars().count(), MAX_DESCRIPTION + 1);
    }
}

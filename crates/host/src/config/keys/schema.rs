//! JSON Schema of the config, generated from the key tables, for completion and checks in editors. It accepts what the
//! decoder accepts, except that of the keys that exclude each other it covers only `command` and `url`.

use super::{DefaultValue, Row, Table, ValueKind};
use crate::config::defaults;
use crate::config::sections::FileKeys;
use serde_json::{Map, Value, json};

/// The JSON Schema (draft 7) of the native config format.
#[must_use]
pub fn schema() -> Value {
    let mut schema = table(&super::table::<FileKeys>());
    if let Value::Object(schema) = &mut schema {
        schema.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
        schema.insert("title".to_owned(), json!("The config of gripfast"));
        if let Some(Value::Object(known)) = schema.get_mut("properties") {
            known.insert("$schema".to_owned(), json!({ "type": "string" }));
        }
    }
    schema
}

fn table(table: &Table) -> Value {
    let properties: Map<String, Value> =
        table.rows.iter().map(|row| (row.name.to_owned(), property(row))).collect();
    let needed: Vec<&str> = table
        .rows
        .iter()
        .filter(|row| matches!(row.default, DefaultValue::Required))
        .map(|row| row.name)
        .collect();
    let mut schema = json!({
        "type": "object",
        "description": table.doc,
        "properties": properties,
        "additionalProperties": false,
    });
    if !needed.is_empty() {
        schema["required"] = json!(needed);
    }
    if ["command", "url"].iter().all(|name| table.rows.iter().any(|row| row.name == *name)) {
        schema["oneOf"] = json!([{ "required": ["command"] }, { "required": ["url"] }]);
    }
    schema
}

fn property(row: &Row) -> Value {
    let mut schema = value(&row.kind);
    schema["description"] = json!(row.doc);
    if let DefaultValue::Written(default) = &row.default {
        schema["default"] = json_value(&row.kind, default);
    }
    schema
}

/// Whole numbers with units, as `units::parse_duration` reads them.
const DURATION: &str = "^([0-9]+(d|h|ms|m|s))+$";
/// A number, perhaps with a unit, as `units::parse_size` reads it.
const SIZE: &str = "^ *[0-9]+ *([bB]|[kKmMgG][iI]?[bB])? *$";

fn value(kind: &ValueKind) -> Value {
    match kind {
        ValueKind::Flag => json!({ "type": "boolean" }),
        ValueKind::Number(range) => {
            json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() })
        }
        ValueKind::Duration(_) => json!({ "type": "string", "pattern": DURATION }),
        ValueKind::DurationOr(_, word) => {
            json!({ "anyOf": [{ "const": word }, { "type": "string", "pattern": DURATION }] })
        }
        ValueKind::Size(range) => json!({ "anyOf": [
            { "type": "string", "pattern": SIZE },
            { "type": "integer", "minimum": range.start(), "maximum": range.end() },
        ] }),
        ValueKind::Choice(words) => json!({ "enum": words }),
        ValueKind::Text => json!({ "type": "string" }),
        ValueKind::TextList => json!({ "type": "array", "items": { "type": "string", "minLength": 1 } }),
        ValueKind::Choices(words) => json!({ "type": "array", "items": { "enum": words } }),
        ValueKind::Templates => json!({ "type": "array", "items": { "type": "string" } }),
        ValueKind::TemplateOrList => {
            let text = json!({ "type": "string", "minLength": 1 });
            json!({ "anyOf": [text, { "type": "array", "items": text }] })
        }
        ValueKind::AnyJson => json!({}),
        ValueKind::Table(inner) => table(&inner()),
        ValueKind::ServerKeys => {
            let rows = defaults::rows();
            let known: Map<String, Value> =
                rows.iter().map(|row| (row.name.to_owned(), property(row))).collect();
            json!({ "type": "object", "properties": known, "additionalProperties": false })
        }
        ValueKind::Tables(inner) => json!({ "type": "array", "items": table(&inner()) }),
        ValueKind::Map(inner) => json!({ "type": "object", "additionalProperties": value(inner) }),
    }
}

/// The JSON form of a value that a config file would write like this.
fn json_value(kind: &ValueKind, written: &str) -> Value {
    let value = if kind.is_quoted() { None } else { serde_json::from_str(written).ok() };
    value.unwrap_or_else(|| json!(written))
}

//! The tables as a JSON Schema, for editors that complete and check while somebody types. It says what the decoder
//! says, as far as a schema can: that two keys exclude each other it knows only where it matters most.

use super::{FILE, Kind, Row, SERVER, Table, Usual, may_be_default};
use crate::config::spec::{GatewayConfig, ServerSpec, Target};
use crate::config::template::Template;
use serde_json::{Map, Value, json};

/// The JSON Schema (draft 7) of a config in our own form.
#[must_use]
pub fn schema() -> Value {
    let mut schema = table(&FILE);
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
        table.rows().map(|row| (row.name.to_owned(), property(row))).collect();
    let needed: Vec<&str> =
        table.rows().filter(|row| matches!(row.usual, Usual::Needed)).map(|row| row.name).collect();
    let mut schema = json!({
        "type": "object",
        "description": table.about,
        "properties": properties,
        "additionalProperties": false,
    });
    if !needed.is_empty() {
        schema["required"] = json!(needed);
    }
    if table.row("command").is_some() && table.row("url").is_some() {
        schema["oneOf"] = json!([{ "required": ["command"] }, { "required": ["url"] }]);
    }
    schema
}

fn property(row: &Row) -> Value {
    let mut schema = value(&row.kind);
    schema["description"] = json!(row.about);
    if let Some(usual) = row.usual.written() {
        schema["default"] = row.kind.json(&usual);
    }
    schema
}

/// Whole numbers with units, as `units::duration` reads them.
const DURATION: &str = "^([0-9]+(d|h|ms|m|s))+$";
/// A number, perhaps with a unit, as `units::size` reads it.
const SIZE: &str = "^ *[0-9]+ *([bB]|[kKmMgG][iI]?[bB])? *$";

fn value(kind: &Kind) -> Value {
    match kind {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Number(range) => {
            json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() })
        }
        Kind::Duration(_) => json!({ "type": "string", "pattern": DURATION }),
        Kind::DurationOr(_, word) => {
            json!({ "anyOf": [{ "const": word }, { "type": "string", "pattern": DURATION }] })
        }
        Kind::Size(range) => json!({ "anyOf": [
            { "type": "string", "pattern": SIZE },
            { "type": "integer", "minimum": range.start(), "maximum": range.end() },
        ] }),
        Kind::Choice(words) => json!({ "enum": words() }),
        Kind::Text | Kind::Template => json!({ "type": "string" }),
        Kind::Words => json!({ "type": "array", "items": { "type": "string", "minLength": 1 } }),
        Kind::Choices(words) => json!({ "type": "array", "items": { "enum": words } }),
        Kind::Templates => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Anything => json!({}),
        Kind::Table(inner) => table(inner),
        Kind::ServerKeys => {
            let rows = SERVER.rows().filter(|row| may_be_default(row.name));
            let known: Map<String, Value> = rows.map(|row| (row.name.to_owned(), property(row))).collect();
            json!({ "type": "object", "properties": known, "additionalProperties": false })
        }
        Kind::Tables(inner) => json!({ "type": "array", "items": table(inner) }),
        Kind::Map(inner) => json!({ "type": "object", "additionalProperties": value(inner) }),
    }
}

impl Kind {
    /// A value that is written like this, as JSON has it.
    fn json(&self, written: &str) -> Value {
        match self {
            Self::Flag
            | Self::Number(_)
            | Self::Words
            | Self::Choices(_)
            | Self::Templates
            | Self::Anything => serde_json::from_str(written).unwrap_or_else(|_| json!(written)),
            Self::Duration(_)
            | Self::DurationOr(..)
            | Self::Size(_)
            | Self::Choice(_)
            | Self::Text
            | Self::Template
            | Self::Table(_)
            | Self::Tables(_)
            | Self::ServerKeys
            | Self::Map(_) => json!(written),
        }
    }
}

impl Usual {
    /// What holds, as it would be written, if that is the same everywhere.
    pub(super) fn written(&self) -> Option<String> {
        match self {
            Self::Needed | Self::Nothing | Self::Words(_) => None,
            Self::Is(written) => Some((*written).to_owned()),
            Self::Gateway(of) => Some(of(&GatewayConfig::default())),
            Self::Server(of) => Some(of(&any_server())),
        }
    }
}

/// A server about which nothing is said.
fn any_server() -> ServerSpec {
    ServerSpec::new(Target::Stdio {
        command: Template::parse("server").expect("a word without references is a template"),
        args: Vec::new(),
        env: Vec::new(),
        inherit_env: Vec::new(),
        network_env: true,
        cwd: None,
    })
}

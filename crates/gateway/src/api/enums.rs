//! JSON schemas of closed sets of words and of free-form JSON, for the OpenAPI document.

use gripfast::{CallOutcome, CircuitView, Code, State};
use schemars::{Schema, SchemaGenerator, json_schema};

pub(super) fn states(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": State::ALL.map(State::as_str) })
}

pub(super) fn circuits(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": CircuitView::ALL.map(CircuitView::as_str) })
}

pub(super) fn outcomes(_: &mut SchemaGenerator) -> Schema {
    or_null(&CallOutcome::ALL.map(CallOutcome::as_str))
}

pub(super) fn codes(_: &mut SchemaGenerator) -> Schema {
    or_null(&Code::ALL.map(Code::as_str))
}

/// JSON of a server or client, passed on unchanged.
pub(super) fn any_json(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "description": "JSON of the server or the client, unchanged." })
}

/// Objects whose fields are defined in core.
pub(super) fn array_of_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "object" } })
}

fn or_null(words: &[&str]) -> Schema {
    let words: Vec<Option<&str>> = words.iter().map(|word| Some(*word)).chain([None]).collect();
    json_schema!({ "type": ["string", "null"], "enum": words })
}

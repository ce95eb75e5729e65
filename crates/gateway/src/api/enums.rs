//! Closed sets of words, for the document that describes the API.

use gripfast::{CircuitView, Code, Fate, State};
use schemars::{Schema, SchemaGenerator, json_schema};

pub(super) fn states(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": State::ALL.map(State::word) })
}

pub(super) fn circuits(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": CircuitView::ALL.map(CircuitView::word) })
}

pub(super) fn outcomes(_: &mut SchemaGenerator) -> Schema {
    or_null(&Fate::ALL.map(Fate::word))
}

pub(super) fn codes(_: &mut SchemaGenerator) -> Schema {
    or_null(&Code::ALL.map(Code::word))
}

/// What is somebody else's to say.
pub(super) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "description": "As the server or the client wrote it." })
}

/// What core puts into words.
pub(super) fn objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "object" } })
}

fn or_null(words: &[&str]) -> Schema {
    let words: Vec<Option<&str>> = words.iter().map(|word| Some(*word)).chain([None]).collect();
    json_schema!({ "type": ["string", "null"], "enum": words })
}

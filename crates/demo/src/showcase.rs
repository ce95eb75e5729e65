//! Things that only some servers have, one of each, for those who want to see them cross a gateway. Offered with
//! [`crate::Options::showcase`] only, so that the plain server stays plain.

use serde_json::{Value, json};

use crate::{
    rpc::RpcError,
    tools::{required, structured},
};

/// The tools of the showcase, in the order of the list.
pub(crate) fn tools() -> Vec<Value> {
    vec![words()]
}

/// Whose output is a list, which only the modern era can describe.
fn words() -> Value {
    json!({
        "name": "words",
        "title": "Words",
        "description": "Takes a text apart.",
        "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] },
        "outputSchema": {
            "type": "array",
            "items": { "$ref": "#/$defs/word" },
            "$defs": { "word": { "type": "string", "minLength": 1 } },
        },
        "annotations": { "title": "Words", "readOnlyHint": true, "openWorldHint": false },
    })
}

pub(crate) fn call_words(arguments: &Value) -> Result<Value, RpcError> {
    let text = required(arguments, "text", Value::as_str)?;
    let words: Vec<&str> = text.split_whitespace().collect();
    Ok(structured(&words.join("\n"), json!(words)))
}

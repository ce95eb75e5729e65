//! Features that only some servers have, one example of each, to test them through a gateway. Offered only with
//! [`crate::Options::showcase`].

use serde_json::{Value, json};

use crate::{
    background_tasks, elicit,
    peer::Request,
    rpc::RpcError,
    tools::{plain, required, structured},
};

/// MCP Apps, as an extension.
const APPS: &str = "io.modelcontextprotocol/ui";
const APP_TYPE: &str = "text/html;profile=mcp-app";
/// The UI resource of the tool `panel`, which is not among the listed resources.
const PANEL: &str = "ui://panel/view.html";

/// Extensions of the protocol that the showcase supports.
pub(crate) fn extensions() -> Value {
    json!({ APPS: { "mimeTypes": [APP_TYPE] } })
}

/// The tools of the showcase, in the order of the list.
pub(crate) fn tools() -> Vec<Value> {
    [vec![words(), panel()], background_tasks::tools(), elicit::tools()].concat()
}

/// Content of a resource of the showcase.
pub(crate) fn read(uri: &str, server: &str) -> Option<Value> {
    let page = format!("<!doctype html><title>{server}</title>");
    (uri == PANEL).then(|| json!({ "uri": PANEL, "mimeType": APP_TYPE, "text": page }))
}

/// A tool whose result is shown by an app.
fn panel() -> Value {
    json!({
        "name": "panel",
        "title": "Panel",
        "description": "Tells whether the client shows apps.",
        "inputSchema": { "type": "object" },
        "annotations": { "title": "Panel", "readOnlyHint": true, "openWorldHint": false },
        "_meta": { "ui": { "resourceUri": PANEL, "visibility": ["model", "app"] } },
    })
}

pub(crate) fn call_panel(request: &Request) -> Value {
    let shows = request.client_capabilities()["extensions"][APPS].is_object();
    plain(if shows { "this client shows apps" } else { "this client shows no apps" })
}

/// A tool whose output is a list, which only the modern era can describe.
fn words() -> Value {
    json!({
        "name": "words",
        "title": "Words",
        "description": "Splits a text into words.",
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

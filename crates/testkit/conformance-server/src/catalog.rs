//! Tools, prompts and resources of this server, under the names that the suite expects.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::skills;
use crate::state::{Era, ServerState};

/// A red pixel.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// An empty WAV file.
pub(crate) const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

pub(crate) fn tools(shared: &ServerState) -> Vec<Value> {
    let none = || json!({ "type": "object", "properties": {} });
    let text = |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] });
    // The suite calls the first one without arguments.
    let mut tools = vec![
        tool("test_simple_text", "Answers with text", none()),
        tool("test_image_content", "Answers with an image", none()),
        tool("test_audio_content", "Answers with a sound", none()),
        tool("test_embedded_resource", "Answers with a resource", none()),
        tool("test_multiple_content_types", "Answers with text, an image and a resource", none()),
        tool("test_error_handling", "Fails, and says so in its result", none()),
        tool("test_tool_with_logging", "Says in log messages what it does", none()),
        tool("test_logging_tool", "Says in log messages what it does", none()),
        tool("test_tool_with_progress", "Tells of its progress", none()),
        tool("test_reconnection", "Closes the stream and answers after the reconnection", none()),
        tool("test_sampling", "Asks the client's model", text("prompt")),
        tool("test_elicitation", "Asks for a name and an address", text("message")),
        tool("test_elicitation_sep1034_defaults", "Asks with defaults of every kind", none()),
        tool("test_elicitation_sep1330_enums", "Asks for choices of every kind", none()),
        tool("test_streaming_elicitation", "Asks for a confirmation", none()),
        tool("test_missing_capability", "Needs a client with a model", none()),
        tool("test_input_required_result_elicitation", "Asks for a name", none()),
        tool("test_input_required_result_sampling", "Asks the client's model", none()),
        tool("test_input_required_result_list_roots", "Asks for the client's roots", none()),
        tool("test_input_required_result_request_state", "Asks, and keeps its state at the client", none()),
        tool("test_input_required_result_multiple_inputs", "Asks three things at once", none()),
        tool("test_input_required_result_multi_round", "Asks one thing after the other", none()),
        tool("test_input_required_result_tampered_state", "Asks, and notices a changed state", none()),
        tool("test_input_required_result_capabilities", "Asks what the client can answer", none()),
        tool("test_trigger_tool_change", "Changes the list of tools", none()),
        tool("test_trigger_prompt_change", "Changes the list of prompts", none()),
        tool("test_trigger_resource_update", "Changes a resource", text("uri")),
        tool("test_x_mcp_header", "Wants an argument repeated in a header", header_schema()),
        tool(
            "json_schema_2020_12_tool",
            "Has a schema with many words of JSON Schema 2020-12",
            rich_schema(),
        ),
        tool("greet", "Answers at once", text("name")),
        tool("slow_compute", "Takes its time, as a task if it may", slow_schema()),
        tool("failing_job", "A task that ends with a tool's error", none()),
        tool("protocol_error_job", "A task that ends with an error of the protocol", none()),
        tool("confirm_delete", "A task that asks before it goes on", text("filename")),
        tool("multi_input", "A task that asks two things at once", none()),
        tool("test_tool_with_task", "Asks, and then becomes a task", none()),
    ];
    if shared.extra_tool.load(Ordering::Relaxed) {
        tools.push(tool("test_passing_tool", "Comes and goes", none()));
    }
    tools
}

fn tool(name: &str, description: &str, schema: Value) -> Value {
    json!({ "name": name, "description": description, "inputSchema": schema })
}

fn header_schema() -> Value {
    json!({
        "type": "object",
        "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
        "required": ["region"],
    })
}

fn slow_schema() -> Value {
    json!({
        "type": "object",
        "properties": { "seconds": { "type": "number" }, "label": { "type": "string" } },
        "required": ["seconds"],
    })
}

/// The suite checks each of these keywords.
fn rich_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

pub(crate) fn prompts(shared: &ServerState) -> Vec<Value> {
    let argument =
        |name: &str| json!({ "name": name, "description": "Goes into the text", "required": true });
    let prompt = |name: &str, description: &str, arguments: Value| json!({ "name": name, "description": description, "arguments": arguments });
    let mut prompts = vec![
        prompt("test_simple_prompt", "One message", json!([])),
        prompt(
            "test_prompt_with_arguments",
            "One message with two arguments",
            json!([argument("arg1"), argument("arg2")]),
        ),
        prompt("test_prompt_with_embedded_resource", "A resource", json!([argument("resourceUri")])),
        prompt("test_prompt_with_image", "An image", json!([])),
        prompt("test_input_required_result_prompt", "Asks before it answers", json!([])),
    ];
    if shared.extra_prompt.load(Ordering::Relaxed) {
        prompts.push(prompt("test_passing_prompt", "Comes and goes", json!([])));
    }
    prompts
}

pub(crate) fn resources(shared: &ServerState) -> Vec<Value> {
    let resource = |uri: &str, name: &str, kind: &str| json!({ "uri": uri, "name": name, "description": "For tests", "mimeType": kind });
    let mut resources = vec![
        resource("test://static-text", "static-text", "text/plain"),
        resource("test://static-binary", "static-binary", "image/png"),
        resource("test://watched-resource", "watched-resource", "text/plain"),
    ];
    if shared.era == Era::Modern {
        resources.extend(skills::resources());
    }
    resources
}

pub(crate) fn templates() -> Value {
    json!([{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "description": "For tests",
        "mimeType": "application/json",
    }])
}

/// Content of a resource that does not belong to a skill.
pub(crate) fn content(uri: &str) -> Option<Value> {
    let by_template = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
    match (uri, by_template) {
        ("test://static-text" | "test://watched-resource", _) => {
            Some(json!({ "uri": uri, "mimeType": "text/plain", "text": "The content of a text resource." }))
        }
        ("test://static-binary", _) => Some(json!({ "uri": uri, "mimeType": "image/png", "blob": PNG })),
        (_, Some(id)) => {
            let text = json!({ "id": id, "templateTest": true }).to_string();
            Some(json!({ "uri": uri, "mimeType": "application/json", "text": text }))
        }
        (_, None) => None,
    }
}

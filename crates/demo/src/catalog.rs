//! Definitions of the tools, resources and prompts, and pagination of lists.

use serde_json::{Value, json};

use crate::{
    options::Options,
    rpc::{INVALID_PARAMS, RpcError},
    showcase,
};

pub(crate) const GREETING: &str = "demo://greeting";
pub(crate) const COUNTER: &str = "demo://counter";
pub(crate) const ECHO: &str = "demo://echo/";

/// The tools at start, in the order of the list.
pub(crate) fn tools(options: &Options) -> Vec<Value> {
    let mut tools = vec![
        if options.changed_schema { changed_echo() } else { echo() },
        add(),
        sleep(),
        counter(),
        fail(),
        reject(),
        ask(),
        crash(),
        misbehave(),
    ];
    if options.param_headers {
        tools.push(route());
    }
    if options.showcase {
        tools.extend(showcase::tools());
    }
    tools.extend((1..=options.extra_tools).map(|number| synthetic_tool(&format!("extra_{number}"))));
    tools
}

fn schema(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn read_only(title: &str) -> Value {
    json!({ "title": title, "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false })
}

/// Annotations of a tool that changes something.
fn acting(title: &str, destructive: bool) -> Value {
    json!({ "title": title, "readOnlyHint": false, "destructiveHint": destructive, "openWorldHint": false })
}

/// A tool whose title is its capitalized name.
fn tool(name: &str, description: &str, input: Value, annotate: impl FnOnce(&str) -> Value) -> Value {
    let title = name[..1].to_uppercase() + &name[1..];
    json!({
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": input,
        "annotations": annotate(&title),
    })
}

fn with_output(mut tool: Value, schema: Value) -> Value {
    tool["outputSchema"] = schema;
    tool
}

fn echo() -> Value {
    let text = json!({ "text": { "type": "string", "description": "The text to return." } });
    let input = schema(text.clone(), &["text"]);
    with_output(tool("echo", "Returns its text.", input, read_only), schema(text, &["text"]))
}

/// The echo of a later release: another description and one more argument.
fn changed_echo() -> Value {
    let mut echo = echo();
    echo["description"] = json!("Returns its text, in capitals if requested.");
    echo["inputSchema"]["properties"]["loud"] =
        json!({ "type": "boolean", "description": "In capitals.", "default": false });
    echo
}

fn add() -> Value {
    let numbers = json!({ "a": { "type": "number" }, "b": { "type": "number" } });
    let add = tool("add", "Adds two numbers.", schema(numbers, &["a", "b"]), read_only);
    with_output(add, schema(json!({ "sum": { "type": "number" } }), &["sum"]))
}

fn sleep() -> Value {
    let ms = json!({ "ms": { "type": "integer", "minimum": 0, "description": "Time in milliseconds." } });
    let description = "Answers after the given time, with progress about every 100 ms if requested.";
    tool("sleep", description, schema(ms, &["ms"]), read_only)
}

fn counter() -> Value {
    let arguments = json!({
        "by": { "type": "integer", "minimum": 0, "default": 1, "description": "Amount to add." },
        "key": { "type": "string", "description": "A name for this call, kept beside the count." },
        "ms": { "type": "integer", "minimum": 0, "default": 0,
                "description": "Time to wait after counting and before the answer, in milliseconds." },
    });
    let description = "Adds to a counter and returns its value. Calling it twice counts twice.";
    let counter = tool("counter", description, schema(arguments, &[]), |title| acting(title, false));
    with_output(counter, schema(json!({ "value": { "type": "integer" } }), &["value"]))
}

fn fail() -> Value {
    let message = json!({ "message": { "type": "string", "default": "told to fail" } });
    tool("fail", "Answers with a tool error (`isError`).", schema(message, &[]), read_only)
}

fn reject() -> Value {
    tool("reject", "Answers with the JSON-RPC error -32602.", schema(json!({}), &[]), read_only)
}

fn ask() -> Value {
    let question = json!({ "question": { "type": "string", "default": "Go on?" } });
    let description = "Asks the user of the client for a yes or no before it answers.";
    tool("ask", description, schema(question, &[]), read_only)
}

fn crash() -> Value {
    let arguments = json!({
        "code": { "type": "integer", "default": 1, "description": "The exit code." },
        "how": { "enum": ["exit", "abort", "half_frame"], "default": "exit",
                 "description": "`half_frame` dies with half of the answer written." },
    });
    let description = "Ends the server in the middle of this call.";
    tool("crash", description, schema(arguments, &[]), |title| acting(title, true))
}

fn misbehave() -> Value {
    let arguments = json!({
        "how": { "enum": crate::misbehave::WAYS, "description": "Fault to show." },
        "size": { "type": "integer", "minimum": 0, "description": "Bytes, for huge_frame and stderr_flood." },
        "ms": { "type": "integer", "minimum": 0,
                "description": "Pause of slow_drip; length of stop_reading, black_hole and refuse (for good if absent)." },
        "name": { "type": "string",
                  "description": "The tool of add_tool, remove_tool and change_tool; the token of demand_token." },
        "status": { "type": "integer", "minimum": 400, "maximum": 599, "description": "The HTTP status of refuse." },
        "retry_after": { "type": "integer", "minimum": 0, "description": "Seconds in the Retry-After of refuse." },
        "own_group": { "type": "boolean", "description": "Puts the grandchild into its own process group." },
        "before": { "type": "boolean", "description": "Lets reset come before any byte of the answer." },
    });
    let description = "Shows a fault of real servers on purpose.";
    tool("misbehave", description, schema(arguments, &["how"]), |title| acting(title, true))
}

/// A tool whose argument must be mirrored in the header `Mcp-Param-Region`.
fn route() -> Value {
    let region = json!({ "region": { "type": "string", "x-mcp-header": "Region" } });
    let description = "Returns the region that the call was routed to.";
    tool("route", description, schema(region, &["region"]), read_only)
}

/// A generic tool that returns its arguments.
pub(crate) fn synthetic_tool(name: &str) -> Value {
    json!({
        "name": name,
        "description": format!("Repeats its arguments under the name {name}."),
        "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } } },
        "annotations": read_only(name),
    })
}

pub(crate) fn resources() -> Vec<Value> {
    vec![
        json!({ "uri": GREETING, "name": "greeting", "title": "Greeting",
                "description": "A friendly word.", "mimeType": "text/plain" }),
        json!({ "uri": COUNTER, "name": "counter", "title": "Counter",
                "description": "Value of the counter; changes with every `counter` call.",
                "mimeType": "text/plain" }),
    ]
}

pub(crate) fn resource_templates() -> Vec<Value> {
    vec![json!({ "uriTemplate": format!("{ECHO}{{text}}"), "name": "echo", "title": "Echo",
                 "description": "A resource that contains its own name.", "mimeType": "text/plain" })]
}

pub(crate) fn prompts() -> Vec<Value> {
    vec![json!({ "name": "greet", "title": "Greet", "description": "Asks for a greeting.",
                 "arguments": [{ "name": "name", "description": "Name to greet.", "required": true }] })]
}

/// Names that `completion/complete` offers for `greet`, and texts for the echo template.
pub(crate) const COMPLETIONS: [&str; 5] = ["Ada", "Alan", "Barbara", "Edsger", "Grace"];

/// Returns one page of a list. A cursor is the index of the next page; if the list has become shorter since, that page
/// is empty.
pub(crate) fn page(key: &str, items: Vec<Value>, cursor: &Value, size: usize) -> Result<Value, RpcError> {
    let start = match cursor {
        Value::Null => 0,
        Value::String(text) => parse_cursor(text).ok_or_else(bad_cursor)?,
        _ => return Err(bad_cursor()),
    };
    let size = if size == 0 { usize::MAX } else { size };
    let total = items.len();
    let page: Vec<Value> = items.into_iter().skip(start).take(size).collect();
    let end = start + page.len();
    let mut result = json!({ key: page });
    if end < total {
        result["nextCursor"] = json!(format!("page:{end:x}"));
    }
    Ok(result)
}

fn parse_cursor(text: &str) -> Option<usize> {
    usize::from_str_radix(text.strip_prefix("page:")?, 16).ok()
}

fn bad_cursor() -> RpcError {
    RpcError::new(INVALID_PARAMS, "unknown cursor")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_add_up_to_the_list() {
        let items: Vec<Value> = (0..7).map(Value::from).collect();
        let mut seen = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let page = page("items", items.clone(), &cursor, 3).unwrap();
            seen.extend(page["items"].as_array().unwrap().clone());
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        assert_eq!(seen, items);
    }

    #[test]
    fn an_unknown_cursor_is_invalid_params() {
        let error = page("items", Vec::new(), &json!("eyJ9"), 3).unwrap_err();
        assert_eq!(error.code, INVALID_PARAMS);
    }

    #[test]
    fn every_tool_has_a_unique_name_and_an_object_schema() {
        let options = Options { extra_tools: 3, param_headers: true, showcase: true, ..Options::default() };
        let tools = tools(&options);
        let names: std::collections::BTreeSet<_> =
            tools.iter().map(|tool| tool["name"].to_string()).collect();
        assert_eq!(names.len(), tools.len());
        assert!(tools.iter().all(|tool| tool["inputSchema"]["type"] == "object"));
    }

    #[test]
    fn the_counter_claims_neither_to_be_read_only_nor_idempotent() {
        let annotations = counter()["annotations"].clone();
        assert_eq!(annotations["readOnlyHint"], false);
        assert!(annotations["idempotentHint"].is_null());
    }
}

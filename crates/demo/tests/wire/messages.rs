//! Messages that the tests of all transports send.

use serde_json::{Value, json};

pub(crate) fn initialize(id: i64, version: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": {
        "protocolVersion": version,
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "test", "version": "1"},
    }})
}

pub(crate) fn modern(id: &str, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub(crate) fn tool_names(list: &Value) -> Vec<String> {
    let tools = list["result"]["tools"].as_array().expect("a list of tools");
    tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
}

//! Command line of the MCP Inspector with `gripfast serve` and `gripfast stdio`. It makes one request and exits; it
//! prints no notifications, supports no elicitation, and does not cancel.

use crate::clients::{SERVERS, TwoEraGateway};
use gripfast_testkit::packages::Package;
use gripfast_testkit::peers::Transport;
use serde_json::{Value, json};
use std::process::Stdio;

/// Each era over each transport.
const WAYS: [(&str, Transport); 7] = [
    ("legacy", Transport::Http),
    ("auto", Transport::Http),
    ("modern", Transport::Http),
    ("legacy", Transport::Sse),
    ("legacy", Transport::Stdio),
    ("auto", Transport::Stdio),
    ("modern", Transport::Stdio),
];

/// Exit code and the last line of each stream: the Inspector prints one line of JSON.
struct InspectorOutput {
    code: Option<i32>,
    out: Value,
    err: Value,
}

/// Makes this request in each era and over each transport.
async fn in_every_way(request: &[&str], check: impl Fn(&str, InspectorOutput)) {
    let fixture = TwoEraGateway::start().await;
    for (era, over) in WAYS {
        let target = fixture.gateway.target(over);
        let home = tempfile::tempdir().unwrap();
        let asked = ["--protocol-era", era, "--format", "json", "--quiet"];
        let command = Package::Inspector.command(asked.iter().chain(request).copied());
        let mut process = tokio::process::Command::new(command.program);
        // Our command has options that it would take for its own.
        process.args(command.args).arg("--").args(&target).env("HOME", home.path()).stdin(Stdio::null());
        let said = process.kill_on_drop(true).output().await.unwrap();
        let way = format!("{era}, {over:?}: {said:?}");
        let last = |stream: &[u8]| {
            let line = String::from_utf8_lossy(stream).trim().lines().last().unwrap_or("null").to_owned();
            serde_json::from_str(&line).unwrap_or(Value::String(line))
        };
        let (out, err) = (last(&said.stdout), last(&said.stderr));
        check(&way, InspectorOutput { code: said.status.code(), out, err });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspector_lists() {
    if !Package::Inspector.require() {
        return;
    }
    in_every_way(&["--method", "tools/list"], |way, said| {
        let tools = said.out["result"]["tools"].as_array().unwrap_or_else(|| panic!("{way}"));
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!((names.len(), names[0], names[9]), (18, "legacy__echo", "modern__echo"), "{way}");
        assert_eq!(said.code, Some(0), "{way}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspector_calls() {
    if !Package::Inspector.require() {
        return;
    }
    for server in SERVERS {
        let tool = format!("{server}__add");
        let add = ["--method", "tools/call", "--tool-name", &*tool, "--tool-args-json", r#"{"a":2,"b":3}"#];
        in_every_way(&add, |way, said| {
            assert_eq!(said.out["result"]["structuredContent"], json!({ "sum": 5 }), "{way}");
            assert_eq!(said.code, Some(0), "{way}");
        })
        .await;
    }
}

/// Scripts rely on its exit codes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspector_gets_a_tool_error() {
    if !Package::Inspector.require() {
        return;
    }
    let fail = ["--method", "tools/call", "--tool-name", "legacy__fail", "--tool-args-json", "{}"];
    in_every_way(&fail, |way, said| {
        assert_eq!(said.err["error"]["code"], "tool_is_error", "{way}");
        assert_eq!(said.code, Some(5), "{way}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspector_without_elicitation_does_not_hang() {
    if !Package::Inspector.require() {
        return;
    }
    let request = |tool| ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", "{}"];
    in_every_way(&request("legacy__ask"), |way, said| {
        assert_eq!(said.out["result"]["content"][0]["text"], "there was no answer: decline", "{way}");
    })
    .await;
    in_every_way(&request("modern__ask"), |way, said| {
        let why = "the tool `ask` needs a client with `elicitation`";
        // An error in the modern era, a tool's failure in the legacy one; either way with the server's reason.
        let told = [&said.err["error"]["message"], &said.out["result"]["content"][0]["text"]];
        assert!(told.iter().any(|told| told.as_str().is_some_and(|text| text.contains(why))), "{way}");
        assert!(matches!(said.code, Some(1 | 5)), "{way}");
    })
    .await;
}

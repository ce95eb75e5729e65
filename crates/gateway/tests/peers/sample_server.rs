//! `gripfast demo-server` with the official clients, over each of its transports and in each era. It shows that tests
//! with this server are tests with a conforming MCP server.

use futures_util::future::join_all;
use gripfast_testkit::clients::{Client, ClientProcess, Mode};
use gripfast_testkit::peers::Transport;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Runs on HTTP until it is dropped.
struct SampleServer {
    process: Child,
    address: String,
}

impl SampleServer {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gripfast"));
        command.args(["demo-server", "--http", "127.0.0.1:0"]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let address = url.trim().strip_suffix("/mcp").unwrap().to_owned();
        Self { process, address }
    }

    /// Target argument of a client for this server.
    fn target(&self, over: Transport) -> Vec<String> {
        match over {
            Transport::Stdio => vec![env!("CARGO_BIN_EXE_gripfast").to_owned(), "demo-server".to_owned()],
            Transport::Http => vec![format!("{}/mcp", self.address)],
            Transport::Sse => vec![format!("{}/sse", self.address)],
        }
    }
}

impl Drop for SampleServer {
    fn drop(&mut self) {
        // Fails only if it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// All modes and transports at once: they have nothing to do with each other.
async fn satisfies(client: Client) {
    if !client.require() {
        return;
    }
    let server = SampleServer::start();
    let ways = [client.modes(), client.auto_modes()].concat();
    join_all(ways.into_iter().map(|(mode, over)| {
        let driven = client.start(mode, over, &server.target(over));
        check(driven, mode)
    }))
    .await;
}

async fn check(mut driven: ClientProcess, mode: Mode) {
    let met = driven.run(json!({ "do": "meet" })).await;
    let version = if mode == Mode::Legacy { "2025-11-25" } else { "2026-07-28" };
    assert_eq!(met["version"], version, "{driven}: {met}");
    let expected = json!({
        "tools": ["echo", "add", "sleep", "counter", "fail", "reject", "ask", "crash", "misbehave"],
        "resources": ["demo://greeting", "demo://counter"],
        "prompts": ["greet"],
    });
    assert_eq!(driven.run(json!({ "do": "list" })).await, expected, "{driven}");
    let call = |tool: &str, arguments: Value| json!({ "do": "call", "tool": tool, "arguments": arguments });
    let echo = driven.run(call("echo", json!({ "text": "hello" }))).await;
    assert_eq!(echo["structured"], json!({ "text": "hello" }), "{driven}: {echo}");
    let failed = driven.run(call("fail", json!({}))).await;
    assert_eq!(failed["failed"], true, "{driven}: {failed}");
    let slept = driven.run(call("sleep", json!({ "ms": 1000 }))).await;
    assert!(!slept["progress"].as_array().unwrap().is_empty(), "{driven}: {slept}");
    let asked = driven.run(call("ask", json!({ "question": "Sure?" }))).await;
    assert_eq!(
        (&asked["text"], &asked["asked"]),
        (&json!("the answer was yes"), &json!(["Sure?"])),
        "{driven}"
    );
    let read = driven.run(json!({ "do": "read", "uri": "demo://greeting" })).await;
    assert_eq!(read["text"], "Hello from the sample server.", "{driven}");
    let prompt = json!({ "do": "prompt", "name": "greet", "arguments": { "name": "Ada" } });
    assert_eq!(driven.run(prompt).await["text"], "Please greet Ada in one friendly sentence.", "{driven}");
    driven.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sample_server_satisfies_the_python_v1_client() {
    satisfies(Client::PythonV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sample_server_satisfies_the_python_v2_client() {
    satisfies(Client::PythonV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sample_server_satisfies_the_typescript_v1_client() {
    satisfies(Client::TypeScriptV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sample_server_satisfies_the_typescript_v2_client() {
    satisfies(Client::TypeScriptV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sample_server_satisfies_the_rmcp_client() {
    satisfies(Client::Rmcp).await;
}

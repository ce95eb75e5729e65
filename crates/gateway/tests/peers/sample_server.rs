//! `gripfast demo-server` as others meet it: the official clients, which know nothing of gripfast, over each of its
//! transports and in each era. Whatever is tested against it is then tested against a true MCP server.

use crate::scene::fixture;
use gripfast_testkit::peers::{Peer, Transport, require};
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

    /// How a client is told where the server is.
    fn target(&self, transport: Transport) -> Vec<String> {
        let words = match transport {
            Transport::Stdio => vec!["stdio", env!("CARGO_BIN_EXE_gripfast"), "demo-server"],
            Transport::Http => return vec!["http".to_owned(), format!("{}/mcp", self.address)],
            Transport::Sse => return vec!["sse".to_owned(), format!("{}/sse", self.address)],
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

impl Drop for SampleServer {
    fn drop(&mut self) {
        // Fails only if it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A client at work, and the version that it has to agree on with the server.
struct Client {
    process: Child,
    version: &'static str,
}

/// `peer` has the runtime and the packages that the client needs.
fn begin(peer: Peer, script: &str, words: &[String], version: &'static str) -> Client {
    let runtime = peer.command();
    let mut command = Command::new(&runtime.program);
    command.arg(fixture(script)).args(words).envs(runtime.env);
    let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    Client { process, version }
}

impl Client {
    fn check(self) {
        let output = self.process.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        let mut came: Value = serde_json::from_slice(&output.stdout).unwrap();
        let server = came["server"].take();
        assert!(server.is_null() || server == "gripfast-demo", "{server}");
        let expected = json!({
            "version": self.version,
            "server": null,
            "tools": ["echo", "add", "sleep", "counter", "fail", "reject", "ask", "crash", "misbehave"],
            "resources": ["demo://greeting", "demo://counter"],
            "prompts": ["greet"],
            "echo": { "text": "hello" },
            "add": { "sum": 5 },
            "fail": true,
            "progress": true,
            "read": "Hello from the sample server.",
            "prompt": "Please greet Ada in one friendly sentence.",
        });
        assert_eq!(came, expected, "{said}");
    }
}

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// All transports and modes at once: they have nothing to do with each other.
fn each_mode(peer: Peer, script: &str, server: &SampleServer) -> Vec<Client> {
    let mut clients = Vec::new();
    for transport in [Transport::Stdio, Transport::Http] {
        for (mode, version) in [("auto", MODERN), ("legacy", LEGACY), (MODERN, MODERN)] {
            let words: Vec<_> = [mode.to_owned()].into_iter().chain(server.target(transport)).collect();
            clients.push(begin(peer, script, &words, version));
        }
    }
    clients
}

#[test]
fn the_sample_server_satisfies_the_python_v1_client() {
    let peer = Peer::PythonV1(Transport::Stdio);
    if !require(peer) {
        return;
    }
    let server = SampleServer::start();
    let transports = [Transport::Stdio, Transport::Http, Transport::Sse];
    let begin = |transport| begin(peer, "client_v1.py", &server.target(transport), LEGACY);
    let clients: Vec<_> = transports.into_iter().map(begin).collect();
    clients.into_iter().for_each(Client::check);
}

#[test]
fn the_sample_server_satisfies_the_python_v2_client() {
    let peer = Peer::PythonV2(Transport::Stdio);
    if !require(peer) {
        return;
    }
    let server = SampleServer::start();
    each_mode(peer, "client_v2.py", &server).into_iter().for_each(Client::check);
}

#[test]
fn the_sample_server_satisfies_the_typescript_v2_client() {
    let peer = Peer::TypeScriptV2(Transport::Stdio);
    if !require(peer) {
        return;
    }
    let server = SampleServer::start();
    let mut clients = each_mode(peer, "client-v2.mjs", &server);
    let words: Vec<_> = ["legacy".to_owned()].into_iter().chain(server.target(Transport::Sse)).collect();
    clients.push(begin(peer, "client-v2.mjs", &words, LEGACY));
    clients.into_iter().for_each(Client::check);
}

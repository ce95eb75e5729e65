//! The official clients, which know nothing of gripfast, against `gripfast serve` and `gripfast stdio`: they
//! meet it, list, call, read and hear of progress as if they spoke to the sample server itself.

use crate::scene::{GRIPFAST, child, file_of};
use gripfast_testkit::peers::{Peer, Transport, require};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// `gripfast serve` over a sample server of one era, until it is dropped; and the same config for `gripfast stdio`.
struct Served {
    process: Child,
    address: String,
    dir: TempDir,
}

impl Served {
    fn over(era: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let more = ["prefix = \"\"".to_owned(), format!("protocol = {era:?}")];
        let config = child("demo", &["--era", era], &more.each_ref().map(String::as_str));
        std::fs::write(dir.path().join("gripfast.toml"), file_of(&config)).unwrap();
        let mut command = Command::new(GRIPFAST);
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(dir.path().join("gripfast.toml"));
        command.arg("--state-dir").arg(dir.path().join("state"));
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_whitespace().find_map(|word| word.strip_suffix("/mcp"));
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
        Self { process, address, dir }
    }

    /// How a client is told where the gateway is.
    fn target(&self, transport: Transport) -> Vec<String> {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        match transport {
            Transport::Stdio => {
                let (config, state) = (path("gripfast.toml"), path("stdio-state"));
                let words = ["stdio", GRIPFAST, "stdio", "--config", &*config, "--state-dir", &*state];
                words.map(str::to_owned).to_vec()
            }
            Transport::Http => vec!["http".to_owned(), format!("{}/mcp", self.address)],
            Transport::Sse => vec!["sse".to_owned(), format!("{}/sse", self.address)],
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Asked nicely, it takes its servers along. Fails only if it is gone already.
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

/// A client at work, and the version that it has to agree on.
struct Client {
    process: Child,
    version: &'static str,
    words: Vec<String>,
}

/// `peer` has the runtime and the packages that the client needs.
fn begin(peer: Peer, script: &str, words: Vec<String>, version: &'static str) -> Client {
    let runtime = peer.command();
    let mut command = Command::new(&runtime.program);
    command.arg(fixture(script)).args(&words).envs(runtime.env);
    let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    Client { process, version, words }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/peers").join(name)
}

impl Client {
    fn satisfied(self) {
        let words = self.words.join(" ");
        let output = self.process.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {}: {said}", output.status);
        let mut came: Value = serde_json::from_slice(&output.stdout).unwrap();
        let server = came["server"].take();
        assert!(server.is_null() || server == "gripfast", "{server}");
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
        assert_eq!(came, expected, "{words}: {said}");
    }
}

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// Runs a client in all its modes over all its transports, against servers of both eras. Those of one gateway
/// run side by side: they have nothing to do with each other.
fn every_way(peer: Peer, script: &str, ways: &[(Option<&str>, Transport, &'static str)]) {
    if !require(peer) {
        return;
    }
    for era in ["legacy", "modern"] {
        let served = Served::over(era);
        let begun = ways.iter().map(|(mode, transport, version)| {
            let words = mode.iter().map(|mode| (*mode).to_owned()).chain(served.target(*transport)).collect();
            begin(peer, script, words, version)
        });
        let clients: Vec<_> = begun.collect();
        clients.into_iter().for_each(Client::satisfied);
    }
}

#[test]
fn the_python_v1_client_is_satisfied() {
    let ways = [Transport::Stdio, Transport::Http, Transport::Sse].map(|transport| (None, transport, LEGACY));
    every_way(Peer::PythonV1(Transport::Stdio), "client_v1.py", &ways);
}

const BOTH_ERAS: [(Option<&str>, Transport, &str); 6] = [
    (Some("auto"), Transport::Stdio, MODERN),
    (Some("legacy"), Transport::Stdio, LEGACY),
    (Some(MODERN), Transport::Stdio, MODERN),
    (Some("auto"), Transport::Http, MODERN),
    (Some("legacy"), Transport::Http, LEGACY),
    (Some(MODERN), Transport::Http, MODERN),
];

#[test]
fn the_python_v2_client_is_satisfied() {
    every_way(Peer::PythonV2(Transport::Stdio), "client_v2.py", &BOTH_ERAS);
}

#[test]
fn the_typescript_v2_client_is_satisfied() {
    let ways = [&BOTH_ERAS[..], &[(Some("legacy"), Transport::Sse, LEGACY)]].concat();
    every_way(Peer::TypeScriptV2(Transport::Stdio), "client-v2.mjs", &ways);
}

/// Its packages come with `server-everything`, which is built on it.
#[test]
fn the_typescript_v1_client_is_satisfied() {
    let ways = [Transport::Stdio, Transport::Http, Transport::Sse].map(|transport| (None, transport, LEGACY));
    if require(Peer::ServerEverything(Transport::Stdio)) {
        every_way(Peer::TypeScriptV2(Transport::Stdio), "client-v1.mjs", &ways);
    }
}

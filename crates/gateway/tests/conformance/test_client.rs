//! gripfast as the client of a server: its command line, or an SDK client through a gateway.

use crate::test_gateway::{GRIPFAST, TestGateway};
use gripfast_testkit::clients::{Client, ClientProcess, Mode};
use gripfast_testkit::peers::Transport;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Kind of client in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientKind {
    /// `gripfast tools` and `gripfast call`, each of which connects by itself.
    CommandLine,
    /// Client of an official SDK, connected to a gateway whose only server is the one under test.
    Sdk(Client, Mode),
}

/// Connected client.
pub(crate) enum TestClient {
    CommandLine(CommandLine),
    Sdk(Box<SdkClient>),
}

impl ClientKind {
    /// Connects to the server at this URL.
    pub(crate) fn connect(self, url: &str) -> TestClient {
        let server = format!("[servers.suite]\nurl = {url:?}\n");
        match self {
            Self::CommandLine => {
                let dir = tempfile::tempdir().unwrap();
                std::fs::write(dir.path().join("gripfast.toml"), server).unwrap();
                TestClient::CommandLine(CommandLine { dir })
            }
            Self::Sdk(client, mode) => {
                let gateway = TestGateway::serve(
                    &format!("[gateway]\nstartup_wait = \"60s\"\n{server}prefix = \"\"\n"),
                    None,
                );
                let runtime = Runtime::new().unwrap();
                let driven = runtime
                    .block_on(async { client.start(mode, Transport::Http, &[gateway.url().to_owned()]) });
                TestClient::Sdk(Box::new(SdkClient { runtime, driven: Some(driven), _gateway: gateway }))
            }
        }
    }
}

impl TestClient {
    /// The tools that the server has, as they arrive.
    pub(crate) fn tools(&mut self) -> Vec<Value> {
        match self {
            Self::CommandLine(line) => {
                let listed = line.run(&["tools", "suite", "-o", "json"]);
                listed["servers"][0]["tools"].as_array().cloned().unwrap_or_default()
            }
            Self::Sdk(through) => {
                through.run(json!({ "do": "tools" })).as_array().cloned().unwrap_or_default()
            }
        }
    }

    /// Calls a tool. Forms of the server are accepted with their defaults.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) {
        match self {
            Self::CommandLine(line) => {
                let arguments = arguments.to_string();
                line.run(&["call", "suite", tool, &arguments, "--accept-defaults", "-o", "json"]);
            }
            Self::Sdk(through) => {
                through.run(json!({ "do": "call", "tool": tool, "arguments": arguments }));
            }
        }
    }

    /// Reads every resource and gets every prompt, if the client can.
    pub(crate) fn read_everything(&mut self) {
        let Self::Sdk(through) = self else { return };
        let listed = through.run(json!({ "do": "list" }));
        for uri in listed["resources"].as_array().unwrap() {
            through.run(json!({ "do": "read", "uri": uri }));
        }
        for name in listed["prompts"].as_array().unwrap() {
            through.run(json!({ "do": "prompt", "name": name }));
        }
    }

    /// Closes the connection.
    pub(crate) fn close(self) {
        if let Self::Sdk(mut through) = self {
            let driven = through.driven.take().unwrap();
            through.runtime.block_on(driven.close());
        }
    }
}

pub(crate) struct CommandLine {
    dir: TempDir,
}

impl CommandLine {
    fn run(&self, args: &[&str]) -> Value {
        let mut command = Command::new(GRIPFAST);
        command.args(args).arg("--config").arg(self.dir.path().join("gripfast.toml"));
        command.arg("--state-dir").arg(self.dir.path()).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}: {said}"))
    }
}

pub(crate) struct SdkClient {
    runtime: Runtime,
    driven: Option<ClientProcess>,
    _gateway: TestGateway,
}

impl SdkClient {
    fn run(&mut self, command: Value) -> Value {
        let driven = self.driven.as_mut().unwrap();
        self.runtime.block_on(driven.run(command))
    }
}

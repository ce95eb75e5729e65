//! Real MCP clients of other projects, controlled by a test: each executes commands with its SDK and reports the
//! results.
//!
//! A client is a process (`crates/testkit/peers/client*`, `rmcp-client`) that reads commands from its stdin and answers
//! each on its stdout, one line of JSON per command:
//!
//! | command | answer |
//! |---|---|
//! | `{"do": "meet"}` | negotiated `version`; `server`, the name, if the client requested it |
//! | `{"do": "list"}` | names of `tools` and `prompts`, URIs of `resources` |
//! | `{"do": "tools"}` | the tools as parsed by the SDK; TypeScript only |
//! | `{"do": "call", "tool", "arguments", "answer"}` | `text` of the first content, `structured`, `failed`; received `progress`; `asked`, the messages of elicitations, each answered with `accept` and `{"ok": true}`, or as `answer` says; or `error` with `code` and `message` |
//! | `{"do": "together", "calls": […]}` | the answer of `call` for each, sent concurrently |
//! | `{"do": "abandon", "tool", "arguments"}` | cancels the call at its first progress notification; then `abandoned` |
//! | `{"do": "read", "uri"}`, `{"do": "prompt", "name", "arguments"}` | `text` |

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::peers::{Peer, Transport, is_usable, peers_dir, require, target_dir};

/// Timeout of one command, for a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A real MCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// `client_v1.py` on the Python SDK 1.x.
    PythonV1,
    /// `client_v2.py` on the Python SDK 2.x.
    PythonV2,
    /// `client-v1.mjs` on the TypeScript SDK v1, which comes with `server-everything`.
    TypeScriptV1,
    /// `client-v2.mjs` on the TypeScript SDK v2.
    TypeScriptV2,
    /// `rmcp-client` on the official Rust SDK.
    Rmcp,
}

/// Start of a connection: handshake, a fixed version, or negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Negotiates, and prefers the modern era.
    Auto,
    /// `initialize`.
    Legacy,
    /// Only 2026-07-28.
    Modern,
}

impl Mode {
    fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Legacy => "legacy",
            Self::Modern => "2026-07-28",
        }
    }
}

impl Client {
    /// True if the client is installed; a test returns early on `false`.
    ///
    /// # Panics
    ///
    /// If it is not installed and was not left out on purpose (`cargo xtask test --allow-missing`).
    #[must_use]
    pub fn require(self) -> bool {
        match self {
            Self::PythonV1 => require(Peer::PythonV1(Transport::Stdio)),
            Self::PythonV2 => require(Peer::PythonV2(Transport::Stdio)),
            Self::TypeScriptV1 => require(Peer::ServerEverything(Transport::Stdio)),
            Self::TypeScriptV2 => require(Peer::TypeScriptV2(Transport::Stdio)),
            Self::Rmcp => is_usable("rmcp-client", &self, || {
                let program = rmcp_client();
                (!program.exists()).then(|| format!("there is no {}", program.display()))
            }),
        }
    }

    /// Combinations of mode and transport for a server of both eras, except [`Mode::Auto`].
    #[must_use]
    pub fn modes(self) -> Vec<(Mode, Transport)> {
        let legacy = [Transport::Stdio, Transport::Http, Transport::Sse].map(|over| (Mode::Legacy, over));
        let modern = [Transport::Stdio, Transport::Http].map(|over| (Mode::Modern, over));
        match self {
            Self::PythonV1 | Self::TypeScriptV1 => legacy.to_vec(),
            Self::PythonV2 | Self::TypeScriptV2 => [&legacy[..], &modern].concat(),
            // rmcp does not support HTTP+SSE.
            Self::Rmcp => [&legacy[..2], &modern].concat(),
        }
    }

    /// Combinations with [`Mode::Auto`], if the client has that mode.
    #[must_use]
    pub fn auto_modes(self) -> Vec<(Mode, Transport)> {
        match self {
            Self::PythonV1 | Self::TypeScriptV1 => Vec::new(),
            Self::PythonV2 | Self::TypeScriptV2 | Self::Rmcp => {
                [Transport::Stdio, Transport::Http].map(|over| (Mode::Auto, over)).to_vec()
            }
        }
    }

    /// Starts the client. `target` is a command with its arguments for stdio, otherwise a URL.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn start(self, mode: Mode, over: Transport, target: &[String]) -> ClientProcess {
        let over_word = match over {
            Transport::Stdio => "stdio",
            Transport::Http => "http",
            Transport::Sse => "sse",
        };
        let fixture = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name);
        let runtime = |peer: Peer, script: &str| {
            let mut command = Command::new(peer.command().program);
            command.arg(fixture(script)).env("PEER_MODULES", peers_dir().join("npm"));
            command
        };
        let mut command = match self {
            Self::PythonV1 => runtime(Peer::PythonV1(Transport::Stdio), "client_v1.py"),
            Self::PythonV2 => runtime(Peer::PythonV2(Transport::Stdio), "client_v2.py"),
            Self::TypeScriptV1 => runtime(Peer::TypeScriptV2(Transport::Stdio), "client-v1.mjs"),
            Self::TypeScriptV2 => runtime(Peer::TypeScriptV2(Transport::Stdio), "client-v2.mjs"),
            Self::Rmcp => Command::new(rmcp_client()),
        };
        command.args([mode.word(), over_word]).args(target).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let shown = format!("{self} ({}, {over_word})", mode.word());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown} cannot be started: {error}"));
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            panic!("{shown} has no pipes");
        };
        ClientProcess { name: shown, child, stdin, answers: BufReader::new(stdout).lines(), stderr }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PythonV1 => "python-v1",
            Self::PythonV2 => "python-v2",
            Self::TypeScriptV1 => "typescript-v1",
            Self::TypeScriptV2 => "typescript-v2",
            Self::Rmcp => "rmcp-client",
        })
    }
}

/// A running client. Dropping it kills it.
#[derive(Debug)]
pub struct ClientProcess {
    name: String,
    child: Child,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    stderr: ChildStderr,
}

impl ClientProcess {
    /// Executes one command.
    ///
    /// # Panics
    ///
    /// With its stderr, if the client exits or does not answer within a minute.
    pub async fn run(&mut self, command: Value) -> Value {
        let answered = async {
            self.stdin.write_all(format!("{command}\n").as_bytes()).await.ok()?;
            self.answers.next_line().await.ok()?
        };
        match timeout(ANSWER_TIMEOUT, answered).await {
            Ok(Some(line)) => {
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{self}: {error}: {line}"))
            }
            Ok(None) => panic!("{self} ended over {command}:\n{}", self.read_stderr().await),
            Err(_) => {
                // Its stderr is complete only after it has exited.
                let _ = self.child.kill().await;
                panic!("{self} does not answer {command}:\n{}", self.read_stderr().await)
            }
        }
    }

    /// Closes its stdin and waits until it exits.
    ///
    /// # Panics
    ///
    /// With its stderr, if it does not exit or fails.
    pub async fn close(mut self) {
        drop(self.stdin);
        match timeout(ANSWER_TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => {}
            ended => {
                let _ = self.child.kill().await;
                let mut said = String::new();
                let _ = self.stderr.read_to_string(&mut said).await;
                panic!("{} does not leave well ({ended:?}):\n{said}", self.name)
            }
        }
    }

    /// Reads stderr after the client has exited. It need not be drained before, because a client writes little to it.
    async fn read_stderr(&mut self) -> String {
        let mut said = String::new();
        let _ = timeout(ANSWER_TIMEOUT, self.stderr.read_to_string(&mut said)).await;
        said
    }
}

impl fmt::Display for ClientProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn rmcp_client() -> PathBuf {
    target_dir().join("debug").join(format!("rmcp-client{}", std::env::consts::EXE_SUFFIX))
}

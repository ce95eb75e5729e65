//! Real MCP servers of other projects, which tests start, kill and restart.
//!
//! `cargo xtask test` installs them under `target/peers`; the fixtures are in `crates/testkit/peers` and
//! `crates/testkit/rmcp-peer`. A test starts with [`require`]:
//!
//! ```no_run
//! use gripfast_testkit::peers::{Peer, Transport, require};
//!
//! let peer = Peer::PythonV2(Transport::Http);
//! if !require(peer) {
//!     return;
//! }
//! let mut running = peer.start_http(8123);
//! // … connect to running.url(), call …
//! running.restart();
//! // … the next call works
//! ```
//!
//! | peer | eras | stdio | Streamable HTTP | HTTP+SSE | dead session, over HTTP |
//! |---|---|---|---|---|---|
//! | [`ServerEverything`](Peer::ServerEverything) | legacy | yes | yes | yes | 400, an error without id; over HTTP+SSE no answer at all |
//! | [`PythonV1`](Peer::PythonV1) | legacy | yes | yes | yes | 404, an error with id `"server-error"`; over HTTP+SSE 404, plain text |
//! | [`PythonV2`](Peer::PythonV2) | both | yes | yes | yes | 404, an error with id `null`; over HTTP+SSE 404, plain text |
//! | [`TypeScriptV2`](Peer::TypeScriptV2) | both | yes | yes | no | keeps no sessions: any id is served |
//! | [`Rmcp`](Peer::Rmcp) | both | yes | yes | no | 404, plain text |
//!
//! All but `ServerEverything` offer the same: tools `echo {text}`, `add {a, b}`, `sleep {ms}` (marked read-only) and
//! `counter {ms}` (not marked; it appends a line to the file of [`PeerCommand::with_counter_file`] and returns the
//! number of lines, after this many milliseconds if given), the resource `peer://greeting` and the prompt
//! `greet {name}`.
//! `ServerEverything` has `echo {message}`, which answers `Echo: …`, `get-sum {a, b}`, and many more.

use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Start timeout. Node and Python take a second or two each while the machine is busy compiling.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Transport of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// One message per line on stdin and stdout.
    Stdio,
    /// Streamable HTTP, at `/mcp`.
    Http,
    /// Legacy HTTP+SSE, at `/sse`.
    Sse,
}

/// A real MCP server and its transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// The reference server, npm package `@modelcontextprotocol/server-everything`, on the TypeScript SDK v1.
    ServerEverything(Transport),
    /// `echo_v1.py` on the Python SDK 1.x.
    PythonV1(Transport),
    /// `echo_v2.py` on the Python SDK 2.x.
    PythonV2(Transport),
    /// `modern-server.mjs` on the TypeScript SDK v2.
    TypeScriptV2(Transport),
    /// `rmcp-peer` on the official Rust SDK.
    Rmcp(Transport),
}

/// Command of a peer, as in a config file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCommand {
    /// An absolute path, or a name to look up in `PATH`.
    pub program: PathBuf,
    /// Arguments.
    pub args: Vec<String>,
    /// Additional environment variables.
    pub env: Vec<(String, String)>,
}

impl PeerCommand {
    /// Makes the tool `counter` append one line per execution to this file.
    #[must_use]
    pub fn with_counter_file(mut self, file: &Path) -> Self {
        self.env.push(("PEER_COUNTER_FILE".to_owned(), file.display().to_string()));
        self
    }

    pub(crate) fn to_command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// True if the peer is installed; a test returns early on `false`.
///
/// # Panics
///
/// If the peer is not installed and was not left out on purpose (`cargo xtask test --allow-missing`).
#[must_use]
pub fn require(peer: Peer) -> bool {
    is_usable(peer.name(), &peer, || peer.missing())
}

#[expect(clippy::print_stderr, reason = "a test that is left out says so in its output")]
pub(crate) fn is_usable(
    name: &str,
    shown: &dyn fmt::Display,
    missing: impl FnOnce() -> Option<String>,
) -> bool {
    let left_out = std::env::var("GRIPFAST_MISSING_PEERS").unwrap_or_default();
    if left_out.split(',').any(|left_out| left_out == name) {
        eprintln!("left out: this test needs peer {shown}, which could not be installed");
        return false;
    }
    if let Some(missing) = missing() {
        panic!(
            "peer {shown} is missing: {missing}\n\
             hint: `cargo xtask test` installs it, `cargo xtask test --allow-missing` goes on where that is not possible"
        );
    }
    true
}

impl Peer {
    /// Name in messages and in `GRIPFAST_MISSING_PEERS`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ServerEverything(_) => "server-everything",
            Self::PythonV1(_) => "python-v1",
            Self::PythonV2(_) => "python-v2",
            Self::TypeScriptV2(_) => "typescript-v2",
            Self::Rmcp(_) => "rmcp",
        }
    }

    /// Transport of the peer.
    #[must_use]
    pub fn transport(self) -> Transport {
        match self {
            Self::ServerEverything(transport)
            | Self::PythonV1(transport)
            | Self::PythonV2(transport)
            | Self::TypeScriptV2(transport)
            | Self::Rmcp(transport) => transport,
        }
    }

    /// Reason why the peer cannot be started here; `None` if it can.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        let needed = match self {
            Self::ServerEverything(_) => server_everything(),
            Self::PythonV1(_) => python("py1"),
            Self::PythonV2(_) => python("py2"),
            Self::TypeScriptV2(_) => peers_dir().join("npm/node_modules/@modelcontextprotocol/server"),
            Self::Rmcp(_) => rmcp_peer(),
        };
        if !needed.exists() {
            return Some(format!("there is no {}", needed.display()));
        }
        let on_node = matches!(self, Self::ServerEverything(_) | Self::TypeScriptV2(_));
        (on_node && !is_in_path("node")).then(|| "there is no `node` in PATH".to_owned())
    }

    /// Command that starts the peer on stdio.
    ///
    /// # Panics
    ///
    /// If the peer has another transport.
    #[must_use]
    pub fn command(self) -> PeerCommand {
        assert_eq!(self.transport(), Transport::Stdio, "{self} is started with `start_http`");
        self.command_on(None)
    }

    /// Starts the peer on this port of 127.0.0.1 and waits until it accepts connections.
    ///
    /// # Panics
    ///
    /// If its transport is stdio, if it does not support the transport, exits, or does not listen within a minute.
    #[must_use]
    pub fn start_http(self, port: u16) -> RunningPeer {
        RunningPeer::start(self, port, self.http_command(port))
    }

    /// Same as [`start_http`](Self::start_http), with a file for `counter`.
    ///
    /// # Panics
    ///
    /// As `start_http`.
    #[must_use]
    pub fn start_http_with_counter_file(self, port: u16, file: &Path) -> RunningPeer {
        RunningPeer::start(self, port, self.http_command(port).with_counter_file(file))
    }

    fn http_command(self, port: u16) -> PeerCommand {
        assert_ne!(self.transport(), Transport::Stdio, "{self} is started with `command`");
        self.command_on(Some(port))
    }

    fn command_on(self, port: Option<u16>) -> PeerCommand {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let fixture = |name: &str| fixtures.join(name).display().to_string();
        let port = port.unwrap_or_default().to_string();
        let (program, args, env): (PathBuf, Vec<String>, Vec<(&str, String)>) = match self {
            Self::ServerEverything(transport) => {
                let mode = match transport {
                    Transport::Stdio => "stdio",
                    Transport::Http => "streamableHttp",
                    Transport::Sse => "sse",
                };
                let args = vec![server_everything().display().to_string(), mode.to_owned()];
                ("node".into(), args, vec![("PORT", port)])
            }
            Self::PythonV1(transport) => {
                (python("py1"), python_args(fixture("echo_v1.py"), transport, port), vec![])
            }
            Self::PythonV2(transport) => {
                (python("py2"), python_args(fixture("echo_v2.py"), transport, port), vec![])
            }
            Self::TypeScriptV2(transport) => {
                let mut args = vec![fixture("modern-server.mjs")];
                match transport {
                    Transport::Stdio => {}
                    Transport::Http => args.extend(["--port".to_owned(), port]),
                    Transport::Sse => panic!("the TypeScript SDK v2 has no HTTP+SSE server"),
                }
                let modules = peers_dir().join("npm").display().to_string();
                ("node".into(), args, vec![("PEER_MODULES", modules)])
            }
            Self::Rmcp(transport) => {
                let args = match transport {
                    Transport::Stdio => vec![],
                    Transport::Http => vec!["--http".to_owned(), format!("127.0.0.1:{port}")],
                    Transport::Sse => panic!("rmcp has no HTTP+SSE server"),
                };
                (rmcp_peer(), args, vec![])
            }
        };
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        PeerCommand { program, args, env }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport() {
            Transport::Stdio => "stdio",
            Transport::Http => "http",
            Transport::Sse => "sse",
        };
        write!(f, "{} ({transport})", self.name())
    }
}

/// A listening peer in its own process group. Dropping it kills the whole group.
#[derive(Debug)]
pub struct RunningPeer {
    peer: Peer,
    port: u16,
    command: PeerCommand,
    child: Option<Child>,
}

impl RunningPeer {
    fn start(peer: Peer, port: u16, command: PeerCommand) -> Self {
        let mut running = Self { peer, port, command, child: None };
        running.start_process();
        running
    }

    /// URL: `http://127.0.0.1:PORT/mcp`, or `/sse`.
    #[must_use]
    pub fn url(&self) -> String {
        let path = if self.peer.transport() == Transport::Sse { "sse" } else { "mcp" };
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Process id, while the peer runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the whole group with SIGKILL. The port then refuses connections until
    /// [`start_process`](Self::start_process).
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            kill_group(&child);
            // Both fail only if it has already exited.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the peer on the same port, if it does not run.
    ///
    /// # Panics
    ///
    /// If it exits, or does not listen within a minute.
    pub fn start_process(&mut self) {
        if self.child.is_some() {
            return;
        }
        let mut command = self.command.to_command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        own_group(&mut command);
        let child =
            command.spawn().unwrap_or_else(|error| panic!("peer {} cannot be started: {error}", self.peer));
        let child = self.child.insert(child);
        let stderr = StderrEnd::watch(child);
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))).is_err() {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("peer {} ended instead of listening ({status}):\n{}", self.peer, stderr.read());
            }
            assert!(Instant::now() < deadline, "peer {} does not listen on port {}", self.peer, self.port);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Replaces the process on the same port: all sessions and connections of the old one are lost.
    ///
    /// # Panics
    ///
    /// As [`start_process`](Self::start_process).
    pub fn restart(&mut self) {
        self.kill();
        self.start_process();
    }
}

impl Drop for RunningPeer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port of 127.0.0.1 that was free a moment ago.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on the loopback interface");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// Drains stderr, so that the peer never blocks on it, and keeps the beginning for panic messages.
struct StderrEnd(std::sync::mpsc::Receiver<String>);

impl StderrEnd {
    fn watch(child: &mut Child) -> Self {
        let (said, heard) = std::sync::mpsc::channel();
        if let Some(mut stderr) = child.stderr.take() {
            // Ends when the process closes its side of the pipe.
            std::thread::spawn(move || {
                let mut beginning = Vec::new();
                let _ = stderr.by_ref().take(4096).read_to_end(&mut beginning);
                let _ = said.send(String::from_utf8_lossy(&beginning).into_owned());
                let _ = std::io::copy(&mut stderr, &mut std::io::sink());
            });
        }
        Self(heard)
    }

    fn read(self) -> String {
        self.0.recv_timeout(Duration::from_secs(1)).unwrap_or_default()
    }
}

#[cfg(unix)]
fn own_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(not(unix))]
fn own_group(_command: &mut Command) {}

/// Also kills the processes that the peer started. std cannot signal a group; the shell's builtin `kill` can.
#[cfg(unix)]
fn kill_group(leader: &Child) {
    let signal = format!("kill -s KILL -- -{}", leader.id());
    let _ = Command::new("sh").args(["-c", &signal]).stderr(Stdio::null()).status();
}

#[cfg(not(unix))]
fn kill_group(_leader: &Child) {}

pub(crate) fn is_in_path(program: &str) -> bool {
    find_in_path(program).is_some()
}

pub(crate) fn find_in_path(program: &str) -> Option<PathBuf> {
    let program = format!("{program}{}", std::env::consts::EXE_SUFFIX);
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(&program)).find(|path| path.is_file())
}

fn server_everything() -> PathBuf {
    peers_dir().join("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

pub(crate) fn python(venv: &str) -> PathBuf {
    let venv = peers_dir().join(venv);
    if cfg!(windows) { venv.join("Scripts").join("python.exe") } else { venv.join("bin").join("python") }
}

fn python_args(script: String, transport: Transport, port: String) -> Vec<String> {
    match transport {
        Transport::Stdio => vec![script],
        Transport::Http => vec![script, "streamable-http".to_owned(), "--port".to_owned(), port],
        Transport::Sse => vec![script, "sse".to_owned(), "--port".to_owned(), port],
    }
}

fn rmcp_peer() -> PathBuf {
    target_dir().join("debug").join(format!("rmcp-peer{}", std::env::consts::EXE_SUFFIX))
}

pub(crate) fn peers_dir() -> PathBuf {
    target_dir().join("peers")
}

/// `CARGO_TARGET_DIR` relative to the workspace root; `target` by default.
pub(crate) fn target_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target")))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};

    use serde_json::{Value, json};

    use super::*;

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"testkit","version":"1"}}}"#;

    fn each(transport: Transport) -> Vec<Peer> {
        let mut peers =
            vec![Peer::ServerEverything(transport), Peer::PythonV1(transport), Peer::PythonV2(transport)];
        if transport != Transport::Sse {
            peers.extend([Peer::TypeScriptV2(transport), Peer::Rmcp(transport)]);
        }
        peers
    }

    #[test]
    fn each_peer_answers_on_stdio() {
        for peer in each(Transport::Stdio).into_iter().filter(|peer| require(*peer)) {
            let mut command = peer.command().to_command();
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            writeln!(stdin, "{INITIALIZE}").unwrap();
            let mut answer = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut answer).unwrap();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer["result"]["protocolVersion"], json!("2025-11-25"), "{peer}");
            drop(stdin);
            child.wait().unwrap();
        }
    }

    #[test]
    fn each_peer_listens_and_comes_back_after_a_restart() {
        let transports = [Transport::Http, Transport::Sse];
        for peer in transports.into_iter().flat_map(each).filter(|peer| require(*peer)) {
            let mut running = peer.start_http(free_port());
            let first = running.pid();
            running.restart();
            assert_ne!(running.pid(), first, "{peer}");
            assert!(get(&running).starts_with("HTTP/1.1 "), "{peer}");
            running.kill();
            assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, running.port)).is_err(), "{peer}");
        }
    }

    #[test]
    fn a_peer_uses_the_given_counter_file() {
        let command = Peer::Rmcp(Transport::Stdio).command().with_counter_file(Path::new("/tmp/count"));
        assert_eq!(command.env, [("PEER_COUNTER_FILE".to_owned(), "/tmp/count".to_owned())]);
    }

    fn get(running: &RunningPeer) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, running.port)).unwrap();
        let path = running.url().split_once(&running.port.to_string()).unwrap().1.to_owned();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", running.port).unwrap();
        let mut status = String::new();
        BufReader::new(stream).read_line(&mut status).unwrap();
        status
    }
}

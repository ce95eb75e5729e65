//! Client scenarios of the suite: the suite runs the server, and the test is the client.
//!
//! The suite starts its client itself. It starts `handover.mjs`, which tells the test the server's URL and waits
//! until the test has finished.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{Check, Suite, node, read_check};

/// A running scenario.
#[derive(Debug, Clone)]
pub struct ScenarioServer {
    /// URL of the suite's server.
    pub url: String,
    /// Further data for the client, such as credentials; `null` if there is none.
    pub context: Value,
}

impl Suite {
    /// Runs one client scenario as defined for this protocol version. Returns the suite's checks.
    ///
    /// # Panics
    ///
    /// If the suite does not run.
    #[must_use]
    pub fn run_client_scenario(
        self,
        scenario: &str,
        version: Option<&str>,
        client: impl FnOnce(&ScenarioServer),
    ) -> Vec<Check> {
        let dir = tempfile::tempdir().expect("there is room for results");
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let port = listener.local_addr().expect("it has an address").port();
        let handover = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/conformance/handover.mjs");
        let command = format!("{} {} {port}", node().display(), handover.display());
        let mut suite = self.command(&["client", "--scenario", scenario, "--command", &command]);
        suite.args(version.map(|version| format!("--spec-version={version}")));
        suite.arg("--output-dir").arg(dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut suite = suite.spawn().expect("the suite can be started");
        let handed = accept(&listener, &mut suite, scenario);
        let mut line = String::new();
        BufReader::new(&handed).read_line(&mut line).expect("the suite says where its server is");
        let told: Value = serde_json::from_str(&line).expect("it is a line of JSON");
        let url = told["url"].as_str().expect("the server has an address").to_owned();
        client(&ScenarioServer { url, context: told["context"].clone() });
        drop(handed);
        suite.wait().expect("the suite ends");
        let checks = find_checks(dir.path()).unwrap_or_else(|| panic!("{scenario} left no checks"));
        let checks = std::fs::read(checks).expect("the checks can be read");
        let checks: Vec<Value> = serde_json::from_slice(&checks).expect("the checks are JSON");
        checks.iter().map(read_check).collect()
    }
}

/// Waits for the connection of the suite's client.
fn accept(listener: &TcpListener, suite: &mut Child, scenario: &str) -> TcpStream {
    listener.set_nonblocking(true).expect("a socket can be asked without waiting");
    loop {
        match listener.accept() {
            Ok((handed, _)) => {
                handed.set_nonblocking(false).expect("a socket can be waited for");
                return handed;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("cannot accept a connection: {error}"),
        }
        // The suite exits without starting a client if it does not know the scenario in this version.
        let ended = suite.try_wait().expect("the suite is a child of ours");
        assert!(ended.is_none(), "the suite has no scenario {scenario} for this version: {ended:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A scenario whose name has a slash has a nested directory.
fn find_checks(dir: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    entries.into_iter().find_map(|path| {
        if path.is_dir() {
            find_checks(&path)
        } else {
            path.file_name().is_some_and(|name| name == "checks.json").then_some(path)
        }
    })
}

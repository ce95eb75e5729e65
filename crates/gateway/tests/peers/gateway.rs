//! `gripfast serve` and `gripfast stdio` with one config, for clients.

use gripfast_testkit::peers::Transport;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");

/// Serves until it is dropped.
pub(crate) struct Gateway {
    process: Child,
    address: String,
    dir: TempDir,
}

impl Gateway {
    /// Starts a gateway with these servers. The first list waits long enough for a busy machine to start them.
    pub(crate) fn with(servers: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("gripfast.toml");
        std::fs::write(&config, format!("[gateway]\nstartup_wait = \"60s\"\n\n{servers}")).unwrap();
        let mut command = Command::new(GRIPFAST);
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config);
        command.arg("--state-dir").arg(dir.path().join("state"));
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_whitespace().find_map(|word| word.strip_suffix("/mcp"));
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
        Self { process, address, dir }
    }

    /// Target argument of a client: the URL of the gateway, or the command that starts one.
    pub(crate) fn target(&self, over: Transport) -> Vec<String> {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        match over {
            Transport::Stdio => {
                let (config, state) = (path("gripfast.toml"), path("stdio-state"));
                let words = [GRIPFAST, "stdio", "--config", &*config, "--state-dir", &*state];
                words.map(str::to_owned).to_vec()
            }
            Transport::Http => vec![format!("{}/mcp", self.address)],
            Transport::Sse => vec![format!("{}/sse", self.address)],
        }
    }

    /// Output of `gripfast status`.
    pub(crate) fn status(&self) -> Value {
        let said =
            Command::new(GRIPFAST).args(["status", "-o", "json", "--url", &*self.address]).output().unwrap();
        serde_json::from_slice(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Asked nicely, it takes its servers along. Fails only if it is gone already.
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

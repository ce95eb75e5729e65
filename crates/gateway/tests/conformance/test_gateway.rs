//! gripfast process in front of the conformance server.

use gripfast_testkit::conformance::{self, ConformanceServer, ServerEra};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

pub(crate) const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");

/// Transport between gripfast and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Stdio,
    Http,
}

/// Position of the server in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    Alone,
    /// There is a sample server before and after it in the config.
    AmongOthers,
}

/// The server behind gripfast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Upstream {
    pub(crate) form: ServerEra,
    pub(crate) transport: Transport,
    pub(crate) placement: Placement,
}

/// A running gateway. Dropping it ends it and the server behind it.
pub(crate) struct TestGateway {
    url: String,
    gateway: Child,
    _behind: Option<ConformanceServer>,
    _state: TempDir,
}

impl TestGateway {
    pub(crate) fn with(upstream: Upstream) -> Self {
        Self::with_keys(upstream, "")
    }

    /// The same with these keys in the table `gateway`.
    pub(crate) fn with_keys(upstream: Upstream, keys: &str) -> Self {
        let behind = (upstream.transport == Transport::Http).then(|| ConformanceServer::start(upstream.form));
        let reached = match &behind {
            Some(listening) => format!("url = {:?}", listening.url()),
            None => format!("command = {:?}\nargs = {:?}", conformance::server(), upstream.form.args()),
        };
        let suite = format!("[servers.suite]\n{reached}\nprefix = \"\"\n");
        let config = match upstream.placement {
            Placement::Alone => suite,
            // The suite calls the first tool without arguments, which this one can be.
            Placement::AmongOthers => {
                sample("before", "tools = { allow = [\"counter\"] }") + &suite + &sample("after", "")
            }
        };
        Self::serve(&format!("[gateway]\nstartup_wait = \"60s\"\n{keys}{config}"), behind)
    }

    pub(crate) fn serve(config: &str, behind: Option<ConformanceServer>) -> Self {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("gripfast.toml");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(GRIPFAST);
        command.arg("serve").arg("--config").arg(&file).arg("--state-dir").arg(state.path());
        command.args(["--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut gateway = command.spawn().unwrap();
        let mut hello = String::new();
        BufReader::new(gateway.stdout.take().unwrap()).read_line(&mut hello).unwrap();
        let url = hello.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
        Self { url, gateway, _behind: behind, _state: state }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

fn sample(name: &str, more: &str) -> String {
    format!("[servers.{name}]\ncommand = {GRIPFAST:?}\nargs = [\"demo-server\"]\n{more}\n")
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        // It takes its children with it.
        let _ = self.gateway.kill();
        let _ = self.gateway.wait();
    }
}

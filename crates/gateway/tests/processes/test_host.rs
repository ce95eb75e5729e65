//! Host, temporary directory, and servers marked as those of one test.

use gripfast::JsonText;
use gripfast::config::{ServerSpec, Target, Template};
use gripfast::{Answer, CallError, Event, Host, ServerStatus, State};
use gripfast_testkit::proc;
use gripfast_testkit::wait::poll;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");

/// Environment variable of the servers of one test and of their descendants.
pub(crate) const MARK: &str = "GRIPFAST_TEST_MARK";

pub(crate) struct TestHost {
    pub(crate) host: Host,
    dir: TempDir,
}

impl TestHost {
    pub(crate) fn new() -> Self {
        let host = Host::builder().client_info("processes", "1").build();
        Self { host, dir: TempDir::new().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// [`Self::path`] as an argument.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The lines of a file; none while it does not exist.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The demo server.
    pub(crate) fn demo(&self, flags: &[&str]) -> ServerSpec {
        self.command(GRIPFAST, &[&["demo-server"], flags].concat())
    }

    /// Server that runs a shell script. The path of the binary is in `$GRIPFAST`.
    pub(crate) fn shell(&self, script: &str) -> ServerSpec {
        self.command("/bin/sh", &["-c", script])
    }

    pub(crate) fn command(&self, command: &str, args: &[&str]) -> ServerSpec {
        let literal = |text: &str| Template::parse(text).unwrap();
        let env = [(MARK, self.mark()), ("GRIPFAST", GRIPFAST)];
        ServerSpec::new(Target::Stdio {
            command: literal(command),
            args: args.iter().map(|arg| literal(arg)).collect(),
            env: env.map(|(name, value)| (name.to_owned(), literal(value))).into(),
            inherit_env: Vec::new(),
            network_env: true,
            cwd: None,
        })
    }

    /// Adds a server and waits until it is ready. Returns the process id.
    pub(crate) async fn spawn_ready(&self, name: &str, spec: ServerSpec) -> u32 {
        self.host.spawn(name, spec).unwrap();
        self.ready(name).await
    }

    /// Waits until a server is ready. Returns the process id.
    pub(crate) async fn ready(&self, name: &str) -> u32 {
        self.until(name, |status| status.supervision.state == State::Ready).await.pid.unwrap()
    }

    /// Waits until a server is ready with another process than `old`.
    pub(crate) async fn replaced(&self, name: &str, old: u32) -> u32 {
        let replaced = |status: &ServerStatus| {
            status.supervision.state == State::Ready && status.pid.is_some_and(|pid| pid != old)
        };
        self.until(name, replaced).await.pid.unwrap()
    }

    /// Waits until the status of a server satisfies a condition.
    pub(crate) async fn until(&self, name: &str, wanted: impl Fn(&ServerStatus) -> bool) -> ServerStatus {
        let found = poll(|| Some(self.status(name)).filter(|status| wanted(status))).await;
        found.unwrap_or_else(|| panic!("waited in vain: {:#?}", self.status(name)))
    }

    pub(crate) async fn state(&self, name: &str, state: State) -> ServerStatus {
        self.until(name, |status| status.supervision.state == state).await
    }

    pub(crate) fn status(&self, name: &str) -> ServerStatus {
        self.host.server_status(name).unwrap()
    }

    /// Returns true if the status of a server has a matching event.
    pub(crate) fn happened(&self, name: &str, what: impl Fn(&Event) -> bool) -> bool {
        self.status(name).events.iter().any(|event| what(&event.event))
    }

    /// Calls a tool and returns its text.
    pub(crate) async fn call(&self, name: &str, tool: &str, arguments: Value) -> Result<String, CallError> {
        call(&self.host, name, tool, arguments).await
    }

    /// Calls `echo`, which must work.
    pub(crate) async fn echo(&self, name: &str, text: &str) {
        let answer = self.call(name, "echo", serde_json::json!({ "text": text })).await;
        assert_eq!(answer.as_deref(), Ok(text));
    }

    fn mark(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }

    /// Live servers of this test and all their descendants.
    pub(crate) fn processes(&self) -> Vec<u32> {
        proc::pids_with_env(&format!("{MARK}={}", self.mark()), "")
    }

    /// Waits until no process of this test is left.
    pub(crate) async fn nothing_is_left(&self) {
        let gone = poll(|| self.processes().is_empty().then_some(())).await;
        let left: Vec<String> = self.processes().into_iter().map(proc::command_line).collect();
        assert!(gone.is_some(), "left behind: {left:?}");
    }
}

/// Calls a tool and returns its text.
pub(crate) async fn call(host: &Host, name: &str, tool: &str, arguments: Value) -> Result<String, CallError> {
    let arguments = JsonText::of(&arguments).unwrap();
    host.call(name, tool, Some(arguments)).await.map(|answer| text(&answer))
}

fn text(answer: &Answer) -> String {
    let result: Value = serde_json::from_str(answer.result().unwrap().get()).unwrap();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

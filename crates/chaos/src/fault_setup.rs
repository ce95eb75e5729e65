//! Setup that a fault needs: flags of the server, its config entry, and the pace of the callers.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::fault::{
    CallerActivity, Challenge, ExpiryAnswer, Fault, FaultAction, RunLength, SuccessorFault, Transport,
};
use crate::gateway::env_marker;
use crate::load::Pace;
use crate::proxy::Break;

/// Tokens that the server requires before and after the fault.
pub(crate) const TOKENS: [&str; 2] = ["first", "second"];
/// Host name that resolves only in a test environment that says so.
pub(crate) const HOST: &str = "upstream.chaos.invalid";

/// Setup of a fault.
#[derive(Debug)]
pub struct Setup {
    /// Flags of the demo server.
    flags: Vec<String>,
    /// Flags of the server that replaces it.
    other_flags: Option<Vec<String>>,
    /// True if a proxy stands between gateway and server.
    pub(crate) behind_proxy: bool,
    /// True if the server starts after the gateway.
    pub(crate) starts_late: bool,
    /// True if the config refers to the server by host name.
    pub(crate) by_name: bool,
    /// Config keys of the server with non-default values, for gripfast only.
    settings: Map<String, Value>,
    /// Pace of the callers.
    pub pace: Pace,
}

impl Setup {
    /// Setup for this fault on this transport.
    #[must_use]
    pub fn for_fault(fault: &Fault, transport: Transport, length: RunLength) -> Self {
        let (seconds, millis) = (Duration::from_secs, Duration::from_millis);
        let work = if fault.callers == CallerActivity::SlowCalls { millis(50) } else { Duration::ZERO };
        let every = length.pick(millis(80), millis(40), millis(40));
        let mut setup = Self {
            flags: Vec::new(),
            other_flags: None,
            behind_proxy: false,
            starts_late: false,
            by_name: false,
            settings: Map::new(),
            pace: Pace { clients: 4, every, work, deadline: seconds(10) },
        };
        let mut connect = "30s";
        match fault.action {
            FaultAction::Kill
            | FaultAction::KillTenTimes
            | FaultAction::KillOnReturn
            | FaultAction::Junk
            | FaultAction::FloodStderr => {}
            FaultAction::KillGateway | FaultAction::Refuse(_) => {}
            FaultAction::KillWithStandby => setup.set("spare", json!(1)),
            FaultAction::KillWithFaultySuccessor(successor) => {
                setup.other_flags = Some(words(match successor {
                    SuccessorFault::Exits | SuccessorFault::CrashLoops => "--exit-at-start always",
                    SuccessorFault::NeverHandshakes => "--never-answer-initialize",
                }));
                if successor == SuccessorFault::NeverHandshakes {
                    connect = "1s";
                }
                setup.set(
                    "restart",
                    match successor {
                        // Never parked, as an operator who expects this fault would configure it: calls are held.
                        SuccessorFault::Exits | SuccessorFault::NeverHandshakes => json!({ "max": 10_000 }),
                        // By default a parked server is probed once a minute, which is too long for a test.
                        SuccessorFault::CrashLoops => json!({ "parked_probe": "1s" }),
                    },
                );
                // Keeps the number of calls that are held at a time below the limit of 1,024.
                setup.pace.every = length.pick(millis(80), millis(80), millis(400));
            }
            FaultAction::SlowStart => {
                let delay = length.pick(millis(1500), seconds(3), seconds(30));
                setup.flags = words(&format!("--start-delay {}ms", delay.as_millis()));
                connect = "60s";
            }
            FaultAction::Freeze => setup.set_hang_timeouts(length),
            FaultAction::BlackHole => {
                setup.behind_proxy = true;
                setup.set_hang_timeouts(length);
            }
            FaultAction::HugeFrame => {
                let limit = if length == RunLength::Short { "1MiB" } else { "16MiB" };
                setup.set("max_message", json!(limit));
            }
            FaultAction::KillParent => setup.flags = words("--fork-grandchild"),
            FaultAction::Restart(session_form) => {
                let word = match session_form {
                    ExpiryAnswer::NotFound => "404",
                    ExpiryAnswer::BadRequest => "400-no-id",
                };
                setup.flags = words(&format!("--session-expiry-form {word}"));
                // Four clients make ten calls a second.
                setup.pace.every = millis(400);
            }
            FaultAction::ExpireSession
            | FaultAction::TrickleAnswers
            | FaultAction::BreakAnswers(Break::Reset) => setup.behind_proxy = true,
            FaultAction::BreakAnswers(Break::Close) => {
                setup.behind_proxy = true;
                setup.flags = words("--sse-answers");
            }
            FaultAction::ExpireToken(challenge) => {
                setup.flags = words(&format!("--require-bearer {}", TOKENS[0]));
                if challenge == Challenge::Missing {
                    setup.flags.push("--no-challenge".to_owned());
                }
            }
            FaultAction::LoseToken => {
                setup.flags = words(&format!("--require-bearer {}", TOKENS[0]));
                // By default the token is read again once a minute, which is too long for a test.
                setup.set("restart", json!({ "parked_probe": "1s" }));
            }
            FaultAction::FailDns => setup.by_name = true,
            FaultAction::StartLate => setup.starts_late = true,
            FaultAction::ReplaceTools => {
                setup.other_flags = Some(words("--tools 2 --changed-schema"));
                // Otherwise the changed tool waits for approval.
                setup.set("pins", json!("warn"));
            }
        }
        let deadline = format!("{}ms", setup.pace.deadline.as_millis());
        let timeouts = json!({ "call": deadline, "reconnect_wait": deadline, "connect": connect });
        setup.set("timeouts", timeouts);
        if transport != Transport::Stdio {
            // Only the legacy era has sessions.
            setup.set("protocol", json!("legacy"));
        }
        setup
    }

    /// Shortens the deadline and the probe timeout. A silent server costs its callers their whole deadline and is
    /// replaced when it does not answer a probe, which by default waits for half a minute.
    fn set_hang_timeouts(&mut self, length: RunLength) {
        let (short, long) = (Duration::from_secs(2), Duration::from_secs(10));
        self.pace.deadline = length.pick(short, Duration::from_secs(5), long);
        self.set("keepalive_timeout", json!("1s"));
    }

    fn set(&mut self, key: &str, value: Value) {
        self.settings.insert(key.to_owned(), value);
    }

    /// True if a standby is configured.
    pub(crate) fn has_standby(&self) -> bool {
        self.settings.contains_key("spare")
    }

    /// Flags of a server with its counter file in this directory.
    pub(crate) fn flags(&self, dir: &Path) -> Vec<String> {
        with_counter(&self.flags, dir)
    }

    /// Flags of the other server, if the fault has one.
    pub(crate) fn other_flags(&self, dir: &Path) -> Option<Vec<String>> {
        self.other_flags.as_ref().map(|flags| with_counter(flags, dir))
    }

    /// Command and arguments of the child. While the file `other` exists, it starts the other server.
    pub(crate) fn command(&self, gripfast: &str, dir: &Path) -> (String, Vec<String>) {
        let demo = |flags: Vec<String>| [vec!["demo-server".to_owned()], flags].concat();
        let usual = demo(self.flags(dir));
        let Some(other) = self.other_flags(dir) else { return (gripfast.to_owned(), usual) };
        let exec = |args: &[String]| format!("exec '{gripfast}' {}", args.join(" "));
        let script =
            format!("if [ -e '{}' ]; then {}; fi; {}", other_file(dir), exec(&demo(other)), exec(&usual));
        ("/bin/sh".to_owned(), vec!["-c".to_owned(), script])
    }

    /// Removes settings that only gripfast has, and reduces the load to ten calls a second, so that the fault and not
    /// the load is tested.
    #[must_use]
    pub(crate) fn for_any_gateway(mut self) -> Self {
        self.settings.clear();
        self.pace.every = Duration::from_millis(400);
        self
    }

    /// Config entry of a stdio server.
    pub(crate) fn stdio_entry(&self, gripfast: &str, dir: &Path) -> Value {
        let (command, args) = self.command(gripfast, dir);
        let (name, value) = env_marker(dir);
        self.with_settings(json!({ "command": command, "args": args, "env": { name: value } }))
    }

    /// Config entry of a remote server.
    pub(crate) fn http_entry(&self, dir: &Path, transport: Transport, port: u16) -> Value {
        let path = if transport == Transport::Sse { "sse" } else { "mcp" };
        let host = if self.by_name { HOST } else { "127.0.0.1" };
        let mut described = json!({ "url": format!("http://{host}:{port}/{path}"), "transport": transport });
        if self.flags.iter().any(|flag| flag == "--require-bearer") {
            let token = format!("Bearer ${{file:{}}}", dir.join("token").display());
            described["headers"] = json!({ "Authorization": token });
        }
        self.with_settings(described)
    }

    fn with_settings(&self, mut described: Value) -> Value {
        for (key, value) in &self.settings {
            described[key] = value.clone();
        }
        described
    }
}

/// Path of the file that selects the other server.
pub(crate) fn other_file(dir: &Path) -> String {
    dir.join("other").display().to_string()
}

/// Path of the file in which side effects are counted.
pub(crate) fn counter_file(dir: &Path) -> String {
    dir.join("counter").display().to_string()
}

fn with_counter(flags: &[String], dir: &Path) -> Vec<String> {
    [flags, &["--counter-file".to_owned(), counter_file(dir)]].concat()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

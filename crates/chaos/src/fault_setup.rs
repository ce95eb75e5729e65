//! What a fault asks for before it can strike: which flags the server has, what the config says, what callers do.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::fault::{Act, Callers, Challenge, Fault, Form, SessionForm, Sickness, Transport};
use crate::gateway::mark;
use crate::load::Pace;
use crate::proxy::Break;

/// The token that a server wants at first, and the one that it wants later.
pub(crate) const TOKENS: [&str; 2] = ["first", "second"];
/// A name that resolves only where a scene says so.
pub(crate) const HOST: &str = "upstream.chaos.invalid";

/// What a fault asks for.
#[derive(Debug)]
pub struct Stage {
    /// Flags of the demo server.
    flags: Vec<String>,
    /// Flags of a server that starts while it is to be another.
    other_flags: Option<Vec<String>>,
    /// Whether there is a relay between gateway and server.
    pub(crate) relayed: bool,
    /// Whether the server starts after the gateway.
    pub(crate) late: bool,
    /// Whether the gateway knows the server by a name.
    pub(crate) named: bool,
    /// Keys of the server's config that are not left at their defaults, and that only ours knows.
    settings: Map<String, Value>,
    /// What callers do.
    pub pace: Pace,
}

impl Stage {
    /// For this fault on this transport.
    #[must_use]
    pub fn of(fault: &Fault, transport: Transport, form: Form) -> Self {
        let (seconds, millis) = (Duration::from_secs, Duration::from_millis);
        let work = if fault.callers == Callers::Wait { millis(50) } else { Duration::ZERO };
        let every = form.span(millis(80), millis(40), millis(40));
        let mut stage = Self {
            flags: Vec::new(),
            other_flags: None,
            relayed: false,
            late: false,
            named: false,
            settings: Map::new(),
            pace: Pace { clients: 4, every, work, deadline: seconds(10) },
        };
        let mut connect = "30s";
        match fault.act {
            Act::Kill | Act::KillTenTimes | Act::KillOver | Act::Junk | Act::FloodStderr => {}
            Act::KillGateway | Act::Refuse(_) => {}
            Act::KillSpared => stage.set("spare", json!(1)),
            Act::Relapse(sickness) => {
                stage.other_flags = Some(words(match sickness {
                    Sickness::Exits | Sickness::CrashLoops => "--exit-at-start always",
                    Sickness::Mute => "--never-answer-initialize",
                }));
                if sickness == Sickness::Mute {
                    connect = "1s";
                }
                stage.set(
                    "restart",
                    match sickness {
                        // Never parked, as an operator would have it who knows of the sickness: calls are held.
                        Sickness::Exits | Sickness::Mute => json!({ "max": 10_000 }),
                        // Parked, it tries itself once in a minute by default; that is too long to sit through.
                        Sickness::CrashLoops => json!({ "parked_probe": "1s" }),
                    },
                );
                // All of them may have to be held at once, and 1,024 is the most.
                stage.pace.every = form.span(millis(80), millis(80), millis(400));
            }
            Act::SlowStart => {
                let delay = form.span(millis(1500), seconds(3), seconds(30));
                stage.flags = words(&format!("--start-delay {}ms", delay.as_millis()));
                connect = "60s";
            }
            Act::Freeze => stage.hangs(form),
            Act::BlackHole => {
                stage.relayed = true;
                stage.hangs(form);
            }
            Act::HugeFrame => {
                let limit = if form == Form::Short { "1MiB" } else { "16MiB" };
                stage.set("max_message", json!(limit));
            }
            Act::KillParent => stage.flags = words("--fork-grandchild"),
            Act::Restart(session_form) => {
                let word = match session_form {
                    SessionForm::NotFound => "404",
                    SessionForm::BadRequest => "400-no-id",
                };
                stage.flags = words(&format!("--session-expiry-form {word}"));
                // Ten calls a second.
                stage.pace.every = millis(400);
            }
            Act::ExpireSession | Act::Drip | Act::BreakAnswers(Break::Reset) => stage.relayed = true,
            Act::BreakAnswers(Break::Close) => {
                stage.relayed = true;
                stage.flags = words("--sse-answers");
            }
            Act::ExpireToken(challenge) => {
                stage.flags = words(&format!("--require-bearer {}", TOKENS[0]));
                if challenge == Challenge::Missing {
                    stage.flags.push("--no-challenge".to_owned());
                }
            }
            Act::LoseToken => {
                stage.flags = words(&format!("--require-bearer {}", TOKENS[0]));
                // The token is looked at again once in a minute by default; that is too long to sit through.
                stage.set("restart", json!({ "parked_probe": "1s" }));
            }
            Act::LoseName => stage.named = true,
            Act::StartLate => stage.late = true,
            Act::OtherTools => {
                stage.other_flags = Some(words("--tools 2 --changed-schema"));
                // Otherwise the changed tool waits for a person's approval, as it should.
                stage.set("pins", json!("warn"));
            }
        }
        let deadline = format!("{}ms", stage.pace.deadline.as_millis());
        let timeouts = json!({ "call": deadline, "reconnect_wait": deadline, "connect": connect });
        stage.set("timeouts", timeouts);
        if transport != Transport::Stdio {
            // Only the older era has sessions to lose.
            stage.set("protocol", json!("legacy"));
        }
        stage
    }

    /// A server that is silent costs its callers their whole deadline, and is given up when it does not answer a
    /// probe; by default a probe waits for half a minute.
    fn hangs(&mut self, form: Form) {
        let (short, long) = (Duration::from_secs(2), Duration::from_secs(10));
        self.pace.deadline = form.span(short, Duration::from_secs(5), long);
        self.set("keepalive_timeout", json!("1s"));
    }

    fn set(&mut self, key: &str, value: Value) {
        self.settings.insert(key.to_owned(), value);
    }

    /// Whether a second child stands ready.
    pub(crate) fn is_spared(&self) -> bool {
        self.settings.contains_key("spare")
    }

    /// The flags of a server that counts in this directory.
    pub(crate) fn flags(&self, dir: &Path) -> Vec<String> {
        with_counter(&self.flags, dir)
    }

    /// The flags of the other server, where the fault has one.
    pub(crate) fn other_flags(&self, dir: &Path) -> Option<Vec<String>> {
        self.other_flags.as_ref().map(|flags| with_counter(flags, dir))
    }

    /// The command of a child, and its arguments. While the file `other` is there, the other server starts.
    pub(crate) fn command(&self, gripfast: &str, dir: &Path) -> (String, Vec<String>) {
        let demo = |flags: Vec<String>| [vec!["demo-server".to_owned()], flags].concat();
        let usual = demo(self.flags(dir));
        let Some(other) = self.other_flags(dir) else { return (gripfast.to_owned(), usual) };
        let exec = |args: &[String]| format!("exec '{gripfast}' {}", args.join(" "));
        let script =
            format!("if [ -e '{}' ]; then {}; fi; {}", other_file(dir), exec(&demo(other)), exec(&usual));
        ("/bin/sh".to_owned(), vec!["-c".to_owned(), script])
    }

    /// Forgets what another gateway would not know, and might not like, and calls ten times a second: it is to be
    /// struck by the fault and not by the load.
    #[must_use]
    pub(crate) fn for_any(mut self) -> Self {
        self.settings.clear();
        self.pace.every = Duration::from_millis(400);
        self
    }

    /// What the config says about a child.
    pub(crate) fn child(&self, gripfast: &str, dir: &Path) -> Value {
        let (command, args) = self.command(gripfast, dir);
        let (name, value) = mark(dir);
        self.with_settings(json!({ "command": command, "args": args, "env": { name: value } }))
    }

    /// What the config says about a server elsewhere.
    pub(crate) fn remote(&self, dir: &Path, transport: Transport, port: u16) -> Value {
        let path = if transport == Transport::Sse { "sse" } else { "mcp" };
        let host = if self.named { HOST } else { "127.0.0.1" };
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

/// The file that makes the other server start.
pub(crate) fn other_file(dir: &Path) -> String {
    dir.join("other").display().to_string()
}

/// The file in which side effects are counted.
pub(crate) fn counter_file(dir: &Path) -> String {
    dir.join("counter").display().to_string()
}

fn with_counter(flags: &[String], dir: &Path) -> Vec<String> {
    [flags, &["--counter-file".to_owned(), counter_file(dir)]].concat()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

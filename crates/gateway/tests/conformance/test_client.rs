//! gripfast as the client of somebody's server: by its command line, or with a real client in front of it.

use crate::scene::{GRIPFAST, Scene};
use gripfast_testkit::clients::{Client, Driven, Mode};
use gripfast_testkit::peers::Transport;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// `gripfast tools` and `gripfast call`, each of which connects by itself.
    CommandLine,
    /// A client of the official SDK, connected to a gateway whose only server is the one that is meant.
    Through(Client, Mode),
}

/// A caller at work.
pub(crate) enum Player {
    CommandLine(CommandLine),
    Through(Box<Through>),
}

impl Caller {
    /// Meets the server at this address.
    pub(crate) fn meets(self, url: &str) -> Player {
        let server = format!("[servers.suite]\nurl = {url:?}\n");
        match self {
            Self::CommandLine => {
                let dir = tempfile::tempdir().unwrap();
                std::fs::write(dir.path().join("gripfast.toml"), server).unwrap();
                Player::CommandLine(CommandLine { dir })
            }
            Self::Through(client, mode) => {
                let scene = Scene::serve(
                    &format!("[gateway]\nstartup_wait = \"60s\"\n{server}prefix = \"\"\n"),
                    None,
                );
                let runtime = Runtime::new().unwrap();
                let driven = runtime
                    .block_on(async { client.start(mode, Transport::Http, &[scene.url().to_owned()]) });
                Player::Through(Box::new(Through { runtime, driven: Some(driven), _scene: scene }))
            }
        }
    }
}

impl Player {
    /// The tools that the server has, as they arrive.
    pub(crate) fn tools(&mut self) -> Vec<Value> {
        match self {
            Self::CommandLine(line) => {
                let listed = line.run(&["tools", "suite", "-o", "json"]);
                listed["servers"][0]["tools"].as_array().cloned().unwrap_or_default()
            }
            Self::Through(through) => {
                through.does(json!({ "do": "tools" })).as_array().cloned().unwrap_or_default()
            }
        }
    }

    /// Calls a tool. Whatever form the server wants filled in is accepted with its defaults.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) {
        match self {
            Self::CommandLine(line) => {
                let arguments = arguments.to_string();
                line.run(&["call", "suite", tool, &arguments, "--accept-defaults", "-o", "json"]);
            }
            Self::Through(through) => {
                through.does(json!({ "do": "call", "tool": tool, "arguments": arguments }));
            }
        }
    }

    /// Reads every resource and gets every prompt, where the caller can.
    pub(crate) fn reads_everything(&mut self) {
        let Self::Through(through) = self else { return };
        let listed = through.does(json!({ "do": "list" }));
        for uri in listed["resources"].as_array().unwrap() {
            through.does(json!({ "do": "read", "uri": uri }));
        }
        for name in listed["prompts"].as_array().unwrap() {
            through.does(json!({ "do": "prompt", "name": name }));
        }
    }

    /// Goes, when everything is done.
    pub(crate) fn leaves(self) {
        if let Self::Through(mut through) = self {
            let driven = through.driven.take().unwrap();
            through.runtime.block_on(driven.leaves());
        }
    }
}

pub(crate) struct CommandLine {
    dir: TempDir,
}

impl CommandLine {
    fn run(&self, args: &[&str]) -> Value {
        let mut command = Command::new(GRIPFAST);
        command.args(args).arg("--config").arg(self.dir.path().join("gripfast.toml"));
        command.arg("--state-dir").arg(self.dir.path()).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}: {said}"))
    }
}

pub(crate) struct Through {
    runtime: Runtime,
    driven: Option<Driven>,
    _scene: Scene,
}

impl Through {
    fn does(&mut self, command: Value) -> Value {
        let driven = self.driven.as_mut().unwrap();
        self.runtime.block_on(driven.does(command))
    }
}

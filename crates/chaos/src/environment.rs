//! A gateway with one server behind it, in a directory in which both leave their traces.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::alone;
use crate::client::{self, Client, Reply};
use crate::fault::{Fault, Form, Transport};
use crate::gateway::{Gateway, LONG_ENOUGH, LOOK_AGAIN, Launch, Subject, mark};
use crate::ledger;
use crate::load::Tools;
use crate::proc;
use crate::proxy::Proxy;
use crate::server::Server;
use crate::stage::{self, HOST, Stage, TOKENS};
use crate::{Cannot, Result};

/// The name of the server in the config.
pub const SERVER: &str = "demo";
/// How long what is over may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// A gateway that is asked for its tools answers within this, or is taken for hung.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// A gateway with one server behind it.
#[derive(Debug)]
pub struct Scene {
    /// What the fault asked for.
    pub stage: Stage,
    /// The gateway.
    pub gateway: Gateway,
    /// The server, unless it is a child of the gateway.
    pub server: Option<Server>,
    /// The relay before it, if there is one.
    pub proxy: Option<Proxy>,
    /// The call under way that has the server misbehave.
    pub(crate) misbehaving: Option<JoinHandle<()>>,
    subject: Subject,
    _swept: Swept,
    dir: TempDir,
}

/// Kills what is left of a scene when it is over, however it ended.
#[derive(Debug)]
struct Swept(String);

impl Drop for Swept {
    fn drop(&mut self) {
        for pid in proc::carrying(&self.0, "") {
            // It may have ended meanwhile.
            let _ = proc::signal(pid, Signal::KILL);
        }
    }
}

impl Scene {
    /// Sets it: the server first, unless it is to be late, then the gateway.
    ///
    /// # Errors
    /// Something does not start.
    pub async fn set(fault: &Fault, transport: Transport, form: Form, subject: &Subject) -> Result<Self> {
        let stage = Stage::of(fault, transport, form);
        let stage = if subject.peer.is_some() { stage.for_any() } else { stage };
        let temp = TempDir::with_prefix("chaos-")?;
        let dir = temp.path();
        let (mut server, mut proxy) = (None, None);
        let described = if transport == Transport::Stdio {
            stage.child(&subject.gripfast.display().to_string(), dir)
        } else {
            let started = server.insert(Server::start(subject.gripfast.clone(), stage.flags(dir)).await?);
            if stage.late {
                started.kill().await?;
            }
            if stage.relayed {
                proxy = Some(Proxy::to(started.port()).await?);
            }
            stage.remote(dir, transport, proxy.as_ref().map_or(started.port(), Proxy::port))
        };
        let config = dir.join("servers.json");
        std::fs::write(&config, json!({ "mcpServers": { SERVER: described } }).to_string())?;
        set_token(dir, TOKENS[0])?;
        let within = if stage.named { own_names(dir)? } else { Vec::new() };
        let launch = Launch { subject: subject.clone(), dir: dir.to_owned(), config, within };
        let swept = Swept(marked(dir));
        let gateway = Gateway::start(launch).await?;
        let subject = subject.clone();
        Ok(Self { stage, gateway, server, proxy, misbehaving: None, subject, _swept: swept, dir: temp })
    }

    /// The names of the tools, once they are listed.
    ///
    /// # Errors
    /// They are not, within a minute.
    pub async fn tools(&self) -> Result<Tools> {
        if self.stage.late {
            return Ok(Tools::of(SERVER));
        }
        let began = Instant::now();
        while began.elapsed() < LONG_ENOUGH {
            if let Some(tools) = self.names().await.and_then(|names| Tools::among(&names, SERVER)) {
                if self.stage.is_spared() {
                    self.spared().await?;
                }
                return Ok(tools);
            }
            tokio::time::sleep(LOOK_AGAIN * 10).await;
        }
        Err(Cannot::because("the gateway", &"it does not list the tools of its server"))
    }

    /// What a client that comes now finds listed.
    pub async fn names(&self) -> Option<Vec<String>> {
        let era = self.subject.eras()[0];
        let client = Client::new(self.gateway.url(), era).ok()?;
        let looking = async {
            match client.meet().await {
                Reply::Result(_) => client.tools().await,
                _ => None,
            }
        };
        // Whoever does not answer is asked again by whoever wants to know.
        tokio::time::timeout(ANSWERS_WITHIN, looking).await.ok().flatten()
    }

    /// The server's process.
    ///
    /// # Errors
    /// It has none.
    pub async fn pid(&self) -> Result<u32> {
        if let Some(server) = &self.server {
            return server.pid().ok_or_else(|| Cannot::because("the server", &"it does not run"));
        }
        let began = Instant::now();
        while began.elapsed() < LONG_ENOUGH {
            if let Some(pid) = proc::carrying(&self.mark(), "demo-server").pop() {
                return Ok(pid);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Err(Cannot::because("the gateway", &"it has no child"))
    }

    /// The child in use, once there is another one to take its place.
    ///
    /// # Errors
    /// There is none within a minute.
    pub async fn spared(&self) -> Result<u32> {
        let url = self.gateway.url().replace("/mcp", "/api/v1/status");
        let began = Instant::now();
        while began.elapsed() < LONG_ENOUGH {
            let status = client::get(&url).await.unwrap_or_default();
            let server = &status["upstreams"][0];
            let pid = server["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
            if let Some(pid) = pid.filter(|_| server["spare"] == "ready") {
                return Ok(pid);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Err(Cannot::because("the gateway", &"it has no spare"))
    }

    /// The gateway's own process, and all that it started.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        proc::carrying(&self.mark(), "")
    }

    /// How long the server takes by itself, with nobody between it and us.
    ///
    /// # Errors
    /// It does not start.
    pub async fn alone(&self) -> Result<Duration> {
        if self.server.is_some() {
            return alone::on_http(&self.subject.gripfast, &self.stage.flags(self.path()), TOKENS[0]).await;
        }
        let (command, args) = self.stage.command(&self.subject.gripfast.display().to_string(), self.path());
        alone::on_stdio(&command, &args).await
    }

    /// Makes the server another one from its next start on, or itself again.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn becomes_another(&mut self, other: bool) -> Result<()> {
        let (usual, others) = (self.stage.flags(self.path()), self.stage.other_flags(self.path()));
        if let Some(server) = &mut self.server {
            server.becomes(others.filter(|_| other).unwrap_or(usual));
            return Ok(());
        }
        let file = stage::other_file(self.path());
        match other {
            true => std::fs::write(file, "")?,
            false => std::fs::remove_file(file)?,
        }
        Ok(())
    }

    /// Whether the server's name resolves.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn name_resolves(&self, resolves: bool) -> Result<()> {
        write_hosts(self.path(), resolves)
    }

    /// The token that the config has from now on.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn has_token(&self, token: &str) -> Result<()> {
        set_token(self.path(), token)
    }

    /// How often the server has carried out each token.
    #[must_use]
    pub fn effects(&self) -> HashMap<String, usize> {
        let lines = std::fs::read_to_string(stage::counter_file(self.path()));
        ledger::effects(&lines.unwrap_or_default())
    }

    /// What the gateway said, for people.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("gateway.log")).unwrap_or_default()
    }

    /// Ends the gateway and says what it left behind.
    ///
    /// # Errors
    /// It does not end.
    pub async fn close(self) -> Result<Vec<String>> {
        let mark = self.mark();
        self.gateway.stop().await?;
        let ended = Instant::now();
        loop {
            let left = proc::carrying(&mark, "");
            if left.is_empty() || ended.elapsed() > GONE_WITHIN {
                // Counted, and then cleared away with the scene.
                return Ok(left.iter().map(|pid| proc::command_line(*pid)).collect());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn mark(&self) -> String {
        marked(self.path())
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// What everything of a scene in this directory has in its environment.
fn marked(dir: &Path) -> String {
    let (name, value) = mark(dir);
    format!("{name}={value}")
}

fn set_token(dir: &Path, token: &str) -> Result<()> {
    Ok(std::fs::write(dir.join("token"), token)?)
}

fn write_hosts(dir: &Path, resolves: bool) -> Result<()> {
    let known = if resolves { format!("127.0.0.1 {HOST}\n") } else { String::new() };
    Ok(std::fs::write(dir.join("hosts"), format!("127.0.0.1 localhost\n{known}"))?)
}

/// Runs a command where names are looked up in files of this directory only.
fn own_names(dir: &Path) -> Result<Vec<String>> {
    write_hosts(dir, true)?;
    std::fs::write(dir.join("nsswitch.conf"), "hosts: files\n")?;
    let file = |name: &str| PathBuf::from(dir).join(name).display().to_string();
    let mounts = ["hosts", "nsswitch.conf"].map(|name| format!("mount --bind '{}' /etc/{name}", file(name)));
    let script = format!("{} && exec \"$0\" \"$@\"", mounts.join(" && "));
    Ok(["unshare", "--map-root-user", "--mount", "/bin/sh", "-c", &script].map(str::to_owned).to_vec())
}

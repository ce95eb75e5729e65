//! Test environment of a row: a gateway with one server, in a temporary directory that holds their files.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::baseline;
use crate::client::{self, Reply};
use crate::fault::{Fault, RunLength, Transport};
use crate::fault_setup::{self, HOST, Setup, TOKENS};
use crate::gateway::{Gateway, Launch, POLL_INTERVAL, START_TIMEOUT, Subject, ToolAccess, env_marker};
use crate::ledger;
use crate::load::Tools;
use crate::proxy::Proxy;
use crate::server::Server;
use gripfast_measure::proc;
use gripfast_measure::{MeasureError, Result};

/// The name of the server in the config.
pub const SERVER: &str = "demo";
/// Time limit for processes to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a tools listing, after which the gateway counts as hung.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// A running gateway with one server.
#[derive(Debug)]
pub struct Testbed {
    /// Setup of the fault.
    pub setup: Setup,
    /// The gateway.
    pub gateway: Gateway,
    /// The server, unless it is a child of the gateway.
    pub server: Option<Server>,
    /// Proxy between gateway and server, if the fault needs one.
    pub proxy: Option<Proxy>,
    /// Call in flight that makes the server misbehave.
    pub(crate) misbehaving: Option<JoinHandle<()>>,
    subject: Subject,
    _swept: ProcessReaper,
    dir: TempDir,
}

/// Kills all remaining processes of a test environment on drop.
#[derive(Debug)]
pub(crate) struct ProcessReaper(String);

impl ProcessReaper {
    /// Sweeps the processes that were started for this directory.
    pub(crate) fn of(dir: &Path) -> Self {
        Self(marker_entry(dir))
    }

    /// Processes that live.
    pub(crate) fn processes(&self) -> Vec<u32> {
        proc::pids_with_env(&self.0, "")
    }
}

impl Drop for ProcessReaper {
    fn drop(&mut self) {
        for pid in self.processes() {
            // It may have exited meanwhile.
            let _ = proc::signal(pid, Signal::KILL);
        }
    }
}

impl Testbed {
    /// Starts the server, unless the fault starts it later, and then the gateway.
    ///
    /// # Errors
    /// A process does not start.
    pub async fn start(
        fault: &Fault,
        transport: Transport,
        length: RunLength,
        subject: &Subject,
    ) -> Result<Self> {
        let setup = Setup::for_fault(fault, transport, length);
        let setup = if subject.peer.is_some() { setup.for_any_gateway() } else { setup };
        let temp = TempDir::with_prefix("chaos-")?;
        let dir = temp.path();
        let (mut server, mut proxy) = (None, None);
        let described = if transport == Transport::Stdio {
            setup.stdio_entry(&subject.gripfast.display().to_string(), dir)
        } else {
            let started = server.insert(Server::start(subject.gripfast.clone(), setup.flags(dir)).await?);
            if setup.starts_late {
                started.kill().await?;
            }
            if setup.behind_proxy {
                proxy = Some(Proxy::start(started.port()).await?);
            }
            setup.http_entry(dir, transport, proxy.as_ref().map_or(started.port(), Proxy::port))
        };
        let config = dir.join("servers.json");
        let mut file = json!({ "mcpServers": { SERVER: described } });
        if subject.access == ToolAccess::Search {
            file["gateway"] = json!({ "exposure": "search" });
        }
        std::fs::write(&config, file.to_string())?;
        write_token(dir, TOKENS[0])?;
        let within = if setup.by_name { private_hosts_wrapper(dir)? } else { Vec::new() };
        let launch = Launch { subject: subject.clone(), dir: dir.to_owned(), config, wrapper: within };
        let swept = ProcessReaper::of(dir);
        let gateway = Gateway::start(launch).await?;
        let subject = subject.clone();
        Ok(Self { setup, gateway, server, proxy, misbehaving: None, subject, _swept: swept, dir: temp })
    }

    /// Waits until the tools are listed and returns their names.
    ///
    /// # Errors
    /// They are not listed within a minute.
    pub async fn tools(&self) -> Result<Tools> {
        if self.setup.starts_late {
            return Ok(Tools::for_server(SERVER));
        }
        let began = Instant::now();
        while began.elapsed() < START_TIMEOUT {
            if let Some(tools) = self.listed_tools().await.and_then(|names| Tools::find_in(&names, SERVER)) {
                if self.setup.has_standby() {
                    self.pid_with_standby().await?;
                }
                return Ok(tools);
            }
            tokio::time::sleep(POLL_INTERVAL * 10).await;
        }
        Err(MeasureError::new("the gateway", &"the tools of its server are not listed"))
    }

    /// Names of the tools that a new client sees.
    pub async fn listed_tools(&self) -> Option<Vec<String>> {
        let era = self.subject.eras()[0];
        let client = self.subject.client(self.gateway.url(), era).ok()?;
        let looking = async {
            match client.initialize().await {
                Reply::Result(_) => client.tools().await,
                _ => None,
            }
        };
        // Callers retry after a timeout.
        tokio::time::timeout(LIST_TIMEOUT, looking).await.ok().flatten()
    }

    /// Process id of the server.
    ///
    /// # Errors
    /// The server has no process.
    pub async fn server_pid(&self) -> Result<u32> {
        if let Some(server) = &self.server {
            return server.pid().ok_or_else(|| MeasureError::new("the server", &"not running"));
        }
        let began = Instant::now();
        while began.elapsed() < START_TIMEOUT {
            if let Some(pid) = proc::pids_with_env(&self.mark(), "demo-server").pop() {
                return Ok(pid);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Err(MeasureError::new("the gateway", &"no child process"))
    }

    /// Process id of the child in use, once a standby is ready.
    ///
    /// # Errors
    /// No standby is ready within a minute.
    pub async fn pid_with_standby(&self) -> Result<u32> {
        let url = self.gateway.url().replace("/mcp", "/api/v1/status");
        let began = Instant::now();
        while began.elapsed() < START_TIMEOUT {
            let status = client::get(&url).await.unwrap_or_default();
            let server = &status["upstreams"][0];
            let pid = server["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
            if let Some(pid) = pid.filter(|_| server["spare"] == "ready") {
                return Ok(pid);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Err(MeasureError::new("the gateway", &"no spare is ready"))
    }

    /// Processes of the gateway and everything that it started.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        proc::pids_with_env(&self.mark(), "")
    }

    /// Start, handshake and listing of the server without a gateway.
    ///
    /// # Errors
    /// The server does not start.
    pub async fn time_without_gateway(&self) -> Result<Duration> {
        if self.server.is_some() {
            return baseline::measure_http(&self.subject.gripfast, &self.setup.flags(self.path()), TOKENS[0])
                .await;
        }
        let (command, args) = self.setup.command(&self.subject.gripfast.display().to_string(), self.path());
        baseline::measure_stdio(&command, &args).await
    }

    /// Selects the server for the next start: the other one or the original one.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn use_other_server(&mut self, other: bool) -> Result<()> {
        let (usual, others) = (self.setup.flags(self.path()), self.setup.other_flags(self.path()));
        if let Some(server) = &mut self.server {
            server.set_flags(others.filter(|_| other).unwrap_or(usual));
            return Ok(());
        }
        let file = fault_setup::other_file(self.path());
        match other {
            true => std::fs::write(file, "")?,
            false => std::fs::remove_file(file)?,
        }
        Ok(())
    }

    /// Makes the server's host name resolve or not.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn set_name_resolves(&self, resolves: bool) -> Result<()> {
        write_hosts(self.path(), resolves)
    }

    /// Sets the token in the config.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn set_token(&self, token: &str) -> Result<()> {
        write_token(self.path(), token)
    }

    /// Executions per token, from the server's counter file.
    #[must_use]
    pub fn effects(&self) -> ledger::ServerRecord {
        let lines = std::fs::read_to_string(fault_setup::counter_file(self.path()));
        ledger::effects(&lines.unwrap_or_default())
    }

    /// Log of the gateway.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("gateway.log")).unwrap_or_default()
    }

    /// Stops the gateway and returns the command lines of the processes that it left behind.
    ///
    /// # Errors
    /// The gateway does not exit.
    pub async fn close(self) -> Result<Vec<String>> {
        let mark = self.mark();
        self.gateway.stop().await?;
        let ended = Instant::now();
        loop {
            let left = proc::pids_with_env(&mark, "");
            if left.is_empty() || ended.elapsed() > EXIT_TIMEOUT {
                // Returned for the count; they are killed when the test environment is dropped.
                return Ok(left.iter().map(|pid| proc::command_line(*pid)).collect());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn mark(&self) -> String {
        marker_entry(self.path())
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Environment entry that marks every process of this directory.
fn marker_entry(dir: &Path) -> String {
    let (name, value) = env_marker(dir);
    format!("{name}={value}")
}

fn write_token(dir: &Path, token: &str) -> Result<()> {
    Ok(std::fs::write(dir.join("token"), token)?)
}

fn write_hosts(dir: &Path, resolves: bool) -> Result<()> {
    let known = if resolves { format!("127.0.0.1 {HOST}\n") } else { String::new() };
    Ok(std::fs::write(dir.join("hosts"), format!("127.0.0.1 localhost\n{known}"))?)
}

/// Command prefix that makes host names resolve only from files in this directory.
fn private_hosts_wrapper(dir: &Path) -> Result<Vec<String>> {
    write_hosts(dir, true)?;
    std::fs::write(dir.join("nsswitch.conf"), "hosts: files\n")?;
    let file = |name: &str| PathBuf::from(dir).join(name).display().to_string();
    let mounts = ["hosts", "nsswitch.conf"].map(|name| format!("mount --bind '{}' /etc/{name}", file(name)));
    let script = format!("{} && exec \"$0\" \"$@\"", mounts.join(" && "));
    Ok(["unshare", "--map-root-user", "--mount", "/bin/sh", "-c", &script].map(str::to_owned).to_vec())
}

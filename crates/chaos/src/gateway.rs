//! The gateway under test as a process: gripfast, or another gateway given by its command and URL.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::{Client, Reply};
use gripfast_measure::Era;
use gripfast_measure::proc;
use gripfast_measure::{MeasureError, Result};

/// Gateway under test.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The gripfast binary. Its demo server plays the upstreams for every gateway.
    pub gripfast: PathBuf,
    /// Another gateway to test instead of gripfast.
    pub peer: Option<Peer>,
    /// Way in which clients call tools.
    pub access: ToolAccess,
}

/// Way in which clients call tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolAccess {
    /// By their names in the list.
    Listed,
    /// Through `call_tool` of gripfast, with `exposure = "search"`.
    Search,
}

/// Another gateway.
#[derive(Debug, Clone)]
pub struct Peer {
    /// A shell command that runs it in the foreground. `{config}` stands for the path of a file with `mcpServers`
    /// as most clients know it; the one server in it is called `demo`. `{port}` stands for a free port.
    pub command: String,
    /// URL at which it serves Streamable HTTP, with the same `{port}`.
    pub url: String,
}

const PORT: &str = "{port}";

impl Peer {
    /// Replaces `{port}` with a free port.
    fn with_free_port(&self) -> Result<Self> {
        let port = gripfast_measure::free_port()?.to_string();
        let at = |text: &str| text.replace(PORT, &port);
        Ok(Self { command: at(&self.command), url: at(&self.url) })
    }
}

impl Subject {
    /// Creates a client of the gateway at this URL.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn client(&self, url: &str, era: Era) -> Result<Client> {
        Ok(Client::new(url, era)?.with_access(self.access))
    }

    /// Eras of its clients. For other gateways the supported eras are unknown; most speak the legacy one.
    #[must_use]
    pub fn eras(&self) -> &'static [Era] {
        if self.peer.is_some() { &[Era::Legacy] } else { &[Era::Legacy, Era::Modern] }
    }
}

/// Start parameters of a gateway, reused for restarts.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Gateway to start.
    pub subject: Subject,
    /// Working directory.
    pub dir: PathBuf,
    /// Config file.
    pub config: PathBuf,
    /// Words before the command, for example to run it in its own namespace.
    pub wrapper: Vec<String>,
}

/// A running gateway. Dropping it kills it.
#[derive(Debug)]
pub struct Gateway {
    launch: Launch,
    url: String,
    child: Child,
    pid: u32,
}

/// Timeout for waits that succeed on any machine that works.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Shutdown timeout of another gateway.
const PEER_STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Polling interval for state that has no notification.
pub const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Environment variable that marks a gateway and every process that it starts.
#[must_use]
pub fn env_marker(dir: &Path) -> (String, String) {
    ("CHAOS_SCENE".to_owned(), dir.display().to_string())
}

impl Gateway {
    /// Starts the gateway and waits until it listens.
    ///
    /// # Errors
    /// It exits, or does not listen within a minute.
    pub async fn start(mut launch: Launch) -> Result<Self> {
        let url = match &mut launch.subject.peer {
            None => "http://127.0.0.1:0/mcp".to_owned(),
            Some(peer) => {
                *peer = peer.with_free_port()?;
                peer.url.clone()
            }
        };
        Self::start_at(launch, url).await
    }

    /// The same at this URL.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_at(launch: Launch, url: String) -> Result<Self> {
        let mut child =
            command(&launch, &url).spawn().map_err(|error| MeasureError::new("the gateway", &error))?;
        let pid =
            child.id().ok_or_else(|| MeasureError::new("the gateway", &"the process exited immediately"))?;
        let listening = async {
            match &launch.subject.peer {
                Some(peer) => tokio::select! {
                    listens = wait_until_listening(&peer.url) => listens.map(|()| peer.url.clone()),
                    _ = child.wait() => Err(MeasureError::new("the gateway", &"the process exited")),
                },
                None => read_url(&mut child).await,
            }
        };
        let listening = tokio::time::timeout(START_TIMEOUT, listening).await;
        let log = || std::fs::read_to_string(launch.dir.join("gateway.log")).unwrap_or_default();
        match listening {
            Ok(Ok(url)) => Ok(Self { launch, url, child, pid }),
            Ok(Err(error)) => Err(MeasureError::new(
                "the gateway does not start",
                &format!("{error}\n{}", last_lines(&log(), 30)),
            )),
            Err(_) => Err(MeasureError::new(
                "the gateway does not listen",
                &format!("no handshake succeeded within a minute\n{}", last_lines(&log(), 30)),
            )),
        }
    }

    /// URL of its Streamable HTTP endpoint.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Kills the process. Returns the time of the kill.
    ///
    /// # Errors
    /// The process does not exist.
    pub async fn kill(&mut self) -> Result<Instant> {
        let at = proc::kill(self.pid).await?;
        self.child.wait().await?;
        Ok(at)
    }

    /// Starts the gateway again at the same address.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn restart(&mut self) -> Result<()> {
        *self = Self::start_at(self.launch.clone(), self.url.clone()).await?;
        Ok(())
    }

    /// Asks the gateway to exit and waits for it. Another gateway that does not exit is killed: its shutdown is not
    /// measured.
    ///
    /// # Errors
    /// gripfast does not exit within a minute.
    pub async fn stop(mut self) -> Result<()> {
        self.shut_down().await
    }

    /// The same for a gateway that is started again.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub async fn shut_down(&mut self) -> Result<()> {
        match proc::signal(self.pid, Signal::TERM) {
            // It has already exited, which is not measured.
            Err(_) if self.launch.subject.peer.is_some() => return Ok(()),
            asked => asked?,
        }
        let limit = if self.launch.subject.peer.is_some() { PEER_STOP_TIMEOUT } else { START_TIMEOUT };
        match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(ended) => ended.map(drop).map_err(Into::into),
            Err(_) if self.launch.subject.peer.is_some() => self.kill().await.map(drop),
            Err(_) => Err(MeasureError::new("the gateway", &"the process does not exit on SIGTERM")),
        }
    }
}

/// Last lines of a log.
pub(crate) fn last_lines(log: &str, most: usize) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(most)..].join("\n")
}

fn command(launch: &Launch, url: &str) -> Command {
    let config = launch.config.display().to_string();
    let mut words: Vec<String> = launch.wrapper.clone();
    match &launch.subject.peer {
        Some(peer) => {
            let line = format!("exec {}", peer.command.replace("{config}", &config));
            words.extend(["/bin/sh".to_owned(), "-c".to_owned(), line]);
        }
        None => {
            let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
            let state = launch.dir.join("state").display().to_string();
            words.push(launch.subject.gripfast.display().to_string());
            words.extend(["serve", "--listen"].map(str::to_owned));
            words.extend([address, "--config".to_owned(), config, "--state-dir".to_owned(), state]);
        }
    }
    let mut command = std::process::Command::new(&words[0]);
    let (name, value) = env_marker(&launch.dir);
    command.args(&words[1..]).env(name, value).env("HOME", &launch.dir).process_group(0);
    proc::without_proxies(&mut command);
    let log = File::options().create(true).append(true).open(launch.dir.join("gateway.log"));
    let stderr = log.map_or_else(|_| Stdio::null(), Into::into);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    command
}

/// gripfast prints its URL once it listens.
async fn read_url(child: &mut Child) -> Result<String> {
    let stdout =
        child.stdout.take().ok_or_else(|| MeasureError::new("the gateway", &"stdout is not piped"))?;
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some(url) = line.split_whitespace().find(|word| word.starts_with("http://")) {
            let url = url.to_owned();
            // Drain the rest of its output, so that it does not block.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(url);
        }
    }
    Err(MeasureError::new("the gateway", &"the process exited without printing its URL"))
}

/// Another gateway counts as listening once a handshake succeeds.
async fn wait_until_listening(url: &str) -> Result<()> {
    loop {
        let client = Client::new(url, Era::Legacy)?;
        if matches!(client.initialize().await, Reply::Result(_)) {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL * 10).await;
    }
}

//! The gateway under test, as a process: ours, or any other that is given by its command and its URL.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::{Client, Era, Reply};
use crate::proc;
use crate::{Cannot, Result};

/// What is tested.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Our binary. Its demo server plays the upstreams, whoever the gateway is.
    pub gripfast: PathBuf,
    /// Another gateway in the place of ours.
    pub peer: Option<Peer>,
}

/// Another gateway.
#[derive(Debug, Clone)]
pub struct Peer {
    /// A shell command that runs it in the foreground. `{config}` stands for the path of a file with `mcpServers`
    /// as most clients know it; the one server in it is called `demo`. `{port}` stands for a free port.
    pub command: String,
    /// Where it then serves Streamable HTTP, at the same `{port}`.
    pub url: String,
}

const PORT: &str = "{port}";

impl Peer {
    /// The same at a port that nobody has.
    fn at_free_port(&self) -> Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let at = |text: &str| text.replace(PORT, &port);
        Ok(Self { command: at(&self.command), url: at(&self.url) })
    }
}

impl Subject {
    /// The eras that its clients speak. What others speak is not known; the older one is what most do.
    #[must_use]
    pub fn eras(&self) -> &'static [Era] {
        if self.peer.is_some() { &[Era::Legacy] } else { &[Era::Legacy, Era::Modern] }
    }
}

/// How and where one gateway is started, again and again.
#[derive(Debug, Clone)]
pub struct Launch {
    /// What is started.
    pub subject: Subject,
    /// A directory of its own.
    pub dir: PathBuf,
    /// The config file.
    pub config: PathBuf,
    /// Goes before the command, for example to give it a namespace of its own.
    pub within: Vec<String>,
}

/// A gateway that runs. Dropping it kills it.
#[derive(Debug)]
pub struct Gateway {
    launch: Launch,
    url: String,
    child: Child,
    pid: u32,
}

/// Nothing that is waited for takes this long, even on a slow machine.
pub const LONG_ENOUGH: Duration = Duration::from_secs(60);
/// Another gateway that was asked to end.
const PEER_ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks at something that cannot tell by itself.
pub const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The variable that a gateway and everything it starts carries.
#[must_use]
pub fn mark(dir: &Path) -> (String, String) {
    ("CHAOS_SCENE".to_owned(), dir.display().to_string())
}

impl Gateway {
    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// It ends, or does not listen within a minute.
    pub async fn start(mut launch: Launch) -> Result<Self> {
        let url = match &mut launch.subject.peer {
            None => "http://127.0.0.1:0/mcp".to_owned(),
            Some(peer) => {
                *peer = peer.at_free_port()?;
                peer.url.clone()
            }
        };
        Self::start_at(launch, url).await
    }

    async fn start_at(launch: Launch, url: String) -> Result<Self> {
        let mut child =
            command(&launch, &url).spawn().map_err(|error| Cannot::because("the gateway", &error))?;
        let pid = child.id().ok_or_else(|| Cannot::because("the gateway", &"it ended at once"))?;
        let listening = async {
            match &launch.subject.peer {
                Some(peer) => tokio::select! {
                    listens = listens(&peer.url) => listens.map(|()| peer.url.clone()),
                    _ = child.wait() => Err(Cannot::because("its process", &"it ended")),
                },
                None => url_of(&mut child).await,
            }
        };
        let listening = tokio::time::timeout(LONG_ENOUGH, listening).await;
        let log = || std::fs::read_to_string(launch.dir.join("gateway.log")).unwrap_or_default();
        match listening {
            Ok(Ok(url)) => Ok(Self { launch, url, child, pid }),
            Ok(Err(error)) => Err(Cannot::because(
                "the gateway does not start",
                &format!("{error}\n{}", last_lines(&log(), 30)),
            )),
            Err(_) => Err(Cannot::because(
                "the gateway does not listen",
                &format!("nobody can greet it\n{}", last_lines(&log(), 30)),
            )),
        }
    }

    /// Where it serves Streamable HTTP.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Kills it. Answers with the moment of the blow.
    ///
    /// # Errors
    /// It is not there.
    pub async fn kill(&mut self) -> Result<Instant> {
        let at = proc::kill(self.pid).await?;
        self.child.wait().await?;
        Ok(at)
    }

    /// Starts it again at the same address.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_again(&mut self) -> Result<()> {
        *self = Self::start_at(self.launch.clone(), self.url.clone()).await?;
        Ok(())
    }

    /// Asks it to end and waits until it has. Another gateway that does not is killed: how it ends is not what is
    /// measured.
    ///
    /// # Errors
    /// Ours does not end within a minute.
    pub async fn stop(mut self) -> Result<()> {
        match proc::signal(self.pid, Signal::TERM) {
            // It has ended by itself, which is its own business.
            Err(_) if self.launch.subject.peer.is_some() => return Ok(()),
            asked => asked?,
        }
        let limit = if self.launch.subject.peer.is_some() { PEER_ENDS_WITHIN } else { LONG_ENOUGH };
        match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(ended) => ended.map(drop).map_err(Into::into),
            Err(_) if self.launch.subject.peer.is_some() => self.kill().await.map(drop),
            Err(_) => Err(Cannot::because("the gateway", &"it does not end when it is asked to")),
        }
    }
}

/// The last lines of a log.
pub(crate) fn last_lines(log: &str, most: usize) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(most)..].join("\n")
}

fn command(launch: &Launch, url: &str) -> Command {
    let config = launch.config.display().to_string();
    let mut words: Vec<String> = launch.within.clone();
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
    let (name, value) = mark(&launch.dir);
    command.args(&words[1..]).env(name, value).env("HOME", &launch.dir).process_group(0);
    // A proxy of this machine would stand between a gateway and its servers on loopback.
    for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(proxy);
    }
    let log = File::options().create(true).append(true).open(launch.dir.join("gateway.log"));
    let stderr = log.map_or_else(|_| Stdio::null(), Into::into);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    command
}

/// Ours says where it listens once it does.
async fn url_of(child: &mut Child) -> Result<String> {
    let stdout = child.stdout.take().ok_or_else(|| Cannot::because("its stdout", &"it has none"))?;
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some(url) = line.split_whitespace().find(|word| word.starts_with("http://")) {
            let url = url.to_owned();
            // What else it says is for nobody, but it must not block.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(url);
        }
    }
    Err(Cannot::because("its first line", &"it ended without one"))
}

/// Others listen when somebody can shake hands with them.
async fn listens(url: &str) -> Result<()> {
    loop {
        let client = Client::new(url, Era::Legacy)?;
        if matches!(client.meet().await, Reply::Result(_)) {
            return Ok(());
        }
        tokio::time::sleep(LOOK_AGAIN * 10).await;
    }
}

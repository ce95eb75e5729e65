//! An upstream that is reached over HTTP: the demo server as a process of its own, killed and started again at the
//! same address.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::{Client, Era, Reply};
use crate::gateway::LONG_ENOUGH;
use crate::proc;
use crate::{Cannot, Result};

/// A demo server on HTTP. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    gripfast: PathBuf,
    flags: Vec<String>,
    port: u16,
    child: Option<Child>,
}

impl Server {
    /// Starts one on a free port. It listens when this returns.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(gripfast: PathBuf, flags: Vec<String>) -> Result<Self> {
        let mut server = Self { gripfast, flags, port: 0, child: None };
        server.start_again().await?;
        Ok(server)
    }

    /// The port that it has, or had and will have again.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process, while there is one.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Kills it. Answers with the moment of the blow.
    ///
    /// # Errors
    /// It is not there.
    pub async fn kill(&mut self) -> Result<Instant> {
        let pid = self.pid().ok_or_else(|| Cannot::because("the server", &"it does not run"))?;
        let at = proc::kill(pid).await?;
        if let Some(mut child) = self.child.take() {
            child.wait().await?;
        }
        Ok(at)
    }

    /// Starts it at the same address. Answers with the moment from which it listens.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_again(&mut self) -> Result<Instant> {
        let mut child = Command::new(&self.gripfast)
            .args(["demo-server", "--http", &format!("127.0.0.1:{}", self.port)])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Cannot::because("the demo server", &error))?;
        let stdout = child.stdout.take().ok_or_else(|| Cannot::because("its stdout", &"it has none"))?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(LONG_ENOUGH, lines.next_line()).await;
        let line = line.map_err(|error| Cannot::because("the demo server does not listen", &error))??;
        let port = line
            .as_deref()
            .and_then(|url| url.strip_prefix("http://127.0.0.1:")?.split('/').next()?.parse().ok());
        self.port = port.ok_or_else(|| Cannot::because("the demo server", &format!("it said {line:?}")))?;
        self.child = Some(child);
        Ok(Instant::now())
    }

    /// Starts with other flags from now on.
    pub fn becomes(&mut self, flags: Vec<String>) {
        self.flags = flags;
    }

    /// Has it misbehave, by a call that does not go through the gateway.
    ///
    /// # Errors
    /// It does not do as it is told.
    pub async fn misbehave(&self, arguments: &Value, bearer: Option<&str>) -> Result<()> {
        let mut client = Client::new(&format!("http://127.0.0.1:{}/mcp", self.port), Era::Modern)?;
        if let Some(token) = bearer {
            client = client.with_bearer(token);
        }
        match client.call("misbehave", arguments).await {
            Reply::Result(_) => Ok(()),
            other => Err(Cannot::because("the demo server", &format!("told to {arguments}: {other:?}"))),
        }
    }
}

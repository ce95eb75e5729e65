//! A server over HTTP: the demo server as a separate process that can be killed and restarted at the same address.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::{Client, Reply};
use crate::gateway::START_TIMEOUT;
use gripfast_measure::Era;
use gripfast_measure::proc;
use gripfast_measure::{MeasureError, Result};

/// A demo server on HTTP. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    gripfast: PathBuf,
    flags: Vec<String>,
    port: u16,
    child: Option<Child>,
}

impl Server {
    /// Starts a server on a free port and waits until it listens.
    ///
    /// # Errors
    /// The server does not start.
    pub async fn start(gripfast: PathBuf, flags: Vec<String>) -> Result<Self> {
        let mut server = Self { gripfast, flags, port: 0, child: None };
        server.restart().await?;
        Ok(server)
    }

    /// Port, which stays the same across restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Process id, while the server runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Kills the process. Returns the time of the kill.
    ///
    /// # Errors
    /// The process does not exist.
    pub async fn kill(&mut self) -> Result<Instant> {
        let pid = self.pid().ok_or_else(|| MeasureError::new("the server", &"not running"))?;
        let at = proc::kill(pid).await?;
        if let Some(mut child) = self.child.take() {
            child.wait().await?;
        }
        Ok(at)
    }

    /// Starts the server at the same address. Returns the time from which it listens.
    ///
    /// # Errors
    /// The server does not start.
    pub async fn restart(&mut self) -> Result<Instant> {
        let mut child = Command::new(&self.gripfast)
            .args(["demo-server", "--http", &format!("127.0.0.1:{}", self.port)])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| MeasureError::new("the demo server", &error))?;
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| MeasureError::new("the demo server", &"stdout is not piped"))?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(START_TIMEOUT, lines.next_line()).await;
        let line = line.map_err(|error| MeasureError::new("the demo server does not listen", &error))??;
        let port = line
            .as_deref()
            .and_then(|url| url.strip_prefix("http://127.0.0.1:")?.split('/').next()?.parse().ok());
        self.port = port.ok_or_else(|| {
            MeasureError::new("the demo server", &format!("unexpected first line {line:?}"))
        })?;
        self.child = Some(child);
        Ok(Instant::now())
    }

    /// Sets the flags for the next start.
    pub fn set_flags(&mut self, flags: Vec<String>) {
        self.flags = flags;
    }

    /// Makes the server misbehave by a direct call that bypasses the gateway.
    ///
    /// # Errors
    /// The call fails.
    pub async fn misbehave(&self, arguments: &Value, bearer: Option<&str>) -> Result<()> {
        let mut client = Client::new(&format!("http://127.0.0.1:{}/mcp", self.port), Era::Modern)?;
        if let Some(token) = bearer {
            client = client.with_bearer(token);
        }
        match client.call("misbehave", arguments).await {
            Reply::Result(_) => Ok(()),
            other => Err(MeasureError::new("the demo server", &format!("misbehave {arguments}: {other:?}"))),
        }
    }
}

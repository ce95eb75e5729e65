//! Measures start, handshake and listing of a server without a gateway. Recovery times are compared with this
//! baseline, from the same run on the same machine.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::client::Client;
use crate::server::Server;
use gripfast_measure::Era;
use gripfast_measure::{MeasureError, Result};

/// Starts a command on stdio, sends `server/discover` and `tools/list`, and stops it. Returns the elapsed time.
///
/// # Errors
/// The server does not answer.
pub async fn measure_stdio(command: &str, args: &[String]) -> Result<Duration> {
    let began = Instant::now();
    let mut child = Command::new(command)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| MeasureError::new(command, &error))?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(MeasureError::new(command, &"it has no pipes"));
    };
    let mut lines = BufReader::new(stdout).lines();
    for (id, method) in [(1, "server/discover"), (2, "tools/list")] {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "chaos", "version": "1" },
        });
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": { "_meta": meta } });
        stdin.write_all(format!("{message}\n").as_bytes()).await?;
        loop {
            let line = lines.next_line().await?;
            let line = line.ok_or_else(|| MeasureError::new(command, &"it ended instead of answering"))?;
            if serde_json::from_str::<Value>(&line).is_ok_and(|answer| answer["id"] == id) {
                break;
            }
        }
    }
    let took = began.elapsed();
    drop(stdin);
    child.kill().await?;
    Ok(took)
}

/// Same measurement for a server on HTTP.
///
/// # Errors
/// The server does not answer.
pub async fn measure_http(gripfast: &Path, flags: &[String], bearer: &str) -> Result<Duration> {
    let began = Instant::now();
    let mut server = Server::start(PathBuf::from(gripfast), flags.to_vec()).await?;
    let client = Client::new(&format!("http://127.0.0.1:{}/mcp", server.port()), Era::Legacy)?;
    let client = client.with_bearer(bearer);
    let _ = client.initialize().await;
    let listed = client.tools().await;
    let took = began.elapsed();
    server.kill().await?;
    listed.map(|_| took).ok_or_else(|| MeasureError::new("the demo server", &"it lists no tools"))
}

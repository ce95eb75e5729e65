//! How long a server takes by itself: started, greeted and listed, without a gateway. What a recovery is measured
//! against, in the same run and on the same machine.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::client::{Client, Era};
use crate::server::Server;
use crate::{Cannot, Result};

/// Starts this command on stdio, asks what it is and what tools it has, and ends it. Answers with the time that took.
///
/// # Errors
/// It does not answer.
pub async fn on_stdio(command: &str, args: &[String]) -> Result<Duration> {
    let began = Instant::now();
    let mut child = Command::new(command)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Cannot::because(command, &error))?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Cannot::because(command, &"it has no pipes"));
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
            let line = line.ok_or_else(|| Cannot::because(command, &"it ended instead of answering"))?;
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

/// The same for a server on HTTP.
///
/// # Errors
/// It does not answer.
pub async fn on_http(gripfast: &Path, flags: &[String], bearer: &str) -> Result<Duration> {
    let began = Instant::now();
    let mut server = Server::start(PathBuf::from(gripfast), flags.to_vec()).await?;
    let client = Client::new(&format!("http://127.0.0.1:{}/mcp", server.port()), Era::Legacy)?;
    let client = client.with_bearer(bearer);
    let _ = client.meet().await;
    let listed = client.tools().await;
    let took = began.elapsed();
    server.kill().await?;
    listed.map(|_| took).ok_or_else(|| Cannot::because("the demo server", &"it lists no tools"))
}

//! Hostile clients and hostile servers for the soak: each attack runs at a fixed rate until it is dropped.
//!
//! Raw sockets play the clients, because no HTTP library sends half a head or leaves its answers unread. The attackers'
//! thread and the hostile server have the scheduling policy "idle" if times are measured: attackers run on machines of
//! their own, and here they must not delay the honest clients.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::fault::RunLength;
use gripfast_measure::Era;
use gripfast_measure::{MeasureError, Result};

/// Connections that send half a request head, or one byte of a body now and then. They are opened again when the
/// gateway closes them.
const SLOW_CONNECTIONS: usize = 64;
/// The pause between two requests of each attack that sends requests.
const SEND_INTERVAL: Duration = Duration::from_millis(50);
/// The pause before a connection is opened again.
const REOPEN_AFTER: Duration = Duration::from_millis(200);
/// Requests whose answers one connection leaves unread before it is given up, and the size of each answer.
const UNREAD_ANSWERS: (usize, usize) = (16, 4 << 20);
/// Levels of the nested arguments.
const NESTING_DEPTH: usize = 100_000;

/// The gateway as an attacker sees it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The URL of its MCP endpoint.
    pub url: String,
    /// Its address and port.
    pub address: String,
    /// A valid key of the hostile client.
    pub key: String,
    /// Public name of the tool that makes the hostile server misbehave.
    pub misbehave: String,
    /// Public name of the tool that ends the process of the hostile server.
    pub crash: String,
    /// A tool of the honest server.
    pub echo: String,
}

/// Number of attempts per attack.
#[derive(Debug, Default)]
pub struct Attempts {
    /// Connections with half a head or half a body.
    pub slow_connections: AtomicU64,
    /// Requests with a wrong key.
    pub wrong_keys: AtomicU64,
    /// Requests whose answers were not read.
    pub unread: AtomicU64,
    /// Requests with a valid key that the gateway must refuse, or that only cost time.
    pub floods: AtomicU64,
    /// Calls that made the hostile server misbehave or crash.
    pub misbehaviours: AtomicU64,
}

impl Attempts {
    /// All counters, in the order of the fields.
    #[must_use]
    pub fn to_array(&self) -> [u64; 5] {
        [&self.slow_connections, &self.wrong_keys, &self.unread, &self.floods, &self.misbehaviours]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

/// Runtime of the attackers with one thread. Dropping it ends their tasks.
#[derive(Debug)]
pub struct Attackers(Option<Runtime>);

impl Attackers {
    /// Creates a runtime without tasks. In a run that measures times, its thread runs only while no other thread of the
    /// machine wants the processor.
    ///
    /// # Errors
    /// The thread cannot be started, or `chrt` cannot change its scheduling policy.
    pub async fn new(length: RunLength) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let attackers = Self(Some(runtime));
        if !length.measures_times() {
            return Ok(attackers);
        }
        let thread = attackers.handle().spawn(async { rustix::thread::gettid() });
        let thread = thread.await.map_err(|error| MeasureError::new("the attackers' thread", &error))?;
        let [program, policy, priority] = IDLE_POLICY;
        let thread = thread.as_raw_nonzero().to_string();
        let changed = Command::new(program).args([policy, "--pid", priority, &thread]).output()?;
        if changed.status.success() {
            return Ok(attackers);
        }
        Err(MeasureError::new(program, &String::from_utf8_lossy(&changed.stderr)))
    }

    fn handle(&self) -> &Handle {
        self.0.as_ref().expect("the runtime exists until it is dropped").handle()
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Beginning of a command that runs a program with the policy of the attackers. The kernel interrupts such a program as
/// soon as another one wants the processor; one with the lowest priority (`nice`) would keep it for milliseconds.
pub const IDLE_POLICY: [&str; 3] = ["chrt", "--idle", "0"];

/// Starts every attack. Dropping the set ends them and closes their connections.
///
/// # Errors
/// The URL of the target is invalid.
pub fn start(attackers: &Attackers, target: &Target, attempts: &Arc<Attempts>) -> Result<JoinSet<()>> {
    let _within = attackers.handle().enter();
    let mut attacks = JoinSet::new();
    for number in 0..SLOW_CONNECTIONS {
        let slow = if number % 2 == 0 { Slow::Head } else { Slow::Body };
        attacks.spawn(hold_slow_connections(target.clone(), slow, Arc::clone(attempts)));
    }
    attacks.spawn(leave_answers_unread(target.clone(), Arc::clone(attempts)));
    let stranger = Client::new(&target.url, Era::Modern)?.with_bearer("gf_not-a-key-of-this-gateway");
    attacks.spawn(send_wrong_keys(stranger, target.echo.clone(), Arc::clone(attempts)));
    let guest = || Ok::<_, MeasureError>(Client::new(&target.url, Era::Modern)?.with_bearer(&target.key));
    attacks.spawn(send_floods(guest()?, target.clone(), Arc::clone(attempts)));
    attacks.spawn(request_misbehaviour(guest()?, target.clone(), Arc::clone(attempts)));
    Ok(attacks)
}

/// Part of a request that a slow connection sends.
#[derive(Debug, Clone, Copy)]
enum Slow {
    Head,
    Body,
}

async fn hold_slow_connections(target: Target, slow: Slow, attempts: Arc<Attempts>) {
    let head =
        format!("POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n", target.address);
    let start = match slow {
        Slow::Head => head,
        Slow::Body => format!("{head}Content-Length: 1048576\r\n\r\n{{"),
    };
    loop {
        if let Ok(mut stream) = TcpStream::connect(&target.address).await {
            attempts.slow_connections.fetch_add(1, Ordering::Relaxed);
            if stream.write_all(start.as_bytes()).await.is_ok() {
                // Returns when the gateway answers or closes the connection.
                let _ = stream.read(&mut [0; 1]).await;
            }
        }
        tokio::time::sleep(REOPEN_AFTER).await;
    }
}

async fn leave_answers_unread(target: Target, attempts: Arc<Attempts>) {
    let arguments = json!({ "how": "huge_frame", "size": UNREAD_ANSWERS.1 }).to_string();
    loop {
        let mut streams = Vec::new();
        for id in 0..UNREAD_ANSWERS.0 {
            let Ok(mut stream) = TcpStream::connect(&target.address).await else { continue };
            let request = modern_call(&target, id, &target.misbehave, &arguments);
            if stream.write_all(request.as_bytes()).await.is_ok() {
                attempts.unread.fetch_add(1, Ordering::Relaxed);
                streams.push(stream);
            }
            tokio::time::sleep(SEND_INTERVAL).await;
        }
        tokio::time::sleep(REOPEN_AFTER).await;
    }
}

/// A complete request as text, with the key of the hostile client.
fn modern_call(target: &Target, id: usize, tool: &str, arguments: &str) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "chaos", "version": "1" },
    });
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments},"_meta":{meta}}}"#);
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
    let (address, key, length) = (&target.address, &target.key, body.len());
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
         Mcp-Name: {tool}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

async fn send_wrong_keys(stranger: Client, tool: String, attempts: Arc<Attempts>) {
    loop {
        // The gateway may delay its refusal; the attacker does not wait for it.
        let _ = tokio::time::timeout(SEND_INTERVAL, stranger.call(&tool, &json!({ "text": "x" }))).await;
        attempts.wrong_keys.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(SEND_INTERVAL).await;
    }
}

async fn send_floods(guest: Client, target: Target, attempts: Arc<Attempts>) {
    let text = json!({ "text": "x".repeat(256 << 10) });
    let nested = format!(r#"{{"text":{}{}}}"#, "[".repeat(NESTING_DEPTH), "]".repeat(NESTING_DEPTH));
    let nested = modern_call(&target, 0, &target.echo, &nested);
    for number in 0u64.. {
        match number % 4 {
            // A server that cannot read the request may never answer it.
            0 => drop(tokio::time::timeout(SEND_INTERVAL, send_raw(&target.address, &nested)).await),
            1 => drop(guest.request("tools/list", json!({})).await),
            2 => drop(guest.request("no/such/method", json!({})).await),
            _ => drop(guest.call(&target.echo, &text).await),
        }
        attempts.floods.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(SEND_INTERVAL).await;
    }
}

/// Sends a request and waits for the first byte of the answer. The gateway may close the connection instead.
async fn send_raw(address: &str, request: &str) {
    if let Ok(mut stream) = TcpStream::connect(address).await
        && stream.write_all(request.as_bytes()).await.is_ok()
    {
        let _ = stream.read(&mut [0; 1]).await;
    }
}

async fn request_misbehaviour(guest: Client, target: Target, attempts: Arc<Attempts>) {
    let kinds = ["junk", "half_frame", "huge_frame", "stderr_flood", "add_tool", "change_tool", "crash"];
    for kind in kinds.into_iter().cycle() {
        let called = async {
            match kind {
                "crash" => guest.call(&target.crash, &json!({})).await,
                "huge_frame" => {
                    guest.call(&target.misbehave, &json!({ "how": kind, "size": 17 << 20 })).await
                }
                _ => guest.call(&target.misbehave, &json!({ "how": kind, "name": "echo" })).await,
            }
        };
        // The gateway restarts a crashing server with growing delays; the attacker continues meanwhile.
        let _ = tokio::time::timeout(SEND_INTERVAL * 4, called).await;
        attempts.misbehaviours.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(SEND_INTERVAL * 4).await;
    }
}

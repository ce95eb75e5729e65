//! The listening socket of a service manager: it outlives the gateway, so a restart under load fails no call.

use crate::client::{HttpClient, LEGACY, call, request};
use crate::test_gateway::{GRIPFAST, TestGateway};
use bytes::Bytes;
use gripfast_gateway::mcp::Limits;
use gripfast_gateway::server::{ListenError, Server, ServerSettings};
use gripfast_testkit::service_manager::ServiceManager;
use gripfast_testkit::wait::within;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Calls per second: half of them on new connections, the others on connections that are used again.
const ON_NEW_CONNECTIONS: u32 = 25;
const CONNECTIONS: u32 = 5;
const ON_EACH_CONNECTION: u32 = 5;

/// Runs gripfast twice with the socket. The outer shell holds the socket, as the service manager does.
const RUN_TWICE: &str = r#"for run in 1 2; do sh -c 'echo "pid $$"; LISTEN_PID=$$ exec "$@"' - "$@"; done"#;

/// `systemd-socket-activate` with a gateway that is started twice.
struct ActivatedGateway {
    _shell: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: String,
    current: Option<Pid>,
}

impl ActivatedGateway {
    /// Listens on an address of its own: the whole network 127.0.0.0/8 is loopback, and the process id is unique.
    async fn listen(directory: &Path) -> Self {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = format!("127.{high}.{low}.77:7331");
        let mut command = Command::new("systemd-socket-activate");
        command.arg("--listen").arg(&address).args(["sh", "-c", RUN_TWICE, "-", GRIPFAST, "serve"]);
        command.arg("--config").arg(directory.join("gripfast.toml"));
        command.arg("--state-dir").arg(directory.join("state"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut shell = command.spawn().unwrap();
        let mut log = BufReader::new(shell.stderr.take().unwrap()).lines();
        let listening = within("the socket", log.next_line()).await.unwrap().unwrap();
        assert!(listening.contains(&address), "{listening}");
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        Self { _shell: shell, lines, address, current: None }
    }

    /// Waits until the next process serves.
    async fn next_process(&mut self) -> Pid {
        let pid = self.line("pid ").await.trim_start_matches("pid ").parse().unwrap();
        self.current = Pid::from_raw(pid);
        let line = self.line("serves MCP at ").await;
        assert!(line.contains(&format!("http://{}/mcp", self.address)), "{line}");
        self.current.unwrap()
    }

    async fn line(&mut self, wanted: &str) -> String {
        loop {
            let line = within(wanted, self.lines.next_line()).await.unwrap().expect("its output goes on");
            if line.contains(wanted) {
                return line;
            }
        }
    }
}

impl Drop for ActivatedGateway {
    fn drop(&mut self) {
        if let Some(pid) = self.current {
            // It may have ended.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// A client that notices every connection that ends without an answer, and repeats nothing.
#[derive(Clone)]
struct StrictClient {
    address: String,
    session: String,
}

impl StrictClient {
    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let stream = TcpStream::connect(&self.address).await.map_err(|error| format!("connect: {error}"))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| format!("connect: {error}"))?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Calls `echo` and returns the connection, unless the gateway closes it after this answer.
    async fn call(
        &self,
        mut connection: SendRequest<Full<Bytes>>,
        number: u32,
    ) -> Result<Option<SendRequest<Full<Bytes>>>, String> {
        let text = format!("call {number}");
        let body = request(number, "tools/call", &call("demo__echo", json!({ "text": text })));
        let request = Request::post("/mcp")
            .header("host", &self.address)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-session-id", &self.session)
            .header("mcp-protocol-version", LEGACY)
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let answer = connection.send_request(request).await.map_err(|error| format!("{text}: {error}"))?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(|error| format!("{text}: {error}"))?.to_bytes();
        let body = String::from_utf8_lossy(&body);
        let message = body.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&body);
        let message: Value = serde_json::from_str(message).map_err(|error| format!("{text}: {error}"))?;
        if message["result"]["content"][0]["text"] != text {
            return Err(format!("{text}: {} {message}", head.status));
        }
        let closes = head.headers.get("connection").is_some_and(|value| value == "close");
        Ok((!closes).then_some(connection))
    }
}

/// Calls at the whole rate until `stop`, and reports each result.
fn load(
    client: &StrictClient,
    stop: &CancellationToken,
    results: &mpsc::UnboundedSender<Result<(), String>>,
) {
    for one in 0..CONNECTIONS {
        let (client, stop, results) = (client.clone(), stop.clone(), results.clone());
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / ON_EACH_CONNECTION);
            let (mut connection, mut number) = (None, one * 100_000);
            while !stop.is_cancelled() {
                ticks.tick().await;
                number += 1;
                let called = async {
                    let connected = match connection.take() {
                        Some(connected) => connected,
                        None => client.connect().await?,
                    };
                    client.call(connected, number).await
                };
                let called = called.await.map(|open| connection = open);
                let _ = results.send(called);
            }
        });
    }
    let (client, stop, results) = (client.clone(), stop.clone(), results.clone());
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / ON_NEW_CONNECTIONS);
        let mut number = CONNECTIONS * 100_000;
        while !stop.is_cancelled() {
            ticks.tick().await;
            number += 1;
            let (client, results) = (client.clone(), results.clone());
            tokio::spawn(async move {
                let called = async { client.call(client.connect().await?, number).await.map(drop) };
                let _ = results.send(called.await);
            });
        }
    });
}

#[tokio::test]
async fn fifty_calls_a_second_survive_a_restart_of_a_socket_activated_gateway() {
    if !ServiceManager::Systemd.require() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let config = format!("[servers.demo]\ncommand = {GRIPFAST:?}\nargs = [\"demo-server\"]\n");
    std::fs::write(directory.path().join("gripfast.toml"), config).unwrap();
    let mut gateway = ActivatedGateway::listen(directory.path()).await;
    // The first connection starts the gateway.
    let http = HttpClient::at(&gateway.address);
    let hello = http.initialize(LEGACY).await;
    let session = hello.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let first = gateway.next_process().await;

    let client = StrictClient { address: gateway.address.clone(), session };
    let (results, mut received) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    load(&client, &stop, &results);
    drop(results);
    let mut failures = Vec::new();
    let mut take = async |count: usize| {
        for _ in 0..count {
            let result = within("an answer", received.recv()).await.expect("the load goes on");
            failures.extend(result.err());
        }
    };
    take(100).await;
    kill_process(first, Signal::TERM).unwrap();
    let second = gateway.next_process().await;
    assert_ne!(first, second);
    // Those of the restart, and some seconds of the second process.
    take(250).await;
    stop.cancel();
    while let Some(result) = within("the last answers", received.recv()).await {
        failures.extend(result.err());
    }
    assert!(failures.is_empty(), "{} calls failed: {failures:#?}", failures.len());
}

#[tokio::test]
async fn the_address_of_a_passed_socket_is_checked_like_a_configured_one() {
    let gateway = TestGateway::with("").await;
    let settings = ServerSettings {
        listen: ([127, 0, 0, 1], 0).into(),
        state_dir: None,
        limits: Limits::default(),
        access: gripfast::config::AccessConfig::default(),
        cluster: None,
    };
    let everywhere = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let refused = Server::take(gateway.host.clone(), &settings, everywhere).await.err();
    assert!(matches!(refused, Some(ListenError::NotLoopback(_))), "{refused:?}");
    let local = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = local.local_addr().unwrap();
    let server = Server::take(gateway.host.clone(), &settings, local).await.unwrap();
    assert_eq!(server.address().unwrap(), address);
}

//! Servers with `placement = "one"`: one of several real gateways runs the process, the others use it.

use super::service::{Replica, Service};
use super::{answer_to, elicitation, question, response};
use crate::client::{LegacyClient, ModernClient, call, text_of};
use gripfast_testkit::wait::{until, until_async};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use tempfile::TempDir;

const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");

/// A server that appends its process id to a file all the time, as long as any process of its group lives.
pub(super) struct Writer {
    dir: TempDir,
}

impl Writer {
    pub(super) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("lines")
    }

    /// The table of the server `one`; `more` are further keys.
    pub(super) fn config(&self, more: &str) -> String {
        let script = format!(
            "while echo $$ >>{}; do sleep 0.05; done & exec {GRIPFAST} demo-server",
            self.file().display()
        );
        format!(
            "[servers.one]\ncommand = 'sh'\nargs = ['-c', '{script}']\nprotocol = 'legacy'\nplacement = 'one'\n\
             timeouts = {{ reconnect_wait = '30s' }}\n{more}\n"
        )
    }

    /// The process ids in the order of the file, without repetitions of neighbours.
    fn writers(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.file()).unwrap_or_default();
        // The last line may be incomplete.
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        let mut pids: Vec<u32> = complete.lines().map(|line| line.parse().unwrap()).collect();
        pids.dedup();
        pids
    }

    /// Asserts that no process wrote after the next one had begun, and returns their number.
    pub(super) fn count(&self) -> usize {
        let writers = self.writers();
        let mut distinct = writers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(writers.len(), distinct.len(), "two writers at once: {writers:?}");
        writers.len()
    }
}

/// The server `one` as a replica sees it.
async fn seen_by(replica: &Replica) -> Value {
    let status = replica.status().await;
    let servers = status["upstreams"].as_array().unwrap_or_else(|| panic!("{status}"));
    servers.iter().find(|server| server["name"] == "one").unwrap_or_else(|| panic!("{status}")).clone()
}

/// Waits until all replicas agree on the holder and can use the server. Returns its name.
pub(super) async fn holder(service: &Service) -> String {
    let mut found = String::new();
    until_async("all replicas can use the server", async || {
        let mut holders = Vec::new();
        for replica in &service.replicas {
            let server = seen_by(replica).await;
            if server["state"] != "ready" {
                return false;
            }
            holders.push(server["holder"].as_str().unwrap_or_default().to_owned());
        }
        holders.dedup();
        match holders.as_slice() {
            [holder] if service.replicas.iter().any(|replica| replica.name == *holder) => {
                found.clone_from(holder);
                true
            }
            _ => false,
        }
    })
    .await;
    found
}

/// A replica that does not run the server.
fn other<'s>(service: &'s Service, holder: &str) -> &'s Replica {
    service.replicas.iter().find(|replica| replica.name != holder).unwrap()
}

#[tokio::test]
async fn one_replica_runs_a_singleton_server_and_all_use_it() {
    let writer = Writer::new();
    let Some(service) = Service::start_with(&["a", "b", "c"], &writer.config("")) else { return };
    let holder = holder(&service).await;
    let mut count = 0;
    for replica in &service.replicas {
        let server = seen_by(replica).await;
        let runs_here = replica.name == holder;
        assert_eq!(server["transport"], if runs_here { "stdio" } else { "replica" }, "{server}");
        assert_eq!(server["pid"].is_u64(), runs_here, "{server}");
        count += 1;
        let legacy = LegacyClient::connect(&replica.http).await;
        assert_eq!(legacy.call_tool("one__counter", json!({})).await, count.to_string(), "{}", replica.name);
        count += 1;
        let modern = ModernClient::new(&replica.http);
        assert_eq!(modern.call_tool("one__counter", json!({})).await, count.to_string(), "{}", replica.name);
    }
    let at = other(&service, &holder);
    // All replicas list the same, byte for byte but for the place of the list.
    let mut lists = Vec::new();
    for replica in &service.replicas {
        let client = LegacyClient::connect(&replica.http).await;
        let tools = client.request("tools/list", json!({})).await["result"]["tools"].clone();
        let tools =
            tools.as_array().unwrap().iter().filter(|tool| tool["name"].to_string().contains("one__"));
        lists.push(tools.cloned().collect::<Vec<_>>());
    }
    assert!(lists[0].len() > 5 && lists.iter().all(|list| *list == lists[0]), "{lists:?}");
    let client = LegacyClient::with_capabilities(&at.http, elicitation()).await;
    let mut stream = client.start_request("q", "tools/call", call("one__ask", json!({}))).await;
    let asked = question(&mut stream).await;
    assert_eq!(client.post(&answer_to(&asked)).await.status, 202);
    let answered = response(&mut stream).await;
    assert!(text_of(&answered).contains("the answer was"), "{answered}");
    let mut params = call("one__sleep", json!({ "ms": 60_000 }));
    params["_meta"] = json!({ "progressToken": "p" });
    let mut stream = client.start_request("slow", "tools/call", params).await;
    let progress = loop {
        let event = stream.next().await.expect("progress");
        if event.data.contains("notifications/progress") {
            break event.message();
        }
    };
    assert_eq!(progress["params"]["progressToken"], "p", "{progress}");
    client.cancel("slow").await;
    while stream.next().await.is_some() {}
    until_async("the holder has no call in flight", async || {
        seen_by(service.at(&holder)).await["in_flight"] == 0
    })
    .await;
    assert_eq!(writer.count(), 1);
    service.at(&holder).command(&["reload", "one"]);
    until("the old process has ended before the new one began", || writer.count() == 2).await;
    assert_eq!(client.call_tool("one__counter", json!({})).await, "1", "by the new process");
    let text = at.command(&["status", "one"]);
    assert!(text.contains(&format!("runs at replica {holder}")), "{text}");
}

#[tokio::test]
async fn another_replica_runs_a_singleton_server_after_a_kill_and_calls_wait_for_it() {
    let writer = Writer::new();
    let Some(mut service) = Service::start_with(&["a", "b", "c"], &writer.config("")) else { return };
    let first = holder(&service).await;
    let client = LegacyClient::connect(&other(&service, &first).http).await;
    assert_eq!(client.call_tool("one__counter", json!({})).await, "1");
    service.kill(&first);
    // It is held, and answered by the new process.
    let answered = client.request("tools/call", call("one__counter", json!({}))).await;
    assert_eq!(text_of(&answered), "1", "{answered}");
    let second = holder(&service).await;
    assert_ne!(second, first);
    assert_eq!(writer.count(), 2);
}

#[tokio::test]
async fn a_singleton_server_is_handed_over_by_an_orderly_shutdown() {
    let writer = Writer::new();
    let config = format!("[gateway]\ndrain_wait = '0s'\n{}", writer.config(""));
    let Some(mut service) = Service::start_with(&["a", "b"], &config) else { return };
    let first = holder(&service).await;
    let at = service.replicas.iter().position(|replica| replica.name == first).unwrap();
    let mut leaving = service.replicas.remove(at);
    let client = LegacyClient::connect(&service.replicas[0].http).await;
    leaving.signal(Signal::TERM);
    leaving.wait();
    let lease = stored(&service, "{gripfast}:lease:server:one");
    assert!(!lease.contains(&format!("{first}/")), "it was given back: {lease}");
    assert_ne!(holder(&service).await, first);
    assert_eq!(client.call_tool("one__counter", json!({})).await, "1");
    assert_eq!(writer.count(), 2);
}

/// A value in the store.
fn stored(service: &Service, key: &str) -> String {
    let mut store = TcpStream::connect(("127.0.0.1", service.store.port())).unwrap();
    store.write_all(format!("GET {key}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut value = String::new();
    store.read_to_string(&mut value).unwrap();
    value
}

#[tokio::test]
async fn a_holder_without_the_store_stops_a_singleton_server_and_says_so() {
    let writer = Writer::new();
    let config = writer.config("").replace("'30s'", "'1s'");
    let Some(mut service) = Service::start_with(&["a", "b"], &config) else { return };
    let first = holder(&service).await;
    let client = LegacyClient::connect(&service.at(&first).http).await;
    assert_eq!(client.call_tool("one__counter", json!({})).await, "1");
    service.store.kill();
    until_async("the holder has stopped the server, and names the store", async || {
        let server = seen_by(service.at(&first)).await;
        server["state"] == "reconnecting" && server["cause"].to_string().contains("the store")
    })
    .await;
    let server = seen_by(service.at(&first)).await;
    assert!(server["holder"].is_null(), "{server}");
    let answered = client.request("tools/call", call("one__counter", json!({}))).await.to_string();
    assert!(answered.contains("reconnecting") && answered.contains("the store"), "{answered}");
    let log = service.at(&first).log();
    assert!(log.contains("stops the server `one`: its lease has ended, because the store"), "{log}");
    let ordinary = client.call_tool("demo__counter", json!({})).await;
    assert_eq!(ordinary, "1", "other servers are not affected");
    service.store.start_process();
    holder(&service).await;
    assert_eq!(client.call_tool("one__counter", json!({})).await, "1", "a new process");
    assert_eq!(writer.count(), 2);
}

#[tokio::test]
async fn a_stopped_holder_never_writes_beside_its_successor() {
    let writer = Writer::new();
    let Some(service) = Service::start_with(&["a", "b"], &writer.config("")) else { return };
    let first = holder(&service).await;
    let second = other(&service, &first);
    let client = LegacyClient::connect(&second.http).await;
    let stopped = service.at(&first);
    stopped.signal(Signal::STOP);
    until("another process writes", || writer.count() == 2).await;
    assert_eq!(client.call_tool("one__counter", json!({})).await, "1");
    stopped.signal(Signal::CONT);
    assert_eq!(holder(&service).await, second.name);
    let through = LegacyClient::connect(&stopped.http).await;
    assert_eq!(through.call_tool("one__counter", json!({})).await, "2", "through the former holder");
    assert_eq!(writer.count(), 2);
}

#[tokio::test]
async fn replicas_with_different_configs_do_not_share_a_singleton_server() {
    let writer = Writer::new();
    let Some(mut service) = Service::start_with(&["a"], &writer.config("")) else { return };
    assert_eq!(holder(&service).await, "a");
    let different = service.replica("b", &writer.config("env = { MODE = 'other' }"));
    until_async("b says why it does not use it", async || {
        seen_by(&different).await["cause"].to_string().contains("another config")
    })
    .await;
    assert_eq!(writer.count(), 1, "and does not run it either");
    service.replicas.push(different);
    service.kill("a");
    assert_eq!(holder(&service).await, "b", "when it is free, any replica may run it");
    assert_eq!(writer.count(), 2);
}

#[tokio::test]
async fn clients_of_all_replicas_have_instances_of_their_own_at_the_holder() {
    let writer = Writer::new();
    let config = writer.config("isolation = 'per_client'");
    let Some(service) = Service::start_with(&["a", "b"], &config) else { return };
    let holder = holder(&service).await;
    let at = other(&service, &holder);
    let [first, second] = [LegacyClient::connect(&at.http).await, LegacyClient::connect(&at.http).await];
    let third = LegacyClient::connect(&service.at(&holder).http).await;
    for count in ["1", "2"] {
        for client in [&first, &second, &third] {
            assert_eq!(client.call_tool("one__counter", json!({})).await, count);
        }
    }
    let server = seen_by(service.at(&holder)).await;
    assert_eq!(server["instances"], 3, "{server}");
}

#[tokio::test]
async fn only_sealed_requests_of_replicas_reach_a_singleton_server() {
    let writer = Writer::new();
    let Some(service) = Service::start_with(&["a"], &writer.config("")) else { return };
    holder(&service).await;
    let http = crate::client::HttpClient::at(&format!("127.0.0.1:{}", service.at("a").port));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover" }).to_string();
    for headers in [&[][..], &[("gripfast-principal", "local"), ("gripfast-forward", "1:0:0:0:0:00:00")]] {
        let refused = http.send(http::Method::POST, "/servers/one/0", headers, body.clone()).await;
        assert_eq!(refused.status, 403, "{refused:?}");
    }
    // The listener for clients has no such path.
    let unknown = service.at("a").http.send(http::Method::POST, "/servers/one/0", &[], body).await;
    assert_eq!(unknown.status, 404, "{unknown:?}");
}

//! Two versions of gripfast in one store, and the replacement of the cluster key. The newer version is played by values
//! that it would have written.

use super::service::{KEY, Replica, Service};
use super::shared_keys::{KEYS, add, until_status};
use super::shared_pins::server;
use super::through;
use crate::client::{LegacyClient, request};
use gripfast_cluster::keys::{ClusterKeys, KeyUse};
use gripfast_testkit::store_server;
use gripfast_testkit::wait::until_async;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const NEW_KEY: &str = "another secret of at least thirty-two characters";

/// The fields of a shared table as they are stored.
fn stored(service: &Service, table: &str) -> BTreeMap<String, String> {
    let reply = service.store.command(&format!("HGETALL {{gripfast}}:table:{table}"));
    let lines: Vec<&str> = reply.lines().filter(|line| !line.starts_with(['$', '*'])).collect();
    lines.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

/// Writes a field as a newer version of gripfast would, and lets the replicas know.
fn write(service: &Service, table: &str, field: &str, value: &str) {
    for command in [
        format!("HSET {{gripfast}}:table:{table} {field} {value}"),
        format!("HSET {{gripfast}}:revisions {table} 9000000000000000"),
        format!("PUBLISH {{gripfast}}:changes {table}"),
    ] {
        assert!(service.store.command(&command).starts_with(':'), "{command}");
    }
}

/// The value of a field, if the key opens it.
fn opened(key: &str, table: &str, field: &str, stored: &str) -> Option<Value> {
    let keys = ClusterKeys::new([key]).unwrap();
    let sealed = stored.splitn(3, ':').nth(2)?.strip_prefix('+')?;
    serde_json::from_slice(&keys.open(&sealed_name(table, field), sealed)?.content).ok()
}

fn sealed_name(table: &str, field: &str) -> String {
    format!("gripfast table 1 {{gripfast}}: {table} {field}")
}

async fn until_logged(replica: &Replica, text: &str) {
    until_async(&format!("{} logs: {text}", replica.name), async || replica.log().contains(text)).await;
}

#[tokio::test]
async fn an_entry_of_a_newer_version_is_neither_used_nor_changed() {
    let Some(service) = Service::start_with(&["a"], KEYS) else { return };
    let a = service.at("a");
    let [laptop, other] = ["laptop", "ci"].map(|name| add(a, name));
    until_status(a, &laptop, 200).await;
    until_status(a, &other, 200).await;
    // It may be the removal of the key.
    write(&service, "api_keys", "laptop", "2:whatever-comes");
    until_status(a, &laptop, 401).await;
    until_logged(a, "has written the entry `laptop` of the shared table `api_keys`").await;
    until_status(a, &other, 200).await;
    for words in [["keys", "add", "laptop"], ["keys", "rm", "laptop"]] {
        let (code, _, said) = a.local_command(&words);
        assert_ne!(code, Some(0), "{words:?}: {said}");
    }
    let (_, _, said) = a.local_command(&["keys", "add", "laptop"]);
    assert!(said.contains("has format 2, and this version knows formats up to 1"), "{said}");
    add(a, "third");
    assert_eq!(stored(&service, "api_keys")["laptop"], "2:whatever-comes");
    // The newer version writes the form that this one reads again, because this one lives.
    let copy = stored(&service, "api_keys")["ci"].clone();
    let sealed = copy.splitn(3, ':').nth(2).unwrap();
    write(&service, "api_keys", "ci", &format!("1:9000000000000001:{sealed}"));
    until_status(a, &other, 200).await;
}

#[tokio::test]
async fn a_gateway_goes_on_beside_a_replica_and_a_marker_of_a_newer_version() {
    let Some(service) = Service::start(&["a"]) else { return };
    service.until_complete().await;
    let a = service.at("a");
    let client = LegacyClient::connect(&a.http).await;
    let newer = "{gripfast}:replica:00000000000000ff";
    let _ = service.store.command(&format!("HSET {newer} record 2:whatever-comes"));
    let _ = service.store.command("SADD {gripfast}:replicas 00000000000000ff");
    until_logged(a, "1 replicas have records that this gateway cannot read").await;
    assert_eq!(a.status().await["cluster"]["replicas"], 1);
    assert_eq!(client.call_tool("demo__counter", json!({})).await, "1");
    assert!(service.store.command("SET {gripfast}:service 2:whatever-comes").starts_with("+OK"));
    until_logged(a, "the shared tables are not read: a value in the store has format 2").await;
    assert_eq!(client.call_tool("demo__counter", json!({})).await, "2", "sessions go on");
    let late = service.replica("b", "");
    until_logged(&late, "upgrade this gateway: a newer version of gripfast uses the store").await;
    let alone = LegacyClient::connect(&late.http).await;
    assert_eq!(alone.post(&request(1, "ping", &json!({}))).await.status, 200, "it serves alone");
    assert!(service.store.command("GET {gripfast}:service").contains("2:whatever-comes"));
    assert!(service.store.command(&format!("HGET {newer} record")).contains("2:whatever-comes"));
}

/// Rewrites the record of a replica after each of its heartbeats, until it is dropped: as one of a newer version, which
/// reads a newer format and has further members. Its other values have the format that the older replica reads.
struct NewerRecord {
    /// Dropped to end the thread.
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl NewerRecord {
    fn of(service: &Service, name: &str) -> Self {
        let (boot, port) = (service.boot(name), service.store.port());
        let (running, ended) = channel::<()>();
        let thread = std::thread::spawn({
            move || {
                let keys = ClusterKeys::new([KEY]).unwrap();
                let key = format!("{{gripfast}}:replica:{boot}");
                while ended.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
                    let record = store_server::command(port, &format!("HGET {key} record"));
                    let fields = record.split_once(":{").and_then(|(_, fields)| fields.lines().next());
                    if let Some(fields) = fields.filter(|fields| !fields.contains("of_tomorrow")) {
                        let fields =
                            format!("{{{fields}").replace("\"reads\":1", "\"reads\":2,\"of_tomorrow\":[7]");
                        let mac = keys.sign(KeyUse::ReplicaRecord, fields.as_bytes());
                        let mac: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
                        let quoted = fields.replace('"', "\\\"");
                        // Not after the record has ended.
                        let exists = store_server::command(port, &format!("EXISTS {key}"));
                        if exists.starts_with(":1") {
                            let write = format!("HSET {key} record \"1:{mac}:{quoted}\"");
                            assert!(store_server::command(port, &write).starts_with(":0"), "{write}");
                        }
                    }
                }
            }
        });
        Self { running: Some(running), thread: Some(thread) }
    }
}

impl Drop for NewerRecord {
    fn drop(&mut self) {
        self.running = None;
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

/// One replica announces a newer format. Requests pass between both, and each takes over a session of the other.
#[tokio::test]
async fn replicas_of_two_versions_forward_to_each_other_and_replace_each_other() {
    for lost in ["older", "newer"] {
        let Some(mut service) = Service::start(&["older", "newer"]) else { return };
        service.until_complete().await;
        let newer = NewerRecord::of(&service, "newer");
        let boot = service.boot("newer");
        until_async("the newer record is in the store", async || {
            service.store.command(&format!("HGET {{gripfast}}:replica:{boot} record")).contains("of_tomorrow")
        })
        .await;
        let left = if lost == "older" { "newer" } else { "older" };
        let clients = [
            LegacyClient::connect(&service.at("older").http).await,
            LegacyClient::connect(&service.at("newer").http).await,
        ];
        let begun = Instant::now();
        let mut count = 0;
        until_async("more than a lease of calls", async || {
            for client in &clients {
                for name in ["older", "newer"] {
                    let counted =
                        through(client, &service.at(name).http).call_tool("demo__counter", json!({})).await;
                    assert!(counted.parse::<u32>().unwrap() > count / 4, "{counted} after {count}");
                    count += 1;
                }
            }
            begun.elapsed() > Duration::from_secs(4)
        })
        .await;
        for name in ["older", "newer"] {
            let replica = service.at(name);
            assert_eq!(replica.status().await["cluster"]["replicas"], 2, "{name}");
            let metrics = replica.http.send(http::Method::GET, "/metrics", &[], "").await.text;
            assert!(metrics.contains("gripfast_cluster_takeovers_total 0"), "{name}: {metrics}");
            assert!(!metrics.contains("gripfast_cluster_forwards_total 0"), "{name}: {metrics}");
            assert!(!replica.log().contains("cannot read"), "{}", replica.log());
        }
        drop(newer);
        service.kill(lost);
        for client in &clients {
            through(client, &service.at(left).http).call_tool("demo__counter", json!({})).await;
        }
        let metrics = service.at(left).http.send(http::Method::GET, "/metrics", &[], "").await.text;
        assert!(metrics.contains("gripfast_cluster_takeovers_total 1"), "{left}: {metrics}");
    }
}

/// The record may be the end of the session.
#[tokio::test]
async fn a_session_with_a_record_of_a_newer_version_is_not_opened() {
    let Some(mut service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    client.request("logging/setLevel", json!({ "level": "error" })).await;
    let mut key = String::new();
    until_async("its record is in the store", async || {
        let keys = service.store.command("KEYS {gripfast}:session:*");
        key = keys.lines().find(|line| line.starts_with('{')).unwrap_or_default().to_owned();
        !key.is_empty()
    })
    .await;
    service.kill("a");
    assert!(service.store.command(&format!("SET {key} 2:whatever-comes")).starts_with("+OK"));
    let b = through(&client, &service.at("b").http);
    for _ in 0..3 {
        assert_eq!(b.post(&request(1, "ping", &json!({}))).await.status, 503);
    }
    let said = "get 503: a value in the store has format 2";
    assert_eq!(service.at("b").log().matches(said).count(), 1, "{}", service.at("b").log());
    assert!(service.store.command(&format!("GET {key}")).contains("2:whatever-comes"));
    let other = LegacyClient::connect(&service.at("b").http).await;
    assert_eq!(other.call_tool("demo__counter", json!({})).await, "1", "other sessions go on");
}

/// A replica that knows fewer members of a pin than the store has writes the others back when it pins a new tool.
#[tokio::test]
async fn members_that_a_newer_version_has_added_to_pins_are_kept() {
    let Some(mut service) = Service::start_with(&["a"], &server("")) else { return };
    let pins = |service: &Service| opened(KEY, "pins", "tool", stored(service, "pins").get("tool")?);
    until_async("its tools are pinned", async || pins(&service).is_some()).await;
    let mut value = pins(&service).unwrap();
    value["of_the_server"] = json!({ "by": "a newer version" });
    value["tools"]["echo"]["of_the_tool"] = json!([1]);
    let keys = ClusterKeys::new([KEY]).unwrap();
    let sealed = keys.seal(&sealed_name("pins", "tool"), value.to_string().as_bytes()).unwrap();
    write(&service, "pins", "tool", &format!("1:9000000000000000:+{sealed}"));
    service.kill("a");
    let _again = service.replica("a", &server("'--tools', '1'"));
    until_async("the new tool is pinned", async || pins(&service).unwrap()["tools"]["extra_1"].is_object())
        .await;
    let kept = pins(&service).unwrap();
    assert_eq!(kept["of_the_server"], value["of_the_server"]);
    assert_eq!(kept["tools"]["echo"], value["tools"]["echo"]);
}

/// Three rolling restarts: all accept the new key, all use it, none knows the old one.
#[tokio::test]
async fn after_a_rotation_everything_opens_with_the_new_key_alone() {
    let Some(mut service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    add(service.at("a"), "laptop");
    let mut client = LegacyClient::connect(&service.at("a").http).await;
    let first = client.session.clone();
    for keys in [format!("['{KEY}', '{NEW_KEY}']"), format!("['{NEW_KEY}', '{KEY}']"), format!("'{NEW_KEY}'")]
    {
        let has_new_first = keys.starts_with(&format!("['{NEW_KEY}"));
        service.key = keys;
        for name in ["a", "b"] {
            service.kill(name);
            let replica = service.replica(name, "");
            service.replicas.push(replica);
            service.until_complete().await;
            through(&client, &service.at(name).http).call_tool("demo__counter", json!({})).await;
        }
        if has_new_first {
            until_async("the tables are sealed with the new key", async || {
                ["pins", "api_keys"].iter().all(|table| {
                    let fields = stored(&service, table);
                    !fields.is_empty()
                        && fields.iter().all(|(name, value)| opened(NEW_KEY, table, name, value).is_some())
                })
            })
            .await;
            // A session that began under the old key ends with the last step.
            client = LegacyClient::connect(&service.at("a").http).await;
        }
    }
    let ended = LegacyClient::with_session(&service.at("a").http, &first);
    assert_eq!(ended.post(&request(1, "ping", &json!({}))).await.status, 404);
    for name in ["a", "b"] {
        let log = service.at(name).log();
        for text in ["was not made with `cluster.key`", "is not used", "cannot join"] {
            assert!(!log.contains(text), "{name}: {text}: {log}");
        }
        let (code, listed, said) = service.at(name).local_command(&["keys", "ls", "-o", "json"]);
        assert!(code == Some(0) && listed.contains("laptop"), "{listed} {said}");
    }
}

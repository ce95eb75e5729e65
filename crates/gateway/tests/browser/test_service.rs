//! Two gateways as one service on a real store: `a`, whose dashboard is opened, and `b`, whose config differs.

use crate::test_gateway::run_story_at;
use gripfast::placement::address::ReplicaAddress;
use gripfast::placement::place::{BootId, Place, ReplicaName};
use gripfast::placement::term::LeaseSpec;
use gripfast_cluster::Namespace;
use gripfast_cluster::heartbeat::{HeartbeatRequest, TakeoverNotices};
use gripfast_cluster::keys::ClusterKeys;
use gripfast_cluster::record::ReplicaRecord;
use gripfast_cluster::store::{Store, StoreSettings};
use gripfast_cluster::store_url::StoreUrl;
use gripfast_testkit::peers::free_port;
use gripfast_testkit::store_server::{RunningStore, StoreServer};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");
const KEY: &str = "a secret of at least thirty-two characters";

pub(crate) struct TestService {
    pub(crate) store: RunningStore,
    /// `b` is the last one.
    replicas: Vec<Replica>,
    dir: TempDir,
}

struct Replica {
    process: Child,
    url: String,
}

impl TestService {
    pub(crate) fn start() -> Self {
        let store = RunningStore::start(StoreServer::Valkey);
        let dir = tempfile::tempdir().unwrap();
        let servers = |names: &[&str]| -> String {
            let server = |name| format!("[servers.{name}]\ncommand = '{GRIPFAST}'\nargs = ['demo-server']\n");
            names.iter().map(server).collect()
        };
        let replicas = vec![
            Replica::start(&dir, &store, "a", &servers(&["demo"])),
            Replica::start(&dir, &store, "b", &servers(&["demo", "more"])),
        ];
        Self { store, replicas, dir }
    }

    /// Runs one story at the dashboard of `a`, with `b` as the other replica.
    pub(crate) async fn run_story(&self, story: &str) {
        run_story_at(story, &self.replicas[0].url, &self.dir.path().join("a.state")).await;
    }

    /// Ends `b` with `kill -9`.
    pub(crate) fn kill_other(&mut self) {
        self.replicas.truncate(1);
    }

    /// Adds the record of a replica with this text as its version and config digest, for five minutes.
    pub(crate) async fn add_replica(&self, text: &str) {
        let place = Place { name: ReplicaName::new("hostile").unwrap(), boot: BootId::from_number(7) };
        let store = Store::new(StoreSettings {
            url: StoreUrl::parse(&self.store.url()).unwrap(),
            namespace: Namespace::new("gripfast").unwrap(),
            keys: ClusterKeys::new([KEY]).unwrap(),
            place: place.clone(),
            spec: LeaseSpec { lease: Duration::from_secs(300) },
            retention: Duration::from_secs(300),
        });
        let record = ReplicaRecord {
            place,
            address: ReplicaAddress::parse("http://127.0.0.1:9").unwrap(),
            version: text.to_owned(),
            config_hash: text.to_owned(),
            sessions: 0,
            forwards_per_second: 1234.5,
            store_latency: None,
        };
        let acknowledged = TakeoverNotices::default();
        let request = HeartbeatRequest { record, leases: Vec::new(), acknowledged };
        store.unwrap().heartbeat(&request).await.unwrap();
    }
}

impl Replica {
    fn start(dir: &TempDir, store: &RunningStore, name: &str, servers: &str) -> Self {
        let path = |kind: &str| dir.path().join(format!("{name}.{kind}"));
        let config = format!(
            "[cluster]\nstore = '{}'\nkey = '{KEY}'\nname = '{name}'\nlisten = '127.0.0.1:{}'\nlease = '3s'\n{servers}",
            store.url(),
            free_port(),
        );
        std::fs::write(path("toml"), config).unwrap();
        let mut command = Command::new(GRIPFAST);
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(path("toml"));
        command.arg("--state-dir").arg(path("state"));
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find_map(|word| word.strip_suffix("/mcp"));
        let url = url.unwrap_or_else(|| panic!("it does not serve: {line}")).to_owned();
        Self { process, url }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

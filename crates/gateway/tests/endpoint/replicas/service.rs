//! A service for tests: a real store, and several gateways as processes.

use crate::client::HttpClient;
use gripfast::placement::place::BootId;
use gripfast_testkit::peers::free_port;
use gripfast_testkit::proc;
use gripfast_testkit::store_server::{RunningStore, StoreServer};
use gripfast_testkit::wall_clock::WallClock;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");
pub(crate) const KEY: &str = "a secret of at least thirty-two characters";

/// Replicas on one store.
pub(crate) struct Service {
    pub(crate) store: RunningStore,
    pub(crate) replicas: Vec<Replica>,
    /// `cluster.lease` of replicas that are started from now on.
    pub(crate) lease: &'static str,
    /// The key `cluster.key` of replicas that are started next, as TOML.
    pub(crate) key: String,
    /// Offset of the wall clock of replicas that are started next, such as `+300s`.
    pub(crate) clock_offset: Option<&'static str>,
    /// File with certificate authorities for replicas that are started next.
    pub(crate) ca_file: Option<PathBuf>,
    dir: TempDir,
    /// Further lines of the table `cluster`.
    cluster: String,
    /// URL of the store for the replicas, if it is not its own.
    store_url: Option<String>,
}

/// One gateway process.
pub(crate) struct Replica {
    pub(crate) name: String,
    pub(crate) http: HttpClient,
    /// Port of the listener for other replicas.
    pub(crate) port: u16,
    process: Child,
    log: PathBuf,
    pub(crate) state: PathBuf,
    config: PathBuf,
}

impl Service {
    /// Starts replicas with these names, each with a sample server. `None` if there is no store on this machine.
    pub(crate) fn start(names: &[&str]) -> Option<Self> {
        Self::start_with(names, "")
    }

    /// The same with further config.
    pub(crate) fn start_with(names: &[&str], config: &str) -> Option<Self> {
        Self::start_cluster(names, "", config)
    }

    /// The same with further lines of the table `cluster`.
    pub(crate) fn start_cluster(names: &[&str], cluster: &str, config: &str) -> Option<Self> {
        let mut service = Self::without_replicas()?;
        cluster.clone_into(&mut service.cluster);
        service.start_replicas(names, config);
        Some(service)
    }

    /// Only the store.
    pub(crate) fn without_replicas() -> Option<Self> {
        StoreServer::Valkey.require().then(|| Self::on(RunningStore::start(StoreServer::Valkey)))
    }

    /// A service without replicas on this store.
    pub(crate) fn on(store: RunningStore) -> Self {
        let (dir, key) = (tempfile::tempdir().unwrap(), format!("'{KEY}'"));
        let (cluster, store_url) = (String::new(), None);
        let (clock_offset, ca_file) = (None, None);
        Self { store, replicas: Vec::new(), lease: "3s", key, clock_offset, ca_file, dir, cluster, store_url }
    }

    /// Starts replicas that reach the store at this URL.
    pub(crate) fn start_through(&mut self, url: String, names: &[&str], config: &str) {
        self.store_url = Some(url);
        self.start_replicas(names, config);
    }

    /// Starts more replicas.
    pub(crate) fn start_replicas(&mut self, names: &[&str], config: &str) {
        for name in names {
            let replica = self.replica(name, config);
            self.replicas.push(replica);
        }
    }

    /// Starts one more process under this name.
    pub(crate) fn replica(&self, name: &str, config: &str) -> Replica {
        self.replica_at(name, "127.0.0.1:0", config)
    }

    /// The same with further keys of the table `cluster`.
    pub(crate) fn replica_with_cluster(&self, name: &str, cluster: &str) -> Replica {
        self.start_replica(name, "127.0.0.1:0", "", cluster)
    }

    /// The same at this address.
    pub(crate) fn replica_at(&self, name: &str, listen: &str, config: &str) -> Replica {
        self.start_replica(name, listen, config, "")
    }

    fn start_replica(&self, name: &str, listen: &str, config: &str, cluster: &str) -> Replica {
        let port = free_port();
        let lease = self.lease;
        let text = format!(
            "{config}\n[cluster]\nstore = '{}'\nkey = {}\nname = '{name}'\nlisten = '127.0.0.1:{port}'\nlease = '{lease}'\n{cluster}\n\
             {}\n[servers.demo]\ncommand = '{GRIPFAST}'\nargs = ['demo-server']\nprotocol = 'legacy'\n",
            self.store_url.clone().unwrap_or_else(|| self.store.url()),
            self.key,
            self.cluster,
        );
        let path = |kind: &str| self.dir.path().join(format!("{name}.{kind}"));
        std::fs::write(path("toml"), text).unwrap();
        let log = path("log");
        let mut command = match self.clock_offset {
            Some(offset) => WallClock::Faketime.shifted(offset, GRIPFAST),
            None => Command::new(GRIPFAST),
        };
        if let Some(file) = &self.ca_file {
            command.env("SSL_CERT_FILE", file);
        }
        command.args(["serve", "--listen", listen, "--config"]).arg(path("toml"));
        command.arg("--state-dir").arg(path("state"));
        let errors = File::options().create(true).append(true).open(&log).unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_whitespace().find_map(|word| word.strip_suffix("/mcp"));
        let address = address.unwrap_or_else(|| panic!("{line}\n{}", std::fs::read_to_string(&log).unwrap()));
        let http = HttpClient::at(address.trim_start_matches("http://"));
        Replica {
            name: name.to_owned(),
            http,
            port,
            process,
            log,
            state: path("state"),
            config: path("toml"),
        }
    }

    /// Waits until every replica knows all others, and the sample server of each is listed. In a new store its tools are
    /// pinned only after the grace period.
    pub(crate) async fn until_complete(&self) {
        for replica in &self.replicas {
            replica.until_it_knows(self.replicas.len()).await;
            let what = format!("the sample server of {} is ready", replica.name);
            gripfast_testkit::wait::until_async(&what, async || {
                let status = replica.status().await;
                let servers = status["upstreams"].as_array().cloned().unwrap_or_default();
                servers.iter().any(|server| server["name"] == "demo" && server["state"] == "ready")
            })
            .await;
        }
    }

    /// State directory of the replica with this name.
    pub(crate) fn state_dir(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.state"))
    }

    pub(crate) fn at(&self, name: &str) -> &Replica {
        self.replicas.iter().find(|replica| replica.name == name).unwrap()
    }

    /// The process of a replica, as its record in the store has it.
    pub(crate) fn boot(&self, name: &str) -> BootId {
        let boots = self.store.command("SMEMBERS {gripfast}:replicas");
        let record = |boot: &BootId| self.store.command(&format!("HGET {{gripfast}}:replica:{boot} record"));
        let named = format!("\"name\":\"{name}\"");
        let mut live = boots.lines().filter_map(BootId::parse).filter(|boot| record(boot).contains(&named));
        live.next().unwrap_or_else(|| panic!("{name} has no record: {boots}"))
    }

    /// Ends a replica with `kill -9`.
    pub(crate) fn kill(&mut self, name: &str) {
        let at = self.replicas.iter().position(|replica| replica.name == name).unwrap();
        drop(self.replicas.remove(at));
    }
}

impl Replica {
    pub(crate) async fn status(&self) -> Value {
        let status = self.http.send(http::Method::GET, "/api/v1/status", &[], "").await;
        serde_json::from_str(&status.text).unwrap()
    }

    pub(crate) async fn until_it_knows(&self, replicas: usize) {
        let what = format!("{} knows {replicas} replicas", self.name);
        gripfast_testkit::wait::until_async(&what, async || {
            self.status().await["cluster"]["replicas"] == replicas
        })
        .await;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        proc::signal(self.process.id(), signal);
    }

    /// The replicas as this one lists them.
    pub(crate) async fn replicas(&self) -> Vec<Value> {
        let replicas = self.http.send(http::Method::GET, "/api/v1/replicas", &[], "").await;
        serde_json::from_str(&replicas.text).unwrap()
    }

    /// Output of a command that asks this replica.
    pub(crate) fn command(&self, words: &[&str]) -> String {
        let (code, output, errors) = self.asked(words);
        assert_eq!(code, Some(0), "{output}{errors}");
        output
    }

    /// Exit code, output and errors of a command that asks this replica.
    pub(crate) fn asked(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let url = format!("http://{}", self.http.address);
        let mut command = Command::new(GRIPFAST);
        command.args(words).args(["--url", &url, "--state-dir"]).arg(&self.state);
        output(&mut command)
    }

    /// Exit code, output and errors of a command on the machine of this replica.
    pub(crate) fn local_command(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(GRIPFAST);
        command.args(words).arg("--config").arg(&self.config).arg("--state-dir").arg(&self.state);
        output(&mut command)
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(&mut self) {
        self.process.wait().unwrap();
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

/// Exit code, output and errors.
fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let said = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (said.status.code(), text(said.stdout), text(said.stderr))
}

impl Drop for Replica {
    #[expect(clippy::print_stderr, reason = "the log explains a failed test")]
    fn drop(&mut self) {
        // Fails only if it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.name, self.log());
        }
    }
}

//! Three gateways as one service: a store, a server for all of them, and whatever else a fault needs: proxies where it
//! cuts connections, a load balancer, an authorization server.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use gripfast_testkit::authority::{Authority, AuthorityOptions};
use gripfast_testkit::balancer::{REPLICAS, RunningBalancer};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::fault::{ReplicaAction, ReplicaFault};
use super::strike::until;
use super::{budget, refresh, singleton};
use crate::client::{self, Client, Reply};
use crate::environment::{ProcessReaper, SERVER};
use crate::fault_setup::counter_file;
use crate::gateway::{Gateway, Launch, POLL_INTERVAL, START_TIMEOUT, Subject, last_lines};
use crate::ledger::{self, ServerRecord};
use crate::load::Tools;
use crate::proxy::Proxy;
use crate::server::Server;
use gripfast_measure::proc;
use gripfast_measure::store::{Persistence, Store};
use gripfast_measure::{Era, MeasureError, Result, free_port};

/// Names of the replicas.
pub const NAMES: [&str; 3] = ["a", "b", "c"];
/// Time limit for processes to exit after their gateway.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A running service.
#[derive(Debug)]
pub struct Service {
    /// The store.
    pub store: Store,
    /// Proxies between each replica and the store, if the fault needs them.
    pub store_proxies: Vec<Proxy>,
    /// Proxies in front of the listener of each replica for the others, if the fault needs them.
    pub replica_proxies: Vec<Proxy>,
    /// The server.
    pub server: Server,
    /// The authorization server of a second server, if the fault needs one.
    pub authority: Option<Authority>,
    /// Replica that the next fault hits.
    pub target: usize,
    /// Guarantees that did not hold.
    pub violations: Vec<String>,
    action: ReplicaAction,
    subject: Subject,
    replicas: Vec<Gateway>,
    balancer: Option<RunningBalancer>,
    /// API key of the clients.
    key: Option<String>,
    lease: Duration,
    deadline: Duration,
    sweepers: Vec<ProcessReaper>,
    dir: TempDir,
}

impl Service {
    /// Starts the store, the server and the replicas, and waits until they are complete. The tools are pinned after the
    /// grace period of an empty store, so takeovers are possible from then on.
    ///
    /// # Errors
    /// A process does not start.
    pub async fn start(
        fault: &ReplicaFault,
        lease: Duration,
        deadline: Duration,
        subject: &Subject,
    ) -> Result<Self> {
        let dir = TempDir::with_prefix("chaos-")?;
        let persistence = match fault.action {
            ReplicaAction::KillStore(persistence) => persistence,
            _ => Persistence::None,
        };
        let store = Store::start(dir.path(), persistence)?;
        let flags = ["--counter-file".to_owned(), counter_file(dir.path())];
        let server = Server::start(subject.gripfast.clone(), flags.to_vec()).await?;
        let authority = match fault.action.has_login() {
            true => Some(Authority::start(AuthorityOptions::default()).await),
            false => None,
        };
        let mut service = Self {
            store,
            store_proxies: Vec::new(),
            replica_proxies: Vec::new(),
            server,
            authority,
            target: 0,
            violations: Vec::new(),
            action: fault.action,
            subject: subject.clone(),
            replicas: Vec::new(),
            balancer: None,
            key: None,
            lease,
            deadline,
            sweepers: Vec::new(),
            dir,
        };
        for replica in 0..NAMES.len() {
            service.start_replica(replica).await?;
        }
        if let Some(balancer) = fault.action.balancer() {
            // It panics if there is none, and blocks.
            let started = tokio::task::spawn_blocking(move || RunningBalancer::start(balancer)).await;
            service.balancer = Some(started.map_err(|error| MeasureError::new("the balancer", &error))?);
        }
        if fault.action.needs_key() {
            service.key = Some(service.command(0, &["keys", "add", "clients"]).await?.trim().to_owned());
        }
        service.until_complete().await?;
        if fault.action.has_login() {
            refresh::log_in(&service, 0).await?;
        }
        service.find_target().await?;
        Ok(service)
    }

    async fn start_replica(&mut self, replica: usize) -> Result<()> {
        let dir = self.dir_of(replica);
        std::fs::create_dir(&dir)?;
        let mut store = self.store.port();
        if self.action.has_store_proxies() {
            let proxy = Proxy::start(store).await?;
            store = proxy.port();
            self.store_proxies.push(proxy);
        }
        let port = free_port()?;
        let mut cluster = json!({
            "store": Store::url_at(store),
            "key": cluster_key(0),
            "name": NAMES[replica],
            "listen": format!("127.0.0.1:{port}"),
            "lease": millis(self.lease),
        });
        if let ReplicaAction::CutFromReplicas(_) = self.action {
            let proxy = Proxy::start(port).await?;
            cluster["advertise"] = json!(format!("http://127.0.0.1:{}", proxy.port()));
            self.replica_proxies.push(proxy);
        }
        let mut file = json!({
            "cluster": cluster,
            // Longer than a client leaves a connection unused: each one gets an answer with `Connection: close`.
            "gateway": { "drain_wait": "1s" },
            "mcpServers": { SERVER: self.server_entry() },
        });
        let mut url = "http://127.0.0.1:0/mcp".to_owned();
        if let Some(balancer) = self.action.balancer() {
            // With the default of `drain_wait`, in which the balancer notices that the replica ends.
            file["gateway"] = json!({ "public_url": format!("http://{}", balancer.address()) });
            url = format!("http://{}/mcp", REPLICAS[replica]);
        }
        if self.action.needs_key() {
            file["gateway"]["auth"] = json!({ "keys": true });
        }
        if self.action.has_budget() {
            file["cluster"]["on_store_loss"] = json!("refuse");
            file["budgets"] = budget::config();
        }
        if let Some(authority) = &self.authority {
            file["mcpServers"][refresh::SERVER] = json!({ "url": authority.mcp_url(), "transport": "http" });
        }
        let config = dir.join("config.json");
        std::fs::write(&config, file.to_string())?;
        self.sweepers.push(ProcessReaper::of(&dir));
        let launch = Launch { subject: self.subject.clone(), dir, config, wrapper: Vec::new() };
        self.replicas.push(Gateway::start_at(launch, url).await?);
        Ok(())
    }

    /// Config of the server.
    fn server_entry(&self) -> Value {
        let timeouts = json!({ "call": millis(self.deadline), "reconnect_wait": millis(self.deadline) });
        let mut entry = if self.action.has_singleton() {
            singleton::config(&self.subject.gripfast, self.dir.path())
        } else {
            json!({ "url": format!("http://127.0.0.1:{}/mcp", self.server.port()), "transport": "http" })
        };
        entry["timeouts"] = timeouts;
        entry
    }

    /// Sets the cluster key in the config of a replica, for its next start.
    ///
    /// # Errors
    /// The config cannot be written.
    pub fn set_cluster_key(&self, replica: usize, key: &Value) -> Result<()> {
        let path = self.dir_of(replica).join("config.json");
        let text = std::fs::read_to_string(&path)?;
        let mut config: Value =
            serde_json::from_str(&text).map_err(|error| MeasureError::new("the config", &error))?;
        config["cluster"]["key"] = key.clone();
        Ok(std::fs::write(path, config.to_string())?)
    }

    /// Finds the replica that the next fault hits.
    ///
    /// # Errors
    /// The replicas do not agree on the holder of the singleton server.
    pub async fn find_target(&mut self) -> Result<()> {
        if !self.action.has_singleton() {
            return Ok(());
        }
        let mut target = self.target;
        until("the replicas agree on the holder of the singleton server", async || {
            let mut holders = Vec::new();
            for replica in 0..NAMES.len() {
                let server = self.seen_by(replica, SERVER).await;
                let holder = server["holder"].as_str().filter(|_| server["state"] == "ready");
                holders.push(holder.and_then(|holder| NAMES.iter().position(|name| *name == holder)));
            }
            holders.dedup();
            target = holders[0].unwrap_or(target);
            matches!(holders[..], [Some(_)])
        })
        .await?;
        self.target = target;
        Ok(())
    }

    /// A server as a replica shows it.
    pub async fn seen_by(&self, replica: usize, server: &str) -> Value {
        let status = self.status(replica).await;
        let servers = status["upstreams"].as_array().cloned().unwrap_or_default();
        servers.into_iter().find(|seen| seen["name"] == server).unwrap_or_default()
    }

    /// Status of a replica; null if it cannot be asked.
    pub async fn status(&self, replica: usize) -> Value {
        let url = self.replicas[replica].url().replace("/mcp", "/api/v1/status");
        client::get(&url).await.unwrap_or_default()
    }

    /// URLs of the replicas.
    #[must_use]
    pub fn replica_urls(&self) -> Vec<String> {
        self.replicas.iter().map(|replica| replica.url().to_owned()).collect()
    }

    /// URLs that clients use: those of the replicas, or that of the load balancer.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        match self.action.balancer() {
            Some(balancer) => vec![format!("http://{}/mcp", balancer.address())],
            None => self.replica_urls(),
        }
    }

    /// Creates a client of several gateways.
    ///
    /// # Errors
    /// A URL is invalid.
    pub fn client(&self, urls: &[String], era: Era) -> Result<Client> {
        let client = Client::of_replicas(urls, era)?;
        Ok(match &self.key {
            Some(key) => client.with_bearer(key),
            None => client,
        })
    }

    /// Calls a tool through one replica.
    ///
    /// # Errors
    /// The text of the error, if the call is not served.
    pub async fn call_through(
        &self,
        replica: usize,
        tool: &str,
        arguments: &Value,
    ) -> std::result::Result<(), String> {
        let url = self.replicas[replica].url().to_owned();
        let client = self.client(&[url], Era::Modern).map_err(|error| error.to_string())?;
        match client.call(tool, arguments).await {
            Reply::Result(result) if result["isError"] != true => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// A command of gripfast on the machine of a replica.
    #[must_use]
    pub fn command_at(&self, replica: usize, words: &[&str]) -> Command {
        let dir = self.dir_of(replica);
        let mut command = std::process::Command::new(&self.subject.gripfast);
        command.args(words).arg("--state-dir").arg(dir.join("state"));
        command.env("GRIPFAST_CONFIG", dir.join("config.json")).env("HOME", dir).stdin(Stdio::null());
        proc::without_proxies(&mut command);
        command.into()
    }

    /// Runs a command of gripfast on the machine of a replica. Returns its output.
    ///
    /// # Errors
    /// It fails.
    pub async fn command(&self, replica: usize, words: &[&str]) -> Result<String> {
        let output = self.command_at(replica, words).output().await?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(MeasureError::new(&format!("gripfast {}", words.join(" ")), &errors));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Records a violation, unless the guarantee holds.
    pub fn check(&mut self, holds: bool, violation: &str) {
        if !holds {
            self.violations.push(violation.to_owned());
        }
    }

    /// Directory of the service.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    fn dir_of(&self, replica: usize) -> PathBuf {
        self.dir.path().join(NAMES[replica])
    }

    /// Waits until every replica knows all others and reaches the store, and lists the tools of the server.
    ///
    /// # Errors
    /// This does not happen within a minute.
    pub async fn until_complete(&self) -> Result<()> {
        for (replica, name) in NAMES.iter().enumerate() {
            let began = Instant::now();
            loop {
                let cluster = self.status(replica).await["cluster"].take();
                if cluster["replicas"] == NAMES.len()
                    && cluster["store"] == "ok"
                    && self.lists_tools(replica).await
                {
                    break;
                }
                if began.elapsed() > START_TIMEOUT {
                    let log = last_lines(&self.log(name), 30);
                    return Err(MeasureError::new(
                        &format!("replica {name} does not know the others"),
                        &format!("{cluster}\n{log}"),
                    ));
                }
                tokio::time::sleep(POLL_INTERVAL * 10).await;
            }
        }
        Ok(())
    }

    async fn lists_tools(&self, replica: usize) -> bool {
        let url = self.replicas[replica].url().to_owned();
        let Ok(client) = self.client(&[url], Era::Legacy) else { return false };
        matches!(client.initialize().await, Reply::Result(_))
            && client.tools().await.is_some_and(|names| Tools::find_in(&names, SERVER).is_some())
    }

    /// Names of the tools.
    #[must_use]
    pub fn tools() -> Tools {
        Tools::for_server(SERVER)
    }

    /// Kills a replica. Returns the time of the kill.
    ///
    /// # Errors
    /// The process does not exist.
    pub async fn kill(&mut self, replica: usize) -> Result<Instant> {
        self.replicas[replica].kill().await
    }

    /// Starts a replica again at the same addresses.
    ///
    /// # Errors
    /// It does not start.
    pub async fn restart(&mut self, replica: usize) -> Result<()> {
        self.replicas[replica].restart().await
    }

    /// Ends a replica in order.
    ///
    /// # Errors
    /// It does not exit.
    pub async fn shut_down(&mut self, replica: usize) -> Result<()> {
        self.replicas[replica].shut_down().await
    }

    /// Sends a signal to a replica.
    ///
    /// # Errors
    /// The process does not exist.
    pub fn signal(&self, replica: usize, signal: Signal) -> Result<()> {
        proc::signal(self.replicas[replica].pid(), signal)
    }

    /// Lease of the replicas.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Sessions that each replica has taken over since its start.
    pub async fn takeovers(&self) -> Vec<u64> {
        let mut takeovers = Vec::new();
        for replica in &self.replicas {
            let metrics =
                client::get_text(&replica.url().replace("/mcp", "/metrics")).await.unwrap_or_default();
            let line =
                |line: &str| line.strip_prefix("gripfast_cluster_takeovers_total ")?.trim().parse().ok();
            takeovers.push(metrics.lines().find_map(line).unwrap_or(0));
        }
        takeovers
    }

    /// The server's record of the calls that it executed.
    #[must_use]
    pub fn record(&self) -> ServerRecord {
        ledger::effects(&std::fs::read_to_string(counter_file(self.dir.path())).unwrap_or_default())
    }

    /// Log of a replica.
    #[must_use]
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name).join("gateway.log")).unwrap_or_default()
    }

    /// Ends all replicas and returns the command lines of the processes that they left behind.
    ///
    /// # Errors
    /// A replica does not exit.
    pub async fn close(self) -> Result<Vec<String>> {
        let ends: Vec<_> = self.replicas.into_iter().map(|replica| tokio::spawn(replica.stop())).collect();
        for end in ends {
            end.await.map_err(|error| MeasureError::new("the end of a replica", &error))??;
        }
        let ended = Instant::now();
        loop {
            let left: Vec<u32> = self.sweepers.iter().flat_map(ProcessReaper::processes).collect();
            if left.is_empty() || ended.elapsed() > EXIT_TIMEOUT {
                return Ok(left.iter().map(|pid| proc::command_line(*pid)).collect());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// One of the secrets that a service uses in turn.
pub(super) fn cluster_key(number: usize) -> String {
    format!("secret {number} of at least thirty-two characters")
}

fn millis(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

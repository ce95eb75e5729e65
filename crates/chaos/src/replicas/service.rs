//! Three gateways as one service: a store, a server over HTTP for all of them, and proxies where a fault cuts
//! connections.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use super::fault::{ReplicaAction, ReplicaFault};
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

/// Names of the replicas. Faults hit the first one.
pub const NAMES: [&str; 3] = ["a", "b", "c"];
/// Time limit for processes to exit after their gateway.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
const KEY: &str = "a secret of at least thirty-two characters";

/// A running service.
#[derive(Debug)]
pub struct Service {
    /// The store.
    pub store: Store,
    /// Proxies between each replica and the store, if the fault needs them.
    pub store_proxies: Vec<Proxy>,
    /// Proxies in front of the listener of each replica for the others, if the fault needs them.
    pub replica_proxies: Vec<Proxy>,
    replicas: Vec<Gateway>,
    lease: Duration,
    sweepers: Vec<ProcessReaper>,
    server: Server,
    dir: TempDir,
}

impl Service {
    /// Starts the store, the server and the replicas, and waits until takeovers are possible.
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
        let mut service = Self {
            store,
            store_proxies: Vec::new(),
            replica_proxies: Vec::new(),
            replicas: Vec::new(),
            lease,
            sweepers: Vec::new(),
            server,
            dir,
        };
        for name in NAMES {
            service.start_replica(name, fault, deadline, subject).await?;
        }
        service.until_complete().await?;
        if fault.takes_over() {
            // The store was empty: no session is taken over for one lease and one heartbeat.
            tokio::time::sleep(lease + lease / 5).await;
        }
        Ok(service)
    }

    async fn start_replica(
        &mut self,
        name: &str,
        fault: &ReplicaFault,
        deadline: Duration,
        subject: &Subject,
    ) -> Result<()> {
        let dir = self.dir.path().join(name);
        std::fs::create_dir(&dir)?;
        let mut store = self.store.port();
        if matches!(fault.action, ReplicaAction::SlowStore | ReplicaAction::CutFromStore(_)) {
            let proxy = Proxy::start(store).await?;
            store = proxy.port();
            self.store_proxies.push(proxy);
        }
        let port = free_port()?;
        let mut cluster = json!({
            "store": Store::url_at(store),
            "key": KEY,
            "name": name,
            "listen": format!("127.0.0.1:{port}"),
            "lease": millis(self.lease),
        });
        if let ReplicaAction::CutFromReplicas(_) = fault.action {
            let proxy = Proxy::start(port).await?;
            cluster["advertise"] = json!(format!("http://127.0.0.1:{}", proxy.port()));
            self.replica_proxies.push(proxy);
        }
        let url = format!("http://127.0.0.1:{}/mcp", self.server.port());
        let timeouts = json!({ "call": millis(deadline), "reconnect_wait": millis(deadline) });
        let file = json!({
            "cluster": cluster,
            "gateway": { "drain_wait": "500ms" },
            "mcpServers": { SERVER: { "url": url, "transport": "http", "timeouts": timeouts } },
        });
        let config = dir.join("config.json");
        std::fs::write(&config, file.to_string())?;
        self.sweepers.push(ProcessReaper::of(&dir));
        let launch = Launch { subject: subject.clone(), dir, config, wrapper: Vec::new() };
        self.replicas.push(Gateway::start(launch).await?);
        Ok(())
    }

    /// URLs of the replicas.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.replicas.iter().map(|replica| replica.url().to_owned()).collect()
    }

    /// Waits until every replica knows all others and reaches the store, and lists the tools of the server.
    ///
    /// # Errors
    /// This does not happen within a minute.
    pub async fn until_complete(&self) -> Result<()> {
        for (replica, name) in self.replicas.iter().zip(NAMES) {
            let began = Instant::now();
            loop {
                let status = client::get(&replica.url().replace("/mcp", "/api/v1/status")).await;
                let cluster = status.map(|mut status| status["cluster"].take()).unwrap_or_default();
                if cluster["replicas"] == NAMES.len()
                    && cluster["store"] == "ok"
                    && lists_tools(replica).await
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

async fn lists_tools(replica: &Gateway) -> bool {
    let Ok(client) = Client::new(replica.url(), Era::Legacy) else { return false };
    matches!(client.initialize().await, Reply::Result(_))
        && client.tools().await.is_some_and(|names| Tools::find_in(&names, SERVER).is_some())
}

fn millis(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

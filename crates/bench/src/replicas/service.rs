//! A store and several gateways on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::{BenchRequest, Client};
use crate::options::RunOptions;
use crate::processes::{FIRST, Gateway, GatewayDir, Server};
use gripfast_measure::store::{Persistence, Store};
use gripfast_measure::{Era, MeasureError, Result, free_port};

/// Lease of the replicas: long enough for a busy machine, and short enough for a run.
pub(super) const LEASE: Duration = Duration::from_secs(5);
const KEY: &str = "a secret of at least thirty-two characters";
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A running service. Dropping it kills all its processes.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) store: Store,
    replicas: Vec<Replica>,
    _dir: TempDir,
}

#[derive(Debug)]
struct Replica {
    gateway: Option<Gateway>,
    dir: Arc<GatewayDir>,
    config: String,
}

impl Service {
    /// Starts a store and this many replicas, and waits until takeovers are possible.
    pub(super) async fn start(options: &RunOptions, server: &Server, count: usize) -> Result<Self> {
        let dir = TempDir::new()?;
        let store = Store::start(dir.path(), Persistence::None)?;
        let mut service = Self { store, replicas: Vec::new(), _dir: dir };
        for number in 0..count {
            let config = format!(
                "{}\n[cluster]\nstore = \"{}\"\nkey = \"{KEY}\"\nname = \"r{number}\"\nlisten = \"127.0.0.1:{}\"\n\
                 lease = \"{}s\"\n[gateway]\ndrain_wait = \"1s\"\n[gateway.limits]\nsessions = 200000\n\
                 sessions_per_client = 200000\n",
                server.entry(FIRST, 2, Era::Modern),
                Store::url_at(service.store.port()),
                free_port()?,
                LEASE.as_secs(),
            );
            let dir = Arc::new(GatewayDir::new()?);
            let gateway = Some(Gateway::start(&options.gripfast, &dir, &config)?);
            service.replicas.push(Replica { gateway, dir, config });
        }
        service.until_complete().await?;
        // The store was empty: no session is taken over for one lease and one heartbeat.
        tokio::time::sleep(LEASE + LEASE / 5).await;
        Ok(service)
    }

    pub(super) fn gateway(&self, replica: usize) -> Result<&Gateway> {
        let gateway = self.replicas[replica].gateway.as_ref();
        gateway.ok_or_else(|| MeasureError::new("replica", &"it does not run"))
    }

    /// Process ids of all replicas.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.replicas.iter().filter_map(|replica| replica.gateway.as_ref()).flat_map(Gateway::pids).collect()
    }

    /// Kills a replica.
    pub(super) fn kill(&mut self, replica: usize) -> Instant {
        let at = Instant::now();
        // Dropping it kills the process.
        self.replicas[replica].gateway = None;
        at
    }

    /// Ends a replica in order and starts it again at the same address, while the runtime goes on.
    pub(super) async fn restart(&mut self, options: &RunOptions, replica: usize) -> Result<()> {
        let gateway = self.replicas[replica].gateway.take();
        let gateway = gateway.ok_or_else(|| MeasureError::new("replica", &"it does not run"))?;
        let address = gateway.address.socket;
        let Replica { dir, config, .. } = &self.replicas[replica];
        let (gripfast, dir, config) = (options.gripfast.clone(), Arc::clone(dir), config.clone());
        let again = tokio::task::spawn_blocking(move || {
            gateway.stop()?;
            Gateway::start_at(&gripfast, address, &dir, &config)
        });
        let again = again.await.map_err(|error| MeasureError::new("the restart of a replica", &error))?;
        self.replicas[replica].gateway = Some(again?);
        self.until_complete().await
    }

    /// Waits until every replica knows all others.
    async fn until_complete(&self) -> Result<()> {
        for replica in 0..self.replicas.len() {
            let address = self.gateway(replica)?.address.clone();
            let began = Instant::now();
            loop {
                let mut client = Client::connect_without_session(&address).await?;
                let status = client.body_of(BenchRequest::File("api/v1/status")).await?;
                let status: serde_json::Value = serde_json::from_slice(&status).unwrap_or_default();
                if status["cluster"]["replicas"] == self.replicas.len() && status["cluster"]["store"] == "ok"
                {
                    break;
                }
                if began.elapsed() > START_TIMEOUT {
                    return Err(MeasureError::new("the replicas do not know each other", &status["cluster"]));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }
}

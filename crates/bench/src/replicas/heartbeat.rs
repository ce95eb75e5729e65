//! Traffic of heartbeats, with one replica and with ten.

use std::time::{Duration, Instant};

use serde::Serialize;
use tempfile::TempDir;

use super::service::{LEASE, Service};
use crate::options::RunOptions;
use crate::processes::Server;
use gripfast_measure::store::{Persistence, Store};
use gripfast_measure::{Result, proc};

#[derive(Debug, Serialize)]
pub(crate) struct HeartbeatCost {
    pub(crate) one: ServiceTraffic,
    pub(crate) several: ServiceTraffic,
}

/// Traffic of an idle service, per heartbeat. Five are sent per lease.
#[derive(Debug, Serialize)]
pub(crate) struct ServiceTraffic {
    pub(crate) replicas: usize,
    /// Bytes to the store.
    pub(crate) sent: f64,
    /// Bytes from the store.
    pub(crate) received: f64,
    /// Processor time of the store in microseconds, without that of an unused store in the same time.
    pub(crate) store_processor: f64,
    /// Processor time of the replica in microseconds, with its other idle work.
    pub(crate) replica_processor: f64,
}

pub(super) async fn run(options: &RunOptions, server: &Server) -> Result<HeartbeatCost> {
    let several = options.pick(3, 10, 10);
    Ok(HeartbeatCost {
        one: traffic(options, server, 1).await?,
        several: traffic(options, server, several).await?,
    })
}

async fn traffic(options: &RunOptions, server: &Server, replicas: usize) -> Result<ServiceTraffic> {
    let service = Service::start(options, server, replicas).await?;
    let unused_dir = TempDir::new()?;
    let unused_store = Store::start(unused_dir.path(), Persistence::None)?;
    let store: Vec<u32> = service.store.pid().into_iter().collect();
    let unused: Vec<u32> = unused_store.pid().into_iter().collect();
    let pids = service.pids();
    let read = || -> Result<[f64; 4]> {
        let [sent, received] = service.store.traffic()?;
        let micros = |pids: &[u32]| proc::cpu_time(pids).as_secs_f64() * 1e6;
        Ok([sent as f64, received as f64, micros(&store) - micros(&unused), micros(&pids)])
    };
    // A reading is traffic too.
    let first = read()?;
    let (began, before) = (Instant::now(), read()?);
    tokio::time::sleep(Duration::from_secs(options.pick(1, 5, 20))).await;
    let after = read()?;
    let heartbeats = began.elapsed().as_secs_f64() / LEASE.as_secs_f64() * 5.0 * replicas as f64;
    let [sent, received, store_processor, replica_processor] =
        std::array::from_fn(|at| (after[at] - before[at] - (before[at] - first[at])) / heartbeats);
    Ok(ServiceTraffic { replicas, sent, received, store_processor, replica_processor })
}

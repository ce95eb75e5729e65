//! Traffic of heartbeats, with one replica and with ten, and with 90 more that exist only as records in the store.

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
    pub(crate) many: ServiceTraffic,
}

/// Traffic of an idle service, per heartbeat. Five are sent per lease.
#[derive(Debug, Serialize)]
pub(crate) struct ServiceTraffic {
    pub(crate) replicas: usize,
    /// Bytes to the store.
    pub(crate) sent: f64,
    /// Bytes from the store.
    pub(crate) received: f64,
    /// Time of the script in the store in microseconds.
    pub(crate) script: f64,
    /// Processor time of the store in microseconds, with its wake-up and without that of an unused store in the same time.
    pub(crate) store_processor: f64,
    /// Processor time of the replica in microseconds, with its other idle work.
    pub(crate) replica_processor: f64,
}

pub(super) async fn run(options: &RunOptions, server: &Server) -> Result<HeartbeatCost> {
    let several = options.pick(3, 10, 10);
    Ok(HeartbeatCost {
        one: traffic(options, server, 1, 0).await?,
        several: traffic(options, server, several, 0).await?,
        many: traffic(options, server, several, several * 9).await?,
    })
}

/// Copies the record of a replica under other boot ids.
const COPY_RECORDS: &str = "
local key = redis.call('KEYS', '*replica:*')[1]
local prefix = string.match(key, '^(.*)replica:')
local record = redis.call('HGET', key, 'record')
for number = 1, tonumber(ARGV[1]) do
  local boot = string.format('%016x', number)
  redis.call('HSET', prefix .. 'replica:' .. boot, 'record', record)
  redis.call('SADD', prefix .. 'replicas', boot)
end
return 1";

async fn traffic(
    options: &RunOptions,
    server: &Server,
    replicas: usize,
    copies: usize,
) -> Result<ServiceTraffic> {
    let service = Service::start(options, server, replicas).await?;
    service.store.command(&["EVAL", COPY_RECORDS, "0", &copies.to_string()])?;
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
    let (began, before, scripts) = (Instant::now(), read()?, service.store.script_time()?);
    tokio::time::sleep(Duration::from_secs(options.pick(1, 5, 20))).await;
    let (after, scripts_after) = (read()?, service.store.script_time()?);
    let [executed, micros] = std::array::from_fn(|at| (scripts_after[at] - scripts[at]) as f64);
    let heartbeats = began.elapsed().as_secs_f64() / LEASE.as_secs_f64() * 5.0 * replicas as f64;
    let [sent, received, store_processor, replica_processor] =
        std::array::from_fn(|at| (after[at] - before[at] - (before[at] - first[at])) / heartbeats);
    let script = micros / executed;
    Ok(ServiceTraffic {
        replicas: replicas + copies,
        sent,
        received,
        script,
        store_processor,
        replica_processor,
    })
}

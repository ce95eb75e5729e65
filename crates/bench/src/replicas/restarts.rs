//! Rolling restart of all replicas under load: number of failed calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;

use super::service::Service;
use crate::client::{Address, Client};
use crate::options::RunOptions;
use crate::processes::Server;
use gripfast_measure::{Era, MeasureError, Result};

#[derive(Debug, Serialize)]
pub(crate) struct Restarts {
    pub(crate) replicas: usize,
    pub(crate) calls: usize,
    pub(crate) failed: usize,
    /// Requests whose connection was refused, and which were sent to the next replica.
    pub(crate) refused: usize,
    /// The first failures.
    pub(crate) remarks: Vec<String>,
}

const REPLICAS: usize = 3;
const WORKERS: usize = 8;
const MAX_REMARKS: usize = 5;

#[derive(Debug, Default)]
struct Counts {
    calls: usize,
    failed: usize,
    refused: usize,
    remarks: Vec<String>,
}

pub(super) async fn run(options: &RunOptions, server: &Server) -> Result<Restarts> {
    let least: usize = options.pick(100, 2_000, 10_000);
    let mut service = Service::start(options, server, REPLICAS).await?;
    let addresses: Vec<Address> =
        (0..REPLICAS).map(|replica| Ok(service.gateway(replica)?.address.clone())).collect::<Result<_>>()?;
    let (addresses, ends) = (Arc::new(addresses), Arc::new(AtomicBool::new(false)));
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let era = if worker % 2 == 0 { Era::Legacy } else { Era::Modern };
        let first = Client::connect(&addresses[worker % REPLICAS], era).await?;
        let pause = Duration::from_millis(options.pick(1, 2, 2));
        workers.spawn(call(first, Arc::clone(&addresses), Arc::clone(&ends), pause, least.div_ceil(WORKERS)));
    }
    for replica in 0..REPLICAS {
        service.restart(options, replica).await?;
    }
    ends.store(true, Ordering::Relaxed);
    let mut all = Counts::default();
    while let Some(ended) = workers.join_next().await {
        let counts = ended.map_err(|error| MeasureError::new("rolling restart", &error))??;
        all.calls += counts.calls;
        all.failed += counts.failed;
        all.refused += counts.refused;
        all.remarks.extend(counts.remarks);
    }
    all.remarks.truncate(MAX_REMARKS);
    let Counts { calls, failed, refused, remarks } = all;
    Ok(Restarts { replicas: REPLICAS, calls, failed, refused, remarks })
}

/// Calls through all replicas in turn, with one kept connection to each, until the restarts and `least` calls are done.
/// A refused connection is the only reason to send a request to the next replica.
async fn call(
    first: Client,
    addresses: Arc<Vec<Address>>,
    ends: Arc<AtomicBool>,
    pause: Duration,
    least: usize,
) -> Result<Counts> {
    let mut kept: Vec<Option<Client>> = addresses.iter().map(|_| None).collect();
    let mut counts = Counts::default();
    for turn in (0..addresses.len()).cycle() {
        if ends.load(Ordering::Relaxed) && counts.calls >= least {
            break;
        }
        let usable = kept[turn].take().filter(Client::is_open);
        let client = match usable {
            Some(client) => Some(client),
            None => first.through(&addresses[turn]).await.ok(),
        };
        let Some(mut client) = client else {
            counts.refused += 1;
            continue;
        };
        counts.calls += 1;
        match client.call_once().await {
            Ok(200) => kept[turn] = Some(client).filter(|client| !client.is_closing()),
            other => {
                counts.failed += 1;
                counts.remarks.push(format!("{other:?}"));
            }
        }
        tokio::time::sleep(pause).await;
    }
    Ok(counts)
}

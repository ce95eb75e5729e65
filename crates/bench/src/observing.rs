//! Cost of records: gripfast with ledger, audit log and a client that reads the metrics every second, compared with
//! gripfast without them. Metrics counters cannot be switched off.

use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;

use crate::client::{Address, BenchRequest, Client};
use crate::load::{Lane, Sample};
use crate::options::RunOptions;
use crate::processes::{self, FIRST, Gateway, GatewayDir, Server};
use gripfast_measure::Era;
use gripfast_measure::times::median;
use gripfast_measure::{MeasureError, Result};

const CONCURRENCY: usize = 16;

#[derive(Debug, Serialize)]
pub(crate) struct Observing {
    pub(crate) at_once: usize,
    pub(crate) on: Vec<Sample>,
    pub(crate) off: Vec<Sample>,
}

impl Observing {
    /// Throughput with records divided by throughput without.
    pub(crate) fn throughput_ratio(&self) -> f64 {
        median(self.on.iter().zip(&self.off).map(|(on, off)| on.per_second / off.per_second))
    }
}

pub(crate) async fn run(options: &RunOptions) -> Result<Observing> {
    let server = Server::start()?;
    let homes = [GatewayDir::new()?, GatewayDir::new()?];
    let entry = server.entry(FIRST, 2, Era::Legacy);
    let config = |keeps| format!("[gateway]\nledger = \"{keeps}\"\naudit = \"{keeps}\"\n{entry}");
    let gateways = [
        Gateway::start(&options.gripfast, &homes[0], &config("digest"))?,
        Gateway::start(&options.gripfast, &homes[1], &config("off"))?,
    ];
    let mut reading = JoinSet::new();
    reading.spawn(read_metrics(gateways[0].address.clone()));
    let mut lanes = Vec::new();
    for (name, gateway) in ["on", "off"].into_iter().zip(&gateways) {
        let clients = processes::clients(&gateway.address, Era::Legacy, CONCURRENCY).await?;
        lanes.push(Lane::http(name, clients, gateway.pids()));
    }
    let question = BenchRequest::Call(crate::calls::SMALL);
    let mut samples = [Vec::new(), Vec::new()];
    for repeat in 0..=options.repeats {
        for (lane, samples) in lanes.iter_mut().zip(&mut samples) {
            let sample = lane.load(question, CONCURRENCY, options.slice).await?;
            if let Some(ended) = reading.try_join_next() {
                ended.map_err(|error| MeasureError::new("reading metrics", &error))??;
            }
            // The first round is a warm-up.
            if repeat > 0 {
                samples.push(sample);
            }
        }
    }
    let [on, off] = samples;
    Ok(Observing { at_once: CONCURRENCY, on, off })
}

/// Reads the metrics of a gateway every second until the task is dropped.
async fn read_metrics(address: Address) -> Result<()> {
    let mut client = Client::connect_without_session(&address).await?;
    let mut ready = client.prepare(BenchRequest::File("metrics"));
    loop {
        client.send(&mut ready).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

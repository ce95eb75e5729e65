//! One gateway with `[cluster]` against one without, in ABBA order, and a call through another replica than the owner.

use std::time::Duration;

use serde::Serialize;

use super::service::Service;
use crate::calls::SMALL;
use crate::client::{BenchRequest, Client};
use crate::load::{Lane, Sample};
use crate::options::RunOptions;
use crate::processes::{self, FIRST, Gateway, GatewayDir, Server};
use gripfast_measure::times::median;
use gripfast_measure::{Era, Result};

#[derive(Debug, Serialize)]
pub(crate) struct Overhead {
    pub(crate) rows: Vec<OverheadRow>,
    /// Commands of the store per call at the owner, without those of the same time without calls.
    pub(crate) store_commands: f64,
    /// Calls in which they were counted.
    pub(crate) counted_calls: usize,
    /// Calls at the owner.
    pub(crate) owner: Vec<Sample>,
    /// The same through another replica. The processor time is that of both replicas.
    pub(crate) forwarded: Vec<Sample>,
}

/// Samples with one concurrency. Each round has two of each, in the order off, on, on, off.
#[derive(Debug, Serialize)]
pub(crate) struct OverheadRow {
    pub(crate) at_once: usize,
    pub(crate) off: Vec<[Sample; 2]>,
    pub(crate) on: Vec<[Sample; 2]>,
}

impl OverheadRow {
    /// Median over the rounds of on divided by off.
    pub(crate) fn ratio(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        let sum = |pair: &[Sample; 2]| figure(&pair[0]) + figure(&pair[1]);
        median(self.on.iter().zip(&self.off).map(|(on, off)| sum(on) / sum(off)))
    }
}

const QUESTION: BenchRequest = BenchRequest::Call(SMALL);
const CONCURRENCY: [usize; 2] = [1, 16];

pub(super) async fn run(options: &RunOptions, server: &Server) -> Result<Overhead> {
    let (rounds, slice) = options.pick((1, 20), (10, 100), (60, 150));
    let slice = Duration::from_millis(slice);
    let home = GatewayDir::new()?;
    let alone = Gateway::start(&options.gripfast, &home, &server.entry(FIRST, 2, Era::Modern))?;
    let service = Service::start(options, server, 1).await?;
    let member = service.gateway(0)?;
    let most = CONCURRENCY[CONCURRENCY.len() - 1];
    let clients = |gateway: &Gateway| {
        let address = gateway.address.clone();
        async move { processes::clients(&address, Era::Legacy, most).await }
    };
    let mut off = Lane::http("off", clients(&alone).await?, alone.pids());
    let mut on = Lane::http("on", clients(member).await?, member.pids());
    let mut rows = Vec::new();
    for at_once in CONCURRENCY {
        let mut row = OverheadRow { at_once, off: Vec::new(), on: Vec::new() };
        for lane in [&mut off, &mut on] {
            lane.load(QUESTION, at_once, slice).await?;
        }
        for _ in 0..rounds {
            let first = off.load(QUESTION, at_once, slice).await?;
            let inner = [on.load(QUESTION, at_once, slice).await?, on.load(QUESTION, at_once, slice).await?];
            row.off.push([first, off.load(QUESTION, at_once, slice).await?]);
            row.on.push(inner);
        }
        rows.push(row);
    }
    let (store_commands, counted_calls) = count_commands(options, &service, &mut on).await?;
    drop(alone);
    let [owner, forwarded] = forwarding(options, server).await?;
    Ok(Overhead { rows, store_commands, counted_calls, owner, forwarded })
}

/// Commands of the store per call.
async fn count_commands(options: &RunOptions, service: &Service, lane: &mut Lane) -> Result<(f64, usize)> {
    let window = Duration::from_millis(options.pick(200, 3_000, 10_000));
    let total = || -> Result<u64> {
        let counts = service.store.command_counts()?;
        Ok(counts.iter().filter(|(name, _)| *name != "info").map(|(_, count)| count).sum())
    };
    let before = total()?;
    tokio::time::sleep(window).await;
    let idle = total()? - before;
    let before = total()?;
    let sample = lane.load(QUESTION, 1, window).await?;
    let loaded = total()? - before;
    let calls = sample.per_second * window.as_secs_f64();
    Ok((loaded.saturating_sub(idle) as f64 / calls, calls as usize))
}

/// Calls at the owner and through another replica, in turns.
async fn forwarding(options: &RunOptions, server: &Server) -> Result<[Vec<Sample>; 2]> {
    let service = Service::start(options, server, 2).await?;
    let owner = Client::connect(&service.gateway(0)?.address, Era::Legacy).await?;
    let other = owner.through(&service.gateway(1)?.address).await?;
    let mut lanes = [
        Lane::http("owner", vec![owner], service.pids()),
        Lane::http("forwarded", vec![other], service.pids()),
    ];
    let mut samples = [Vec::new(), Vec::new()];
    for lane in &mut lanes {
        lane.load(QUESTION, 1, options.slice).await?;
    }
    for _ in 0..options.repeats * 3 {
        for (lane, samples) in lanes.iter_mut().zip(&mut samples) {
            samples.push(lane.load(QUESTION, 1, options.slice).await?);
        }
    }
    Ok(samples)
}

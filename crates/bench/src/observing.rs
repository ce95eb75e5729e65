//! What it costs to see what calls do: gripfast with its ledger, its audit log and somebody who reads the metrics every
//! second, beside one that writes nothing down and is read by nobody. Counting itself cannot be switched off.

use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;

use crate::client::{Address, Client, Era, Question};
use crate::load::{Lane, Sample};
use crate::order::Order;
use crate::stage::{self, FIRST, Gateway, Home, Server};
use crate::{Cannot, Result, median};

const AT_ONCE: usize = 16;

#[derive(Debug, Serialize)]
pub(crate) struct Observing {
    pub(crate) at_once: usize,
    pub(crate) on: Vec<Sample>,
    pub(crate) off: Vec<Sample>,
}

impl Observing {
    /// The throughput that is left of what there would be without.
    pub(crate) fn kept(&self) -> f64 {
        median(self.on.iter().zip(&self.off).map(|(on, off)| on.per_second / off.per_second))
    }
}

pub(crate) async fn run(order: &Order) -> Result<Observing> {
    let server = Server::start()?;
    let homes = [Home::new()?, Home::new()?];
    let entry = server.entry(FIRST, 2, Era::Legacy);
    let config = |keeps| format!("[gateway]\nledger = \"{keeps}\"\naudit = \"{keeps}\"\n{entry}");
    let gateways = [
        Gateway::start(&order.gripfast, &homes[0], &config("digest"))?,
        Gateway::start(&order.gripfast, &homes[1], &config("off"))?,
    ];
    let mut reading = JoinSet::new();
    reading.spawn(read_metrics(gateways[0].address.clone()));
    let mut lanes = Vec::new();
    for (name, gateway) in ["on", "off"].into_iter().zip(&gateways) {
        let clients = stage::clients(&gateway.address, Era::Legacy, AT_ONCE).await?;
        lanes.push(Lane::http(name, clients, gateway.pids()));
    }
    let question = Question::Give(crate::calls::SMALL);
    let mut samples = [Vec::new(), Vec::new()];
    for repeat in 0..=order.repeats {
        for (lane, samples) in lanes.iter_mut().zip(&mut samples) {
            let sample = lane.load(question, AT_ONCE, order.slice).await?;
            if let Some(ended) = reading.try_join_next() {
                ended.map_err(|error| Cannot::because("reading metrics", &error))??;
            }
            // The first is for warming up.
            if repeat > 0 {
                samples.push(sample);
            }
        }
    }
    let [on, off] = samples;
    Ok(Observing { at_once: AT_ONCE, on, off })
}

/// Reads the metrics of a gateway every second, until it is dropped.
async fn read_metrics(address: Address) -> Result<()> {
    let mut client = Client::silent(&address).await?;
    let mut ready = client.ready(Question::File("metrics"));
    loop {
        client.ask(&mut ready).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

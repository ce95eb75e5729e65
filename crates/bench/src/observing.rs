//! What it costs that every call is written down: gripfast as it is, beside one that keeps no ledger.

use serde::Serialize;

use crate::client::{Era, Question};
use crate::load::{Lane, Sample};
use crate::order::Order;
use crate::stage::{self, FIRST, Gateway, Home, Server};
use crate::{Result, median};

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
    let off = format!("[gateway]\nledger = \"off\"\n{entry}");
    let gateways = [
        Gateway::start(&order.gripfast, &homes[0], &entry)?,
        Gateway::start(&order.gripfast, &homes[1], &off)?,
    ];
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
            // The first is for warming up.
            if repeat > 0 {
                samples.push(sample);
            }
        }
    }
    let [on, off] = samples;
    Ok(Observing { at_once: AT_ONCE, on, off })
}

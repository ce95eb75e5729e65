//! Cost of running several gateways as one service: the same gateway with and without `[cluster]`, forwarded calls,
//! heartbeats, takeovers after the loss of a replica, and a rolling restart.

mod heartbeat;
mod overhead;
mod restarts;
mod service;
mod takeover;

pub(crate) use heartbeat::{HeartbeatCost, ServiceTraffic};
pub(crate) use overhead::Overhead;
pub(crate) use restarts::Restarts;
pub(crate) use takeover::TakeoverCost;

use serde::Serialize;

use crate::options::RunOptions;
use crate::processes::Server;
use gripfast_measure::Result;

#[derive(Debug, Serialize)]
pub(crate) struct Replicas {
    pub(crate) overhead: Overhead,
    pub(crate) heartbeats: HeartbeatCost,
    pub(crate) takeovers: TakeoverCost,
    pub(crate) restarts: Restarts,
}

pub(crate) async fn run(options: &RunOptions) -> Result<Replicas> {
    let server = Server::start()?;
    Ok(Replicas {
        overhead: overhead::run(options, &server).await?,
        heartbeats: heartbeat::run(options, &server).await?,
        takeovers: takeover::run(options, &server).await?,
        restarts: restarts::run(options, &server).await?,
    })
}

//! Training load for a profile-guided build: calls and lists of both eras through an instrumented gateway.
//!
//! Sizes and concurrency differ from those of the measurements, so that a profile is judged by other load than it was
//! trained on.

use std::time::Duration;

use crate::client::BenchRequest;
use crate::load::Lane;
use crate::options::RunOptions;
use crate::processes::{self, FIRST, Gateway, GatewayDir, Server};
use gripfast_measure::{Era, Result};

/// Sizes of results in bytes.
const SIZES: [usize; 3] = [400, 3_000, 60_000];
const CONCURRENCY: [usize; 2] = [2, 24];
const TOOLS: usize = 40;
/// Duration of one kind of request.
const SLICE: Duration = Duration::from_millis(300);

pub(crate) async fn run(options: &RunOptions) -> Result<()> {
    let server = Server::start()?;
    let servers = [
        server.entry(FIRST, TOOLS, Era::Legacy),
        server.entry(FIRST, TOOLS, Era::Modern),
        processes::stdio_entry(FIRST, TOOLS)?,
    ];
    for entry in servers {
        let home = GatewayDir::new()?;
        let gateway = Gateway::start(&options.gripfast, &home, &entry)?;
        for era in [Era::Legacy, Era::Modern] {
            let clients = processes::clients(&gateway.address, era, CONCURRENCY[1]).await?;
            let mut lane = Lane::http("training", clients, gateway.pids());
            let calls =
                SIZES.into_iter().flat_map(|size| [BenchRequest::Call(size), BenchRequest::Stream(size)]);
            for request in calls.chain([BenchRequest::List]) {
                for at_once in CONCURRENCY {
                    lane.load(request, at_once, SLICE).await?;
                }
            }
        }
        // A process that is killed writes no counters.
        gateway.stop()?;
    }
    Ok(())
}

//! Listing of 200 tools: from gripfast's catalog, and as a file that nginx serves.

use serde::Serialize;

use crate::calls::{GRIPFAST, NGINX};
use crate::client::{BenchRequest, Client};
use crate::load::{Lane, Sample};
use crate::options::RunOptions;
use crate::processes::{self, FIRST, Gateway, GatewayDir, Nginx, Server};
use gripfast_measure::Era;
use gripfast_measure::Result;

const TOOLS: usize = 200;
const FILE: &str = "tools.json";
const CONCURRENCY: [usize; 2] = [1, 16];

#[derive(Debug, Serialize)]
pub(crate) struct Lists {
    pub(crate) tools: usize,
    pub(crate) bytes: usize,
    pub(crate) rows: Vec<ListRow>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ListRow {
    pub(crate) at_once: usize,
    pub(crate) lanes: [(&'static str, Vec<Sample>); 2],
}

pub(crate) async fn run(options: &RunOptions) -> Result<Lists> {
    let server = Server::start()?;
    let home = GatewayDir::new()?;
    let gateway = Gateway::start(&options.gripfast, &home, &server.entry(FIRST, TOOLS, Era::Legacy))?;
    crate::scale::wait_for_tools(&gateway, TOOLS).await?;
    let list = Client::connect(&gateway.address, Era::Legacy).await?.body_of(BenchRequest::List).await?;
    let nginx = Nginx::start(&server, (FILE, &list))?;
    let most = CONCURRENCY[1];
    let mut files = Vec::new();
    for _ in 0..most {
        files.push(Client::connect_without_session(&nginx.address).await?);
    }
    let clients = processes::clients(&gateway.address, Era::Legacy, most).await?;
    let mut lanes = [Lane::http(NGINX, files, nginx.pids()), Lane::http(GRIPFAST, clients, gateway.pids())];
    let questions = [BenchRequest::File(FILE), BenchRequest::List];
    let mut rows = Vec::new();
    for at_once in CONCURRENCY {
        let mut samples = [(NGINX, Vec::new()), (GRIPFAST, Vec::new())];
        for repeat in 0..=options.repeats {
            for ((lane, question), (_, samples)) in lanes.iter_mut().zip(questions).zip(&mut samples) {
                let sample = lane.load(question, at_once, options.slice).await?;
                // The first round is a warm-up.
                if repeat > 0 {
                    samples.push(sample);
                }
            }
        }
        rows.push(ListRow { at_once, lanes: samples });
    }
    Ok(Lists { tools: TOOLS, bytes: list.len(), rows })
}

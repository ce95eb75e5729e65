//! The list of 200 tools: from gripfast's catalog, and as a file that nginx serves.

use serde::Serialize;

use crate::Result;
use crate::calls::{GRIPFAST, NGINX};
use crate::client::{Client, Era, Question};
use crate::load::{Lane, Sample};
use crate::order::Order;
use crate::stage::{self, FIRST, Gateway, Home, Nginx, Server};

const TOOLS: usize = 200;
const FILE: &str = "tools.json";
const AT_ONCE: [usize; 2] = [1, 16];

#[derive(Debug, Serialize)]
pub(crate) struct Lists {
    pub(crate) tools: usize,
    pub(crate) bytes: usize,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) at_once: usize,
    pub(crate) lanes: [(&'static str, Vec<Sample>); 2],
}

pub(crate) async fn run(order: &Order) -> Result<Lists> {
    let server = Server::start()?;
    let home = Home::new()?;
    let gateway = Gateway::start(&order.gripfast, &home, &server.entry(FIRST, TOOLS, Era::Legacy))?;
    crate::scale::complete(&gateway, TOOLS).await?;
    let list = Client::connect(&gateway.address, Era::Legacy).await?.body_of(Question::List).await?;
    let nginx = Nginx::start(&server, (FILE, &list))?;
    let most = AT_ONCE[1];
    let mut files = Vec::new();
    for _ in 0..most {
        files.push(Client::silent(&nginx.address).await?);
    }
    let clients = stage::clients(&gateway.address, Era::Legacy, most).await?;
    let mut lanes = [Lane::http(NGINX, files, nginx.pids()), Lane::http(GRIPFAST, clients, gateway.pids())];
    let questions = [Question::File(FILE), Question::List];
    let mut rows = Vec::new();
    for at_once in AT_ONCE {
        let mut samples = [(NGINX, Vec::new()), (GRIPFAST, Vec::new())];
        for repeat in 0..=order.repeats {
            for ((lane, question), (_, samples)) in lanes.iter_mut().zip(questions).zip(&mut samples) {
                let sample = lane.load(question, at_once, order.slice).await?;
                // The first is for warming up.
                if repeat > 0 {
                    samples.push(sample);
                }
            }
        }
        rows.push(Row { at_once, lanes: samples });
    }
    Ok(Lists { tools: TOOLS, bytes: list.len(), rows })
}

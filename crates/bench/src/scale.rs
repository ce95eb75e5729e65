//! What grows, and what must not: memory and the cost of a call over client sessions, open streams, upstreams and
//! tools.

use std::time::Duration;

use serde::Serialize;

use crate::client::{Client, Era, Question};
use crate::load::{Lane, Sample};
use crate::order::Order;
use crate::stage::{self, FIRST, Gateway, Home, Server};
use crate::{Cannot, Result, median};

#[derive(Debug, Serialize)]
pub(crate) struct Scale {
    pub(crate) sessions: Weight,
    pub(crate) streams: Weight,
    /// The cost of one call with many of everything against one of each.
    pub(crate) flat: Vec<Flat>,
    pub(crate) growth: Vec<Growth>,
}

/// What many of a kind weigh.
#[derive(Debug, Serialize)]
pub(crate) struct Weight {
    pub(crate) count: usize,
    /// Bytes of memory for each.
    pub(crate) each: f64,
}

/// One gateway with much, another with little, asked in turns.
#[derive(Debug, Serialize)]
pub(crate) struct Flat {
    pub(crate) what: String,
    pub(crate) little: Vec<Sample>,
    pub(crate) much: Vec<Sample>,
}

impl Flat {
    pub(crate) fn ratio(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        median(self.little.iter().zip(&self.much).map(|(little, much)| figure(much) / figure(little)))
    }
}

/// A curve: something over the number of something.
#[derive(Debug, Serialize)]
pub(crate) struct Growth {
    pub(crate) over: Over,
    pub(crate) points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Over {
    Upstreams,
    Sessions,
    Tools,
}

impl Over {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Upstreams => "upstreams",
            Self::Sessions => "sessions",
            Self::Tools => "tools",
        }
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Point {
    pub(crate) count: usize,
    /// Microseconds of a call, p50, one at a time.
    pub(crate) call: f64,
    /// Milliseconds of processor time for 1,000 calls.
    pub(crate) processor: f64,
    /// Bytes.
    pub(crate) memory: u64,
    /// Milliseconds from exec to the first answered `tools/list` that has everything; none where it is not of
    /// interest.
    pub(crate) ready: Option<f64>,
}

pub(crate) async fn run(order: &Order) -> Result<Scale> {
    let server = Server::start()?;
    let many = order.pick(200, 2_000, 10_000);
    let sessions = sessions(order, &server, many).await?;
    let streams = streams(order, &server, order.pick(50, 300, 1_000)).await?;
    let mut flat = Vec::new();
    let (upstreams, tools) = order.pick((5, 5), (50, 50), (200, 50));
    flat.push(flatness(order, &server, upstreams, tools, 1).await?);
    let upstreams = order.pick(10, 100, 500);
    flat.push(flatness(order, &server, upstreams, 10, many).await?);
    let mut growth = Vec::new();
    for over in [Over::Upstreams, Over::Sessions, Over::Tools] {
        growth.push(grow(order, &server, over).await?);
    }
    Ok(Scale { sessions, streams, flat, growth })
}

/// Idle sessions: begun one after another on a few connections, and then left alone.
async fn sessions(order: &Order, server: &Server, count: usize) -> Result<Weight> {
    let home = Home::new()?;
    let gateway = Gateway::start(&order.gripfast, &home, &server.entry(FIRST, 2, Era::Legacy))?;
    let mut client = Client::connect(&gateway.address, Era::Legacy).await?;
    // What the first ones bring along is everybody's.
    begin_sessions(&mut client, count / 20).await?;
    let before = gateway.resident();
    begin_sessions(&mut client, count).await?;
    let grown = gateway.resident().saturating_sub(before);
    Ok(Weight { count, each: grown as f64 / count as f64 })
}

async fn begin_sessions(client: &mut Client, count: usize) -> Result<()> {
    for _ in 0..count {
        client.begin_session().await?;
    }
    Ok(())
}

/// Open streams, each with a session and a connection of its own.
async fn streams(order: &Order, server: &Server, count: usize) -> Result<Weight> {
    let home = Home::new()?;
    let gateway = Gateway::start(&order.gripfast, &home, &server.entry(FIRST, 2, Era::Legacy))?;
    let mut client = Client::connect(&gateway.address, Era::Legacy).await?;
    let mut open = Vec::with_capacity(count);
    for _ in 0..count / 20 {
        client.begin_session().await?;
        open.push(client.listen().await?);
    }
    let before = gateway.resident();
    for _ in 0..count {
        client.begin_session().await?;
        open.push(client.listen().await?);
    }
    let grown = gateway.resident().saturating_sub(before);
    Ok(Weight { count, each: grown as f64 / count as f64 })
}

/// One call at a time, in turns: to a gateway with one upstream, few tools and one session, and to one with many.
async fn flatness(
    order: &Order,
    server: &Server,
    upstreams: usize,
    tools: usize,
    sessions: usize,
) -> Result<Flat> {
    let (small, large) = (Home::new()?, Home::new()?);
    let little = Gateway::start(&order.gripfast, &small, &server.entry(FIRST, 2, Era::Legacy))?;
    let much = Gateway::start(&order.gripfast, &large, &config(server, upstreams, tools))?;
    complete(&much, upstreams * tools).await?;
    let mut many = Client::connect(&much.address, Era::Legacy).await?;
    begin_sessions(&mut many, sessions - 1).await?;
    let mut lanes = [
        Lane::http("little", stage::clients(&little.address, Era::Legacy, 1).await?, little.pids()),
        Lane::http("much", vec![many], much.pids()),
    ];
    let question = Question::Give(crate::calls::SMALL);
    let mut samples = [Vec::new(), Vec::new()];
    for lane in &mut lanes {
        lane.load(question, 1, order.slice).await?;
    }
    for _ in 0..order.repeats {
        for (lane, samples) in lanes.iter_mut().zip(&mut samples) {
            samples.push(lane.load(question, 1, order.slice).await?);
        }
    }
    let [little, much] = samples;
    let what = format!("{upstreams} upstreams of {tools} tools, {sessions} sessions");
    Ok(Flat { what, little, much })
}

async fn grow(order: &Order, server: &Server, over: Over) -> Result<Growth> {
    let counts: &[usize] = match over {
        Over::Upstreams => order.pick(&[1, 5], &[1, 10, 100], &[1, 10, 100, 500]),
        Over::Sessions => order.pick(&[1, 10], &[1, 100, 1_000], &[1, 10, 100, 1_000, 10_000]),
        Over::Tools => order.pick(&[10, 20], &[10, 100, 1_000], &[10, 100, 1_000, 10_000]),
    };
    let mut points = Vec::new();
    for &count in counts {
        let (upstreams, tools, sessions) = match over {
            Over::Upstreams => (count, 10, 1),
            Over::Sessions => (1, 10, count),
            Over::Tools => (1, count, 1),
        };
        let home = Home::new()?;
        let gateway = Gateway::start(&order.gripfast, &home, &config(server, upstreams, tools))?;
        let ready = complete(&gateway, upstreams * tools).await?;
        let mut client = Client::connect(&gateway.address, Era::Legacy).await?;
        begin_sessions(&mut client, sessions - 1).await?;
        let mut lane = Lane::http("gripfast", vec![client], gateway.pids());
        let question = Question::Give(crate::calls::SMALL);
        lane.load(question, 1, order.slice).await?;
        let mut samples = Vec::new();
        for _ in 0..order.repeats {
            samples.push(lane.load(question, 1, order.slice).await?);
        }
        points.push(Point {
            count,
            call: median(samples.iter().map(|sample| sample.p50)),
            processor: median(samples.iter().map(|sample| sample.processor)),
            memory: gateway.resident(),
            ready: (over != Over::Sessions).then_some(ready.as_secs_f64() * 1e3),
        });
    }
    Ok(Growth { over, points })
}

/// So many servers with so many tools each; the first is the one that is called.
fn config(server: &Server, upstreams: usize, tools: usize) -> String {
    let more = (1..upstreams).map(|n| server.entry(&format!("more{n}"), tools, Era::Legacy));
    let first = server.entry(FIRST, tools, Era::Legacy);
    std::iter::once(first).chain(more).collect()
}

/// Waits until a list has all tools, over all its pages. Answers with the time from the gateway's start.
pub(crate) async fn complete(gateway: &Gateway, tools: usize) -> Result<Duration> {
    let patience = Duration::from_secs(60);
    let mut client = Client::connect(&gateway.address, Era::Legacy).await?;
    while gateway.began.elapsed() < patience {
        if client.count_tools().await? >= tools {
            return Ok(gateway.began.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err(Cannot::because("the list", &format!("it does not have {tools} tools after a minute")))
}

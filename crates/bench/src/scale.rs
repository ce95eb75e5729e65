//! Growth of memory and of the cost of a call with the number of client sessions, open streams, servers and tools.

use std::time::Duration;

use serde::Serialize;

use crate::client::{BenchRequest, Client};
use crate::load::{Lane, Sample};
use crate::options::RunOptions;
use crate::processes::{self, FIRST, Gateway, GatewayDir, Server};
use gripfast_measure::Era;
use gripfast_measure::times::median;
use gripfast_measure::{MeasureError, Result};

#[derive(Debug, Serialize)]
pub(crate) struct Scale {
    pub(crate) sessions: Weight,
    pub(crate) streams: Weight,
    /// Cost of a call with many of everything compared with one of each.
    pub(crate) flat: Vec<Flat>,
    pub(crate) growth: Vec<Growth>,
}

/// Memory of many items of a kind.
#[derive(Debug, Serialize)]
pub(crate) struct Weight {
    pub(crate) count: usize,
    /// Bytes per item.
    pub(crate) each: f64,
}

/// Samples of a small and a large gateway, measured in turns.
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

/// A curve over a growing count.
#[derive(Debug, Serialize)]
pub(crate) struct Growth {
    pub(crate) over: Dimension,
    pub(crate) points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Dimension {
    Upstreams,
    Sessions,
    Tools,
}

impl Dimension {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Upstreams => "upstreams",
            Self::Sessions => "sessions",
            Self::Tools => "tools",
        }
    }

    /// Name in tables and plots.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Upstreams => "servers",
            Self::Sessions | Self::Tools => self.word(),
        }
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Point {
    pub(crate) count: usize,
    /// Median duration of a call in microseconds, without concurrency.
    pub(crate) call: f64,
    /// CPU time in milliseconds per 1,000 calls.
    pub(crate) processor: f64,
    /// Resident memory in bytes.
    pub(crate) memory: u64,
    /// Milliseconds from exec to the first complete `tools/list`; `None` where it does not depend on the count.
    pub(crate) ready: Option<f64>,
}

pub(crate) async fn run(options: &RunOptions) -> Result<Scale> {
    let server = Server::start()?;
    let many = options.pick(200, 2_000, 10_000);
    let sessions = sessions(options, &server, many).await?;
    let streams = streams(options, &server, options.pick(50, 300, 1_000)).await?;
    let mut flat = Vec::new();
    let (upstreams, tools) = options.pick((5, 5), (50, 50), (200, 50));
    flat.push(measure_flatness(options, &server, upstreams, tools, 1).await?);
    let upstreams = options.pick(10, 100, 500);
    flat.push(measure_flatness(options, &server, upstreams, 10, many).await?);
    let mut growth = Vec::new();
    for over in [Dimension::Upstreams, Dimension::Sessions, Dimension::Tools] {
        growth.push(measure_growth(options, &server, over).await?);
    }
    Ok(Scale { sessions, streams, flat, growth })
}

/// Idle sessions, opened one after another on a few connections.
async fn sessions(options: &RunOptions, server: &Server, count: usize) -> Result<Weight> {
    let home = GatewayDir::new()?;
    let gateway = Gateway::start(&options.gripfast, &home, &server.entry(FIRST, 2, Era::Legacy))?;
    let mut client = Client::connect(&gateway.address, Era::Legacy).await?;
    // Excludes memory that is allocated once, with the first sessions.
    begin_sessions(&mut client, count / 20).await?;
    let before = gateway.resident();
    begin_sessions(&mut client, count).await?;
    let grown = gateway.resident().saturating_sub(before);
    Ok(Weight { count, each: grown as f64 / count as f64 })
}

async fn begin_sessions(client: &mut Client, count: usize) -> Result<()> {
    for _ in 0..count {
        client.initialize().await?;
    }
    Ok(())
}

/// Open streams, each with its own session and connection.
async fn streams(options: &RunOptions, server: &Server, count: usize) -> Result<Weight> {
    let home = GatewayDir::new()?;
    let gateway = Gateway::start(&options.gripfast, &home, &server.entry(FIRST, 2, Era::Legacy))?;
    let mut client = Client::connect(&gateway.address, Era::Legacy).await?;
    let mut open = Vec::with_capacity(count);
    for _ in 0..count / 20 {
        client.initialize().await?;
        open.push(client.listen().await?);
    }
    let before = gateway.resident();
    for _ in 0..count {
        client.initialize().await?;
        open.push(client.listen().await?);
    }
    let grown = gateway.resident().saturating_sub(before);
    Ok(Weight { count, each: grown as f64 / count as f64 })
}

/// Calls without concurrency, in turns: to a gateway with one server, few tools and one session, and to one with
/// many.
async fn measure_flatness(
    options: &RunOptions,
    server: &Server,
    upstreams: usize,
    tools: usize,
    sessions: usize,
) -> Result<Flat> {
    let (small, large) = (GatewayDir::new()?, GatewayDir::new()?);
    let little = Gateway::start(&options.gripfast, &small, &server.entry(FIRST, 2, Era::Legacy))?;
    let much = Gateway::start(&options.gripfast, &large, &config(server, upstreams, tools))?;
    wait_for_tools(&much, upstreams * tools).await?;
    let mut many = Client::connect(&much.address, Era::Legacy).await?;
    begin_sessions(&mut many, sessions - 1).await?;
    let mut lanes = [
        Lane::http("little", processes::clients(&little.address, Era::Legacy, 1).await?, little.pids()),
        Lane::http("much", vec![many], much.pids()),
    ];
    let question = BenchRequest::Call(crate::calls::SMALL);
    let mut samples = [Vec::new(), Vec::new()];
    for lane in &mut lanes {
        lane.load(question, 1, options.slice).await?;
    }
    for _ in 0..options.repeats {
        for (lane, samples) in lanes.iter_mut().zip(&mut samples) {
            samples.push(lane.load(question, 1, options.slice).await?);
        }
    }
    let [little, much] = samples;
    let what = format!("{upstreams} servers with {tools} tools each, {sessions} sessions");
    Ok(Flat { what, little, much })
}

async fn measure_growth(options: &RunOptions, server: &Server, over: Dimension) -> Result<Growth> {
    let counts: &[usize] = match over {
        Dimension::Upstreams => options.pick(&[1, 5], &[1, 10, 100], &[1, 10, 100, 500]),
        Dimension::Sessions => options.pick(&[1, 10], &[1, 100, 1_000], &[1, 10, 100, 1_000, 10_000]),
        Dimension::Tools => options.pick(&[10, 20], &[10, 100, 1_000], &[10, 100, 1_000, 10_000]),
    };
    let mut points = Vec::new();
    for &count in counts {
        let (upstreams, tools, sessions) = match over {
            Dimension::Upstreams => (count, 10, 1),
            Dimension::Sessions => (1, 10, count),
            Dimension::Tools => (1, count, 1),
        };
        let home = GatewayDir::new()?;
        let gateway = Gateway::start(&options.gripfast, &home, &config(server, upstreams, tools))?;
        let ready = wait_for_tools(&gateway, upstreams * tools).await?;
        let mut client = Client::connect(&gateway.address, Era::Legacy).await?;
        begin_sessions(&mut client, sessions - 1).await?;
        let mut lane = Lane::http("gripfast", vec![client], gateway.pids());
        let question = BenchRequest::Call(crate::calls::SMALL);
        lane.load(question, 1, options.slice).await?;
        let mut samples = Vec::new();
        for _ in 0..options.repeats {
            samples.push(lane.load(question, 1, options.slice).await?);
        }
        points.push(Point {
            count,
            call: median(samples.iter().map(|sample| sample.p50)),
            processor: median(samples.iter().map(|sample| sample.processor)),
            memory: gateway.resident(),
            ready: (over != Dimension::Sessions).then_some(ready.as_secs_f64() * 1e3),
        });
    }
    Ok(Growth { over, points })
}

/// Config with this many servers and tools per server; the first one is called.
fn config(server: &Server, upstreams: usize, tools: usize) -> String {
    let more = (1..upstreams).map(|n| server.entry(&format!("more{n}"), tools, Era::Legacy));
    let first = server.entry(FIRST, tools, Era::Legacy);
    std::iter::once(first).chain(more).collect()
}

/// Waits until the list has all tools, over all its pages. Returns the time since the gateway's start.
pub(crate) async fn wait_for_tools(gateway: &Gateway, tools: usize) -> Result<Duration> {
    let deadline = Duration::from_secs(60);
    let mut client = Client::connect(&gateway.address, Era::Legacy).await?;
    while gateway.began.elapsed() < deadline {
        if client.count_tools().await? >= tools {
            return Ok(gateway.began.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err(MeasureError::new("tools/list", &format!("fewer than {tools} tools after a minute")))
}

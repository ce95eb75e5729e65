//! Cost of a call through gripfast, through nginx, and without a proxy. The measurements are interleaved, so that
//! other load on the machine affects all of them.

use serde::Serialize;

use crate::client::BenchRequest;
use crate::load::{Lane, Sample};
use crate::options::{OtherBuild, RunOptions};
use crate::processes::{self, FIRST, Gateway, GatewayDir, Nginx, Other, Server};
use gripfast_measure::Era;
use gripfast_measure::Result;
use gripfast_measure::times::median;

pub(crate) const DIRECT: &str = "direct";
pub(crate) const NGINX: &str = "nginx";
pub(crate) const GRIPFAST: &str = "gripfast";
pub(crate) const PIPE: &str = "direct pipe";
pub(crate) const TO_PIPE: &str = "gripfast to pipe";
const OTHER: &str = "other gateway";
pub(crate) const BEFORE: &str = "gripfast before";
pub(crate) const BEFORE_TO_PIPE: &str = "gripfast before, to pipe";
pub(crate) const PACKAGED: &str = "gripfast packaged";
pub(crate) const PACKAGED_TO_PIPE: &str = "gripfast packaged, to pipe";

/// One kind of call and its concurrency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Case {
    /// Era of the client.
    pub(crate) era: Era,
    /// Era of the server.
    pub(crate) server: Era,
    /// Size of the result in bytes.
    pub(crate) bytes: usize,
    pub(crate) events: bool,
    pub(crate) at_once: usize,
}

/// Samples of one case.
#[derive(Debug, Serialize)]
pub(crate) struct CallRow {
    pub(crate) case: Case,
    pub(crate) lanes: Vec<(&'static str, Vec<Sample>)>,
}

pub(crate) const SMALL: usize = 100;
pub(crate) const LARGE: usize = 1_000_000;
pub(crate) const CONCURRENCY: [usize; 2] = [1, 64];

/// Eras of client and server. The second pair is the usual one: today's clients, and servers of current SDKs.
const PAIRS: [[Era; 2]; 3] =
    [[Era::Legacy, Era::Legacy], [Era::Legacy, Era::Modern], [Era::Modern, Era::Modern]];

fn cases([era, server]: [Era; 2]) -> impl Iterator<Item = Case> {
    [SMALL, LARGE].into_iter().flat_map(move |bytes| {
        [false, true].into_iter().flat_map(move |events| {
            CONCURRENCY.into_iter().map(move |at_once| Case { era, server, bytes, events, at_once })
        })
    })
}

/// Resident memory during the calls, in bytes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Memory {
    pub(crate) gripfast_idle: u64,
    pub(crate) gripfast_loaded: u64,
    /// After large results, and after several times as many.
    pub(crate) gripfast_large: [u64; 2],
    pub(crate) nginx_idle: u64,
    pub(crate) nginx_loaded: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) other_loaded: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Calls {
    pub(crate) rows: Vec<CallRow>,
    pub(crate) memory: Memory,
}

pub(crate) async fn run(options: &RunOptions) -> Result<Calls> {
    let server = Server::start()?;
    let nginx = Nginx::start(&server, ("none", b""))?;
    let mut rows = Vec::new();
    let mut memory = Memory::default();
    let other = match &options.other {
        Some((command, url)) => Some(Other::start(command, url, &server).await?),
        None => None,
    };
    for pair in PAIRS {
        let [era, of_server] = pair;
        let is_first = pair == PAIRS[0];
        let home = GatewayDir::new()?;
        let entry = server.entry(FIRST, 2, of_server);
        let gateway = Gateway::start(&options.gripfast, &home, &entry)?;
        let others = start_other_builds(options, &entry)?;
        if is_first {
            (memory.gripfast_idle, memory.nginx_idle) = (gateway.resident(), nginx.resident());
        }
        let most = CONCURRENCY[CONCURRENCY.len() - 1];
        let mut lanes = vec![
            Lane::http(DIRECT, processes::clients(&server.address(), era, most).await?, Vec::new()),
            Lane::http(NGINX, processes::clients(&nginx.address, era, most).await?, nginx.pids()),
            Lane::http(GRIPFAST, processes::clients(&gateway.address, era, most).await?, gateway.pids())
                .counting(&server.address())
                .await?,
        ];
        for (build, gateway, _) in &others {
            let clients = processes::clients(&gateway.address, era, most).await?;
            lanes.push(Lane::http(build.lane, clients, gateway.pids()).counting(&server.address()).await?);
        }
        if let (Some(other), true) = (&other, is_first) {
            lanes.push(Lane::http(OTHER, processes::clients(&other.address, era, most).await?, other.pids()));
        }
        for case in cases(pair).filter(|case| options.wants(case)) {
            rows.push(run_interleaved(options, case, &mut lanes).await?);
        }
        if is_first {
            (memory.gripfast_loaded, memory.nginx_loaded) = (gateway.resident(), nginx.resident());
            memory.other_loaded = other.as_ref().map(Other::resident);
            for after in &mut memory.gripfast_large {
                lanes[2].load(BenchRequest::Call(LARGE), 16, options.slice * 4).await?;
                *after = gateway.resident();
            }
        }
    }
    rows.extend(measure_stdio(options, &server).await?);
    Ok(Calls { rows, memory })
}

/// Calls to a stdio server. The baselines are a plain pipe, for a client on the same machine, and direct HTTP in the
/// first lane.
async fn measure_stdio(options: &RunOptions, server: &Server) -> Result<Vec<CallRow>> {
    let home = GatewayDir::new()?;
    let [era, _] = PAIRS[0];
    let entry = processes::stdio_entry(FIRST, 2)?;
    let gateway = Gateway::start(&options.gripfast, &home, &entry)?;
    let others = start_other_builds(options, &entry)?;
    let most = CONCURRENCY[CONCURRENCY.len() - 1];
    let mut lanes = vec![
        Lane::http(DIRECT, processes::clients(&server.address(), era, most).await?, Vec::new()),
        Lane::pipe(PIPE, &mut processes::stdio_server(2)?)?,
        Lane::http(TO_PIPE, processes::clients(&gateway.address, era, most).await?, gateway.pids()),
    ];
    for (build, gateway, _) in &others {
        let clients = processes::clients(&gateway.address, era, most).await?;
        lanes.push(Lane::http(build.lane_to_pipe, clients, gateway.pids()));
    }
    let mut rows = Vec::new();
    for case in cases(PAIRS[0]).filter(|case| !case.events && options.wants(case)) {
        rows.push(run_interleaved(options, case, &mut lanes).await?);
    }
    Ok(rows)
}

fn start_other_builds<'a>(
    options: &'a RunOptions,
    config: &str,
) -> Result<Vec<(&'a OtherBuild, Gateway, GatewayDir)>> {
    let started = options.other_builds.iter().map(|build| {
        let home = GatewayDir::new()?;
        Ok((build, Gateway::start(&build.gripfast, &home, config)?, home))
    });
    started.collect()
}

async fn run_interleaved(options: &RunOptions, case: Case, lanes: &mut [Lane]) -> Result<CallRow> {
    let question =
        if case.events { BenchRequest::Stream(case.bytes) } else { BenchRequest::Call(case.bytes) };
    let mut samples: Vec<(&'static str, Vec<Sample>)> =
        lanes.iter().map(|lane| (lane.name, Vec::new())).collect();
    for lane in lanes.iter_mut() {
        lane.load(question, case.at_once, options.slice / 4).await?;
    }
    for _ in 0..options.repeats {
        for (lane, (_, samples)) in lanes.iter_mut().zip(&mut samples) {
            samples.push(lane.load(question, case.at_once, options.slice).await?);
        }
    }
    Ok(CallRow { case, lanes: samples })
}

impl CallRow {
    fn samples(&self, lane: &str) -> Option<&[Sample]> {
        self.lanes.iter().find(|(name, _)| *name == lane).map(|(_, samples)| samples.as_slice())
    }

    /// Median over the repeats of one figure of one lane.
    pub(crate) fn median_of(&self, lane: &str, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        Some(median(self.samples(lane)?.iter().map(figure)))
    }

    /// Median over the repeats of `ratio`, applied to the samples of these lanes in the same repeat.
    pub(crate) fn ratio<const N: usize>(
        &self,
        lanes: [&str; N],
        ratio: impl Fn([Sample; N]) -> f64,
    ) -> Option<f64> {
        let mut found = lanes.iter().filter_map(|lane| self.samples(lane));
        let found: [&[Sample]; N] = std::array::from_fn(|_| found.next().unwrap_or_default());
        let repeats = found.iter().map(|samples| samples.len()).min().unwrap_or(0);
        (repeats > 0).then(|| {
            median((0..repeats).map(|repeat| ratio(std::array::from_fn(|lane| found[lane][repeat]))))
        })
    }
}

//! What a call costs: through gripfast, through nginx, and with nothing in between; interleaved, so that a busy moment
//! of the machine strikes all of them.

use serde::Serialize;

use crate::client::{Era, Question};
use crate::load::{Lane, Sample};
use crate::order::Order;
use crate::stage::{self, FIRST, Gateway, Home, Nginx, Other, Server};
use crate::{Result, median};

pub(crate) const DIRECT: &str = "direct";
pub(crate) const NGINX: &str = "nginx";
pub(crate) const GRIPFAST: &str = "gripfast";
pub(crate) const PIPE: &str = "direct pipe";
pub(crate) const TO_PIPE: &str = "gripfast to pipe";
const OTHER: &str = "other gateway";
const BEFORE: &str = "gripfast before";
const BEFORE_TO_PIPE: &str = "gripfast before, to pipe";

/// One thing that is asked, and by how many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Case {
    pub(crate) era: Era,
    /// Bytes of the result.
    pub(crate) bytes: usize,
    pub(crate) events: bool,
    pub(crate) at_once: usize,
}

/// What came of one case.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) lanes: Vec<(&'static str, Vec<Sample>)>,
}

pub(crate) const SMALL: usize = 100;
pub(crate) const MEDIUM: usize = 10_000;
pub(crate) const LARGE: usize = 1_000_000;
pub(crate) const AT_ONCE: [usize; 3] = [1, 16, 64];

fn cases() -> impl Iterator<Item = Case> {
    [Era::Legacy, Era::Modern].into_iter().flat_map(|era| {
        [SMALL, MEDIUM, LARGE].into_iter().flat_map(move |bytes| {
            [false, true].into_iter().flat_map(move |events| {
                AT_ONCE.into_iter().map(move |at_once| Case { era, bytes, events, at_once })
            })
        })
    })
}

/// Memory while calls were made, in bytes.
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
    pub(crate) rows: Vec<Row>,
    pub(crate) memory: Memory,
}

pub(crate) async fn run(order: &Order) -> Result<Calls> {
    let server = Server::start()?;
    let nginx = Nginx::start(&server, ("none", b""))?;
    let (home, past) =
        ([Home::new()?, Home::new()?, Home::new()?], [Home::new()?, Home::new()?, Home::new()?]);
    let mut rows = Vec::new();
    let mut memory = Memory::default();
    let other = match &order.other {
        Some((command, url)) => Some(Other::start(command, url, &server).await?),
        None => None,
    };
    for (at, era) in [Era::Legacy, Era::Modern].into_iter().enumerate() {
        let entry = server.entry(FIRST, 2, era);
        let gateway = Gateway::start(&order.gripfast, &home[at], &entry)?;
        let before = order.before.as_ref().map(|path| Gateway::start(path, &past[at], &entry)).transpose()?;
        if era == Era::Legacy {
            (memory.gripfast_idle, memory.nginx_idle) = (gateway.resident(), nginx.resident());
        }
        let most = AT_ONCE[AT_ONCE.len() - 1];
        let mut lanes = vec![
            Lane::http(DIRECT, stage::clients(&server.address(), era, most).await?, Vec::new()),
            Lane::http(NGINX, stage::clients(&nginx.address, era, most).await?, nginx.pids()),
            Lane::http(GRIPFAST, stage::clients(&gateway.address, era, most).await?, gateway.pids()),
        ];
        if let Some(before) = &before {
            lanes.push(Lane::http(BEFORE, stage::clients(&before.address, era, most).await?, before.pids()));
        }
        if let (Some(other), Era::Legacy) = (&other, era) {
            lanes.push(Lane::http(OTHER, stage::clients(&other.address, era, most).await?, other.pids()));
        }
        for case in cases().filter(|case| case.era == era && order.wants(case)) {
            rows.push(interleaved(order, case, &mut lanes).await?);
        }
        if era == Era::Legacy {
            (memory.gripfast_loaded, memory.nginx_loaded) = (gateway.resident(), nginx.resident());
            memory.other_loaded = other.as_ref().map(Other::resident);
            for after in &mut memory.gripfast_large {
                lanes[2].load(Question::Give(LARGE), 16, order.slice * 4).await?;
                *after = gateway.resident();
            }
        }
    }
    rows.extend(to_pipe(order, &server, &home[2], &past[2]).await?);
    Ok(Calls { rows, memory })
}

/// Toward a server on its pipes. What could be done without us is a bare pipe, for a client that is on this machine;
/// the same over HTTP is in the first lane.
async fn to_pipe(order: &Order, server: &Server, home: &Home, past: &Home) -> Result<Vec<Row>> {
    let era = Era::Legacy;
    let entry = stage::entry_on_pipes(FIRST, 2)?;
    let gateway = Gateway::start(&order.gripfast, home, &entry)?;
    let before = order.before.as_ref().map(|path| Gateway::start(path, past, &entry)).transpose()?;
    let most = AT_ONCE[AT_ONCE.len() - 1];
    let mut lanes = vec![
        Lane::http(DIRECT, stage::clients(&server.address(), era, most).await?, Vec::new()),
        Lane::pipe(PIPE, &mut stage::on_pipes(2)?)?,
        Lane::http(TO_PIPE, stage::clients(&gateway.address, era, most).await?, gateway.pids()),
    ];
    if let Some(before) = &before {
        let clients = stage::clients(&before.address, era, most).await?;
        lanes.push(Lane::http(BEFORE_TO_PIPE, clients, before.pids()));
    }
    let mut rows = Vec::new();
    for case in cases().filter(|case| case.era == era && !case.events && order.wants(case)) {
        rows.push(interleaved(order, case, &mut lanes).await?);
    }
    Ok(rows)
}

async fn interleaved(order: &Order, case: Case, lanes: &mut [Lane]) -> Result<Row> {
    let question = if case.events { Question::Stream(case.bytes) } else { Question::Give(case.bytes) };
    let mut samples: Vec<(&'static str, Vec<Sample>)> =
        lanes.iter().map(|lane| (lane.name, Vec::new())).collect();
    for lane in lanes.iter_mut() {
        lane.load(question, case.at_once, order.slice / 4).await?;
    }
    for _ in 0..order.repeats {
        for (lane, (_, samples)) in lanes.iter_mut().zip(&mut samples) {
            samples.push(lane.load(question, case.at_once, order.slice).await?);
        }
    }
    Ok(Row { case, lanes: samples })
}

impl Row {
    fn samples(&self, lane: &str) -> Option<&[Sample]> {
        self.lanes.iter().find(|(name, _)| *name == lane).map(|(_, samples)| samples.as_slice())
    }

    /// The median over the repeats of one figure of one lane.
    pub(crate) fn of(&self, lane: &str, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        Some(median(self.samples(lane)?.iter().map(figure)))
    }

    /// The median over the repeats of what `ratio` makes of the samples that these lanes had in the same repeat.
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

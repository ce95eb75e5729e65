//! One fault of a service: start, strikes, classification of calls, and the count of takeovers and leftovers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::fault::{ReplicaFault, TakeoverRule, Work};
use super::service::{NAMES, Service};
use super::streams::Streams;
use super::strike;
use crate::client::Client;
use crate::fault::Allowed;
use crate::gateway::last_lines;
use crate::ledger::{self, Counts, StrikeSpan, Window};
use crate::load::{Load, Pace};
use crate::row::RunOptions;
use gripfast_measure::proc;
use gripfast_measure::times::Times;
use gripfast_measure::{Era, MeasureError, Result};

/// Clients of each era.
const CLIENTS: usize = 3;
/// Load before a strike.
const WARM_UP: Duration = Duration::from_millis(500);
/// Largest share of a processor at which no lease ends for lack of it.
pub const MAX_PROCESSOR: f64 = 1.0 / 3.0;
/// Work of a slow call.
const SLOW_WORK: Duration = Duration::from_millis(300);

/// Result of one fault.
#[derive(Debug, Clone, Serialize)]
pub struct ReplicaRow {
    /// Name of the fault.
    pub fault: &'static str,
    /// Number of strikes.
    pub strikes: usize,
    /// Number of strikes after which some client was not served in time.
    pub never_back: usize,
    /// Time from the strike until all clients were served.
    pub back: Times,
    /// Outcomes of the calls.
    pub calls: Counts,
    /// Error codes of lost calls.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_as: BTreeMap<String, usize>,
    /// Sessions that were taken over.
    pub takeovers: u64,
    /// Strikes with another number of takeovers than expected.
    pub wrong_takeovers: usize,
    /// Client sessions that had to be replaced.
    pub sessions_lost: u64,
    /// Processes that were left after the end.
    pub left: usize,
    /// Share of one processor that all processes of the row used, clients included, from the first start to the last end.
    pub processor: f64,
    /// Other guarantees of the service that did not hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<String>,
    /// Explanations of unexpected outcomes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// Runs one fault.
///
/// # Errors
/// The harness itself fails, or a stream does not come back.
pub async fn run(fault: &'static ReplicaFault, options: &RunOptions) -> Result<ReplicaRow> {
    let (lease, deadline) = (fault.lease(options.length), fault.deadline());
    let (begun, cpu_before) = (Instant::now(), proc::total_cpu_time());
    let mut service = Service::start(fault, lease, deadline, &options.subject).await?;
    let load = start_load(fault, &service, options).await?;
    let streams = (fault.work() == Work::FastWithStreams).then(|| Streams::open(load.clients()));
    let struck = strikes(fault, options, &mut service, &load, streams.as_ref()).await;
    let struck = match struck {
        Ok(struck) => struck,
        Err(error) => return Err(MeasureError::new(&error.to_string(), &logs(&service))),
    };
    drop(streams);
    let sessions_lost = load.repeated_handshakes();
    let calls = load.stop().await;
    let verdict = ledger::judge(&calls, &struck.windows, &service.record(), deadline);
    let logs = logs(&service);
    let violations = std::mem::take(&mut service.violations);
    let left = service.close().await?;
    let cpu = proc::total_cpu_time().saturating_sub(cpu_before);
    let processor = cpu.as_secs_f64() / begun.elapsed().as_secs_f64().max(0.001);
    let mut row = ReplicaRow {
        fault: fault.name,
        strikes: struck.windows.len(),
        never_back: struck.never_back,
        back: Times::of(&struck.back),
        calls: verdict.counts,
        lost_as: verdict.lost_as,
        takeovers: struck.takeovers.iter().sum(),
        wrong_takeovers: wrong_takeovers(fault, &struck.takeovers),
        sessions_lost,
        left: left.len(),
        processor,
        violations,
        remarks: verdict.remarks,
    };
    if processor > MAX_PROCESSOR {
        let share = processor * 100.0;
        row.remarks
            .push(format!("the row used {share:.0} % of a processor: leases may have ended for lack of it"));
    }
    row.remarks.extend(left.into_iter().map(|line| format!("left behind: {line}")));
    if !row.complaints(fault).is_empty() {
        row.remarks.push(format!("takeovers per strike: {:?}", struck.takeovers));
        row.remarks.push(logs);
    }
    Ok(row)
}

async fn start_load(fault: &ReplicaFault, service: &Service, options: &RunOptions) -> Result<Load> {
    let urls = service.urls();
    let eras = [Era::Legacy, Era::Modern];
    let clients = (0..CLIENTS * eras.len()).map(|number| {
        let client = service.client(&urls, eras[number % eras.len()])?;
        client.set_route(fault.placement.route(number, service));
        Ok(client)
    });
    let clients: Vec<Client> = clients.collect::<Result<_>>()?;
    let work = if fault.work() == Work::Slow { SLOW_WORK } else { Duration::ZERO };
    // Under a third of a processor with an unoptimized build.
    let millis = Duration::from_millis;
    let every = options.length.pick(millis(200), millis(100), millis(100));
    let pace = Pace { clients: clients.len(), every, work, deadline: fault.deadline() };
    Load::start_with(clients, Service::tools(), fault.name, pace, options.seed).await
}

/// Measurements of all strikes.
#[derive(Default)]
struct Struck {
    windows: Vec<Window>,
    back: Vec<Duration>,
    never_back: usize,
    takeovers: Vec<u64>,
}

async fn strikes(
    fault: &ReplicaFault,
    options: &RunOptions,
    service: &mut Service,
    load: &Load,
    streams: Option<&Streams>,
) -> Result<Struck> {
    let mut all = Struck::default();
    let repeats = fault.strikes(options.length, options.repeats);
    for number in 0..repeats {
        if number > 0 {
            // New sessions, because those before have moved.
            service.find_target().await?;
            strike::begin_sessions(load, fault.placement, service).await?;
        }
        if let Some(streams) = streams {
            streams.until_open(WARM_UP * 10).await;
        }
        tokio::time::sleep(WARM_UP).await;
        let before = service.takeovers().await;
        let from = Instant::now();
        let times = strike::apply(fault.action, number, options.length, service, load, streams).await?;
        let after = service.takeovers().await;
        // A replica that was started again counts from zero.
        let taken = |(before, after): (u64, u64)| after.checked_sub(before).unwrap_or(after);
        all.takeovers.push(before.into_iter().zip(after).map(taken).sum());
        let span = StrikeSpan { at: load.elapsed_at(from), ended: load.elapsed_at(times.struck) };
        all.windows.push(Window {
            from: span.at,
            to: load.elapsed_at(Instant::now()),
            strikes: vec![span],
            of_replica: true,
        });
        match times.back {
            Some(back) => all.back.push(back.saturating_duration_since(times.struck)),
            None => all.never_back += 1,
        }
        options.progress.set(number + 1, repeats);
    }
    Ok(all)
}

fn wrong_takeovers(fault: &ReplicaFault, takeovers: &[u64]) -> usize {
    let expected = match fault.takeovers {
        TakeoverRule::None => 0,
        TakeoverRule::EachOnce => CLIENTS as u64,
        TakeoverRule::Any => return 0,
    };
    takeovers.iter().filter(|takeovers| **takeovers != expected).count()
}

fn logs(service: &Service) -> String {
    let log = |name: &str| format!("log of {name}:\n{}\n", last_lines(&service.log(name), 20));
    NAMES.map(log).concat()
}

impl ReplicaRow {
    /// Violations that are independent of the machine.
    #[must_use]
    pub fn complaints(&self, fault: &ReplicaFault) -> Vec<String> {
        let Counts { answered, lost: _, unknown, cut, hung, duplicated, untrue, refused } = self.calls;
        let lost = self.lost_as.iter().filter(|(code, _)| !fault.allowed_loss.allows(code));
        let unless = |allowed: Allowed, count| if allowed == Allowed::Never { count } else { 0 };
        let counted = [
            ("strikes after which a client was not served", self.never_back),
            ("calls lost", lost.map(|(_, count)| count).sum()),
            ("calls refused", refused),
            ("calls with an unknown outcome", unless(fault.unknown_outcome, unknown)),
            ("calls with a broken connection", unless(fault.cut, cut)),
            ("calls hung", hung),
            ("calls executed twice", duplicated),
            ("calls with a wrong answer", untrue),
            ("strikes with another number of takeovers than expected", self.wrong_takeovers),
            ("client sessions lost", usize::try_from(self.sessions_lost).unwrap_or(usize::MAX)),
            ("processes left behind", self.left),
        ];
        let bad = counted.into_iter().filter(|(_, count)| *count > 0);
        let mut complaints: Vec<String> = bad.map(|(what, count)| format!("{count} {what}")).collect();
        complaints.extend(self.violations.iter().cloned());
        if answered == 0 {
            complaints.push("no call was answered".to_owned());
        }
        complaints
    }
}

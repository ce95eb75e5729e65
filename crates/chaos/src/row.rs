//! One fault on one transport: start, strikes, classification of calls, and the count of leftovers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::client::Client;
use crate::environment::Testbed;
use crate::fault::{Allowed, CallerActivity, Fault, FaultAction, RunLength, Transport};
use crate::gateway::{POLL_INTERVAL, Subject, last_lines};
use crate::ledger::{self, Counts, StrikeSpan, Window};
use crate::load::Load;
use crate::plan::PlannedRow;
use crate::strike::{Strike, Strikes};
use gripfast_measure::Result;
use gripfast_measure::proc::Footprint;
use gripfast_measure::times::Times;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Gateway under test.
    pub subject: Subject,
    /// Thoroughness.
    pub length: RunLength,
    /// Number of strikes, if not the default of the run length.
    pub repeats: Option<usize>,
    /// Seed for the start times of calls.
    pub seed: u64,
    /// Progress counters.
    pub progress: Progress,
}

/// Progress of a row, for display.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<(AtomicUsize, AtomicUsize)>);

impl Progress {
    /// Number of strikes so far, and planned.
    #[must_use]
    pub fn read(&self) -> (usize, usize) {
        (self.0.0.load(Ordering::Relaxed), self.0.1.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, times: usize, of: usize) {
        self.0.0.store(times, Ordering::Relaxed);
        self.0.1.store(of, Ordering::Relaxed);
    }
}

/// Result of one fault on one transport.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Name of the fault.
    pub fault: &'static str,
    /// Transport.
    pub transport: Transport,
    /// Number of strikes.
    pub repeats: usize,
    /// Number of strikes after which tools were not back in time; the row ends with the first.
    pub never_back: usize,
    /// Time from the moment when the server could serve again until a call was answered.
    pub back: Times,
    /// Time from the strike until a call was answered.
    pub away: Times,
    /// Down time and recovery time of each strike.
    #[serde(skip)]
    pub strikes: Vec<Absence>,
    /// Start, handshake and listing of the server without a gateway.
    pub alone: Times,
    /// Outcomes of the calls.
    pub calls: Counts,
    /// Error codes of lost calls.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_as: BTreeMap<String, usize>,
    /// Client sessions with the gateway that had to be replaced.
    pub sessions_lost: u64,
    /// Leftovers.
    pub left: Left,
    /// Explanations of unexpected outcomes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Cause, if the row failed. All other fields are then meaningless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broke_off: Option<String>,
}

/// Down time of a server, and additional wait of callers.
#[derive(Debug, Clone, Copy)]
pub struct Absence {
    /// Time from the strike until the server could serve again.
    pub down: Duration,
    /// Time from then until a call was answered.
    pub back: Duration,
}

/// Leftovers of a row, compared with the state before the first strike.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Left {
    /// Additional processes while the gateway runs, and any process after it has exited.
    pub processes: usize,
    /// Children that were not reaped.
    pub zombies: usize,
    /// Additional open files.
    pub files: usize,
    /// Growth of the gateway's memory since before the first strike, in percent.
    pub memory_percent: f64,
    /// Growth since the warm-up strikes of a long row, during which code is paged in and pools and rings fill up. A
    /// leak shows here.
    pub settled_percent: f64,
    /// Peak memory of the gateway, in MiB.
    pub peak_mib: f64,
}

/// Time limit for tools to come back after the fault is over. gripfast retries at least once a minute; for another
/// gateway a shorter limit is enough.
fn recovery_limit(subject: &Subject) -> Duration {
    Duration::from_secs(if subject.peer.is_some() { 20 } else { 90 })
}

/// Time budget of a row, after which it strikes no more. It bounds a long run.
const TIME_BUDGET: Duration = Duration::from_secs(300);
/// Load before the first strike. Where memory growth is measured, it is long enough to fill the history of recent
/// calls, so that its growth is not attributed to the strikes.
fn warm_up(fault: &Fault, length: RunLength) -> Duration {
    match (fault.action, length) {
        (FaultAction::KillOnReturn, RunLength::Ordinary | RunLength::Long) => Duration::from_secs(5),
        _ => Duration::from_millis(400),
    }
}

/// Load between two strikes.
const SETTLE: Duration = Duration::from_millis(150);
/// Warm-up strikes of a long row, in which every code path runs for the first time. Memory after them is the second
/// baseline for growth; the first is memory before any strike.
pub const WARM_UP_STRIKES: usize = 20;
/// Time limit for cleanup after the last strike.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time within which free memory is returned to the system.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs one fault on one transport.
///
/// # Errors
/// The harness itself fails; failures of the gateway are part of the row.
pub async fn run(fault: &'static Fault, transport: Transport, options: &RunOptions) -> Result<Row> {
    let mut testbed = Testbed::start(fault, transport, options.length, &options.subject).await?;
    let (tools, eras) = (testbed.tools().await?, options.subject.eras());
    let tag = format!("{transport}-{}", fault.name);
    let (url, pace) = (testbed.gateway.url(), testbed.setup.pace);
    let clients: Result<Vec<Client>> =
        (0..pace.clients).map(|number| options.subject.client(url, eras[number % eras.len()])).collect();
    let load = Load::start_with(clients?, tools, &tag, pace, options.seed).await?;
    if fault.action != FaultAction::StartLate {
        tokio::time::sleep(warm_up(fault, options.length)).await;
        load.pause().await;
    }
    let before = ResourceUse::measure(&testbed);
    let mut settled = before.footprint.memory;
    if fault.callers != CallerActivity::Paused {
        load.resume();
    }
    let mut samples = RowSamples::default();
    let (of, began) = (repeats(fault, transport, options), Instant::now());
    for number in 0..of {
        let strike = Strike {
            action: fault.action,
            length: options.length,
            number,
            limit: recovery_limit(&options.subject),
        };
        if fault.action == FaultAction::KillOnReturn && number == WARM_UP_STRIKES {
            load.pause().await;
            settled = ResourceUse::measure(&testbed).footprint.memory;
            load.resume();
        }
        if fault.action != FaultAction::KillOnReturn || number.is_multiple_of(WARM_UP_STRIKES) {
            samples.alone.push(testbed.time_without_gateway().await?);
        }
        samples.repeat(strike, fault, &mut testbed, &load).await?;
        options.progress.set(number + 1, of);
        if samples.never_back > 0 || began.elapsed() > TIME_BUDGET {
            break;
        }
    }
    let sessions_lost = load.repeated_handshakes();
    let deadline = testbed.setup.pace.deadline;
    let calls = load.stop().await;
    let verdict = ledger::judge(&calls, &samples.windows, &testbed.effects(), deadline);
    let mut left = before.compare(&testbed, settled).await;
    let mut remarks = verdict.remarks;
    let log = last_lines(&testbed.log(), 30);
    if !log.is_empty() && (!remarks.is_empty() || samples.never_back > 0) {
        remarks.push(format!("log of the gateway:\n{log}"));
    }
    let processes = testbed.close().await?;
    left.processes += processes.len();
    remarks.extend(processes.into_iter().map(|line| format!("left behind: {line}")));
    Ok(Row {
        fault: fault.name,
        transport,
        repeats: samples.windows.len(),
        never_back: samples.never_back,
        back: Times::of(&samples.strikes.iter().map(|strike| strike.back).collect::<Vec<_>>()),
        away: Times::of(&samples.away),
        strikes: samples.strikes,
        alone: Times::of(&samples.alone),
        calls: verdict.counts,
        lost_as: verdict.lost_as,
        sessions_lost,
        left,
        remarks,
        broke_off: None,
    })
}

impl Row {
    /// A row with only the cause of its failure.
    #[must_use]
    pub fn failed(fault: &Fault, transport: Transport, why: String) -> Self {
        Self {
            fault: fault.name,
            transport,
            repeats: 0,
            never_back: 0,
            back: Times::default(),
            away: Times::default(),
            strikes: Vec::new(),
            alone: Times::default(),
            calls: Counts::default(),
            lost_as: BTreeMap::new(),
            sessions_lost: 0,
            left: Left::default(),
            remarks: Vec::new(),
            broke_off: Some(why),
        }
    }

    /// Violations that are independent of the machine.
    #[must_use]
    pub fn complaints(&self, fault: &Fault) -> Vec<String> {
        let Counts { answered, lost: _, unknown, cut, hung, duplicated, untrue, refused: _ } = self.calls;
        let lost = self
            .lost_as
            .iter()
            .filter(|(code, _)| !fault.allowed_loss.allows(code))
            .map(|(_, count)| count)
            .sum();
        let unknown = if fault.unknown_outcome == Allowed::Never { unknown } else { 0 };
        let cut = if fault.action == FaultAction::KillGateway { 0 } else { cut };
        let counted = [
            ("strikes after which tools did not come back", self.never_back),
            ("calls lost", lost),
            ("calls with an unknown outcome", unknown),
            ("calls with a broken connection", cut),
            ("calls hung", hung),
            ("calls executed twice", duplicated),
            ("calls with a wrong answer", untrue),
            ("client sessions lost", usize::try_from(self.sessions_lost).unwrap_or(usize::MAX)),
            ("processes left behind", self.left.processes),
            ("zombies", self.left.zombies),
            ("open files left behind", self.left.files),
        ];
        let bad = counted.into_iter().filter(|(_, count)| *count > 0);
        let mut complaints: Vec<String> = bad.map(|(what, count)| format!("{count} {what}")).collect();
        if answered == 0 {
            complaints.push("no call was answered".to_owned());
        }
        complaints
    }
}

/// Measurements collected over the strikes.
#[derive(Default)]
struct RowSamples {
    windows: Vec<Window>,
    strikes: Vec<Absence>,
    away: Vec<Duration>,
    alone: Vec<Duration>,
    never_back: usize,
}

impl RowSamples {
    async fn repeat(
        &mut self,
        strike: Strike,
        fault: &Fault,
        testbed: &mut Testbed,
        load: &Load,
    ) -> Result<()> {
        let spans = strike.apply(testbed, load).await?;
        let struck = spans.last;
        let (healed, back) = if fault.action == FaultAction::ReplaceTools {
            let healed = strike.heal(testbed, struck).await?;
            (healed, wait_until_listed(testbed, strike).await)
        } else {
            let (healed, back) =
                tokio::join!(strike.heal(testbed, struck), load.wait_until_back(strike.limit));
            (healed?, back)
        };
        self.windows.push(window(&spans, load));
        match back {
            Some(back) => {
                let down = healed.saturating_duration_since(struck);
                self.strikes.push(Absence { down, back: back.saturating_duration_since(healed) });
                self.away.push(back - struck);
            }
            None => self.never_back += 1,
        }
        if fault.action == FaultAction::KillOnReturn {
            return Ok(());
        }
        // Waiting calls are served first, so that every strike hits the same load.
        load.pause().await;
        load.resume();
        tokio::time::sleep(SETTLE).await;
        if fault.callers == CallerActivity::Paused {
            load.pause().await;
        }
        Ok(())
    }
}

/// Window from the first strike until now.
fn window(spans: &Strikes, load: &Load) -> Window {
    let since = |at| load.elapsed_at(at);
    let spans: Vec<StrikeSpan> =
        spans.all().map(|(at, over)| StrikeSpan { at: since(at), ended: since(over) }).collect();
    let to = since(Instant::now());
    Window { from: spans.first().map_or(to, |first| first.at), to, strikes: spans, of_replica: false }
}

async fn wait_until_listed(testbed: &Testbed, strike: Strike) -> Option<Instant> {
    let began = Instant::now();
    while began.elapsed() < strike.limit {
        if testbed.listed_tools().await.is_some_and(|names| strike.is_listed(&names)) {
            return Some(Instant::now());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    None
}

fn repeats(fault: &'static Fault, transport: Transport, options: &RunOptions) -> usize {
    let many = match fault.action {
        // The gateway is started for this fault, so it can occur only once.
        FaultAction::StartLate => return 1,
        FaultAction::KillOnReturn => match options.length {
            RunLength::Short => 25,
            RunLength::Ordinary | RunLength::Long => 1000,
        },
        // Enough strikes for the promised percentile.
        FaultAction::Kill | FaultAction::KillWithStandby if fault.callers == CallerActivity::Paused => {
            match options.length {
                RunLength::Short => 2,
                RunLength::Ordinary => 100,
                RunLength::Long => 1000,
            }
        }
        FaultAction::Restart(_) if (PlannedRow { fault, transport }).is_timed() => match options.length {
            RunLength::Short => 1,
            RunLength::Ordinary | RunLength::Long => 20,
        },
        FaultAction::Kill
        | FaultAction::KillWithStandby
        | FaultAction::KillParent
        | FaultAction::ExpireSession
        | FaultAction::BreakAnswers(_) => match options.length {
            RunLength::Short => 2,
            RunLength::Ordinary => 25,
            RunLength::Long => 1000,
        },
        _ => match options.length {
            RunLength::Short => 1,
            RunLength::Ordinary => 3,
            RunLength::Long => 10,
        },
    };
    options.repeats.unwrap_or(many)
}

/// Resources in use at one moment.
struct ResourceUse {
    processes: usize,
    footprint: Footprint,
}

impl ResourceUse {
    fn measure(testbed: &Testbed) -> Self {
        Self { processes: testbed.processes().len(), footprint: Footprint::of(testbed.gateway.pid()) }
    }

    /// Additional resources after the time for cleanup. The lowest memory value counts, because memory returned
    /// within that time is not a leftover.
    async fn compare(&self, testbed: &Testbed, settled: u64) -> Left {
        let growth = |now: u64, since: u64| (now as f64 / since as f64 - 1.0) * 100.0;
        let (began, old) = (Instant::now(), self.footprint);
        let mut lowest = u64::MAX;
        loop {
            let now = Self::measure(testbed);
            let new = now.footprint;
            lowest = lowest.min(new.memory);
            let left = Left {
                processes: now.processes.saturating_sub(self.processes),
                zombies: new.zombies,
                files: new.files.saturating_sub(old.files),
                memory_percent: growth(lowest, old.memory),
                settled_percent: growth(lowest, settled),
                peak_mib: new.peak_memory as f64 / f64::from(1 << 20),
            };
            let clear = left.processes + left.zombies + left.files == 0;
            let given_back = lowest <= old.memory || began.elapsed() > MEMORY_TIMEOUT;
            if (clear && given_back) || began.elapsed() > CLEANUP_TIMEOUT {
                return left;
            }
            tokio::time::sleep(POLL_INTERVAL * 10).await;
        }
    }
}

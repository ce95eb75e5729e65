//! One fault on one transport, from an empty directory to the count of what is left behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Result;
use crate::fault::{Act, Allowed, Callers, Fault, Form, Transport};
use crate::gateway::{LOOK_AGAIN, Subject, last_lines};
use crate::ledger::{self, Blow, Counts, Window};
use crate::load::Load;
use crate::plan::Part;
use crate::proc::Footprint;
use crate::scene::Scene;
use crate::strike::{Blows, Strike};

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Order {
    /// The gateway.
    pub subject: Subject,
    /// How thoroughly.
    pub form: Form,
    /// How often, if not as often as the form has it.
    pub repeats: Option<usize>,
    /// Decides when calls begin.
    pub seed: u64,
    /// How far it is.
    pub progress: Progress,
}

/// How far a row is, for whoever watches.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<(AtomicUsize, AtomicUsize)>);

impl Progress {
    /// How often the fault has struck, and how often it is to.
    #[must_use]
    pub fn read(&self) -> (usize, usize) {
        (self.0.0.load(Ordering::Relaxed), self.0.1.load(Ordering::Relaxed))
    }

    fn struck(&self, times: usize, of: usize) {
        self.0.0.store(times, Ordering::Relaxed);
        self.0.1.store(of, Ordering::Relaxed);
    }
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The fault.
    pub fault: &'static str,
    /// The transport.
    pub transport: Transport,
    /// How often it struck.
    pub repeats: usize,
    /// How often tools were not back in time, after which nothing more was tried.
    pub never_back: usize,
    /// From the moment when the server could serve again until a call was answered.
    pub back: Times,
    /// From the blow until a call was answered.
    pub away: Times,
    /// From the blow until the server could serve again, and from then until a call was answered, for each strike.
    #[serde(skip)]
    pub strikes: Vec<Absence>,
    /// What the server takes to start, to be greeted and to be listed, without a gateway.
    pub alone: Times,
    /// What became of the calls.
    pub calls: Counts,
    /// What the callers of lost calls were told.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_as: BTreeMap<String, usize>,
    /// Sessions with the gateway that its clients had to replace.
    pub sessions_lost: u64,
    /// What is left.
    pub left: Left,
    /// What would explain a bad number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Why it broke off, if it did. Nothing else is known of it then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broke_off: Option<String>,
}

/// How long a server was away itself, and how long callers waited beyond that.
#[derive(Debug, Clone, Copy)]
pub struct Absence {
    /// From the blow until it could serve again.
    pub down: Duration,
    /// From then until a call was answered.
    pub back: Duration,
}

/// Times in milliseconds, over the repeats.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Times {
    /// The one in the middle.
    pub p50: f64,
    /// The one that 99 of 100 do not exceed.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// What is there that was not there before.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Left {
    /// Processes beyond those from before the fault, while the gateway still runs, and any once it has ended.
    pub processes: usize,
    /// Children that were not reaped.
    pub zombies: usize,
    /// Open files beyond those from before.
    pub files: usize,
    /// Growth of the gateway's memory since before the first strike, in percent.
    pub memory_percent: f64,
    /// The same in a row of many strikes since the first few of them, in which everything is done for the first time
    /// (code is paged in, pools and rings fill up to their bounds): what would go on growing is here.
    pub settled_percent: f64,
    /// The most memory that the gateway ever occupied, in MiB.
    pub peak_mib: f64,
}

impl Times {
    /// Of these.
    #[must_use]
    pub fn of(times: &[Duration]) -> Self {
        let mut millis: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1000.0).collect();
        millis.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (share * millis.len() as f64).ceil() as usize;
            millis.get(place.max(1) - 1).copied().unwrap_or_default()
        };
        Self { p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

/// How long tools may be away after the fault has passed before they count as gone for good: ours try themselves once
/// a minute at the least; nobody waits as long for another gateway that has been let down by its server.
fn give_up_after(subject: &Subject) -> Duration {
    Duration::from_secs(if subject.peer.is_some() { 20 } else { 90 })
}

/// A row that has gone on for this long strikes no more, however often it was to: so a long run has an end.
const ENOUGH: Duration = Duration::from_secs(300);
/// The load before the first blow. Where memory is promised of, what is kept of the last calls is full by then: its
/// growth is not that of the blows.
fn warm_up(fault: &Fault, form: Form) -> Duration {
    match (fault.act, form) {
        (Act::KillOver, Form::Ordinary | Form::Long) => Duration::from_secs(5),
        _ => Duration::from_millis(400),
    }
}

/// The load between two blows.
const SETTLE: Duration = Duration::from_millis(150);
/// Strikes of a long row in which the gateway does everything for the first time. What it holds after them is a second
/// start to measure growth from; the first is what it held before any strike.
pub const BREAK_IN: usize = 20;
/// What is over may take this long to be cleared away.
const CLEARED_WITHIN: Duration = Duration::from_secs(10);
/// Memory that is free is given back to the system within this.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(1);

/// Runs one fault on one transport.
///
/// # Errors
/// The harness itself is in trouble; what the gateway does badly is in the row.
pub async fn run(fault: &'static Fault, transport: Transport, order: &Order) -> Result<Row> {
    let mut scene = Scene::set(fault, transport, order.form, &order.subject).await?;
    let (tools, eras) = (scene.tools().await?, order.subject.eras());
    let tag = format!("{transport}-{}", fault.name);
    let load = Load::begin(scene.gateway.url(), eras, tools, &tag, scene.stage.pace, order.seed).await?;
    if fault.act != Act::StartLate {
        tokio::time::sleep(warm_up(fault, order.form)).await;
        load.pause().await;
    }
    let before = Held::by(&scene);
    let mut settled = before.footprint.memory;
    if fault.callers != Callers::Rest {
        load.resume();
    }
    let mut course = Course::default();
    let (of, began) = (repeats(fault, transport, order), Instant::now());
    for number in 0..of {
        let strike =
            Strike { act: fault.act, form: order.form, number, limit: give_up_after(&order.subject) };
        if fault.act == Act::KillOver && number == BREAK_IN {
            load.pause().await;
            settled = Held::by(&scene).footprint.memory;
            load.resume();
        }
        if fault.act != Act::KillOver || number.is_multiple_of(BREAK_IN) {
            course.alone.push(scene.alone().await?);
        }
        course.repeat(strike, fault, &mut scene, &load).await?;
        order.progress.struck(number + 1, of);
        if course.never_back > 0 || began.elapsed() > ENOUGH {
            break;
        }
    }
    let sessions_lost = load.renewals();
    let deadline = scene.stage.pace.deadline;
    let calls = load.end().await;
    let verdict = ledger::judge(&calls, &course.windows, &scene.effects(), deadline);
    let mut left = before.compare(&scene, settled).await;
    let mut remarks = verdict.remarks;
    let log = last_lines(&scene.log(), 30);
    if !log.is_empty() && (!remarks.is_empty() || course.never_back > 0) {
        remarks.push(format!("the gateway said:\n{log}"));
    }
    let processes = scene.close().await?;
    left.processes += processes.len();
    remarks.extend(processes.into_iter().map(|line| format!("left behind: {line}")));
    Ok(Row {
        fault: fault.name,
        transport,
        repeats: course.windows.len(),
        never_back: course.never_back,
        back: Times::of(&course.strikes.iter().map(|strike| strike.back).collect::<Vec<_>>()),
        away: Times::of(&course.away),
        strikes: course.strikes,
        alone: Times::of(&course.alone),
        calls: verdict.counts,
        lost_as: verdict.lost_as,
        sessions_lost,
        left,
        remarks,
        broke_off: None,
    })
}

impl Row {
    /// A row that nothing is known of but why it broke off.
    #[must_use]
    pub fn broken_off(fault: &Fault, transport: Transport, why: String) -> Self {
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

    /// What must not be, whatever the machine: the counts that hold in every run.
    #[must_use]
    pub fn complaints(&self, fault: &Fault) -> Vec<String> {
        let Counts { answered, lost: _, unknown, cut, hung, duplicated, untrue, refused: _ } = self.calls;
        let lost =
            self.lost_as.iter().filter(|(code, _)| !fault.lost.allows(code)).map(|(_, count)| count).sum();
        let unknown = if fault.unknown == Allowed::Never { unknown } else { 0 };
        let cut = if fault.act == Act::KillGateway { 0 } else { cut };
        let counted = [
            ("times its tools did not come back", self.never_back),
            ("calls lost", lost),
            ("calls of unknown outcome", unknown),
            ("calls cut off", cut),
            ("calls hung", hung),
            ("calls carried out twice", duplicated),
            ("calls with an untrue answer", untrue),
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

/// What is measured from repeat to repeat.
#[derive(Default)]
struct Course {
    windows: Vec<Window>,
    strikes: Vec<Absence>,
    away: Vec<Duration>,
    alone: Vec<Duration>,
    never_back: usize,
}

impl Course {
    async fn repeat(&mut self, strike: Strike, fault: &Fault, scene: &mut Scene, load: &Load) -> Result<()> {
        let blows = strike.blow(scene, load).await?;
        let struck = blows.last;
        let (healed, back) = if fault.act == Act::OtherTools {
            let healed = strike.heal(scene, struck).await?;
            (healed, until_listed(scene, strike).await)
        } else {
            let (healed, back) = tokio::join!(strike.heal(scene, struck), load.until_back(strike.limit));
            (healed?, back)
        };
        self.windows.push(window(&blows, load));
        match back {
            Some(back) => {
                let down = healed.saturating_duration_since(struck);
                self.strikes.push(Absence { down, back: back.saturating_duration_since(healed) });
                self.away.push(back - struck);
            }
            None => self.never_back += 1,
        }
        if fault.act == Act::KillOver {
            return Ok(());
        }
        // What waited is served first, so that the next blow finds the load as this one did.
        load.pause().await;
        load.resume();
        tokio::time::sleep(SETTLE).await;
        if fault.callers == Callers::Rest {
            load.pause().await;
        }
        Ok(())
    }
}

/// From the first blow until now.
fn window(blows: &Blows, load: &Load) -> Window {
    let since = |at| load.since_began(at);
    let blows: Vec<Blow> = blows.all().map(|(at, over)| Blow { at: since(at), over: since(over) }).collect();
    let to = since(Instant::now());
    Window { from: blows.first().map_or(to, |first| first.at), to, blows }
}

async fn until_listed(scene: &Scene, strike: Strike) -> Option<Instant> {
    let began = Instant::now();
    while began.elapsed() < strike.limit {
        if scene.names().await.is_some_and(|names| strike.is_listed(&names)) {
            return Some(Instant::now());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    None
}

fn repeats(fault: &'static Fault, transport: Transport, order: &Order) -> usize {
    let many = match fault.act {
        // The gateway is started for it; once it runs, that is over.
        Act::StartLate => return 1,
        Act::KillOver => match order.form {
            Form::Short => 25,
            Form::Ordinary | Form::Long => 1000,
        },
        // What a percentile is promised of.
        Act::Kill | Act::KillSpared if fault.callers == Callers::Rest => match order.form {
            Form::Short => 2,
            Form::Ordinary => 100,
            Form::Long => 1000,
        },
        Act::Restart(_) if (Part { fault, transport }).is_timed() => match order.form {
            Form::Short => 1,
            Form::Ordinary | Form::Long => 20,
        },
        Act::Kill | Act::KillSpared | Act::KillParent | Act::ExpireSession | Act::BreakAnswers(_) => {
            match order.form {
                Form::Short => 2,
                Form::Ordinary => 25,
                Form::Long => 1000,
            }
        }
        _ => match order.form {
            Form::Short => 1,
            Form::Ordinary => 3,
            Form::Long => 10,
        },
    };
    order.repeats.unwrap_or(many)
}

/// What is there at one moment.
struct Held {
    processes: usize,
    footprint: Footprint,
}

impl Held {
    fn by(scene: &Scene) -> Self {
        Self { processes: scene.processes().len(), footprint: Footprint::of(scene.gateway.pid()) }
    }

    /// What is there in addition, once there was time to clear up. Memory that is given back within that time is not
    /// left: the lowest counts.
    async fn compare(&self, scene: &Scene, settled: u64) -> Left {
        let growth = |now: u64, since: u64| (now as f64 / since as f64 - 1.0) * 100.0;
        let (began, old) = (Instant::now(), self.footprint);
        let mut lowest = u64::MAX;
        loop {
            let now = Self::by(scene);
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
            let given_back = lowest <= old.memory || began.elapsed() > GIVEN_BACK_WITHIN;
            if (clear && given_back) || began.elapsed() > CLEARED_WITHIN {
                return left;
            }
            tokio::time::sleep(LOOK_AGAIN * 10).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        let Times { p50, p99, max } = Times::of(&times);
        assert_eq!((p50, p99, max), (100.0, 198.0, 200.0));
        let Times { p50, p99, max } = Times::of(&times[..1]);
        assert_eq!((p50, p99, max), (1.0, 1.0, 1.0));
        assert_eq!(Times::of(&[]).max, 0.0);
    }
}

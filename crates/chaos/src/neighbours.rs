//! Twenty servers behind one gateway, one of which flaps: the effect on the other nineteen.
//!
//! Each round has three windows: idle; the one server is killed every half second and comes back; the same child is
//! started as often by another process, without the gateway. The p99 of each window is divided by that of the quiet
//! window of its round, and the median over the rounds counts, because other load on the machine affects all three
//! windows of a round. The last window is the control: it shows the cost of starting a child on this machine,
//! independent of the gateway.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, json};
use tempfile::TempDir;

use crate::baseline;
use crate::client::Client;
use crate::fault::RunLength;
use crate::gateway::{Gateway, Launch, POLL_INTERVAL, START_TIMEOUT, env_marker};
use crate::ledger::{self, Call, Counts, End};
use crate::load::{Load, Pace, Tools};
use crate::row::RunOptions;
use gripfast_measure::proc;
use gripfast_measure::times::{Times, median};
use gripfast_measure::{MeasureError, Result};

/// Results of the steady servers while one server flapped.
#[derive(Debug, Clone, Serialize)]
pub struct Neighbours {
    /// Number of servers.
    pub servers: usize,
    /// Number of rounds.
    pub rounds: usize,
    /// Number of kills of the flapping server.
    pub kills: usize,
    /// Outcomes of the calls to the other servers.
    pub calls: Counts,
    /// Call durations in quiet windows.
    pub quiet: Times,
    /// Call durations while the server flapped.
    pub flapping: Times,
    /// Call durations while another process started the same child.
    pub beside: Times,
    /// p99 while the server flapped divided by the p99 of the quiet window of the same round: median of the rounds.
    pub flapping_ratio: f64,
    /// Same ratio while another process started the child.
    pub beside_ratio: f64,
    /// Explanations of failed calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// Kind of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Quiet,
    Flapping,
    OtherProcess,
}

const KINDS: [Kind; 3] = [Kind::Quiet, Kind::Flapping, Kind::OtherProcess];

/// A finished window.
#[derive(Debug, Clone, Copy)]
struct MeasuredSpan {
    kind: Kind,
    round: usize,
    from: Instant,
    to: Instant,
}

/// Environment variable that identifies the child of each server.
const CHILD: &str = "CHAOS_CHILD";
const DEADLINE: Duration = Duration::from_secs(10);
/// Interval between two kills, and between two starts by another process.
const CALL_INTERVAL: Duration = Duration::from_millis(500);
/// Pause that lets the effects of one window end before the next one begins.
const PAUSE_BETWEEN_SPANS: Duration = Duration::from_millis(300);

/// Runs the measurement.
///
/// # Errors
/// The harness itself fails.
pub async fn run(options: &RunOptions) -> Result<Neighbours> {
    let (servers, rounds, window) = match options.length {
        RunLength::Short => (4, 1, Duration::from_millis(1200)),
        RunLength::Ordinary => (20, 7, Duration::from_secs(3)),
        RunLength::Long => (20, 40, Duration::from_secs(5)),
    };
    let dir = TempDir::with_prefix("chaos-")?;
    let names: Vec<String> = (0..servers).map(|number| format!("s{number:02}")).collect();
    let config = dir.path().join("servers.json");
    std::fs::write(&config, config_for(&names, &dir, options))?;
    let launch =
        Launch { subject: options.subject.clone(), dir: dir.path().to_owned(), config, wrapper: Vec::new() };
    let gateway = Gateway::start(launch).await?;
    let loads = start_loads(&gateway, &names, options).await?;
    let mut flapper =
        Flapper { gateway: &gateway, name: &names[0], options, others: BTreeSet::new(), kills: 0 };
    let mut spans = Vec::new();
    for round in 0..rounds {
        // Each kind comes first, second and third in turn.
        for place in 0..KINDS.len() {
            let kind = KINDS[(round + place) % KINDS.len()];
            tokio::time::sleep(PAUSE_BETWEEN_SPANS).await;
            let from = Instant::now();
            flapper.run_window(kind, from + window).await?;
            spans.push(MeasuredSpan { kind, round, from, to: Instant::now() });
        }
    }
    let kills = flapper.kills;
    let mut neighbours = Neighbours {
        servers,
        rounds,
        kills,
        calls: Counts::default(),
        quiet: Times::default(),
        flapping: Times::default(),
        beside: Times::default(),
        flapping_ratio: 0.0,
        beside_ratio: 0.0,
        remarks: Vec::new(),
    };
    let mut took = vec![Vec::new(); spans.len()];
    for (load, name) in loads.into_iter().zip(&names).skip(1) {
        let bounds: Vec<_> =
            spans.iter().map(|span| load.elapsed_at(span.from)..load.elapsed_at(span.to)).collect();
        let calls = load.stop().await;
        let effects = std::fs::read_to_string(dir.path().join(format!("counter-{name}"))).unwrap_or_default();
        let verdict = ledger::judge(&calls, &[], &ledger::effects(&effects), DEADLINE);
        neighbours.calls.add(&verdict.counts);
        neighbours.remarks.extend(verdict.remarks);
        for Call { began, ended, .. } in calls.iter().filter(|call| call.end == End::Answered) {
            if let Some(place) = bounds.iter().position(|bounds| bounds.contains(began)) {
                took[place].push(*ended - *began);
            }
        }
    }
    neighbours.compare(&spans, &took);
    gateway.stop().await?;
    Ok(neighbours)
}

impl Neighbours {
    /// Compares the windows of each round. `took` has the call durations of each window.
    fn compare(&mut self, spans: &[MeasuredSpan], took: &[Vec<Duration>]) {
        let all = |kind| {
            let of_kind = spans.iter().zip(took).filter(|(span, _)| span.kind == kind);
            Times::of(&of_kind.flat_map(|(_, took)| took.iter().copied()).collect::<Vec<_>>())
        };
        let p99 = |kind, round| {
            let found = spans.iter().zip(took).find(|(span, _)| span.kind == kind && span.round == round);
            found.map_or(0.0, |(_, took)| Times::of(took).p99)
        };
        let ratio = |kind| median((0..self.rounds).map(|round| p99(kind, round) / p99(Kind::Quiet, round)));
        (self.flapping_ratio, self.beside_ratio) = (ratio(Kind::Flapping), ratio(Kind::OtherProcess));
        (self.quiet, self.flapping, self.beside) =
            (all(Kind::Quiet), all(Kind::Flapping), all(Kind::OtherProcess));
    }

    /// Violations that are independent of the machine.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let Counts { answered, lost, refused, unknown, cut, hung, duplicated, untrue } = self.calls;
        let bad = lost + refused + unknown + cut + hung + duplicated + untrue;
        let mut complaints = Vec::new();
        if bad > 0 {
            complaints.push(format!("{bad} calls to the servers that did not flap failed"));
        }
        if answered == 0 || self.kills == 0 {
            complaints
                .push(format!("only {} kills and {answered} answers: nothing was measured", self.kills));
        }
        complaints
    }
}

/// Kills the first server repeatedly.
struct Flapper<'a> {
    gateway: &'a Gateway,
    name: &'a str,
    options: &'a RunOptions,
    /// Children of other servers. Cached, because scanning `/proc` takes time that would be attributed to the
    /// gateway.
    others: BTreeSet<u32>,
    kills: usize,
}

impl Flapper<'_> {
    /// Performs the activity of this kind of window until the given time.
    async fn run_window(&mut self, kind: Kind, until: Instant) -> Result<()> {
        while Instant::now() < until {
            let next = Instant::now() + CALL_INTERVAL;
            match kind {
                Kind::Quiet => {}
                Kind::Flapping => self.kill().await?,
                Kind::OtherProcess => {
                    let command = self.options.subject.gripfast.display().to_string();
                    baseline::measure_stdio(&command, &["demo-server".to_owned()]).await?;
                }
            }
            tokio::time::sleep_until(next.into()).await;
        }
        Ok(())
    }

    async fn kill(&mut self) -> Result<()> {
        let entry = format!("{CHILD}={}", self.name);
        for pid in proc::children_of(self.gateway.pid()) {
            if self.others.contains(&pid) {
                continue;
            }
            if proc::has_env(pid, &entry) {
                proc::kill(pid).await?;
                self.kills += 1;
                return Ok(());
            }
            self.others.insert(pid);
        }
        Ok(())
    }
}

async fn start_loads(gateway: &Gateway, names: &[String], options: &RunOptions) -> Result<Vec<Load>> {
    let mut loads = Vec::new();
    for (number, tools) in tools(gateway, names, options).await?.into_iter().enumerate() {
        let pace =
            Pace { clients: 1, every: Duration::from_millis(100), work: Duration::ZERO, deadline: DEADLINE };
        let seed = options.seed.wrapping_add(1000 * number as u64);
        let eras = [options.subject.eras()[number % options.subject.eras().len()]];
        loads.push(Load::start(gateway.url(), &eras, tools, &names[number], pace, seed).await?);
    }
    Ok(loads)
}

fn config_for(names: &[String], dir: &TempDir, options: &RunOptions) -> String {
    let (variable, value) = env_marker(dir.path());
    let describe = |name: &String| {
        let counter = dir.path().join(format!("counter-{name}"));
        let described = json!({
            "command": options.subject.gripfast,
            "args": ["demo-server", "--counter-file", counter],
            "env": { &variable: &value, CHILD: name },
            "timeouts": { "call": "10s", "reconnect_wait": "10s" },
        });
        (name.clone(), described)
    };
    let servers: Map<_, _> = names.iter().map(describe).collect();
    json!({ "mcpServers": servers }).to_string()
}

async fn tools(gateway: &Gateway, names: &[String], options: &RunOptions) -> Result<Vec<Tools>> {
    let began = Instant::now();
    while began.elapsed() < START_TIMEOUT {
        let client = Client::new(gateway.url(), options.subject.eras()[0])?;
        let _ = client.initialize().await;
        let listed = client.tools().await.unwrap_or_default();
        let prefixed = |name: &String| {
            let own: Vec<String> =
                listed.iter().filter(|tool| tool.contains(name.as_str())).cloned().collect();
            Tools::find_in(&own, name)
        };
        if let Some(tools) = names.iter().map(prefixed).collect() {
            return Ok(tools);
        }
        tokio::time::sleep(POLL_INTERVAL * 10).await;
    }
    Err(MeasureError::new("the gateway", &"tools of some servers are not listed"))
}

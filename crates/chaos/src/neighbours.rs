//! Twenty servers behind one gateway, of which one flaps: what the other nineteen notice.
//!
//! Three kinds of windows take turns: nothing happens; the one server is killed every half second, and comes back; the
//! same child is started as often by somebody else, and the gateway has no part in it. The p99 of each window is held
//! against that of the quiet one of its round, and the ratio in the middle counts: what the machine does in one round
//! it does to all three. The last kind says what a starting child costs on this machine whoever starts it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, json};
use tempfile::TempDir;

use crate::alone;
use crate::client::Client;
use crate::fault::Form;
use crate::gateway::{Gateway, LONG_ENOUGH, LOOK_AGAIN, Launch, mark};
use crate::ledger::{self, Call, Counts, End};
use crate::load::{Load, Pace, Tools};
use crate::proc;
use crate::row::{Order, Times};
use crate::{Cannot, Result};

/// What the steady servers showed while one of them flapped.
#[derive(Debug, Clone, Serialize)]
pub struct Neighbours {
    /// How many servers there were in all.
    pub servers: usize,
    /// How often each kind of window had its turn.
    pub rounds: usize,
    /// How often the one was killed.
    pub kills: usize,
    /// What became of the calls to the others.
    pub calls: Counts,
    /// How long calls to the others took while nothing happened.
    pub quiet: Times,
    /// And while the one flapped.
    pub flapping: Times,
    /// And while its like was started outside of the gateway.
    pub beside: Times,
    /// The p99 while the one flapped, in that of the quiet window of the same round: the round in the middle.
    pub flapping_ratio: f64,
    /// The same while its like was started outside.
    pub beside_ratio: f64,
    /// What would explain a bad number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// What happens in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Quiet,
    Flapping,
    Beside,
}

const KINDS: [Kind; 3] = [Kind::Quiet, Kind::Flapping, Kind::Beside];

/// A window that is over.
#[derive(Debug, Clone, Copy)]
struct Span {
    kind: Kind,
    round: usize,
    from: Instant,
    to: Instant,
}

/// The variable by which one child is told from the others.
const CHILD: &str = "CHAOS_CHILD";
const DEADLINE: Duration = Duration::from_secs(10);
/// Between two kills, and between two starts outside.
const EVERY: Duration = Duration::from_millis(500);
/// What one window has set going is over when the next begins.
const BETWEEN: Duration = Duration::from_millis(300);

/// Runs it.
///
/// # Errors
/// The harness itself is in trouble.
pub async fn run(order: &Order) -> Result<Neighbours> {
    let (servers, rounds, window) = match order.form {
        Form::Short => (4, 1, Duration::from_millis(1200)),
        Form::Ordinary => (20, 7, Duration::from_secs(3)),
        Form::Long => (20, 40, Duration::from_secs(5)),
    };
    let dir = TempDir::with_prefix("chaos-")?;
    let names: Vec<String> = (0..servers).map(|number| format!("s{number:02}")).collect();
    let config = dir.path().join("servers.json");
    std::fs::write(&config, config_of(&names, &dir, order))?;
    let launch =
        Launch { subject: order.subject.clone(), dir: dir.path().to_owned(), config, within: Vec::new() };
    let gateway = Gateway::start(launch).await?;
    let loads = begin(&gateway, &names, order).await?;
    let mut flapper =
        Flapper { gateway: &gateway, name: &names[0], order, others: BTreeSet::new(), kills: 0 };
    let mut spans = Vec::new();
    for round in 0..rounds {
        // Each kind is first, second and third in turn.
        for place in 0..KINDS.len() {
            let kind = KINDS[(round + place) % KINDS.len()];
            tokio::time::sleep(BETWEEN).await;
            let from = Instant::now();
            flapper.keep_busy(kind, from + window).await?;
            spans.push(Span { kind, round, from, to: Instant::now() });
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
            spans.iter().map(|span| load.since_began(span.from)..load.since_began(span.to)).collect();
        let calls = load.end().await;
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
    /// Holds the windows of each round against each other. `took` has the times of the calls of each.
    fn compare(&mut self, spans: &[Span], took: &[Vec<Duration>]) {
        let all = |kind| {
            let of_kind = spans.iter().zip(took).filter(|(span, _)| span.kind == kind);
            Times::of(&of_kind.flat_map(|(_, took)| took.iter().copied()).collect::<Vec<_>>())
        };
        let p99 = |kind, round| {
            let found = spans.iter().zip(took).find(|(span, _)| span.kind == kind && span.round == round);
            found.map_or(0.0, |(_, took)| Times::of(took).p99)
        };
        let ratio = |kind| {
            let ratios = (0..self.rounds).map(|round| p99(kind, round) / p99(Kind::Quiet, round));
            median(ratios.collect())
        };
        (self.flapping_ratio, self.beside_ratio) = (ratio(Kind::Flapping), ratio(Kind::Beside));
        (self.quiet, self.flapping, self.beside) = (all(Kind::Quiet), all(Kind::Flapping), all(Kind::Beside));
    }

    /// What must not be, whatever the machine.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let Counts { answered, lost, refused, unknown, cut, hung, duplicated, untrue } = self.calls;
        let bad = lost + refused + unknown + cut + hung + duplicated + untrue;
        let mut complaints = Vec::new();
        if bad > 0 {
            complaints.push(format!("{bad} calls to the servers that did not flap went wrong"));
        }
        if answered == 0 || self.kills == 0 {
            complaints.push(format!("{} kills and {answered} answers: nothing was shown", self.kills));
        }
        complaints
    }
}

/// The median; the lower of the two in the middle.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.get(numbers.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// Makes the first server flap.
struct Flapper<'a> {
    gateway: &'a Gateway,
    name: &'a str,
    order: &'a Order,
    /// Children that are not the one. Looking costs time that would be taken for the gateway's.
    others: BTreeSet<u32>,
    kills: usize,
}

impl Flapper<'_> {
    /// Does what a window of this kind is about, until then.
    async fn keep_busy(&mut self, kind: Kind, until: Instant) -> Result<()> {
        while Instant::now() < until {
            let next = Instant::now() + EVERY;
            match kind {
                Kind::Quiet => {}
                Kind::Flapping => self.kill().await?,
                Kind::Beside => {
                    let command = self.order.subject.gripfast.display().to_string();
                    alone::on_stdio(&command, &["demo-server".to_owned()]).await?;
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
            if proc::carries(pid, &entry) {
                proc::kill(pid).await?;
                self.kills += 1;
                return Ok(());
            }
            self.others.insert(pid);
        }
        Ok(())
    }
}

async fn begin(gateway: &Gateway, names: &[String], order: &Order) -> Result<Vec<Load>> {
    let mut loads = Vec::new();
    for (number, tools) in tools(gateway, names, order).await?.into_iter().enumerate() {
        let pace =
            Pace { clients: 1, every: Duration::from_millis(100), work: Duration::ZERO, deadline: DEADLINE };
        let seed = order.seed.wrapping_add(1000 * number as u64);
        let eras = [order.subject.eras()[number % order.subject.eras().len()]];
        loads.push(Load::begin(gateway.url(), &eras, tools, &names[number], pace, seed).await?);
    }
    Ok(loads)
}

fn config_of(names: &[String], dir: &TempDir, order: &Order) -> String {
    let (variable, value) = mark(dir.path());
    let describe = |name: &String| {
        let counter = dir.path().join(format!("counter-{name}"));
        let described = json!({
            "command": order.subject.gripfast,
            "args": ["demo-server", "--counter-file", counter],
            "env": { &variable: &value, CHILD: name },
            "timeouts": { "call": "10s", "reconnect_wait": "10s" },
        });
        (name.clone(), described)
    };
    let servers: Map<_, _> = names.iter().map(describe).collect();
    json!({ "mcpServers": servers }).to_string()
}

async fn tools(gateway: &Gateway, names: &[String], order: &Order) -> Result<Vec<Tools>> {
    let began = Instant::now();
    while began.elapsed() < LONG_ENOUGH {
        let client = Client::new(gateway.url(), order.subject.eras()[0])?;
        let _ = client.meet().await;
        let listed = client.tools().await.unwrap_or_default();
        let prefixed = |name: &String| {
            let own: Vec<String> =
                listed.iter().filter(|tool| tool.contains(name.as_str())).cloned().collect();
            Tools::among(&own, name)
        };
        if let Some(tools) = names.iter().map(prefixed).collect() {
            return Ok(tools);
        }
        tokio::time::sleep(LOOK_AGAIN * 10).await;
    }
    Err(Cannot::because("the gateway", &"it does not list the tools of all its servers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_round_does_not_decide() {
        assert_eq!(median(vec![9.0, 1.0, 1.2]), 1.2);
        assert_eq!(median(vec![1.0]), 1.0);
        assert_eq!(median(vec![2.0, 1.0]), 1.0);
    }
}

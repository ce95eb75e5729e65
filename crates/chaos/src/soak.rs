//! Honest clients and an honest server beside hostile ones: what the honest clients notice, and what the gateway's
//! process needs.
//!
//! Quiet windows and windows with every attack of [`crate::attack`] take turns. The p99 of the honest calls in a window
//! with attacks is divided by that of the quiet window of the same round; the median of the rounds counts, because
//! what the machine does in one round it does to both windows.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tempfile::TempDir;

use crate::attack::{self, Attempts, Target};
use crate::client::{Client, Era};
use crate::fault::Form;
use crate::fleet::median;
use crate::gateway::{Gateway, LONG_ENOUGH, LOOK_AGAIN, Launch, mark};
use crate::ledger::{self, Call, Counts, End};
use crate::load::{Load, Pace, Tools};
use crate::proc::Footprint;
use crate::row::{Order, Times};
use crate::{Cannot, Result};

/// The result of a soak.
#[derive(Debug, Clone, Serialize)]
pub struct Soak {
    /// The number of pairs of windows.
    pub rounds: usize,
    /// Slow connections, wrong keys, unread answers, floods, misbehaviours of the hostile server.
    pub attempts: [u64; 5],
    /// The calls of the honest clients.
    pub calls: Counts,
    /// The duration of honest calls in quiet windows.
    pub quiet: Times,
    /// The same in windows with attacks.
    pub attacked: Times,
    /// The p99 of a window with attacks divided by that of the quiet window of its round: the median of the rounds.
    pub ratio: f64,
    /// The most memory that the gateway occupied, in MiB.
    pub peak_mib: f64,
    /// Explanations of failed calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// The gateway's byte budget in the soak, for all clients and for one.
const BUDGET_MIB: (u64, u64) = (64, 32);
/// The most memory that the gateway may occupy: the byte budget, the messages that servers are sending (each up to
/// `max_message`), and what the gateway needs without attacks.
pub const MEMORY_MIB: f64 = 256.0;
/// The honest p99 under attack may be this many times the quiet one.
pub const P99_RATIO: f64 = 2.0;

const DEADLINE: Duration = Duration::from_secs(10);
/// The pause between two windows, in which the gateway closes what the attackers left.
const BETWEEN: Duration = Duration::from_millis(500);
const HONEST_CLIENTS: usize = 4;

/// Runs the soak.
///
/// # Errors
/// The harness itself fails.
pub async fn run(order: &Order) -> Result<Soak> {
    let (rounds, window) = match order.form {
        Form::Short => (1, Duration::from_secs(2)),
        Form::Ordinary => (5, Duration::from_secs(4)),
        Form::Long => (20, Duration::from_secs(10)),
    };
    let dir = TempDir::with_prefix("chaos-")?;
    let config = dir.path().join("gripfast.toml");
    std::fs::write(&config, config_of(dir.path(), order))?;
    let (honest_key, hostile_key) =
        (make_key("honest", dir.path(), order)?, make_key("hostile", dir.path(), order)?);
    let launch =
        Launch { subject: order.subject.clone(), dir: dir.path().to_owned(), config, within: Vec::new() };
    let gateway = Gateway::start(launch).await?;
    let client = |era| Ok::<_, Cannot>(Client::new(gateway.url(), era)?.with_bearer(&honest_key));
    let tools = tools(&client(Era::Legacy)?).await?;
    let eras = [Era::Legacy, Era::Modern];
    let clients: Result<Vec<Client>> =
        (0..HONEST_CLIENTS).map(|number| client(eras[number % eras.len()])).collect();
    let pace = Pace {
        clients: HONEST_CLIENTS,
        every: Duration::from_millis(40),
        work: Duration::ZERO,
        deadline: DEADLINE,
    };
    let load = Load::begin_with(clients?, tools, "honest", pace, order.seed).await?;
    let target = Target {
        url: gateway.url().to_owned(),
        address: gateway.url().trim_start_matches("http://").trim_end_matches("/mcp").to_owned(),
        key: hostile_key,
        misbehave: "hostile__misbehave".to_owned(),
        crash: "hostile__crash".to_owned(),
        echo: "honest__echo".to_owned(),
    };
    let attempts = Arc::new(Attempts::default());
    let mut windows = Vec::new();
    for round in 0..rounds {
        // The quiet window comes first in every other round.
        for place in 0..2 {
            let attacked = (round + place) % 2 == 1;
            tokio::time::sleep(BETWEEN).await;
            let from = Instant::now();
            let attacks = if attacked { Some(attack::begin(&target, &attempts)?) } else { None };
            tokio::time::sleep(window).await;
            drop(attacks);
            windows.push((attacked, load.since_began(from)..load.since_began(Instant::now())));
        }
    }
    let calls = load.end().await;
    let effects = std::fs::read_to_string(dir.path().join("counter")).unwrap_or_default();
    let verdict = ledger::judge(&calls, &[], &ledger::effects(&effects), DEADLINE);
    let mut took = vec![Vec::new(); windows.len()];
    for Call { began, ended, .. } in calls.iter().filter(|call| call.end == End::Answered) {
        if let Some(place) = windows.iter().position(|(_, span)| span.contains(began)) {
            took[place].push(*ended - *began);
        }
    }
    let all = |wanted: bool| {
        let of_kind = windows.iter().zip(&took).filter(|((attacked, _), _)| *attacked == wanted);
        Times::of(&of_kind.flat_map(|(_, took)| took.iter().copied()).collect::<Vec<_>>())
    };
    let p99 = |round: usize, wanted: bool| {
        let pair = 2 * round..2 * round + 2;
        let place = pair.into_iter().find(|place| windows[*place].0 == wanted);
        place.map_or(0.0, |place| Times::of(&took[place]).p99)
    };
    let ratios = (0..rounds).map(|round| p99(round, true) / p99(round, false)).collect();
    let soak = Soak {
        rounds,
        attempts: attempts.numbers(),
        calls: verdict.counts,
        quiet: all(false),
        attacked: all(true),
        ratio: median(ratios),
        peak_mib: Footprint::of(gateway.pid()).peak_memory as f64 / f64::from(1 << 20),
        remarks: verdict.remarks,
    };
    gateway.stop().await?;
    Ok(soak)
}

impl Soak {
    /// What must not be, whatever the machine: times are left to [`crate::figure`].
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let failed = self.calls.all() - self.calls.answered;
        if failed > 0 {
            complaints.push(format!("{failed} calls of honest clients failed"));
        }
        if self.peak_mib > MEMORY_MIB {
            complaints.push(format!("the gateway needed {:.0} MiB of memory", self.peak_mib));
        }
        if self.calls.answered == 0 || self.attempts.contains(&0) {
            complaints.push(format!(
                "{} answers, attempts {:?}: nothing was shown",
                self.calls.answered, self.attempts
            ));
        }
        complaints
    }
}

fn config_of(dir: &Path, order: &Order) -> String {
    let (variable, value) = mark(dir);
    let command = &order.subject.gripfast;
    let (all, one) = BUDGET_MIB;
    format!(
        "\
[gateway]
auth = {{ keys = true }}

[gateway.limits]
memory = \"{all}MiB\"
memory_per_client = \"{one}MiB\"

[servers.honest]
command = {command:?}
args = [\"demo-server\", \"--counter-file\", {counter:?}]
env = {{ {variable} = {value:?} }}

[servers.hostile]
command = {command:?}
args = [\"demo-server\"]
env = {{ {variable} = {value:?} }}
",
        counter = dir.join("counter"),
    )
}

/// Makes a key for a client of this name and returns it.
fn make_key(name: &str, dir: &Path, order: &Order) -> Result<String> {
    let made = std::process::Command::new(&order.subject.gripfast)
        .args(["keys", "add", name, "--state-dir"])
        .arg(dir.join("state"))
        .env("HOME", dir)
        .current_dir(dir)
        .output()?;
    let key = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    if made.status.success() && !key.is_empty() {
        return Ok(key);
    }
    Err(Cannot::because("`gripfast keys add`", &String::from_utf8_lossy(&made.stderr)))
}

/// The tools of the honest server, once both servers are listed.
async fn tools(client: &Client) -> Result<Tools> {
    let began = Instant::now();
    while began.elapsed() < LONG_ENOUGH {
        let _ = client.meet().await;
        let names = client.tools().await.unwrap_or_default();
        let honest: Vec<String> = names.iter().filter(|name| name.starts_with("honest__")).cloned().collect();
        if let Some(tools) = Tools::among(&honest, "honest")
            && names.iter().any(|name| name == "hostile__misbehave")
        {
            return Ok(tools);
        }
        tokio::time::sleep(LOOK_AGAIN * 10).await;
    }
    Err(Cannot::because("the gateway", &"it does not list the tools of both servers"))
}

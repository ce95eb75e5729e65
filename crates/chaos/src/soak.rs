//! Honest clients and an honest server beside hostile ones: the effect on the honest clients, and the memory of the
//! gateway.
//!
//! A round has three windows: quiet, with every attack of [`crate::attack`], and with the same attacks on a second
//! gateway that serves no honest client. The last one is the control: it shows how much of the delay comes from
//! attackers and servers that share the machine's processors with the honest clients. The p99 of a window is divided
//! by that of the quiet window of its round; the median of the rounds counts.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tempfile::TempDir;

use crate::attack::{self, Attackers, Attempts, IDLE_POLICY, Target};
use crate::client::Client;
use crate::fault::RunLength;
use crate::gateway::{Gateway, Launch, POLL_INTERVAL, START_TIMEOUT, env_marker};
use crate::ledger::{self, Call, Counts, End};
use crate::load::{Load, Pace, Tools};
use crate::row::RunOptions;
use gripfast_measure::Era;
use gripfast_measure::proc::Footprint;
use gripfast_measure::times::{Times, median};
use gripfast_measure::{MeasureError, Result};

/// The result of a soak.
#[derive(Debug, Clone, Serialize)]
pub struct Soak {
    /// Number of rounds of three windows.
    pub rounds: usize,
    /// Slow connections, wrong keys, unread answers, floods, misbehaviours of the hostile server.
    pub attempts: [u64; 5],
    /// The calls of the honest clients.
    pub calls: Counts,
    /// The duration of honest calls in quiet windows.
    pub quiet: Times,
    /// The same in windows with attacks.
    pub attacked: Times,
    /// The same in windows in which another gateway is attacked.
    pub beside: Times,
    /// The p99 of a window with attacks divided by that of the quiet window of its round: the median of the rounds.
    pub ratio: f64,
    /// The same for windows in which another gateway is attacked.
    pub beside_ratio: f64,
    /// Peak memory of the gateway, in MiB.
    pub peak_mib: f64,
    /// Explanations of failed calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// The gateway's byte budget in the soak, for all clients and for one.
const BUDGET_MIB: (u64, u64) = (64, 32);
/// Memory limit of the gateway: the byte budget, the messages that servers are sending (each up to `max_message`),
/// and the memory needed without attacks.
pub const MEMORY_MIB: f64 = 256.0;
/// Limit for the honest p99 under attack, as a multiple of the quiet one.
pub const P99_RATIO: f64 = 2.0;

const DEADLINE: Duration = Duration::from_secs(10);
/// The pause between two windows, in which the gateway closes what the attackers left.
const PAUSE_BETWEEN_WINDOWS: Duration = Duration::from_millis(500);
const HONEST_CLIENTS: usize = 4;

/// Runs the soak.
///
/// # Errors
/// The harness itself fails.
pub async fn run(options: &RunOptions) -> Result<Soak> {
    let (rounds, window) = match options.length {
        RunLength::Short => (1, Duration::from_secs(2)),
        RunLength::Ordinary => (5, Duration::from_secs(4)),
        RunLength::Long => (20, Duration::from_secs(10)),
    };
    let ours = Site::start(options).await?;
    let other = Site::start(options).await?;
    let client =
        |era| Ok::<_, MeasureError>(Client::new(ours.gateway.url(), era)?.with_bearer(&ours.honest_key));
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
    let load = Load::start_with(clients?, tools, "honest", pace, options.seed).await?;
    let attackers = Attackers::new(options.length).await?;
    let (attempts, attempts_beside) = (Arc::new(Attempts::default()), Arc::new(Attempts::default()));
    let mut windows = Vec::new();
    for round in 0..rounds {
        // Each kind of window comes first in every third round.
        for place in 0..WINDOWS.len() {
            let kind = WINDOWS[(round + place) % WINDOWS.len()];
            tokio::time::sleep(PAUSE_BETWEEN_WINDOWS).await;
            let from = Instant::now();
            let attacks = match kind {
                Window::Quiet => None,
                Window::Attacked => Some(attack::start(&attackers, &ours.target(), &attempts)?),
                Window::OtherGateway => Some(attack::start(&attackers, &other.target(), &attempts_beside)?),
            };
            tokio::time::sleep(window).await;
            drop(attacks);
            windows.push((kind, load.elapsed_at(from)..load.elapsed_at(Instant::now())));
        }
    }
    let calls = load.stop().await;
    let effects = std::fs::read_to_string(ours.dir.path().join("counter")).unwrap_or_default();
    let verdict = ledger::judge(&calls, &[], &ledger::effects(&effects), DEADLINE);
    let mut took = vec![Vec::new(); windows.len()];
    for Call { began, ended, .. } in calls.iter().filter(|call| call.end == End::Answered) {
        if let Some(place) = windows.iter().position(|(_, span)| span.contains(began)) {
            took[place].push(*ended - *began);
        }
    }
    let all = |wanted: Window| {
        let of_kind = windows.iter().zip(&took).filter(|((kind, _), _)| *kind == wanted);
        Times::of(&of_kind.flat_map(|(_, took)| took.iter().copied()).collect::<Vec<_>>())
    };
    let p99 = |round: usize, wanted: Window| {
        let mut places = WINDOWS.len() * round..WINDOWS.len() * (round + 1);
        let place = places.find(|place| windows[*place].0 == wanted);
        place.map_or(0.0, |place| Times::of(&took[place]).p99)
    };
    let ratio = |kind| median((0..rounds).map(|round| p99(round, kind) / p99(round, Window::Quiet)));
    let soak = Soak {
        rounds,
        attempts: attempts.to_array(),
        calls: verdict.counts,
        quiet: all(Window::Quiet),
        attacked: all(Window::Attacked),
        beside: all(Window::OtherGateway),
        ratio: ratio(Window::Attacked),
        beside_ratio: ratio(Window::OtherGateway),
        peak_mib: Footprint::of(ours.gateway.pid()).peak_memory as f64 / f64::from(1 << 20),
        remarks: verdict.remarks,
    };
    ours.gateway.stop().await?;
    other.gateway.stop().await?;
    Ok(soak)
}

/// The kinds of windows in a round.
const WINDOWS: [Window; 3] = [Window::Quiet, Window::Attacked, Window::OtherGateway];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Window {
    /// No attacks.
    Quiet,
    /// Attacks on the gateway of the honest clients.
    Attacked,
    /// Attacks on another gateway on this machine.
    OtherGateway,
}

/// A gateway with an honest and a hostile server, and a key for an honest and a hostile client.
struct Site {
    dir: TempDir,
    gateway: Gateway,
    honest_key: String,
    hostile_key: String,
}

impl Site {
    async fn start(options: &RunOptions) -> Result<Self> {
        let dir = TempDir::with_prefix("chaos-")?;
        let config = dir.path().join("gripfast.toml");
        std::fs::write(&config, config_for(dir.path(), options))?;
        let (honest_key, hostile_key) =
            (make_key("honest", dir.path(), options)?, make_key("hostile", dir.path(), options)?);
        let launch = Launch {
            subject: options.subject.clone(),
            dir: dir.path().to_owned(),
            config,
            wrapper: Vec::new(),
        };
        let gateway = Gateway::start(launch).await?;
        Ok(Self { dir, gateway, honest_key, hostile_key })
    }

    fn target(&self) -> Target {
        let url = self.gateway.url();
        Target {
            url: url.to_owned(),
            address: url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned(),
            key: self.hostile_key.clone(),
            misbehave: "hostile__misbehave".to_owned(),
            crash: "hostile__crash".to_owned(),
            echo: "honest__echo".to_owned(),
        }
    }
}

impl Soak {
    /// Violations that are independent of the machine; [`crate::figure`] evaluates times.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let failed = self.calls.total() - self.calls.answered;
        if failed > 0 {
            complaints.push(format!("{failed} calls of honest clients failed"));
        }
        if self.peak_mib > MEMORY_MIB {
            complaints.push(format!("the gateway used {:.0} MiB of memory", self.peak_mib));
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

fn config_for(dir: &Path, options: &RunOptions) -> String {
    let (variable, value) = env_marker(dir);
    let command = &options.subject.gripfast;
    let (all, one) = BUDGET_MIB;
    let mut hostile = vec![command.to_string_lossy(), "demo-server".into()];
    if options.length.measures_times() {
        hostile.splice(..0, IDLE_POLICY.map(Into::into));
    }
    let (program, arguments) = (&hostile[0], &hostile[1..]);
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
command = {program:?}
args = {arguments:?}
env = {{ {variable} = {value:?} }}
",
        counter = dir.join("counter"),
    )
}

/// Creates a key for a client of this name and returns it.
fn make_key(name: &str, dir: &Path, options: &RunOptions) -> Result<String> {
    let made = std::process::Command::new(&options.subject.gripfast)
        .args(["keys", "add", name, "--config", "gripfast.toml", "--state-dir"])
        .arg(dir.join("state"))
        .env("HOME", dir)
        .current_dir(dir)
        .output()?;
    let key = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    if made.status.success() && !key.is_empty() {
        return Ok(key);
    }
    Err(MeasureError::new("`gripfast keys add`", &String::from_utf8_lossy(&made.stderr)))
}

/// Tools of the honest server, once both servers are listed.
async fn tools(client: &Client) -> Result<Tools> {
    let began = Instant::now();
    while began.elapsed() < START_TIMEOUT {
        let _ = client.initialize().await;
        let names = client.tools().await.unwrap_or_default();
        let honest: Vec<String> = names.iter().filter(|name| name.starts_with("honest__")).cloned().collect();
        if let Some(tools) = Tools::find_in(&honest, "honest")
            && names.iter().any(|name| name == "hostile__misbehave")
        {
            return Ok(tools);
        }
        tokio::time::sleep(POLL_INTERVAL * 10).await;
    }
    Err(MeasureError::new("the gateway", &"the tools of both servers are not listed"))
}

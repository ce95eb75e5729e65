//! Twenty servers behind one gateway, of which one flaps: what the other nineteen notice.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, json};
use tempfile::TempDir;

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
    /// How often the one was killed.
    pub kills: usize,
    /// What became of the calls to the others.
    pub calls: Counts,
    /// How long calls to the others took while nothing happened.
    pub quiet: Times,
    /// And while the one flapped.
    pub flapping: Times,
    /// What would explain a bad number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// The variable by which one child is told from the others.
const CHILD: &str = "CHAOS_CHILD";
const DEADLINE: Duration = Duration::from_secs(10);

/// Runs it.
///
/// # Errors
/// The harness itself is in trouble.
pub async fn run(order: &Order) -> Result<Neighbours> {
    let short = order.form == Form::Short;
    let servers = if short { 4 } else { 20 };
    let (phase, every) = match short {
        true => (Duration::from_millis(1500), Duration::from_millis(500)),
        false => (Duration::from_secs(20), Duration::from_millis(500)),
    };
    let dir = TempDir::with_prefix("chaos-")?;
    let names: Vec<String> = (0..servers).map(|number| format!("s{number:02}")).collect();
    let config = dir.path().join("servers.json");
    std::fs::write(&config, config_of(&names, &dir, order))?;
    let launch =
        Launch { subject: order.subject.clone(), dir: dir.path().to_owned(), config, within: Vec::new() };
    let gateway = Gateway::start(launch).await?;
    let tools = tools(&gateway, &names, order).await?;
    let mut loads = Vec::new();
    for (number, tools) in tools.into_iter().enumerate() {
        let pace =
            Pace { clients: 1, every: Duration::from_millis(100), work: Duration::ZERO, deadline: DEADLINE };
        let seed = order.seed.wrapping_add(1000 * number as u64);
        let eras = [order.subject.eras()[number % order.subject.eras().len()]];
        loads.push(Load::begin(gateway.url(), &eras, tools, &names[number], pace, seed).await?);
    }
    tokio::time::sleep(phase).await;
    let flapping_from = loads[0].since_began(Instant::now());
    let began = Instant::now();
    let mut kills = 0;
    while began.elapsed() < phase {
        let child = format!("{CHILD}={}", names[0]);
        let mine = proc::carrying(&child, "demo-server").into_iter().find(|pid| is_in(*pid, dir.path()));
        if let Some(pid) = mine {
            proc::kill(pid).await?;
            kills += 1;
        }
        tokio::time::sleep(every).await;
    }
    let mut neighbours = Neighbours {
        servers,
        kills,
        calls: Counts::default(),
        quiet: Times::default(),
        flapping: Times::default(),
        remarks: Vec::new(),
    };
    let (mut quiet, mut flapping) = (Vec::new(), Vec::new());
    for (load, name) in loads.into_iter().zip(&names).skip(1) {
        let calls = load.end().await;
        let effects = std::fs::read_to_string(dir.path().join(format!("counter-{name}"))).unwrap_or_default();
        let verdict = ledger::judge(&calls, &[], &ledger::effects(&effects), DEADLINE);
        neighbours.calls.add(&verdict.counts);
        neighbours.remarks.extend(verdict.remarks);
        let answered = calls.iter().filter(|call| call.end == End::Answered);
        for Call { began, ended, .. } in answered {
            if *began < flapping_from { &mut quiet } else { &mut flapping }.push(*ended - *began);
        }
    }
    (neighbours.quiet, neighbours.flapping) = (Times::of(&quiet), Times::of(&flapping));
    gateway.stop().await?;
    Ok(neighbours)
}

impl Neighbours {
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

/// Other runs on this machine have servers of the same names.
fn is_in(pid: u32, dir: &std::path::Path) -> bool {
    proc::command_line(pid).contains(&dir.display().to_string())
}

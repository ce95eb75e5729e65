//! `gripfast pins`: what tools said when they were approved, what they say now, and approving it; through a
//! running gateway, or where none runs, with what is kept in the state directory.

use super::address::GatewayUrl;
use super::args::{Form, Global, PinsApproveArgs, PinsArgs, PinsVerb};
use super::config;
use super::exit::Exit;
use super::fleet::runtime;
use super::gateway::{Gateway, Reply, piece};
use super::render::{Screen, Table, plural};
use super::status::NOTHING;
use super::stop::{Failure, Stop};
use gripfast::Host;
use gripfast::ledger::{Keeps, LedgerOptions};
use gripfast_gateway::admin::PinsView;
use serde::Deserialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Pins as a gateway tells of them. One of another version may say more or less.
#[derive(Debug, Deserialize)]
struct Told {
    servers: Vec<Server>,
}

#[derive(Debug, Deserialize)]
struct Server {
    server: String,
    tools: Vec<Pin>,
}

#[derive(Debug, Deserialize)]
struct Pin {
    #[serde(default)]
    kind: String,
    tool: String,
    state: String,
    sha256: String,
    first_seen_ms: u64,
    renamed_to: Option<String>,
    #[serde(default)]
    differences: Vec<Difference>,
    #[serde(default)]
    suspicions: Vec<Suspicion>,
}

impl Pin {
    /// A tool by its name, anything else by what it is too.
    fn label(&self) -> String {
        match self.kind.as_str() {
            "" | "tool" => self.tool.clone(),
            "instructions" => self.kind.clone(),
            kind => format!("{kind} {}", self.tool),
        }
    }

    fn waits(&self) -> bool {
        self.state != "approved"
    }
}

#[derive(Debug, Deserialize)]
struct Difference {
    path: String,
    before: Option<String>,
    after: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Suspicion {
    path: String,
    what: String,
}

#[derive(Debug, Deserialize)]
struct Approved {
    approved: Vec<String>,
}

pub(crate) fn run(global: &Global, verb: &PinsVerb, screen: &mut Screen) -> Result<Exit, Stop> {
    match verb {
        PinsVerb::Ls(args) => {
            let (json, told) = told(global, args, screen)?;
            match args.output.form {
                Form::Json => screen.json_text(&json)?,
                Form::Text => list(&told, screen)?,
            }
        }
        PinsVerb::Diff(args) => {
            let (json, told) = told(global, args, screen)?;
            match args.output.form {
                Form::Json => screen.json_text(&json)?,
                Form::Text => differences(&told, screen)?,
            }
        }
        PinsVerb::Approve(args) => approve(global, args, screen)?,
    }
    Ok(Exit::Ok)
}

/// The pins, as a gateway says it or as the state directory has it.
fn told(global: &Global, args: &PinsArgs, screen: &mut Screen) -> Result<(String, Told), Stop> {
    let asked = asked(global, args.gateway.url.as_ref(), async |gateway| {
        let path = match &args.server {
            Some(server) => format!("/api/v1/upstreams/{}/pins", piece(server)),
            None => "/api/v1/pins".to_owned(),
        };
        gateway.get(&path).await
    })?;
    let json = match asked {
        Some(reply) => String::from_utf8_lossy(&reply.body).into_owned(),
        None => with_stored(global, args.server.as_deref(), screen, |host| {
            let view = PinsView::of(host, args.server.as_deref())?;
            serde_json::to_string(&view).map_err(|error| Failure::new(Exit::General, error.to_string()))
        })?,
    };
    let told = serde_json::from_str(&json)
        .map_err(|_| Failure::new(Exit::Unreachable, "what answered is not a gripfast gateway"))?;
    Ok((json, told))
}

fn approve(global: &Global, args: &PinsApproveArgs, screen: &mut Screen) -> Result<(), Stop> {
    let PinsApproveArgs { server, tool, .. } = args;
    let path = match tool {
        Some(tool) => format!("/api/v1/upstreams/{}/pins/{}/approve", piece(server), piece(tool)),
        None => format!("/api/v1/upstreams/{}/pins/approve", piece(server)),
    };
    let asked = asked(global, args.gateway.url.as_ref(), async |gateway| gateway.post(&path).await)?;
    let approved = match asked {
        Some(reply) => {
            let Approved { approved } = serde_json::from_slice(&reply.body)
                .map_err(|_| Failure::new(Exit::Unreachable, "what answered is not a gripfast gateway"))?;
            approved
        }
        None => with_stored(global, Some(server), screen, |host| Ok(host.approve(server, tool.as_deref())?))?,
    };
    for tool in approved {
        screen.talk(&format!("`{tool}` of `{server}` is approved as it is now"))?;
    }
    Ok(())
}

/// Asks the gateway. `None` if none was named and none listens where the usual one does.
fn asked(
    global: &Global,
    named: Option<&GatewayUrl>,
    ask: impl AsyncFnOnce(&Gateway<'_>) -> Result<Reply, Failure>,
) -> Result<Option<Reply>, Failure> {
    let url = GatewayUrl::meant(global, named)?;
    let asked = runtime()?.block_on(async {
        let gateway = Gateway::at(global, &url).await?;
        let reply = ask(&gateway).await?;
        match reply.refusal() {
            Some(refusal) => Err(Failure::from(refusal)),
            None => Ok(reply),
        }
    });
    match asked {
        Err(failure) if named.is_none() && failure.exit == Exit::Unreachable => Ok(None),
        asked => asked.map(Some),
    }
}

/// Works on what is kept in the state directory, with servers that are not started.
fn with_stored<T>(
    global: &Global,
    server: Option<&str>,
    screen: &mut Screen,
    work: impl FnOnce(&Host) -> Result<T, Failure>,
) -> Result<T, Stop> {
    let opened = config::open(global, screen)?;
    if let Some(server) = server {
        config::usable(opened.server(server)?)?;
    }
    let done = runtime()?.block_on(async {
        let ledger = LedgerOptions { keeps: Keeps::Nothing, ..LedgerOptions::default() };
        let host = Host::builder()
            .state_dir(opened.state_dir(global)?)
            .strict_modes(opened.strict_modes())
            .ledger(ledger)
            .audit(opened.config.gateway.audit)
            .build();
        for entry in &opened.config.servers {
            let Ok(spec) = &entry.spec else { continue };
            let mut spec = spec.clone();
            spec.disabled = false;
            spec.supervision.lazy = true;
            let spawned = host.spawn(&entry.name, spec);
            spawned.map_err(|error| Failure::new(Exit::General, error.to_string()))?;
        }
        host.secrets_known().await;
        let done = work(&host);
        host.shutdown().await;
        done
    })?;
    Ok(done)
}

fn list(told: &Told, screen: &mut Screen) -> Result<(), Stop> {
    let pins = told.servers.iter().flat_map(|server| server.tools.iter().map(move |pin| (server, pin)));
    let mut table = Table::new(["SERVER", "TOOL", "STATE", "PINNED", "LOOK TWICE"]);
    let (mut count, mut changed) = (0, 0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for (server, pin) in pins {
        count += 1;
        changed += usize::from(pin.waits());
        let ago = now.saturating_sub(Duration::from_millis(pin.first_seen_ms));
        let look = pin.suspicions.first().map_or(NOTHING, |found| found.what.as_str());
        let state = match &pin.renamed_to {
            Some(name) => format!("renamed to {name}"),
            None => pin.state.clone(),
        };
        let pinned = match pin.sha256.get(..8) {
            Some(digest) => format!("{digest}, {} ago", gripfast::text::duration(ago)),
            None => NOTHING.to_owned(),
        };
        table.row([&server.server, &pin.label(), &state, &pinned, look]);
    }
    if count == 0 {
        screen.talk("nothing is pinned yet: tools are pinned when their server is first listed")?;
        return Ok(());
    }
    screen.table(table)?;
    if changed > 0 {
        screen
            .hint(&format!("`gripfast pins diff` shows what {} say now", plural(changed, "changed tool")))?;
    }
    Ok(())
}

fn differences(told: &Told, screen: &mut Screen) -> Result<(), Stop> {
    let mut any = false;
    for Server { server, tools } in &told.servers {
        for pin in tools.iter().filter(|pin| pin.waits()) {
            any = true;
            match &pin.renamed_to {
                Some(name) => screen.line(&format!("{server}/{}: is called `{name}` now", pin.tool))?,
                None if pin.state == "new" => screen.line(&format!("{server}/{}: is new", pin.label()))?,
                None => screen.line(&format!("{server}/{}", pin.label()))?,
            }
            for Difference { path, before, after } in &pin.differences {
                screen.line(&format!("  {path}"))?;
                for (mark, text) in [("-", before), ("+", after)] {
                    for line in text.iter().flat_map(|text| text.lines()) {
                        screen.line(&format!("    {mark} {line}"))?;
                    }
                }
            }
            for Suspicion { path, what } in &pin.suspicions {
                screen.line(&format!("  look twice at {path}: {what}"))?;
            }
        }
    }
    if any {
        screen.hint("`gripfast pins approve SERVER [TOOL]` accepts what they say now")?;
    } else {
        screen.talk("no tool says something else than what was approved")?;
    }
    Ok(())
}

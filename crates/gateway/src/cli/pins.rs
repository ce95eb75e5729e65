//! `gripfast pins`: lists pinned tools, shows their changes and approves them, through a running gateway or, if none
//! runs, in the state directory.

use super::address::GatewayUrl;
use super::admin_client::{AdminClient, AdminReply, path_segment};
use super::args::{GlobalArgs, OutputFormat, PinsApproveArgs, PinsArgs, PinsVerb};
use super::config;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::local_host::runtime;
use super::render::{Screen, Table, plural};
use super::status::EMPTY_CELL;
use gripfast::Host;
use gripfast::RecordDetail;
use gripfast::ledger::LedgerOptions;
use gripfast_gateway::api::PinsView;
use serde::Deserialize;
use std::time::Duration;

/// The answer of a gateway. A gateway of another version may send more or fewer fields.
#[derive(Debug, Deserialize)]
struct PinsReply {
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
    /// The name of a tool; for other items also their kind.
    fn label(&self) -> String {
        match self.kind.as_str() {
            "" | "tool" => self.tool.clone(),
            "instructions" => self.kind.clone(),
            kind => format!("{kind} {}", self.tool),
        }
    }

    fn is_pending(&self) -> bool {
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

pub(crate) fn run(global: &GlobalArgs, verb: &PinsVerb, screen: &mut Screen) -> Result<Exit, CommandError> {
    match verb {
        PinsVerb::Ls(args) => {
            let (json, reply) = load(global, args, screen)?;
            match args.output.form {
                OutputFormat::Json => screen.json_text(&json)?,
                OutputFormat::Text => print_list(&reply, screen)?,
            }
        }
        PinsVerb::Diff(args) => {
            let (json, reply) = load(global, args, screen)?;
            match args.output.form {
                OutputFormat::Json => screen.json_text(&json)?,
                OutputFormat::Text => print_differences(&reply, screen)?,
            }
        }
        PinsVerb::Approve(args) => approve(global, args, screen)?,
    }
    Ok(Exit::Ok)
}

/// Loads the pins from the gateway, or else from the state directory.
fn load(
    global: &GlobalArgs,
    args: &PinsArgs,
    screen: &mut Screen,
) -> Result<(String, PinsReply), CommandError> {
    let answer = ask_gateway(global, args.gateway.url.as_ref(), async |gateway| {
        let path = match &args.server {
            Some(server) => format!("/api/v1/upstreams/{}/pins", path_segment(server)),
            None => "/api/v1/pins".to_owned(),
        };
        gateway.get(&path).await
    })?;
    let general = |error: serde_json::Error| FailureReport::new(Exit::General, error.to_string());
    Ok(match answer {
        Some((url, reply)) => {
            let json = String::from_utf8_lossy(&reply.body).into_owned();
            let reply = serde_json::from_str(&json).map_err(|_| not_a_gateway(&url))?;
            (json, reply)
        }
        None => {
            let json = with_stored(global, args.server.as_deref(), screen, |host| {
                let view = PinsView::of(host, args.server.as_deref())?;
                serde_json::to_string(&view).map_err(general)
            })?;
            let reply = serde_json::from_str(&json).map_err(general)?;
            (json, reply)
        }
    })
}

fn approve(global: &GlobalArgs, args: &PinsApproveArgs, screen: &mut Screen) -> Result<(), CommandError> {
    let PinsApproveArgs { server, tool, .. } = args;
    let path = match tool {
        Some(tool) => {
            format!("/api/v1/upstreams/{}/pins/{}/approve", path_segment(server), path_segment(tool))
        }
        None => format!("/api/v1/upstreams/{}/pins/approve", path_segment(server)),
    };
    let answer = ask_gateway(global, args.gateway.url.as_ref(), async |gateway| gateway.post(&path).await)?;
    let approved = match answer {
        Some((url, reply)) => {
            let Approved { approved } =
                serde_json::from_slice(&reply.body).map_err(|_| not_a_gateway(&url))?;
            approved
        }
        None => with_stored(global, Some(server), screen, |host| Ok(host.approve(server, tool.as_deref())?))?,
    };
    for tool in approved {
        screen.message(&format!("approved the current version of `{tool}` of server `{server}`"))?;
    }
    Ok(())
}

fn not_a_gateway(url: &GatewayUrl) -> FailureReport {
    FailureReport::new(Exit::Unreachable, format!("the program at {url} is not a gripfast gateway"))
}

/// Asks the gateway and returns its URL and reply. `None` if no gateway was named and none listens at the default
/// address.
fn ask_gateway(
    global: &GlobalArgs,
    named: Option<&GatewayUrl>,
    ask: impl AsyncFnOnce(&AdminClient<'_>) -> Result<AdminReply, FailureReport>,
) -> Result<Option<(GatewayUrl, AdminReply)>, FailureReport> {
    let url = GatewayUrl::resolve(global, named)?;
    let answer = runtime()?.block_on(async {
        let gateway = AdminClient::connect(global, &url).await?;
        let reply = ask(&gateway).await?;
        match reply.error() {
            Some(refusal) => Err(FailureReport::from(refusal)),
            None => Ok(reply),
        }
    });
    match answer {
        Err(failure) if named.is_none() && failure.exit == Exit::Unreachable => Ok(None),
        answer => answer.map(|reply| Some((url, reply))),
    }
}

/// Runs `work` with a host on the state directory, whose servers are not started.
fn with_stored<T>(
    global: &GlobalArgs,
    server: Option<&str>,
    screen: &mut Screen,
    work: impl FnOnce(&Host) -> Result<T, FailureReport>,
) -> Result<T, CommandError> {
    let opened = config::open(global, screen)?;
    if let Some(server) = server {
        config::server_spec(opened.server(server)?)?;
    }
    let done = runtime()?.block_on(async {
        let ledger = LedgerOptions { detail: RecordDetail::Nothing, ..LedgerOptions::default() };
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
            spawned.map_err(|error| FailureReport::new(Exit::General, error.to_string()))?;
        }
        host.wait_for_secrets().await;
        let done = work(&host);
        host.shutdown().await;
        done
    })?;
    Ok(done)
}

fn print_list(reply: &PinsReply, screen: &mut Screen) -> Result<(), CommandError> {
    let pins = reply.servers.iter().flat_map(|server| server.tools.iter().map(move |pin| (server, pin)));
    let mut table = Table::new(["SERVER", "TOOL", "STATE", "PINNED", "SUSPICIOUS"]);
    let (mut count, mut changed) = (0, 0);
    let now = gripfast::unix_time();
    for (server, pin) in pins {
        count += 1;
        changed += usize::from(pin.is_pending());
        let ago = now.saturating_sub(Duration::from_millis(pin.first_seen_ms));
        let look = pin.suspicions.first().map_or(EMPTY_CELL, |found| found.what.as_str());
        let state = match &pin.renamed_to {
            Some(name) => format!("renamed to {name}"),
            None => pin.state.clone(),
        };
        let pinned = match pin.sha256.get(..8) {
            Some(digest) => format!("{digest}, {} ago", gripfast::text::duration(ago)),
            None => EMPTY_CELL.to_owned(),
        };
        table.row([&server.server, &pin.label(), &state, &pinned, look]);
    }
    if count == 0 {
        screen.message("no pins yet: tools are pinned when their server is first listed")?;
        return Ok(());
    }
    screen.table(table)?;
    if changed > 0 {
        screen.hint(&format!("`gripfast pins diff` shows the changes of {}", plural(changed, "tool")))?;
    }
    Ok(())
}

fn print_differences(reply: &PinsReply, screen: &mut Screen) -> Result<(), CommandError> {
    let mut any = false;
    for Server { server, tools } in &reply.servers {
        for pin in tools.iter().filter(|pin| pin.is_pending()) {
            any = true;
            match &pin.renamed_to {
                Some(name) => screen.line(&format!("{server}/{}: renamed to `{name}`", pin.tool))?,
                None if pin.state == "new" => screen.line(&format!("{server}/{}: new", pin.label()))?,
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
                screen.line(&format!("  suspicious {path}: {what}"))?;
            }
        }
    }
    if any {
        screen.hint("`gripfast pins approve SERVER [TOOL]` approves the changes")?;
    } else {
        screen.message("no tool has changed since it was approved")?;
    }
    Ok(())
}

//! `gripfast pins`: lists pinned tools, shows their changes and approves them, through a running gateway or, if none
//! runs, in the state directory.

use super::admin_client::{AdminClient, AdminReply, path_segment, upstream_path};
use super::args::{GatewayTarget, GlobalArgs, OutputFormat, PinsApproveArgs, PinsArgs, PinsVerb};
use super::config;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::local_host::{runtime, with_stored_host};
use super::render::{Screen, Table, now_ms, plural};
use super::status::EMPTY_CELL;
use gripfast::{Difference, Host, Suspicion};
use gripfast_gateway::api::types::{ApprovedView, PinView, PinsView, ServerPinsView};
use std::time::Duration;

/// The name of a tool; for other items also their kind.
fn label(pin: &PinView) -> String {
    match &*pin.kind {
        "" | "tool" => pin.tool.clone(),
        "instructions" => pin.kind.to_string(),
        kind => format!("{kind} {}", pin.tool),
    }
}

fn is_pending(pin: &PinView) -> bool {
    pin.state != "approved"
}

pub(crate) fn run(global: &GlobalArgs, verb: &PinsVerb, screen: &mut Screen) -> Result<Exit, CommandError> {
    let (args, print): (_, fn(&PinsView, &mut Screen) -> _) = match verb {
        PinsVerb::Ls(args) => (args, print_list),
        PinsVerb::Diff(args) => (args, print_differences),
        PinsVerb::Approve(args) => return approve(global, args, screen),
    };
    let (json, pins) = load(global, args, screen)?;
    match args.output.form {
        OutputFormat::Json => screen.json_text(&json)?,
        OutputFormat::Text => print(&pins, screen)?,
    }
    Ok(Exit::Ok)
}

/// Loads the pins from the gateway, or else from the state directory.
fn load(
    global: &GlobalArgs,
    args: &PinsArgs,
    screen: &mut Screen,
) -> Result<(String, PinsView), CommandError> {
    let path = match &args.server {
        Some(server) => upstream_path(server, "/pins"),
        None => "/pins".to_owned(),
    };
    let answer = ask_gateway(global, &args.gateway, async |gateway| gateway.get(&path).await)?;
    if let Some(AdminReply { json, value }) = answer {
        return Ok((json, value));
    }
    with_stored(global, args.server.as_deref(), screen, |host| {
        let pins = PinsView::of(host, args.server.as_deref())?;
        let json = serde_json::to_string(&pins);
        Ok((json.map_err(|error| FailureReport::new(Exit::General, error.to_string()))?, pins))
    })
}

fn approve(global: &GlobalArgs, args: &PinsApproveArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let PinsApproveArgs { server, tool, .. } = args;
    let tool_segment = tool.as_ref().map(|tool| format!("/{}", path_segment(tool))).unwrap_or_default();
    let path = upstream_path(server, &format!("/pins{tool_segment}/approve"));
    let answer = ask_gateway(global, &args.gateway, async |gateway| gateway.post(&path).await)?;
    let approved = match answer {
        Some(AdminReply { value: ApprovedView { approved, .. }, .. }) => approved,
        None => with_stored(global, Some(server), screen, |host| Ok(host.approve(server, tool.as_deref())?))?,
    };
    for tool in approved {
        screen.message(&format!("approved the current version of `{tool}` of server `{server}`"))?;
    }
    Ok(Exit::Ok)
}

/// Asks the gateway. `None` if no gateway was named and none listens at the default address.
fn ask_gateway<T>(
    global: &GlobalArgs,
    target: &GatewayTarget,
    ask: impl AsyncFnOnce(&AdminClient<'_>) -> Result<T, FailureReport>,
) -> Result<Option<T>, FailureReport> {
    let url = target.resolve(global)?;
    let answer = runtime()?.block_on(async { ask(&AdminClient::connect(global, &url).await?).await });
    match answer {
        Err(failure) if target.url.is_none() && failure.exit == Exit::Unreachable => Ok(None),
        answer => answer.map(Some),
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
    if opened.config.cluster.is_some() {
        let text = "the pins belong to a service of several replicas, and none of them was reached";
        let report = FailureReport::new(Exit::Unreachable, text.to_owned());
        return Err(report.with_hint("start a replica here, or name one with `--url`").into());
    }
    if let Some(server) = server {
        config::server_spec(opened.server(server)?)?;
    }
    with_stored_host(global, &opened, &opened.config.servers, opened.config.gateway.audit, work)
}

fn print_list(reply: &PinsView, screen: &mut Screen) -> Result<(), CommandError> {
    let pins = reply.servers.iter().flat_map(|server| server.tools.iter().map(move |pin| (server, pin)));
    let mut table = Table::new(["SERVER", "TOOL", "STATE", "PINNED", "SUSPICIOUS"]);
    let (mut count, mut changed) = (0, 0);
    let now = Duration::from_millis(now_ms());
    for (server, pin) in pins {
        count += 1;
        changed += usize::from(is_pending(pin));
        let ago = now.saturating_sub(Duration::from_millis(pin.first_seen_ms));
        let look = pin.suspicions.first().map_or(EMPTY_CELL, |found| found.what.as_str());
        let state = match &pin.renamed_to {
            Some(name) => format!("renamed to {name}"),
            None => pin.state.to_string(),
        };
        let pinned = match pin.sha256.get(..8) {
            Some(digest) => format!("{digest}, {} ago", gripfast::text::duration(ago)),
            None => EMPTY_CELL.to_owned(),
        };
        table.row([&server.server, &label(pin), &state, &pinned, look]);
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

fn print_differences(reply: &PinsView, screen: &mut Screen) -> Result<(), CommandError> {
    let mut any = false;
    for ServerPinsView { server, tools } in &reply.servers {
        for pin in tools.iter().filter(|pin| is_pending(pin)) {
            any = true;
            match &pin.renamed_to {
                Some(name) => screen.line(&format!("{server}/{}: renamed to `{name}`", pin.tool))?,
                None if pin.state == "new" => screen.line(&format!("{server}/{}: new", label(pin)))?,
                None => screen.line(&format!("{server}/{}", label(pin)))?,
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

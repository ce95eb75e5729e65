//! `gripfast calls`: outcomes of tool calls, from a running gateway or, if none runs, from the ledger in the state
//! directory.

use super::address::GatewayUrl;
use super::admin_client::{AdminClient, path_segment};
use super::args::{CallsArgs, GlobalArgs, OutputFormat};
use super::config;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::{Screen, Table, ago, now_ms, plural};
use super::status::{EMPTY_CELL, latency};
use gripfast::Wall;
use gripfast::ledger::{Calls, Query};
use gripfast_gateway::api::types::{CallView, CallsView, LedgerView};
use std::time::Duration;

/// Asks the gateway, or reads its ledger, and prints the calls.
pub(crate) fn run(global: &GlobalArgs, args: &CallsArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let (json, listing) = match &args.gateway.url {
        Some(url) => fetch_from_gateway(global, url, args)?,
        // A user who names the directory means the ledger in it.
        None if global.state_dir.is_some() => {
            read_ledger(global, args)?.ok_or_else(|| config::no_state_dir(""))?
        }
        None => {
            let usual = GatewayUrl::resolve(global, None)?;
            match fetch_from_gateway(global, &usual, args) {
                // No gateway was named, so the ledger of the last one will do.
                Err(failure) if failure.exit == Exit::Unreachable => {
                    let read = read_ledger(global, args)?.ok_or(failure)?;
                    screen.message(&format!(
                        "no gateway at {usual}; showing the ledger in the state directory"
                    ))?;
                    read
                }
                answered => answered?,
            }
        }
    };
    match args.output.form {
        OutputFormat::Json => screen.json_text(&json)?,
        OutputFormat::Text => show(args, &listing, screen)?,
    }
    Ok(Exit::Ok)
}

fn fetch_from_gateway(
    global: &GlobalArgs,
    url: &GatewayUrl,
    args: &CallsArgs,
) -> Result<(String, CallsView), FailureReport> {
    super::local_host::runtime()?.block_on(async {
        let reply = AdminClient::connect(global, url).await?.get(&path(args)).await?;
        Ok((reply.json, reply.value))
    })
}

fn path(args: &CallsArgs) -> String {
    let mut path = format!("/calls?limit={}", args.limit);
    if args.unknown {
        path += "&unknown=true";
    }
    if let Some(server) = &args.server {
        path += &format!("&server={}", path_segment(server));
    }
    if let Some(since) = since(args) {
        path += &format!("&since_ms={}", since.as_millis());
    }
    path
}

/// The start of the time range, since the Unix epoch.
fn since(args: &CallsArgs) -> Option<Duration> {
    args.since.map(|ago| Duration::from_millis(now_ms()).saturating_sub(ago))
}

/// Reads the ledger in the state directory. `None` without a state directory.
fn read_ledger(global: &GlobalArgs, args: &CallsArgs) -> Result<Option<(String, CallsView)>, FailureReport> {
    let Some(directory) = config::gateway_state_dir(global)? else { return Ok(None) };
    let query = Query {
        unknown: args.unknown,
        server: args.server.clone(),
        since: since(args).map(Wall::from_unix_epoch),
        limit: args.limit,
    };
    let unreadable = |error: &dyn std::fmt::Display| {
        let text = format!("the ledger in `{}` cannot be read: {error}", directory.display());
        FailureReport::new(Exit::General, text)
    };
    let calls = Calls::in_directory(&directory, query).map_err(|error| unreadable(&error))?;
    let listing = CallsView::from(calls);
    let json = serde_json::to_string(&listing).map_err(|error| unreadable(&error))?;
    Ok(Some((json, listing)))
}

fn show(args: &CallsArgs, listing: &CallsView, screen: &mut Screen) -> Result<(), CommandError> {
    let CallsView { ledger, calls, left_out, lost_replicas } = listing;
    if !calls.is_empty() {
        let mut table = Table::new([
            "STARTED",
            "PRINCIPAL",
            "CLIENT",
            "SERVER",
            "TOOL",
            "OUTCOME",
            "TOOK",
            "WHAT HAPPENED",
        ]);
        for call in calls {
            table.row([
                &ago(call.started_ms),
                call.principal.as_deref().unwrap_or(EMPTY_CELL),
                call.client.as_deref().unwrap_or(EMPTY_CELL),
                &call.server,
                &call.tool,
                &call.outcome.as_deref().unwrap_or("in_flight").replace('_', " "),
                &latency(call.took_ms),
                &result_text(call),
            ]);
        }
        screen.table(table)?;
    }
    match ledger {
        Some(LedgerView { keeps, .. }) if keeps == "off" => {
            screen.message("this gateway records no calls")?;
            screen.hint("`gateway.ledger` is \"off\", or the gateway has no state directory")?;
        }
        Some(LedgerView { cause: Some(cause), .. }) => {
            screen.warning(&format!("the ledger cannot be written, so calls may be missing: {cause}"))?;
        }
        Some(_) | None if calls.is_empty() && args.unknown => {
            screen.message("no calls with an unknown outcome")?
        }
        Some(_) | None if calls.is_empty() => screen.message("no calls")?,
        Some(_) | None => {}
    }
    if let Some(cause) = lost_replicas {
        screen.warning(&format!("calls of lost replicas are not shown: {cause}"))?;
    }
    if *left_out > 0 {
        let older = plural(*left_out, "older call");
        screen.message(&format!("{older} left out; `--limit` shows more"))?;
    }
    if calls.iter().any(|call| call.outcome.as_deref() == Some("unknown")) {
        screen.hint(
            "a call with an unknown outcome may have been carried out: check its effect before you repeat it",
        )?;
    }
    Ok(())
}

fn result_text(call: &CallView) -> String {
    match &call.code {
        Some(code) => format!("{} ({code})", call.text),
        None => call.text.to_string(),
    }
}

//! `gripfast calls`: outcomes of tool calls, from a running gateway or, if none runs, from the ledger in the state
//! directory.

use super::address::GatewayUrl;
use super::admin_client::{AdminClient, path_segment};
use super::args::{CallsArgs, GlobalArgs, OutputFormat};
use super::config;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::{Screen, Table, plural};
use super::status::{EMPTY_CELL, latency, short_duration};
use gripfast::ledger::{Calls, Query};
use gripfast::{Wall, unix_time};
use gripfast_gateway::api::CallsView;
use serde::Deserialize;
use std::time::Duration;

/// The answer of a gateway. A gateway of another version may send more or fewer fields.
#[derive(Debug, Deserialize)]
struct CallsReply {
    #[serde(default)]
    ledger: Option<Ledger>,
    calls: Vec<Call>,
    #[serde(default)]
    left_out: u64,
}

#[derive(Debug, Deserialize)]
struct Ledger {
    keeps: String,
    cause: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Call {
    principal: Option<String>,
    client: Option<String>,
    server: String,
    tool: String,
    started_ms: u64,
    took_ms: Option<f64>,
    outcome: Option<String>,
    code: Option<String>,
    text: String,
}

/// Asks the gateway, or reads its ledger, and prints the calls.
pub(crate) fn run(global: &GlobalArgs, args: &CallsArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let (json, listing) = match &args.gateway.url {
        Some(url) => fetch_from_gateway(global, url, args)?,
        // A user who names the directory means the ledger in it.
        None if global.state_dir.is_some() => read_ledger(global, args)?.ok_or_else(no_state_dir)?,
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
) -> Result<(String, CallsReply), FailureReport> {
    super::local_host::runtime()?.block_on(async {
        let gateway = AdminClient::connect(global, url).await?;
        let reply = gateway.get(&path(args)).await?;
        match reply.error() {
            Some(refusal) => Err(refusal.into()),
            None => {
                let listing = gateway.parse(&reply)?;
                Ok((String::from_utf8_lossy(&reply.body).into_owned(), listing))
            }
        }
    })
}

fn path(args: &CallsArgs) -> String {
    let mut path = format!("/api/v1/calls?limit={}", args.limit);
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
    args.since.map(|ago| unix_time().saturating_sub(ago))
}

/// Reads the ledger in the state directory. `None` without a state directory.
fn read_ledger(global: &GlobalArgs, args: &CallsArgs) -> Result<Option<(String, CallsReply)>, FailureReport> {
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
    let json = serde_json::to_string(&CallsView::from(calls)).map_err(|error| unreadable(&error))?;
    let listing = serde_json::from_str(&json).map_err(|error| unreadable(&error))?;
    Ok(Some((json, listing)))
}

fn no_state_dir() -> FailureReport {
    FailureReport::new(Exit::General, "no state directory: there is no home directory")
}

fn show(args: &CallsArgs, listing: &CallsReply, screen: &mut Screen) -> Result<(), CommandError> {
    let CallsReply { ledger, calls, left_out } = listing;
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
        let now = u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX);
        for call in calls {
            table.row([
                &format!("{} ago", short_duration(now.saturating_sub(call.started_ms))),
                call.principal.as_deref().unwrap_or(EMPTY_CELL),
                call.client.as_deref().unwrap_or(EMPTY_CELL),
                &call.server,
                &call.tool,
                &call.outcome.as_deref().unwrap_or("in_flight").replace('_', " "),
                &latency(call.took_ms),
                &call.result_text(),
            ]);
        }
        screen.table(table)?;
    }
    match ledger {
        Some(Ledger { keeps, .. }) if keeps == "off" => {
            screen.message("this gateway records no calls")?;
            screen.hint("`gateway.ledger` is \"off\", or the gateway has no state directory")?;
        }
        Some(Ledger { cause: Some(cause), .. }) => {
            screen.warning(&format!("the ledger cannot be written, so calls may be missing: {cause}"))?;
        }
        Some(_) | None if calls.is_empty() && args.unknown => {
            screen.message("no calls with an unknown outcome")?
        }
        Some(_) | None if calls.is_empty() => screen.message("no calls")?,
        Some(_) | None => {}
    }
    if *left_out > 0 {
        let older = plural(usize::try_from(*left_out).unwrap_or(usize::MAX), "older call");
        screen.message(&format!("{older} left out; `--limit` shows more"))?;
    }
    if calls.iter().any(|call| call.outcome.as_deref() == Some("unknown")) {
        screen.hint(
            "a call with an unknown outcome may have been carried out: check its effect before you repeat it",
        )?;
    }
    Ok(())
}

impl Call {
    fn result_text(&self) -> String {
        match &self.code {
            Some(code) => format!("{} ({code})", self.text),
            None => self.text.clone(),
        }
    }
}

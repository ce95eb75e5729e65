//! `gripfast calls`: what became of tool calls, from a running gateway or, where none runs, from the ledger
//! that it left in its state directory.

use super::address::GatewayUrl;
use super::args::{CallsArgs, Form, Global};
use super::config;
use super::exit::Exit;
use super::gateway::{Gateway, piece};
use super::render::{Screen, Table, plural};
use super::status::{NOTHING, latency, span};
use super::stop::{Failure, Stop};
use gripfast::Wall;
use gripfast::ledger::{Calls, Query};
use gripfast_gateway::admin::CallsView;
use serde::Deserialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Calls as a gateway tells of them. One of another version may say more or less.
#[derive(Debug, Deserialize)]
struct Told {
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

/// Asks the gateway, or reads its ledger, and prints.
pub(crate) fn run(global: &Global, args: &CallsArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let (json, told) = match &args.gateway.url {
        Some(url) => asked(global, url, args)?,
        // Somebody who names the directory means the directory.
        None if global.state_dir.is_some() => read(global, args)?.ok_or_else(no_directory)?,
        None => {
            let usual = GatewayUrl::meant(global, None)?;
            match asked(global, &usual, args) {
                // Nobody was named, so nobody is missed: what the last one left behind will do.
                Err(failure) if failure.exit == Exit::Unreachable => {
                    let read = read(global, args)?.ok_or(failure)?;
                    screen.talk(&format!("no gateway at {usual}; this is what it left behind"))?;
                    read
                }
                asked => asked?,
            }
        }
    };
    match args.output.form {
        Form::Json => screen.json_text(&json)?,
        Form::Text => show(args, &told, screen)?,
    }
    Ok(Exit::Ok)
}

fn asked(global: &Global, url: &GatewayUrl, args: &CallsArgs) -> Result<(String, Told), Failure> {
    super::fleet::runtime()?.block_on(async {
        let gateway = Gateway::at(global, url).await?;
        let reply = gateway.get(&path(args)).await?;
        match reply.refusal() {
            Some(refusal) => Err(refusal.into()),
            None => {
                let told = gateway.read(&reply)?;
                Ok((String::from_utf8_lossy(&reply.body).into_owned(), told))
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
        path += &format!("&server={}", piece(server));
    }
    if let Some(since) = since(args) {
        path += &format!("&since_ms={}", since.as_millis());
    }
    path
}

/// When calls begin to matter, since the Unix epoch.
fn since(args: &CallsArgs) -> Option<Duration> {
    args.since.map(|ago| now().saturating_sub(ago))
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// What the ledger in the state directory says. `None` if there is no such directory for want of a home.
fn read(global: &Global, args: &CallsArgs) -> Result<Option<(String, Told)>, Failure> {
    let Some(directory) = config::state_dir_of_gateway(global)? else { return Ok(None) };
    let query = Query {
        unknown: args.unknown,
        server: args.server.clone(),
        since: since(args).map(Wall::at),
        limit: args.limit,
    };
    let unreadable = |error: &dyn std::fmt::Display| {
        let text = format!("the ledger in `{}` cannot be read: {error}", directory.display());
        Failure::new(Exit::General, text)
    };
    let calls = Calls::in_directory(&directory, query).map_err(|error| unreadable(&error))?;
    let json = serde_json::to_string(&CallsView::from(calls)).map_err(|error| unreadable(&error))?;
    let told = serde_json::from_str(&json).map_err(|error| unreadable(&error))?;
    Ok(Some((json, told)))
}

fn no_directory() -> Failure {
    Failure::new(Exit::General, "there is no state directory without a home")
}

fn show(args: &CallsArgs, told: &Told, screen: &mut Screen) -> Result<(), Stop> {
    let Told { ledger, calls, left_out } = told;
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
        let now = u64::try_from(now().as_millis()).unwrap_or(u64::MAX);
        for call in calls {
            table.row([
                &format!("{} ago", span(now.saturating_sub(call.started_ms))),
                call.principal.as_deref().unwrap_or(NOTHING),
                call.client.as_deref().unwrap_or(NOTHING),
                &call.server,
                &call.tool,
                &call.outcome.as_deref().unwrap_or("in_flight").replace('_', " "),
                &latency(call.took_ms),
                &call.what_happened(),
            ]);
        }
        screen.table(table)?;
    }
    match ledger {
        Some(Ledger { keeps, .. }) if keeps == "off" => {
            screen.talk("this gateway notes no calls down")?;
            screen.hint("`gateway.ledger` is \"off\", or it has no state directory")?;
        }
        Some(Ledger { cause: Some(cause), .. }) => {
            screen.warning(&format!("the ledger cannot be written, and calls may be missing: {cause}"))?;
        }
        Some(_) | None if calls.is_empty() && args.unknown => screen.talk("no call of an unknown outcome")?,
        Some(_) | None if calls.is_empty() => screen.talk("no calls")?,
        Some(_) | None => {}
    }
    if *left_out > 0 {
        let older = plural(usize::try_from(*left_out).unwrap_or(usize::MAX), "older call");
        screen.talk(&format!("{older} left out; `--limit` shows more"))?;
    }
    if calls.iter().any(|call| call.outcome.as_deref() == Some("unknown")) {
        screen.hint(
            "an unknown call may or may not have been carried out: look at its effect before calling it again",
        )?;
    }
    Ok(())
}

impl Call {
    fn what_happened(&self) -> String {
        match &self.code {
            Some(code) => format!("{} ({code})", self.text),
            None => self.text.clone(),
        }
    }
}

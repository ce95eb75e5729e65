//! `gripfast tools`: what the servers of a running gateway offer, or those of the config.

use super::address::GatewayUrl;
use super::args::{Form, Global, ToolsArgs};
use super::client::{Asked, Client, Offer, known};
use super::config::{self, Opened};
use super::exit::Exit;
use super::fleet::{Means, runtime, with_host};
use super::render::{Screen, Table, plural, with_progress};
use super::status::Fleet;
use super::stop::{Failure, Stop};
use gripfast::auth::Logins;
use gripfast::config::{ServerEntry, ServerSpec};
use gripfast::wire::results::Tool;
use gripfast::{CallError, Catalog, Code, Item};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// What one server offers, or why that is not known.
struct Row<'c> {
    server: Cow<'c, str>,
    listed: Result<Arc<Catalog>, Failure>,
}

/// The shape of `-o json`.
#[derive(Serialize)]
struct Listing<'c> {
    servers: Vec<Listed<'c>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Listed<'c> {
    Tools { server: &'c str, tools: Vec<&'c RawValue> },
    Error { server: &'c str, error: Option<Value> },
}

/// Asks the gateway; or starts the servers, lists their tools, and stops the servers again.
pub(crate) fn run(global: &Global, args: &ToolsArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    match Asked::of(global, args.gateway.url.as_ref())? {
        Asked::Gateway(url, fleet) => {
            let chosen =
                args.server.as_deref().map_or(Ok(()), |server| known(&url, fleet.as_deref(), server));
            match chosen {
                Ok(()) => tell(
                    &served(global, &url, fleet.as_deref(), args, screen)?,
                    &url.to_string(),
                    args,
                    screen,
                ),
                Err(failure) => Err(unknown(failure, args.output.form, screen)?),
            }
        }
        Asked::Config => {
            let opened = config::open(global, screen)?;
            match chosen(&opened, args) {
                Ok(entries) => {
                    let rows = list(args, &entries, opened.logins(global)?, screen)?;
                    tell(&rows, &opened.path.display().to_string(), args, screen)
                }
                Err(failure) => Err(unknown(failure, args.output.form, screen)?),
            }
        }
    }
}

fn tell(rows: &[Row<'_>], place: &str, args: &ToolsArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    match args.output.form {
        Form::Json => screen.json(&Listing { servers: rows.iter().map(Row::as_json).collect() })?,
        Form::Text => show(rows, place, screen)?,
    }
    Ok(verdict(rows))
}

/// What the gateway serves, server by server. A disabled one is shown only when it is named.
fn served<'f>(
    global: &Global,
    url: &GatewayUrl,
    fleet: Option<&'f Fleet>,
    args: &ToolsArgs,
    screen: &mut Screen,
) -> Result<Vec<Row<'f>>, Stop> {
    let asked = async { Client::of(global, url).await?.offers().await };
    let mut offers = runtime()?.block_on(with_progress(screen, "the gateway", asked))?;
    let Some(fleet) = fleet else { return Ok(shown(url, offers, args.server.as_deref())) };
    let wanted = fleet.upstreams().iter().filter(|upstream| match &args.server {
        Some(name) => upstream.name == *name,
        None => !upstream.is_disabled(),
    });
    let row = |upstream: &'f super::status::Upstream| {
        let tools: Vec<Item> =
            offers.extract_if(.., |offer| offer.server == upstream.name).map(item).collect();
        let listed = match upstream.unlisted() {
            Some(failure) if tools.is_empty() => Err(failure),
            _ => Ok(Arc::new(Catalog { tools, ..Catalog::default() })),
        };
        Row { server: Cow::Borrowed(&upstream.name), listed }
    };
    Ok(wanted.map(row).collect())
}

/// What a client is shown that is told of no servers: those that it finds tools of.
fn shown(url: &GatewayUrl, offers: Vec<Offer>, wanted: Option<&str>) -> Vec<Row<'static>> {
    let mut found: Vec<(String, Vec<Item>)> = Vec::new();
    for offer in offers.into_iter().filter(|offer| wanted.is_none_or(|name| name == offer.server)) {
        match found.iter_mut().find(|(server, _)| *server == offer.server) {
            Some((_, tools)) => tools.push(item(offer)),
            None => found.push((offer.server.clone(), vec![item(offer)])),
        }
    }
    if let (Some(name), true) = (wanted, found.is_empty()) {
        let text = format!("the gateway at {url} shows this client no tool of a server `{name}`");
        let hint = "`gripfast tools` lists those that it shows".to_owned();
        let failure = Failure::about(name, Code::UnknownServer, text, Some(hint));
        return vec![Row { server: Cow::Owned(name.to_owned()), listed: Err(failure) }];
    }
    let row = |(server, tools)| Row {
        server: Cow::Owned(server),
        listed: Ok(Arc::new(Catalog { tools, ..Catalog::default() })),
    };
    found.into_iter().map(row).collect()
}

fn item(offer: Offer) -> Item {
    let mut item = Item { key: offer.name, hints: Default::default(), raw: offer.raw };
    let said = Tool::read(&item.raw).map(|tool| tool.hints).unwrap_or_default();
    item.hints.read_only = said.read_only == Some(true);
    item.hints.idempotent = said.idempotent == Some(true);
    item.hints.destructive = said.destructive == Some(true);
    item
}

/// The servers to ask. A disabled one is asked, and refuses, only when it is named.
fn chosen<'c>(opened: &'c Opened, args: &ToolsArgs) -> Result<Vec<&'c ServerEntry>, Failure> {
    match &args.server {
        Some(name) => Ok(vec![opened.server(name)?]),
        None => {
            let disabled = |entry: &ServerEntry| entry.spec.as_ref().is_ok_and(|spec| spec.disabled);
            Ok(opened.config.servers.iter().filter(|entry| !disabled(entry)).collect())
        }
    }
}

fn unknown(failure: Failure, form: Form, screen: &mut Screen) -> Result<Stop, Stop> {
    if let (Form::Json, Some(error)) = (form, failure.as_json()) {
        screen.json(&serde_json::json!({ "error": error }))?;
    }
    Ok(failure.into())
}

fn list<'c>(
    args: &ToolsArgs,
    entries: &[&'c ServerEntry],
    logins: Logins,
    screen: &mut Screen,
) -> Result<Vec<Row<'c>>, Stop> {
    let usable: Vec<(&'c str, Result<&'c ServerSpec, Failure>)> =
        entries.iter().map(|entry| (entry.name.as_str(), config::usable(entry))).collect();
    let hosted: Vec<(&str, &ServerSpec)> =
        usable.iter().filter_map(|(name, spec)| Some((*name, *spec.as_ref().ok()?))).collect();
    let mut found = if hosted.is_empty() {
        HashMap::new()
    } else {
        let what = plural(hosted.len(), "server");
        // Without a state directory of its own: a stored catalog would answer for a server that cannot be reached.
        let means = Means { logins: Some(logins), ..Means::default() };
        let discovered = with_host(means, &hosted, async |host| {
            with_progress(screen, &what, host.discover(args.wait)).await
        })?;
        discovered.into_iter().map(|discovered| (discovered.server, discovered.catalog)).collect()
    };
    let row = |(server, spec): (&'c str, Result<&ServerSpec, Failure>)| {
        let listed = spec.and_then(|_| match found.remove(server) {
            Some(catalog) => catalog.map_err(unlisted),
            None => Err(Failure::new(Exit::General, format!("server `{server}` was not asked"))),
        });
        Row { server: Cow::Borrowed(server), listed }
    };
    Ok(usable.into_iter().map(row).collect())
}

/// Why a server is not listed. One that has not got there yet is not tried again by us, whatever the host says.
fn unlisted(error: CallError) -> Failure {
    let slow = error.code == Code::Reconnecting;
    let failure = Failure::from(error);
    if slow { failure.with_hint("`--wait 1m` would give it longer") } else { failure }
}

/// A table when there is anything to list; failures are rows of it then, and plain errors otherwise.
fn show(rows: &[Row<'_>], place: &str, screen: &mut Screen) -> Result<(), Stop> {
    let failures = || rows.iter().filter_map(|row| row.listed.as_ref().err());
    if rows.is_empty() {
        screen.talk(&format!("no servers in `{place}`"))?;
        return Ok(());
    }
    if failures().count() == rows.len() {
        return Ok(failures().try_for_each(|failure| screen.failure(failure))?);
    }
    let mut table = Table::new(["SERVER", "TOOL", "HINTS", "DESCRIPTION"]);
    for Row { server, listed } in rows {
        match listed {
            Ok(catalog) if catalog.tools.is_empty() => table.row([server, "-", "", "offers no tools"]),
            Ok(catalog) => {
                for tool in &catalog.tools {
                    table.row([server, &tool.key, &hints(tool), &description(tool)]);
                }
            }
            Err(failure) => table.row([server, "-", "error", &failure.text]),
        }
    }
    screen.line(&table.to_string())?;
    Ok(failures().filter_map(|failure| failure.hint.as_deref()).try_for_each(|hint| screen.hint(hint))?)
}

/// All failed is a failure: their own exit code when they agree on one.
fn verdict(rows: &[Row<'_>]) -> Exit {
    let exits: Vec<Exit> = rows.iter().filter_map(|row| Some(row.listed.as_ref().err()?.exit)).collect();
    match exits.as_slice() {
        exits if exits.len() < rows.len() => Exit::Ok,
        [] => Exit::Ok,
        [first, rest @ ..] if rest.iter().all(|exit| exit == first) => *first,
        _ => Exit::Unreachable,
    }
}

fn hints(tool: &Item) -> String {
    let said = [
        (tool.hints.read_only, "read-only"),
        (tool.hints.idempotent, "idempotent"),
        (tool.hints.destructive, "destructive"),
    ];
    said.into_iter().filter_map(|(said, word)| said.then_some(word)).collect::<Vec<_>>().join(", ")
}

/// The first line of what a tool says about itself, as much of it as can be skimmed.
fn description(tool: &Item) -> String {
    const LONGEST: usize = 100;
    #[derive(Deserialize)]
    struct Described {
        #[serde(default)]
        description: String,
    }
    // A tool whose description is no text is listed without one.
    let described = serde_json::from_str::<Described>(tool.raw.get()).map(|tool| tool.description);
    let text = described.unwrap_or_default();
    let line = text.trim().lines().next().unwrap_or_default();
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

impl Row<'_> {
    fn as_json(&self) -> Listed<'_> {
        match &self.listed {
            Ok(catalog) => Listed::Tools {
                server: &self.server,
                tools: catalog.tools.iter().map(|tool| tool.raw.as_ref()).collect(),
            },
            Err(failure) => Listed::Error { server: &self.server, error: failure.as_json() },
        }
    }
}

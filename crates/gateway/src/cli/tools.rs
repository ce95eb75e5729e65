//! `gripfast tools`, `resources` and `prompts`: lists what the servers of a running gateway, or of the config, offer.

mod detail;

use super::address::GatewayUrl;
use super::args::{
    GatewayTarget, GlobalArgs, OutputArgs, OutputFormat, PromptsArgs, ResourcesArgs, ToolsArgs,
};
use super::config::{self, LoadedConfig};
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::local_host::{HostOptions, runtime, with_host};
use super::mcp_client::{McpClient, Offer, ToolSource, require_server, unknown_item};
use super::render::{Screen, Table, plural, with_progress};
use super::status;
use gripfast::auth::Logins;
use gripfast::config::{ServerEntry, ServerSpec};
use gripfast::wire::patch::Object;
use gripfast::wire::results::{List, Tool};
use gripfast::{CallError, Catalog, Code};
use gripfast::{Json, JsonText};
use gripfast_gateway::api::types::{FleetView, UpstreamView};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The list to show.
struct ListKind<'a> {
    list: List,
    server: Option<&'a str>,
    form: OutputFormat,
    wait: Duration,
    url: Option<&'a GatewayUrl>,
}

/// The items of one server, or the reason for which they are not known.
struct Row<'c> {
    server: Cow<'c, str>,
    listed: Result<Vec<ListedItem>, FailureReport>,
}

/// One item of a list.
struct ListedItem {
    /// The server's own name or URI of the item.
    key: String,
    /// The name or URI under which clients of the gateway see it; `None` without a gateway.
    public: Option<String>,
    raw: JsonText,
}

/// The shape of `-o json`.
#[derive(Serialize)]
struct Listing<'c> {
    servers: Vec<Listed<'c>>,
}

/// One server in the JSON output.
struct Listed<'c> {
    row: &'c Row<'c>,
    list: List,
}

impl Serialize for Listed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("server", &self.row.server)?;
        match &self.row.listed {
            Ok(items) => {
                let raw: Vec<&Json> = items.iter().map(|item| item.raw.as_ref()).collect();
                map.serialize_entry(self.list.member(), &raw)?;
                let names = items.iter().filter_map(|item| Some((&*item.key, item.public.as_deref()?)));
                let names: BTreeMap<&str, &str> = names.collect();
                if !names.is_empty() {
                    map.serialize_entry("client_names", &names)?;
                }
            }
            Err(failure) => map.serialize_entry("error", &failure.as_json())?,
        }
        map.end()
    }
}

pub(crate) fn run(global: &GlobalArgs, args: &ToolsArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let wanted = ListKind::new(List::Tools, args.server.as_deref(), args.output, args.wait, &args.gateway);
    wanted.list(global, args.tool.as_deref(), screen)
}

pub(crate) fn resources(
    global: &GlobalArgs,
    args: &ResourcesArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let wanted =
        ListKind::new(List::Resources, args.server.as_deref(), args.output, args.wait, &args.gateway);
    match (&args.server, &args.uri) {
        (Some(server), Some(uri)) => wanted.get(global, server, uri, None, screen),
        (_, _) => wanted.list(global, None, screen),
    }
}

pub(crate) fn prompts(
    global: &GlobalArgs,
    args: &PromptsArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let wanted = ListKind::new(List::Prompts, args.server.as_deref(), args.output, args.wait, &args.gateway);
    match (&args.server, &args.prompt) {
        (Some(server), Some(prompt)) => {
            let arguments = super::call::parse_pairs(&args.arguments)?;
            wanted.get(global, server, prompt, Some(&arguments), screen)
        }
        (_, _) => wanted.list(global, None, screen),
    }
}

impl<'a> ListKind<'a> {
    fn new(
        list: List,
        server: Option<&'a str>,
        output: OutputArgs,
        wait: Duration,
        gateway: &'a GatewayTarget,
    ) -> Self {
        Self { list, server, form: output.form, wait, url: gateway.url.as_ref() }
    }

    /// Asks the gateway; or starts the servers, lists them, and stops them again. With `only`, shows that one tool with
    /// its schema.
    fn list(
        &self,
        global: &GlobalArgs,
        only: Option<&str>,
        screen: &mut Screen,
    ) -> Result<Exit, CommandError> {
        match ToolSource::resolve(global, self.url)? {
            ToolSource::Gateway(url, fleet) => {
                self.server.map_or(Ok(()), |server| require_server(&url, fleet.as_deref(), server))?;
                let rows = self.rows_from_gateway(global, &url, fleet.as_deref(), screen)?;
                self.print(rows, only, &url.to_string(), screen)
            }
            ToolSource::Config => {
                let opened = config::open(global, screen)?;
                let entries = select_servers(&opened, self.server)?;
                let mut rows = self.rows_from_config(&entries, opened.logins(global)?, screen)?;
                for row in &mut rows {
                    let listed = std::mem::replace(&mut row.listed, Ok(Vec::new()));
                    row.listed =
                        listed.map_err(|failure| config::without_gateway_hints(global, &row.server, failure));
                }
                self.print(rows, only, &opened.path.display().to_string(), screen)
            }
        }
    }

    fn print(
        &self,
        mut rows: Vec<Row<'_>>,
        only: Option<&str>,
        place: &str,
        screen: &mut Screen,
    ) -> Result<Exit, CommandError> {
        if let (Some(only), [Row { server, listed: Ok(items) }]) = (only, rows.as_mut_slice()) {
            if !items.iter().any(|item| item.key == only) {
                let failure = unknown_item(self.list, server, only, items.iter().map(|item| &*item.key));
                return Err(failure.into());
            }
            items.retain(|item| item.key == only);
            if self.form == OutputFormat::Text {
                items.iter().try_for_each(|item| detail::show_tool(item, screen))?;
                return Ok(Exit::Ok);
            }
        }
        // Servers without resources or prompts are common, and shown only if named.
        if self.list != List::Tools && self.server.is_none() {
            rows.retain(|row| row.listed.as_ref().map_or(true, |items| !items.is_empty()));
        }
        match self.form {
            OutputFormat::Json => {
                let servers = rows.iter().map(|row| Listed { row, list: self.list }).collect();
                screen.json(&Listing { servers })?;
            }
            OutputFormat::Text => self.print_table(&rows, place, screen)?,
        }
        Ok(exit_code(&rows))
    }

    /// The rows of the gateway's servers. A disabled server is shown only if it is named.
    fn rows_from_gateway<'f>(
        &self,
        global: &GlobalArgs,
        url: &GatewayUrl,
        fleet: Option<&'f FleetView>,
        screen: &mut Screen,
    ) -> Result<Vec<Row<'f>>, CommandError> {
        let asking = async {
            let client = McpClient::connect(global, url).await?;
            let mut offers = client.offers(self.list).await?;
            if self.list == List::Resources {
                offers.extend(client.offers(List::ResourceTemplates).await?);
            }
            Ok::<_, FailureReport>(offers)
        };
        let mut offers = runtime()?.block_on(with_progress(screen, "the gateway", asking))?;
        let Some(fleet) = fleet else { return Ok(self.rows_without_fleet(url, offers)) };
        let wanted = fleet.upstreams.iter().filter(|upstream| match self.server {
            Some(name) => upstream.name == name,
            None => upstream.state != "disabled",
        });
        let row = |upstream: &'f UpstreamView| {
            let items: Vec<ListedItem> =
                offers.extract_if(.., |offer| offer.server == upstream.name).map(ListedItem::from).collect();
            let listed = match status::list_failure(upstream) {
                Some(failure) if items.is_empty() => Err(failure),
                _ => Ok(items),
            };
            Row { server: Cow::Borrowed(&upstream.name), listed }
        };
        Ok(wanted.map(row).collect())
    }

    /// The rows for a client that may not list the servers: only servers with visible items.
    fn rows_without_fleet(&self, url: &GatewayUrl, offers: Vec<Offer>) -> Vec<Row<'static>> {
        let mut found: Vec<(String, Vec<ListedItem>)> = Vec::new();
        for offer in offers.into_iter().filter(|offer| self.server.is_none_or(|name| name == offer.server)) {
            match found.iter_mut().find(|(server, _)| *server == offer.server) {
                Some((_, items)) => items.push(offer.into()),
                None => found.push((offer.server.clone(), vec![offer.into()])),
            }
        }
        if let (Some(name), true) = (self.server, found.is_empty()) {
            let word = item_word(self.list);
            let text = format!("the gateway at {url} offers this client no {word} of a server `{name}`");
            let hint = format!("`gripfast {word}s` lists all that it offers");
            let failure = FailureReport::for_server(name, Code::UnknownServer, text, Some(hint));
            return vec![Row { server: Cow::Owned(name.to_owned()), listed: Err(failure) }];
        }
        found
            .into_iter()
            .map(|(server, items)| Row { server: Cow::Owned(server), listed: Ok(items) })
            .collect()
    }

    /// Starts the servers of the config and lists them.
    fn rows_from_config<'c>(
        &self,
        entries: &[&'c ServerEntry],
        logins: Logins,
        screen: &mut Screen,
    ) -> Result<Vec<Row<'c>>, CommandError> {
        let usable: Vec<(&'c str, Result<&'c ServerSpec, FailureReport>)> =
            entries.iter().map(|entry| (entry.name.as_str(), config::server_spec(entry))).collect();
        let hosted: Vec<(&str, &ServerSpec)> =
            usable.iter().filter_map(|(name, spec)| Some((*name, *spec.as_ref().ok()?))).collect();
        let mut found = if hosted.is_empty() {
            HashMap::new()
        } else {
            let what = plural(hosted.len(), "server");
            // Without a state directory: a stored catalog would answer for an unreachable server.
            let host_options = HostOptions { logins: Some(logins), ..HostOptions::default() };
            let discovered = with_host(host_options, &hosted, async |host| {
                with_progress(screen, &what, host.discover(self.wait)).await
            })?;
            discovered.into_iter().map(|discovered| (discovered.server, discovered.catalog)).collect()
        };
        let row = |(server, spec): (&'c str, Result<&ServerSpec, FailureReport>)| {
            let listed = spec.and_then(|_| match found.remove(server) {
                Some(catalog) => catalog.map(|catalog| self.items(&catalog)).map_err(list_failure),
                None => Err(FailureReport::new(Exit::General, format!("no result for server `{server}`"))),
            });
            Row { server: Cow::Borrowed(server), listed }
        };
        Ok(usable.into_iter().map(row).collect())
    }

    fn items(&self, catalog: &Arc<Catalog>) -> Vec<ListedItem> {
        let (items, more) = match self.list {
            List::Tools => (&catalog.tools, None),
            List::Resources | List::ResourceTemplates => (&catalog.resources, Some(&catalog.templates)),
            List::Prompts => (&catalog.prompts, None),
        };
        let shown =
            |item: &gripfast::Item| ListedItem { key: item.key.clone(), public: None, raw: item.raw.clone() };
        items.iter().chain(more.into_iter().flatten()).map(shown).collect()
    }

    /// Prints a table, with failures as rows; if all servers failed, prints only the errors.
    fn print_table(&self, rows: &[Row<'_>], place: &str, screen: &mut Screen) -> Result<(), CommandError> {
        let failures = || rows.iter().filter_map(|row| row.listed.as_ref().err());
        if rows.is_empty() {
            let nothing = if self.list == List::Tools { "servers" } else { self.list.member() };
            screen.message(&format!("no {nothing} in `{place}`"))?;
            return Ok(());
        }
        if failures().count() == rows.len() {
            return Ok(failures().try_for_each(|failure| screen.failure(failure))?);
        }
        let titles = match self.list {
            List::Tools => ["SERVER", "TOOL", "CLIENT NAME", "HINTS", "DESCRIPTION"],
            List::Prompts => ["SERVER", "PROMPT", "CLIENT NAME", "ARGUMENTS", "DESCRIPTION"],
            List::Resources | List::ResourceTemplates => {
                ["SERVER", "URI", "CLIENT URI", "NAME", "DESCRIPTION"]
            }
        };
        let mut table = Table::new(titles);
        let nothing = format!("offers no {}", self.list.member());
        for Row { server, listed } in rows {
            match listed {
                Ok(items) if items.is_empty() => table.row([server, "-", "", "", &nothing]),
                Ok(items) => {
                    for item in items {
                        let public = item.public.as_deref().unwrap_or_default();
                        // Most URIs are unchanged for clients.
                        let same = self.list == List::Resources && public == item.key;
                        let public = if same { "" } else { public };
                        table.row([server, &item.key, public, &self.note(item), &item.description()]);
                    }
                }
                Err(failure) => table.row([server, "-", "", "error", &failure.text]),
            }
        }
        // Without a gateway there are no client names, and URIs are often unchanged.
        table.hide_if_empty(2);
        screen.table(table)?;
        Ok(failures().filter_map(|failure| failure.hint.as_deref()).try_for_each(|hint| screen.hint(hint))?)
    }

    /// The column before the description.
    fn note(&self, item: &ListedItem) -> String {
        match self.list {
            List::Tools => item.hints(),
            List::Prompts => detail::prompt_arguments(item),
            List::Resources | List::ResourceTemplates => item.text("name"),
        }
    }
}

impl From<Offer> for ListedItem {
    fn from(offer: Offer) -> Self {
        Self { key: offer.name, public: Some(offer.public), raw: offer.raw }
    }
}

/// The word for one item of a list.
fn item_word(list: List) -> &'static str {
    match list {
        List::Tools => "tool",
        List::Resources | List::ResourceTemplates => "resource",
        List::Prompts => "prompt",
    }
}

/// The servers to list. A disabled server is included, as a failure, only if it is named.
fn select_servers<'c>(
    opened: &'c LoadedConfig,
    server: Option<&str>,
) -> Result<Vec<&'c ServerEntry>, FailureReport> {
    match server {
        Some(name) => Ok(vec![opened.server(name)?]),
        None => {
            let disabled = |entry: &ServerEntry| entry.spec.as_ref().is_ok_and(|spec| spec.disabled);
            Ok(opened.config.servers.iter().filter(|entry| !disabled(entry)).collect())
        }
    }
}

/// The failure of a server that could not be listed. A slow server gets a hint about `--wait` instead of the host's
/// hint that it retries, because this process ends.
pub(crate) fn list_failure(error: CallError) -> FailureReport {
    let slow = error.code == Code::Reconnecting;
    let failure = FailureReport::from(error);
    if slow { failure.with_hint("`--wait 1m` gives it more time") } else { failure }
}

/// The exit code: a failure only if all servers failed, with their own code if they agree.
fn exit_code(rows: &[Row<'_>]) -> Exit {
    let exits: Vec<Exit> = rows.iter().filter_map(|row| Some(row.listed.as_ref().err()?.exit)).collect();
    match exits.as_slice() {
        exits if exits.len() < rows.len() => Exit::Ok,
        [] => Exit::Ok,
        [first, rest @ ..] if rest.iter().all(|exit| exit == first) => *first,
        _ => Exit::Unreachable,
    }
}

impl ListedItem {
    fn hints(&self) -> String {
        let hints = Tool::read(&self.raw).map(|tool| tool.hints).unwrap_or_default();
        let labels = [
            (hints.read_only, "read-only"),
            (hints.idempotent, "idempotent"),
            (hints.destructive, "destructive"),
        ];
        labels
            .into_iter()
            .filter_map(|(hint, label)| (hint == Some(true)).then_some(label))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// A text field of the item; empty if it has none.
    fn text(&self, member: &str) -> String {
        let object = Object::parse(&self.raw).ok();
        object.and_then(|object| object.text(member).map(Cow::into_owned)).unwrap_or_default()
    }

    /// The first line of the description, shortened.
    fn description(&self) -> String {
        const LONGEST: usize = 100;
        let text = self.text("description");
        let line = text.trim().lines().next().unwrap_or_default();
        match line.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line.to_owned(),
        }
    }
}

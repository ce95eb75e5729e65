//! `gripfast tools`, `resources` and `prompts`: what the servers of a running gateway offer, or those of the config.

mod one;

use super::address::GatewayUrl;
use super::args::{Form, Global, PromptsArgs, ResourcesArgs, ToolsArgs};
use super::client::{Asked, Client, Offer, known, unknown_item};
use super::config::{self, Opened};
use super::exit::Exit;
use super::fleet::{Means, runtime, with_host};
use super::render::{Screen, Table, plural, with_progress};
use super::status::Fleet;
use super::stop::{Failure, Stop};
use gripfast::auth::Logins;
use gripfast::config::{ServerEntry, ServerSpec};
use gripfast::wire::patch::Object;
use gripfast::wire::results::{List, Tool};
use gripfast::{CallError, Catalog, Code};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// A list to show.
struct Wanted<'a> {
    list: List,
    server: Option<&'a str>,
    form: Form,
    wait: Duration,
    url: Option<&'a GatewayUrl>,
}

/// What one server offers, or why that is not known.
struct Row<'c> {
    server: Cow<'c, str>,
    listed: Result<Vec<Shown>, Failure>,
}

/// One item of a list.
struct Shown {
    /// The server's own name or URI.
    key: String,
    /// The name or URI under which clients of the gateway see it; `None` without a gateway.
    public: Option<String>,
    raw: Box<RawValue>,
}

/// The shape of `-o json`.
#[derive(Serialize)]
struct Listing<'c> {
    servers: Vec<Listed<'c>>,
}

/// One server in it.
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
                let raw: Vec<&RawValue> = items.iter().map(|item| item.raw.as_ref()).collect();
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

pub(crate) fn run(global: &Global, args: &ToolsArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let wanted = Wanted {
        list: List::Tools,
        server: args.server.as_deref(),
        form: args.output.form,
        wait: args.wait,
        url: args.gateway.url.as_ref(),
    };
    wanted.list(global, args.tool.as_deref(), screen)
}

pub(crate) fn resources(global: &Global, args: &ResourcesArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let wanted = Wanted {
        list: List::Resources,
        server: args.server.as_deref(),
        form: args.output.form,
        wait: args.wait,
        url: args.gateway.url.as_ref(),
    };
    match (&args.server, &args.uri) {
        (Some(server), Some(uri)) => wanted.get(global, server, uri, None, screen),
        (_, _) => wanted.list(global, None, screen),
    }
}

pub(crate) fn prompts(global: &Global, args: &PromptsArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let wanted = Wanted {
        list: List::Prompts,
        server: args.server.as_deref(),
        form: args.output.form,
        wait: args.wait,
        url: args.gateway.url.as_ref(),
    };
    match (&args.server, &args.prompt) {
        (Some(server), Some(prompt)) => {
            let arguments = super::call::pairs(&args.arguments)?;
            wanted.get(global, server, prompt, Some(&arguments), screen)
        }
        (_, _) => wanted.list(global, None, screen),
    }
}

impl Wanted<'_> {
    /// Asks the gateway; or starts the servers, asks them for the list, and stops them again. With `only` one tool is
    /// shown with its schema.
    fn list(&self, global: &Global, only: Option<&str>, screen: &mut Screen) -> Result<Exit, Stop> {
        match Asked::of(global, self.url)? {
            Asked::Gateway(url, fleet) => {
                let chosen = self.server.map_or(Ok(()), |server| known(&url, fleet.as_deref(), server));
                match chosen {
                    Ok(()) => {
                        let rows = self.served(global, &url, fleet.as_deref(), screen)?;
                        self.tell(rows, only, &url.to_string(), screen)
                    }
                    Err(failure) => Err(unknown(failure, self.form, screen)?),
                }
            }
            Asked::Config => {
                let opened = config::open(global, screen)?;
                match chosen(&opened, self.server) {
                    Ok(entries) => {
                        let mut rows = self.listed(&entries, opened.logins(global)?, screen)?;
                        for row in &mut rows {
                            let listed = std::mem::replace(&mut row.listed, Ok(Vec::new()));
                            row.listed = listed
                                .map_err(|failure| config::without_gateway(global, &row.server, failure));
                        }
                        self.tell(rows, only, &opened.path.display().to_string(), screen)
                    }
                    Err(failure) => Err(unknown(failure, self.form, screen)?),
                }
            }
        }
    }

    fn tell(
        &self,
        mut rows: Vec<Row<'_>>,
        only: Option<&str>,
        place: &str,
        screen: &mut Screen,
    ) -> Result<Exit, Stop> {
        if let (Some(only), [Row { server, listed: Ok(items) }]) = (only, rows.as_mut_slice()) {
            if !items.iter().any(|item| item.key == only) {
                let failure = unknown_item(self.list, server, only, items.iter().map(|item| &*item.key));
                return Err(unknown(failure, self.form, screen)?);
            }
            items.retain(|item| item.key == only);
            if self.form == Form::Text {
                items.iter().try_for_each(|item| one::show_tool(item, screen))?;
                return Ok(Exit::Ok);
            }
        }
        // Many servers have no resources and no prompts, and nobody asks for those.
        if self.list != List::Tools && self.server.is_none() {
            rows.retain(|row| row.listed.as_ref().map_or(true, |items| !items.is_empty()));
        }
        match self.form {
            Form::Json => {
                let servers = rows.iter().map(|row| Listed { row, list: self.list }).collect();
                screen.json(&Listing { servers })?;
            }
            Form::Text => self.show(&rows, place, screen)?,
        }
        Ok(verdict(&rows))
    }

    /// What the gateway serves, server by server. A disabled one is shown only when it is named.
    fn served<'f>(
        &self,
        global: &Global,
        url: &GatewayUrl,
        fleet: Option<&'f Fleet>,
        screen: &mut Screen,
    ) -> Result<Vec<Row<'f>>, Stop> {
        let asked = async {
            let client = Client::of(global, url).await?;
            let mut offers = client.offers(self.list).await?;
            if self.list == List::Resources {
                offers.extend(client.offers(List::ResourceTemplates).await?);
            }
            Ok::<_, Failure>(offers)
        };
        let mut offers = runtime()?.block_on(with_progress(screen, "the gateway", asked))?;
        let Some(fleet) = fleet else { return Ok(self.visible(url, offers)) };
        let wanted = fleet.upstreams().iter().filter(|upstream| match self.server {
            Some(name) => upstream.name == name,
            None => !upstream.is_disabled(),
        });
        let row = |upstream: &'f super::status::Upstream| {
            let items: Vec<Shown> =
                offers.extract_if(.., |offer| offer.server == upstream.name).map(Shown::from).collect();
            let listed = match upstream.unlisted() {
                Some(failure) if items.is_empty() => Err(failure),
                _ => Ok(items),
            };
            Row { server: Cow::Borrowed(&upstream.name), listed }
        };
        Ok(wanted.map(row).collect())
    }

    /// What a client is shown that is told of no servers: those that it finds something of.
    fn visible(&self, url: &GatewayUrl, offers: Vec<Offer>) -> Vec<Row<'static>> {
        let mut found: Vec<(String, Vec<Shown>)> = Vec::new();
        for offer in offers.into_iter().filter(|offer| self.server.is_none_or(|name| name == offer.server)) {
            match found.iter_mut().find(|(server, _)| *server == offer.server) {
                Some((_, items)) => items.push(offer.into()),
                None => found.push((offer.server.clone(), vec![offer.into()])),
            }
        }
        if let (Some(name), true) = (self.server, found.is_empty()) {
            let word = word(self.list);
            let text = format!("the gateway at {url} shows this client no {word} of a server `{name}`");
            let hint = format!("`gripfast {word}s` lists those that it shows");
            let failure = Failure::about(name, Code::UnknownServer, text, Some(hint));
            return vec![Row { server: Cow::Owned(name.to_owned()), listed: Err(failure) }];
        }
        found
            .into_iter()
            .map(|(server, items)| Row { server: Cow::Owned(server), listed: Ok(items) })
            .collect()
    }

    /// What the servers of the config offer, which are started for it.
    fn listed<'c>(
        &self,
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
                with_progress(screen, &what, host.discover(self.wait)).await
            })?;
            discovered.into_iter().map(|discovered| (discovered.server, discovered.catalog)).collect()
        };
        let row = |(server, spec): (&'c str, Result<&ServerSpec, Failure>)| {
            let listed = spec.and_then(|_| match found.remove(server) {
                Some(catalog) => catalog.map(|catalog| self.items(&catalog)).map_err(unlisted),
                None => Err(Failure::new(Exit::General, format!("server `{server}` was not asked"))),
            });
            Row { server: Cow::Borrowed(server), listed }
        };
        Ok(usable.into_iter().map(row).collect())
    }

    fn items(&self, catalog: &Arc<Catalog>) -> Vec<Shown> {
        let (items, more) = match self.list {
            List::Tools => (&catalog.tools, None),
            List::Resources | List::ResourceTemplates => (&catalog.resources, Some(&catalog.templates)),
            List::Prompts => (&catalog.prompts, None),
        };
        let shown =
            |item: &gripfast::Item| Shown { key: item.key.clone(), public: None, raw: item.raw.clone() };
        items.iter().chain(more.into_iter().flatten()).map(shown).collect()
    }

    /// A table when there is anything to list; failures are rows of it then, and plain errors otherwise.
    fn show(&self, rows: &[Row<'_>], place: &str, screen: &mut Screen) -> Result<(), Stop> {
        let failures = || rows.iter().filter_map(|row| row.listed.as_ref().err());
        if rows.is_empty() {
            let nothing = if self.list == List::Tools { "servers" } else { self.list.member() };
            screen.talk(&format!("no {nothing} in `{place}`"))?;
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
                        // Most URIs are the same for clients.
                        let same = self.list == List::Resources && public == item.key;
                        let public = if same { "" } else { public };
                        table.row([server, &item.key, public, &self.note(item), &item.description()]);
                    }
                }
                Err(failure) => table.row([server, "-", "", "error", &failure.text]),
            }
        }
        // Without a gateway there are no such names, and often no other URIs.
        table.hide_if_empty(2);
        screen.table(table)?;
        Ok(failures().filter_map(|failure| failure.hint.as_deref()).try_for_each(|hint| screen.hint(hint))?)
    }

    /// The column before the description.
    fn note(&self, item: &Shown) -> String {
        match self.list {
            List::Tools => item.hints(),
            List::Prompts => one::prompt_arguments(item),
            List::Resources | List::ResourceTemplates => item.text("name"),
        }
    }
}

impl From<Offer> for Shown {
    fn from(offer: Offer) -> Self {
        Self { key: offer.name, public: Some(offer.public), raw: offer.raw }
    }
}

/// One item of a list, for people.
fn word(list: List) -> &'static str {
    match list {
        List::Tools => "tool",
        List::Resources | List::ResourceTemplates => "resource",
        List::Prompts => "prompt",
    }
}

/// The servers to ask. A disabled one is asked, and refuses, only when it is named.
fn chosen<'c>(opened: &'c Opened, server: Option<&str>) -> Result<Vec<&'c ServerEntry>, Failure> {
    match server {
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

/// Why a server is not listed. One that has not got there yet is not tried again by us, whatever the host says.
pub(crate) fn unlisted(error: CallError) -> Failure {
    let slow = error.code == Code::Reconnecting;
    let failure = Failure::from(error);
    if slow { failure.with_hint("`--wait 1m` would give it longer") } else { failure }
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

impl Shown {
    fn hints(&self) -> String {
        let hints = Tool::read(&self.raw).map(|tool| tool.hints).unwrap_or_default();
        let said = [
            (hints.read_only, "read-only"),
            (hints.idempotent, "idempotent"),
            (hints.destructive, "destructive"),
        ];
        said.into_iter()
            .filter_map(|(said, word)| (said == Some(true)).then_some(word))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// A text of the item; empty where it has none.
    fn text(&self, member: &str) -> String {
        let object = Object::parse(&self.raw).ok();
        object.and_then(|object| object.text(member).map(Cow::into_owned)).unwrap_or_default()
    }

    /// The first line of what an item says about itself, as much of it as can be skimmed.
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

//! The entry for gripfast in the words of one client, put into a text and taken out of it without touching the
//! rest.

use super::keys;
use super::yaml::{Holding, Slot};
use crate::cli::import::{Client, Entry};
use gripfast::config::Tree;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value};

/// The name of the entry.
const NAME: &str = "gripfast";

/// How a client reaches gripfast.
#[derive(Debug)]
pub(super) enum Way {
    /// At the address of a gateway, with these headers.
    Url { url: String, headers: Vec<(String, String)> },
    /// By starting it.
    Command(String, Vec<String>),
}

/// The entry.
#[derive(Debug)]
pub(super) struct Wanted(Vec<(&'static str, CstInputValue)>);

impl Wanted {
    pub(super) fn of(client: &Client, way: &Way) -> Self {
        let text = |text: &str| CstInputValue::String(text.to_owned());
        let (url, headers) = match way {
            Way::Url { url, headers } => (url, headers),
            Way::Command(program, words) => {
                let words = words.iter().map(|word| text(word)).collect();
                return Self(vec![("command", text(program)), ("args", CstInputValue::Array(words))]);
            }
        };
        let mut entry = match client.entry {
            Entry::TypeHttp => vec![("type", text("http")), ("url", text(url))],
            Entry::TypeRemote => vec![("type", text("remote")), ("url", text(url))],
            Entry::TypeStreamableHttp => vec![("type", text("streamableHttp")), ("url", text(url))],
            Entry::ServerUrl => vec![("serverUrl", text(url))],
            Entry::Url | Entry::TomlUrl | Entry::YamlUrl | Entry::Command => vec![("url", text(url))],
            Entry::ListedToml => {
                vec![("name", text(NAME)), ("transport", text("http")), ("url", text(url))]
            }
            Entry::ListedYaml => {
                vec![("name", text(NAME)), ("type", text("streamable-http")), ("url", text(url))]
            }
            Entry::Goose => vec![
                ("name", text(NAME)),
                ("type", text("streamable_http")),
                ("uri", text(url)),
                ("enabled", CstInputValue::Bool(true)),
                // Seconds, which is what Goose would write itself.
                ("timeout", CstInputValue::Number("300".to_owned())),
            ],
        };
        if !headers.is_empty() {
            let pairs = headers.iter().map(|(name, value)| (name.clone(), text(value))).collect();
            let (key, inner) = header_keys(client);
            let pairs = CstInputValue::Object(pairs);
            entry.push(match inner {
                Some(inner) => (key, CstInputValue::Object(vec![(inner.to_owned(), pairs)])),
                None => (key, pairs),
            });
        }
        Self(entry)
    }

    /// An entry of the same shape that leads nowhere in particular, to find out what connecting changes in a file.
    pub(super) fn any(client: &Client) -> Self {
        let way = match client.entry {
            Entry::Command => Way::Command(NAME.to_owned(), vec!["stdio".to_owned()]),
            _ => Way::Url { url: "http://127.0.0.1:7331/mcp".to_owned(), headers: Vec::new() },
        };
        Self::of(client, &way)
    }

    /// The text with the entry in it.
    pub(super) fn put_into(&self, client: &Client, before: &str) -> Result<String, String> {
        match client.entry {
            Entry::TomlUrl => self.put_into_toml(client, before),
            Entry::ListedToml => self.put_into_toml_list(client, before),
            Entry::Goose | Entry::YamlUrl | Entry::ListedYaml => slot(client).put(before, &self.entries()),
            Entry::TypeHttp
            | Entry::Url
            | Entry::ServerUrl
            | Entry::TypeRemote
            | Entry::TypeStreamableHttp
            | Entry::Command => self.put_into_json(client, before),
        }
    }

    /// The text without the entry.
    pub(super) fn taken_out_of(client: &Client, text: &str) -> Result<String, String> {
        match client.entry {
            Entry::TomlUrl => {
                let mut document: DocumentMut =
                    text.parse().map_err(|_| "it is not valid TOML".to_owned())?;
                if let Some(servers) = table(&mut document, client) {
                    servers.remove(NAME);
                }
                Ok(document.to_string())
            }
            Entry::ListedToml => {
                let mut document: DocumentMut =
                    text.parse().map_err(|_| "it is not valid TOML".to_owned())?;
                if let Some(servers) = list(&mut document, client) {
                    servers.retain(|entry| !is_ours(entry));
                }
                Ok(document.to_string())
            }
            Entry::Goose | Entry::YamlUrl | Entry::ListedYaml => slot(client).take_out(text),
            Entry::TypeHttp
            | Entry::Url
            | Entry::ServerUrl
            | Entry::TypeRemote
            | Entry::TypeStreamableHttp
            | Entry::Command => Self::taken_out_of_json(client, text),
        }
    }

    fn taken_out_of_json(client: &Client, text: &str) -> Result<String, String> {
        let root = parsed(text)?;
        let Some(object) = root.object_value() else { return Ok(text.to_owned()) };
        let servers = keys(client).iter().try_fold(object, |object, key| object.object_value(key));
        match servers.and_then(|servers| servers.get(NAME)) {
            Some(entry) => entry.remove(),
            None => return Ok(text.to_owned()),
        }
        Ok(root.to_string())
    }

    /// The text without the table of servers, if there is nothing in it.
    pub(super) fn without_empty_table(client: &Client, text: &str) -> Result<String, String> {
        match client.entry {
            // An empty table of TOML is not written at all.
            Entry::TomlUrl | Entry::ListedToml => Ok(text.to_owned()),
            Entry::Goose | Entry::YamlUrl | Entry::ListedYaml => {
                let root = keys(client).first().copied().unwrap_or_default();
                let is_empty = |line: &str| {
                    let value =
                        line.strip_prefix(root).and_then(|rest| rest.strip_prefix(':')).map(str::trim);
                    matches!(value, Some("{}" | "[]"))
                };
                Ok(text.split_inclusive('\n').filter(|line| !is_empty(line)).collect())
            }
            Entry::TypeHttp
            | Entry::Url
            | Entry::ServerUrl
            | Entry::TypeRemote
            | Entry::TypeStreamableHttp
            | Entry::Command => {
                let root = parsed(text)?;
                let keys = keys(client);
                let [outer @ .., last] = keys.as_slice() else { return Ok(text.to_owned()) };
                let holder = root.object_value().and_then(|object| {
                    outer.iter().try_fold(object, |object: CstObject, key| object.object_value(key))
                });
                match holder.and_then(|holder| holder.get(last)) {
                    Some(table)
                        if table.object_value().is_some_and(|table| table.properties().is_empty()) =>
                    {
                        table.remove();
                    }
                    Some(_) | None => {}
                }
                Ok(root.to_string())
            }
        }
    }

    fn put_into_json(&self, client: &Client, before: &str) -> Result<String, String> {
        let root = parsed(if before.trim().is_empty() { "{}\n" } else { before })?;
        let not_an_object = || "it does not hold an object where servers belong".to_owned();
        let top = root.object_value_or_create().ok_or_else(not_an_object)?;
        let servers =
            keys(client).iter().try_fold(top, |object: CstObject, key| object.object_value_or_create(key));
        let servers = servers.ok_or_else(not_an_object)?;
        let entry = CstInputValue::Object(
            self.0.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
        );
        match servers.get(NAME) {
            Some(known) => match known.object_value() {
                // What somebody added to it is theirs.
                Some(known) if self.is_said_by(&known) => return Ok(before.to_owned()),
                Some(known) => self.set_in(&known),
                None => known.set_value(entry),
            },
            None => {
                servers.append(NAME, entry);
            }
        }
        Ok(root.to_string())
    }

    /// Whether an entry says all of this already, however it is laid out.
    fn is_said_by(&self, known: &CstObject) -> bool {
        self.0.iter().all(|(key, value)| says(known, key, value))
            && self.others().all(|key| known.get(key).is_none())
    }

    /// Has an entry say this, and leaves its other members alone.
    fn set_in(&self, known: &CstObject) {
        for (key, value) in &self.0 {
            match known.get(key) {
                Some(_) if says(known, key, value) => {}
                Some(member) => member.set_value(value.clone()),
                None => {
                    known.append(key, value.clone());
                }
            }
        }
        self.others().filter_map(|key| known.get(key)).for_each(|member| member.remove());
    }

    /// Members that would lead somewhere else than ours do.
    fn others(&self) -> impl Iterator<Item = &'static str> {
        let is_ours = |key: &str| self.0.iter().any(|(ours, _)| *ours == key);
        ["command", "args", "url", "serverUrl", "httpUrl"].into_iter().filter(move |key| !is_ours(key))
    }

    fn put_into_toml(&self, client: &Client, before: &str) -> Result<String, String> {
        let mut document: DocumentMut = before.parse().map_err(|_| "it is not valid TOML".to_owned())?;
        let servers = table(&mut document, client).ok_or_else(|| "its servers are not tables".to_owned())?;
        let known = servers.entry(NAME).or_insert(Item::Table(Table::new()));
        let entry = known.as_table_like_mut().ok_or_else(|| format!("its `{NAME}` is no table"))?;
        for (key, said) in &self.0 {
            match (said, toml(said)) {
                (CstInputValue::String(said), _) if entry.get(key).and_then(Item::as_str) == Some(said) => {}
                (_, Some(said)) => {
                    entry.insert(key, Item::Value(said));
                }
                (_, None) => {}
            }
        }
        Ok(document.to_string())
    }

    fn put_into_toml_list(&self, client: &Client, before: &str) -> Result<String, String> {
        let mut document: DocumentMut = before.parse().map_err(|_| "it is not valid TOML".to_owned())?;
        let servers =
            list(&mut document, client).ok_or_else(|| "its servers are no list of tables".to_owned())?;
        let says = |entry: &Table, key: &str, said: &str| entry.get(key).and_then(Item::as_str) == Some(said);
        let mut wanted = Table::new();
        for (key, said) in &self.0 {
            if let Some(said) = toml(said) {
                wanted.insert(key, Item::Value(said));
            }
        }
        let is_said = |entry: &Table| {
            wanted.iter().all(|(key, said)| says(entry, key, said.as_str().unwrap_or_default()))
        };
        if servers.iter().any(is_said) {
            return Ok(before.to_owned());
        }
        if let Some(known) = servers.iter_mut().find(|entry| is_ours(entry)) {
            // What somebody added to it is theirs.
            known.extend(wanted);
        } else {
            servers.push(wanted);
        }
        Ok(document.to_string())
    }

    fn entries(&self) -> Vec<(String, Tree)> {
        self.0.iter().map(|(key, value)| ((*key).to_owned(), tree(value))).collect()
    }
}

/// The entry for gripfast in a file, if there is one.
pub(super) fn present<'t>(client: &Client, tree: &'t Tree) -> Option<&'t Tree> {
    let servers = keys(client).iter().try_fold(tree, |tree, key| tree.get(key))?;
    match servers {
        Tree::List(entries) => {
            entries.iter().find(|entry| entry.get("name").and_then(Tree::text) == Some(NAME))
        }
        table => table.get(NAME),
    }
}

/// The headers of an entry.
pub(super) fn headers_of(client: &Client, entry: &Tree) -> Vec<(String, String)> {
    let (key, inner) = header_keys(client);
    let table = entry.get(key).and_then(|table| match inner {
        Some(inner) => table.get(inner),
        None => Some(table),
    });
    let pairs = table.map(Tree::entries).unwrap_or_default().iter();
    pairs.filter_map(|(name, value)| Some((name.clone(), value.text()?.to_owned()))).collect()
}

/// The key under which a client has headers, and the one within it where they are one level deeper.
fn header_keys(client: &Client) -> (&'static str, Option<&'static str>) {
    match client.entry {
        Entry::TomlUrl => ("http_headers", None),
        Entry::ListedYaml => ("requestOptions", Some("headers")),
        _ => ("headers", None),
    }
}

fn toml(said: &CstInputValue) -> Option<Value> {
    match said {
        CstInputValue::String(text) => Some(Value::from(text)),
        CstInputValue::Object(entries) => {
            let mut table = InlineTable::new();
            for (key, value) in entries {
                table.insert(key, toml(value)?);
            }
            Some(Value::InlineTable(table))
        }
        CstInputValue::Null | CstInputValue::Bool(_) | CstInputValue::Number(_) | CstInputValue::Array(_) => {
            None
        }
    }
}

/// Whether a member has this value, however it is written.
fn says(known: &CstObject, key: &str, value: &CstInputValue) -> bool {
    let said = known.get(key).and_then(|member| member.value());
    said.is_some_and(|said| {
        let whole = format!("{{\"it\": {said}}}");
        Tree::parse(&whole, "entry.json".as_ref()).is_ok_and(|whole| whole.get("it") == Some(&tree(value)))
    })
}

fn tree(value: &CstInputValue) -> Tree {
    match value {
        CstInputValue::Null => Tree::Null,
        CstInputValue::Bool(flag) => Tree::Bool(*flag),
        CstInputValue::Number(text) => Tree::Number(text.clone()),
        CstInputValue::String(text) => Tree::Text(text.clone()),
        CstInputValue::Array(values) => Tree::List(values.iter().map(tree).collect()),
        CstInputValue::Object(entries) => {
            Tree::Table(entries.iter().map(|(key, value)| (key.clone(), tree(value))).collect())
        }
    }
}

fn parsed(text: &str) -> Result<CstRootNode, String> {
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|_| "it is not valid JSON".to_owned())
}

fn table<'d>(document: &'d mut DocumentMut, client: &Client) -> Option<&'d mut Table> {
    let key = *keys(client).first()?;
    let mut fresh = Table::new();
    fresh.set_implicit(true);
    document.entry(key).or_insert(Item::Table(fresh)).as_table_mut()
}

fn list<'d>(document: &'d mut DocumentMut, client: &Client) -> Option<&'d mut ArrayOfTables> {
    let key = *keys(client).first()?;
    document.entry(key).or_insert(Item::ArrayOfTables(ArrayOfTables::new())).as_array_of_tables_mut()
}

fn is_ours(entry: &Table) -> bool {
    entry.get("name").and_then(Item::as_str) == Some(NAME)
}

/// The place of the entry in a file of YAML.
fn slot(client: &Client) -> Slot<'static> {
    let holding = if client.entry == Entry::ListedYaml { Holding::List } else { Holding::Table };
    Slot { root: keys(client).first().copied().unwrap_or_default(), holding, name: NAME }
}

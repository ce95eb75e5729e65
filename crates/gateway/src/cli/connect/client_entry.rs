//! The entry for gripfast in the format of one client: inserts it into a config text and removes it, without touching
//! the rest.

use super::servers_key_path;
use super::yaml::{ServersShape, YamlSlot};
use crate::cli::import::{ClientFormat, ConnectEntry, FileLayout};
use gripfast::config::Tree;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value};

/// The name of the entry.
const NAME: &str = "gripfast";

/// The transport by which a client reaches gripfast.
#[derive(Debug)]
pub(super) enum ClientTransport {
    /// The URL of a gateway, with these headers.
    Url { url: String, headers: Vec<(String, String)> },
    /// A command that the client starts, and its arguments.
    Command(String, Vec<String>),
}

/// The entry as key and value pairs.
#[derive(Debug)]
pub(super) struct EntrySpec(Vec<(&'static str, CstInputValue)>);

impl EntrySpec {
    pub(super) fn of(client: &ClientFormat, way: &ClientTransport) -> Self {
        let text = |text: &str| CstInputValue::String(text.to_owned());
        let (url, headers) = match way {
            ClientTransport::Url { url, headers } => (url, headers),
            ClientTransport::Command(program, words) => {
                let words = words.iter().map(|word| text(word)).collect();
                return Self(vec![("command", text(program)), ("args", CstInputValue::Array(words))]);
            }
        };
        let mut entry = match client.entry {
            ConnectEntry::TypeHttp => vec![("type", text("http")), ("url", text(url))],
            ConnectEntry::TypeRemote => vec![("type", text("remote")), ("url", text(url))],
            ConnectEntry::TypeStreamableHttp => vec![("type", text("streamableHttp")), ("url", text(url))],
            ConnectEntry::ServerUrl => vec![("serverUrl", text(url))],
            ConnectEntry::Url | ConnectEntry::TomlUrl | ConnectEntry::YamlUrl | ConnectEntry::Command => {
                vec![("url", text(url))]
            }
            ConnectEntry::ListedToml => {
                vec![("name", text(NAME)), ("transport", text("http")), ("url", text(url))]
            }
            ConnectEntry::ListedYaml => {
                vec![("name", text(NAME)), ("type", text("streamable-http")), ("url", text(url))]
            }
            ConnectEntry::Goose => vec![
                ("name", text(NAME)),
                ("type", text("streamable_http")),
                ("uri", text(url)),
                ("enabled", CstInputValue::Bool(true)),
                // In seconds, as Goose itself writes it.
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

    /// An entry of the same shape with a placeholder target, to find out what connecting changes in a file.
    pub(super) fn placeholder(client: &ClientFormat) -> Self {
        let way = match client.entry {
            ConnectEntry::Command => ClientTransport::Command(NAME.to_owned(), vec!["stdio".to_owned()]),
            _ => ClientTransport::Url { url: "http://127.0.0.1:7331/mcp".to_owned(), headers: Vec::new() },
        };
        Self::of(client, &way)
    }

    /// The text with the entry added or updated.
    pub(super) fn insert_into(&self, client: &ClientFormat, before: &str) -> Result<String, String> {
        match client.entry.layout() {
            FileLayout::Json => self.insert_into_json(client, before),
            FileLayout::Toml => self.insert_into_toml(client, before),
            FileLayout::TomlList => self.insert_into_toml_list(client, before),
            FileLayout::Yaml => slot(client).insert(before, &self.entries()),
        }
    }

    /// The text without the entry.
    pub(super) fn remove_from(client: &ClientFormat, text: &str) -> Result<String, String> {
        match client.entry.layout() {
            FileLayout::Json => Self::remove_from_json(client, text),
            FileLayout::Toml => {
                let mut document = parse_toml(text)?;
                servers_table(&mut document, client).and_then(|servers| servers.remove(NAME));
                Ok(document.to_string())
            }
            FileLayout::TomlList => {
                let mut document = parse_toml(text)?;
                if let Some(servers) = servers_list(&mut document, client) {
                    servers.retain(|entry| !is_ours(entry));
                }
                Ok(document.to_string())
            }
            FileLayout::Yaml => slot(client).remove(text),
        }
    }

    fn remove_from_json(client: &ClientFormat, text: &str) -> Result<String, String> {
        let root = parsed(text)?;
        let Some(object) = root.object_value() else { return Ok(text.to_owned()) };
        let servers =
            servers_key_path(client).iter().try_fold(object, |object, key| object.object_value(key));
        match servers.and_then(|servers| servers.get(NAME)) {
            Some(entry) => entry.remove(),
            None => return Ok(text.to_owned()),
        }
        Ok(root.to_string())
    }

    /// The text without the table of servers, if that is empty.
    pub(super) fn without_empty_table(client: &ClientFormat, text: &str) -> Result<String, String> {
        match client.entry.layout() {
            // toml_edit does not write an empty table.
            FileLayout::Toml | FileLayout::TomlList => Ok(text.to_owned()),
            FileLayout::Yaml => {
                let root = servers_key_path(client).first().copied().unwrap_or_default();
                let is_empty = |line: &str| {
                    let value =
                        line.strip_prefix(root).and_then(|rest| rest.strip_prefix(':')).map(str::trim);
                    matches!(value, Some("{}" | "[]"))
                };
                Ok(text.split_inclusive('\n').filter(|line| !is_empty(line)).collect())
            }
            FileLayout::Json => {
                let root = parsed(text)?;
                let keys = servers_key_path(client);
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

    fn insert_into_json(&self, client: &ClientFormat, before: &str) -> Result<String, String> {
        let root = parsed(if before.trim().is_empty() { "{}\n" } else { before })?;
        let not_an_object = || "the key for servers does not hold an object".to_owned();
        let top = root.object_value_or_create().ok_or_else(not_an_object)?;
        let servers = servers_key_path(client)
            .iter()
            .try_fold(top, |object: CstObject, key| object.object_value_or_create(key));
        let servers = servers.ok_or_else(not_an_object)?;
        let entry = CstInputValue::Object(
            self.0.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
        );
        match servers.get(NAME) {
            Some(known) => match known.object_value() {
                // Members that the user added stay.
                Some(known) if self.is_contained_in(&known) => return Ok(before.to_owned()),
                Some(known) => self.update(&known),
                None => known.set_value(entry),
            },
            None => {
                servers.append(NAME, entry);
            }
        }
        Ok(root.to_string())
    }

    /// Returns true if an existing entry already has all these values, in any layout.
    fn is_contained_in(&self, known: &CstObject) -> bool {
        self.0.iter().all(|(key, value)| has_value(known, key, value))
            && self.conflicting_keys().all(|key| known.get(key).is_none())
    }

    /// Updates an existing entry, and leaves its other members alone.
    fn update(&self, known: &CstObject) {
        for (key, value) in &self.0 {
            match known.get(key) {
                Some(_) if has_value(known, key, value) => {}
                Some(member) => member.set_value(value.clone()),
                None => {
                    known.append(key, value.clone());
                }
            }
        }
        self.conflicting_keys().filter_map(|key| known.get(key)).for_each(|member| member.remove());
    }

    /// Members that would make the client connect to another target.
    fn conflicting_keys(&self) -> impl Iterator<Item = &'static str> {
        let is_ours = |key: &str| self.0.iter().any(|(ours, _)| *ours == key);
        ["command", "args", "url", "serverUrl", "httpUrl"].into_iter().filter(move |key| !is_ours(key))
    }

    fn insert_into_toml(&self, client: &ClientFormat, before: &str) -> Result<String, String> {
        let mut document = parse_toml(before)?;
        let servers =
            servers_table(&mut document, client).ok_or_else(|| "its servers are not tables".to_owned())?;
        let known = servers.entry(NAME).or_insert(Item::Table(Table::new()));
        let entry = known.as_table_like_mut().ok_or_else(|| format!("its `{NAME}` is not a table"))?;
        for (key, value) in &self.0 {
            match (value, to_toml(value)) {
                (CstInputValue::String(value), _) if entry.get(key).and_then(Item::as_str) == Some(value) => {
                }
                (_, Some(value)) => {
                    entry.insert(key, Item::Value(value));
                }
                (_, None) => {}
            }
        }
        Ok(document.to_string())
    }

    fn insert_into_toml_list(&self, client: &ClientFormat, before: &str) -> Result<String, String> {
        let mut document = parse_toml(before)?;
        let servers = servers_list(&mut document, client)
            .ok_or_else(|| "its servers are not a list of tables".to_owned())?;
        let has_text =
            |entry: &Table, key: &str, value: &str| entry.get(key).and_then(Item::as_str) == Some(value);
        let mut wanted = Table::new();
        for (key, value) in &self.0 {
            if let Some(value) = to_toml(value) {
                wanted.insert(key, Item::Value(value));
            }
        }
        let is_present = |entry: &Table| {
            wanted.iter().all(|(key, value)| has_text(entry, key, value.as_str().unwrap_or_default()))
        };
        if servers.iter().any(is_present) {
            return Ok(before.to_owned());
        }
        if let Some(known) = servers.iter_mut().find(|entry| is_ours(entry)) {
            // Members that the user added stay.
            known.extend(wanted);
        } else {
            servers.push(wanted);
        }
        Ok(document.to_string())
    }

    fn entries(&self) -> Vec<(String, Tree)> {
        self.0.iter().map(|(key, value)| ((*key).to_owned(), to_tree(value))).collect()
    }
}

/// The entry for gripfast in a file, if there is one.
pub(super) fn find_entry<'t>(client: &ClientFormat, tree: &'t Tree) -> Option<&'t Tree> {
    let servers = servers_key_path(client).iter().try_fold(tree, |tree, key| tree.get(key))?;
    match servers {
        Tree::List(entries) => {
            entries.iter().find(|entry| entry.get("name").and_then(Tree::text) == Some(NAME))
        }
        table => table.get(NAME),
    }
}

/// The headers of an entry.
pub(super) fn headers_of(client: &ClientFormat, entry: &Tree) -> Vec<(String, String)> {
    let (key, inner) = header_keys(client);
    let table = entry.get(key).and_then(|table| match inner {
        Some(inner) => table.get(inner),
        None => Some(table),
    });
    let pairs = table.map(Tree::entries).unwrap_or_default().iter();
    pairs.filter_map(|(name, value)| Some((name.clone(), value.text()?.to_owned()))).collect()
}

/// The key of the headers in a client's entry, and the inner key if they are nested one level deeper.
fn header_keys(client: &ClientFormat) -> (&'static str, Option<&'static str>) {
    match client.entry {
        ConnectEntry::TomlUrl => ("http_headers", None),
        ConnectEntry::ListedYaml => ("requestOptions", Some("headers")),
        _ => ("headers", None),
    }
}

fn to_toml(value: &CstInputValue) -> Option<Value> {
    match value {
        CstInputValue::String(text) => Some(Value::from(text)),
        CstInputValue::Object(entries) => {
            let mut table = InlineTable::new();
            for (key, value) in entries {
                table.insert(key, to_toml(value)?);
            }
            Some(Value::InlineTable(table))
        }
        CstInputValue::Null | CstInputValue::Bool(_) | CstInputValue::Number(_) | CstInputValue::Array(_) => {
            None
        }
    }
}

/// Returns true if a member has this value, in any layout.
fn has_value(known: &CstObject, key: &str, value: &CstInputValue) -> bool {
    let present = known.get(key).and_then(|member| member.value());
    present.is_some_and(|present| {
        let whole = format!("{{\"it\": {present}}}");
        Tree::parse(&whole, "entry.json".as_ref()).is_ok_and(|whole| whole.get("it") == Some(&to_tree(value)))
    })
}

fn to_tree(value: &CstInputValue) -> Tree {
    match value {
        CstInputValue::Null => Tree::Null,
        CstInputValue::Bool(flag) => Tree::Bool(*flag),
        CstInputValue::Number(text) => Tree::Number(text.clone()),
        CstInputValue::String(text) => Tree::Text(text.clone()),
        CstInputValue::Array(values) => Tree::List(values.iter().map(to_tree).collect()),
        CstInputValue::Object(entries) => {
            Tree::Table(entries.iter().map(|(key, value)| (key.clone(), to_tree(value))).collect())
        }
    }
}

fn parsed(text: &str) -> Result<CstRootNode, String> {
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|_| "it is not valid JSON".to_owned())
}

fn parse_toml(text: &str) -> Result<DocumentMut, String> {
    text.parse().map_err(|_| "it is not valid TOML".to_owned())
}

fn servers_table<'d>(document: &'d mut DocumentMut, client: &ClientFormat) -> Option<&'d mut Table> {
    let key = *servers_key_path(client).first()?;
    let mut fresh = Table::new();
    fresh.set_implicit(true);
    document.entry(key).or_insert(Item::Table(fresh)).as_table_mut()
}

fn servers_list<'d>(document: &'d mut DocumentMut, client: &ClientFormat) -> Option<&'d mut ArrayOfTables> {
    let key = *servers_key_path(client).first()?;
    document.entry(key).or_insert(Item::ArrayOfTables(ArrayOfTables::new())).as_array_of_tables_mut()
}

fn is_ours(entry: &Table) -> bool {
    entry.get("name").and_then(Item::as_str) == Some(NAME)
}

/// The slot of the entry in a YAML file.
fn slot(client: &ClientFormat) -> YamlSlot<'static> {
    let holding =
        if client.entry == ConnectEntry::ListedYaml { ServersShape::List } else { ServersShape::Table };
    YamlSlot {
        root: servers_key_path(client).first().copied().unwrap_or_default(),
        shape: holding,
        name: NAME,
    }
}

//! The entry for gripfast in the words of one client, put into a text and taken out of it without touching the
//! rest.

use super::keys;
use crate::cli::import::{Client, Entry};
use gripfast::config::Tree;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use toml_edit::{DocumentMut, Item, Table, value};

/// The name of the entry.
const NAME: &str = "gripfast";

/// How a client reaches gripfast.
#[derive(Debug)]
pub(super) enum Way {
    /// At the address of a gateway.
    Url(String),
    /// By starting it.
    Command(String, Vec<String>),
}

/// The entry.
#[derive(Debug)]
pub(super) struct Wanted(Vec<(&'static str, CstInputValue)>);

impl Wanted {
    pub(super) fn of(client: &Client, way: &Way) -> Self {
        let text = |text: &str| CstInputValue::String(text.to_owned());
        let url = match way {
            Way::Url(url) => url,
            Way::Command(program, words) => {
                let words = words.iter().map(|word| text(word)).collect();
                return Self(vec![("command", text(program)), ("args", CstInputValue::Array(words))]);
            }
        };
        Self(match client.entry {
            Entry::TypeHttp => vec![("type", text("http")), ("url", text(url))],
            Entry::TypeRemote => vec![("type", text("remote")), ("url", text(url))],
            Entry::TypeStreamableHttp => vec![("type", text("streamableHttp")), ("url", text(url))],
            Entry::ServerUrl => vec![("serverUrl", text(url))],
            Entry::Url | Entry::TomlUrl | Entry::ByHand | Entry::Command => vec![("url", text(url))],
        })
    }

    /// The text with the entry in it.
    pub(super) fn put_into(&self, client: &Client, before: &str) -> Result<String, String> {
        match client.entry {
            Entry::TomlUrl => self.put_into_toml(client, before),
            _ => self.put_into_json(client, before),
        }
    }

    /// The text without the entry.
    pub(super) fn taken_out_of(&self, client: &Client, text: &str) -> Result<String, String> {
        if client.entry == Entry::TomlUrl {
            let mut document: DocumentMut = text.parse().map_err(|_| "it is not valid TOML".to_owned())?;
            if let Some(servers) = table(&mut document, client) {
                servers.remove(NAME);
            }
            return Ok(document.to_string());
        }
        let root = parsed(text)?;
        let Some(object) = root.object_value() else { return Ok(text.to_owned()) };
        let servers = keys(client).iter().try_fold(object, |object, key| object.object_value(key));
        match servers.and_then(|servers| servers.get(NAME)) {
            Some(entry) => entry.remove(),
            None => return Ok(text.to_owned()),
        }
        Ok(root.to_string())
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
            Some(known) if known.value().is_some_and(|value| self.says(&value.to_string())) => {
                return Ok(before.to_owned());
            }
            Some(known) => known.set_value(entry),
            None => {
                servers.append(NAME, entry);
            }
        }
        Ok(root.to_string())
    }

    fn put_into_toml(&self, client: &Client, before: &str) -> Result<String, String> {
        let mut document: DocumentMut = before.parse().map_err(|_| "it is not valid TOML".to_owned())?;
        let servers = table(&mut document, client).ok_or_else(|| "its servers are not tables".to_owned())?;
        let known = servers.entry(NAME).or_insert(Item::Table(Table::new()));
        let entry = known.as_table_like_mut().ok_or_else(|| format!("its `{NAME}` is no table"))?;
        for (key, said) in &self.0 {
            let CstInputValue::String(said) = said else { continue };
            if entry.get(key).and_then(Item::as_str) != Some(said) {
                entry.insert(key, value(said));
            }
        }
        Ok(document.to_string())
    }

    /// What a person would write, for files that are not edited.
    pub(super) fn by_hand(&self, client: &Client) -> String {
        let url = self.0.iter().find_map(|(_, value)| match value {
            CstInputValue::String(text) => Some(text.as_str()),
            _ => None,
        });
        let url = url.unwrap_or_default();
        match client.id {
            "goose" => format!(
                "extensions:\n  {NAME}:\n    name: {NAME}\n    type: streamable_http\n    uri: {url}\n    enabled: true\n    timeout: 300"
            ),
            "continue" => format!("mcpServers:\n  - name: {NAME}\n    type: streamable-http\n    url: {url}"),
            "vibe" => format!("[[mcp_servers]]\nname = \"{NAME}\"\ntransport = \"http\"\nurl = \"{url}\""),
            _ => format!("{}:\n  {NAME}:\n    url: {url}", keys(client).join(".")),
        }
    }

    /// Whether an entry says this already, however it is laid out.
    fn says(&self, json: &str) -> bool {
        let ours: Vec<(String, Tree)> =
            self.0.iter().map(|(key, value)| ((*key).to_owned(), tree(value))).collect();
        Tree::parse(json, "entry.json".as_ref()).is_ok_and(|theirs| theirs == Tree::Table(ours))
    }
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

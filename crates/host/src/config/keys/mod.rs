//! Every key that a config of our own form may have: its name, what may stand under it, what it is when nobody says
//! anything, and its page of the manual. The decoder takes keys by these tables, so it knows no key and no range that
//! is not here; the nearest name for a misspelt one, the JSON Schema, the reference and the defaults of the config in
//! force come from them too. What other clients call our keys is not here: the decoder knows that.

mod file;
mod gateway;
mod page;
mod rules;
mod schema;
mod server;
mod supervision;
pub(super) mod words;

pub(super) use file::FILE;
pub(super) use gateway::{GATEWAY, JWT, TLS};
pub use page::manual;
pub(super) use rules::{BUDGET, CLIENT, LISTS, RESTORED};
pub use schema::schema;
pub(super) use server::{OAUTH, SERVER};

use super::spec::{GatewayConfig, ServerSpec};
use super::units::{self, Span};
use std::ops::RangeInclusive;
use std::time::Duration;

/// A table of the config.
#[derive(Debug)]
pub(super) struct Table {
    /// What it is about, in a sentence or two.
    pub(super) about: &'static str,
    /// Its keys, in groups that belong together.
    pub(super) groups: &'static [&'static [Row]],
}

impl Table {
    /// Its keys in the order of the manual.
    pub(super) fn rows(&self) -> impl Iterator<Item = &'static Row> + Clone + use<> {
        self.groups.iter().flat_map(|group| group.iter())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        self.rows().map(|row| row.name)
    }

    pub(super) fn row(&self, name: &str) -> Option<&'static Row> {
        self.rows().find(|row| row.name == name)
    }
}

/// One key.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) usual: Usual,
    /// Its page of the manual: what it does, when to change it, what goes wrong when it is too small or too large.
    pub(super) about: &'static str,
}

/// What may stand under a key.
#[derive(Debug)]
pub(super) enum Kind {
    /// True or false.
    Flag,
    /// A whole number.
    Number(RangeInclusive<u32>),
    /// A text such as `"30s"`.
    Duration(Span),
    /// A duration, or this one word.
    DurationOr(Span, &'static str),
    /// A number of bytes, or a text such as `"16MiB"`.
    Size(RangeInclusive<u64>),
    /// One of a few words.
    Choice(fn() -> Vec<&'static str>),
    /// A text. What it has to look like is in the manual.
    Text,
    /// A text that may refer to variables and files.
    Template,
    /// A list of texts.
    Words,
    /// A list of some of a few words.
    Choices(&'static [&'static str]),
    /// A list of texts that may refer to variables and files.
    Templates,
    /// Whatever JSON has, with texts that may refer to variables and files.
    Anything,
    /// A table with keys of ours.
    Table(&'static Table),
    /// A list of such tables.
    Tables(&'static Table),
    /// A table with those keys of a server that may be the same for all.
    ServerKeys,
    /// A table with keys of the user's own.
    Map(&'static Self),
}

/// Keys of a server that are its own: what it is, what it is shown as a credential, what it is called.
const OWN: &[&str] = &[
    "command",
    "args",
    "cwd",
    "url",
    "transport",
    "headers",
    "redirects",
    "client_cert",
    "client_key",
    "oauth",
    "prefix",
    "restore",
];

/// Whether a key of a server may stand in `[defaults]`.
pub(super) fn may_be_default(name: &str) -> bool {
    SERVER.row(name).is_some() && !OWN.contains(&name)
}

/// What holds when nobody says anything.
#[derive(Debug)]
pub(super) enum Usual {
    /// It has to be said.
    Needed,
    /// Nothing.
    Nothing,
    /// Something that is not the same everywhere, in words.
    Words(&'static str),
    /// This, as it would be written.
    Is(&'static str),
    /// What a config of the gateway without this key has, as it would be written.
    Gateway(fn(&GatewayConfig) -> String),
    /// What the spec of a server without this key has, as it would be written.
    Server(fn(&ServerSpec) -> String),
}

/// A duration as it would be written.
fn show(duration: Duration) -> String {
    units::show(duration)
}

/// A duration that may be off, as it would be written.
fn or_off(duration: Option<Duration>) -> String {
    units::show(duration.unwrap_or_default())
}

/// A size as it would be written.
fn size(bytes: u64) -> String {
    units::show_size(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::collections::BTreeSet;

    /// Every key with its full name in front of what may stand there, as a file of ours would have it.
    fn all(path: &str, table: &'static Table, found: &mut Vec<(String, &'static Row)>) {
        for row in table.rows() {
            let path = if path.is_empty() { row.name.to_owned() } else { format!("{path}.{}", row.name) };
            match &row.kind {
                Kind::Table(inner) => all(&path, inner, found),
                Kind::Map(Kind::Table(inner)) => all(&format!("{path}.x"), inner, found),
                _ => {}
            }
            found.push((path, row));
        }
    }

    fn everything() -> Vec<(String, &'static Row)> {
        let mut found = Vec::new();
        all("", &FILE, &mut found);
        found
    }

    fn parse(text: &str) -> Config {
        Config::parse(text, "gripfast.toml".as_ref()).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// What each table needs to be a good one.
    const AROUND: &[(&str, &str)] = &[
        ("servers.x.oauth", "servers.x.url = \"https://h.example\"\nservers.x.oauth.client_id = \"c\"\n"),
        ("servers.x", "servers.x.command = \"true\"\n"),
        (
            "gateway.auth.jwt",
            "gateway.auth.jwt.issuer = \"i\"\ngateway.auth.jwt.audience = \"a\"\ngateway.auth.jwt.jwks = \"f\"\n",
        ),
        ("budgets.x", "budgets.x.in_flight = 1\nservers.y.command = \"true\"\n"),
        ("clients.x", "clients.x.resources.deny = [\"y/no\"]\nservers.y.command = \"true\"\n"),
        ("", "servers.y.command = \"true\"\n"),
    ];

    #[test]
    fn a_config_that_says_the_defaults_is_the_config_that_says_nothing() {
        let mut said = 0;
        for (path, row) in everything() {
            // Patterns for resources are said around the table.
            let Some(usual) = row.usual.written().filter(|_| path != "clients.x.resources.deny") else {
                continue;
            };
            let (_, around) = AROUND.iter().find(|(table, _)| path.starts_with(table)).unwrap();
            let usual = row.kind.quoted(&usual);
            let [without, with] =
                ["", &format!("{path} = {usual}\n")].map(|line| parse(&format!("{around}{line}")));
            assert!(
                with.servers.iter().all(|server| server.spec.is_ok()),
                "{path} = {usual}: {:?}",
                with.servers
            );
            assert_eq!(with, without, "{path} = {usual}");
            said += 1;
        }
        assert!(said > 50, "{said}");
    }

    #[test]
    fn every_key_has_its_page_of_the_manual_and_no_name_comes_twice() {
        let mut paths = BTreeSet::new();
        for (path, row) in everything() {
            assert!(row.about.ends_with('.') && row.about.len() > 8, "{path}: {}", row.about);
            assert!(
                !row.about.contains('|') && !row.about.contains('\n'),
                "{path} stands in a table of Markdown"
            );
            assert!(paths.insert(path.clone()), "{path} comes twice");
        }
    }

    #[test]
    fn the_schema_has_every_key_with_its_default() {
        let schema = schema();
        let server = &schema["properties"]["servers"]["additionalProperties"];
        assert_eq!(server["properties"]["max_in_flight"]["default"], 64);
        assert_eq!(server["properties"]["timeouts"]["properties"]["call"]["default"], "5m");
        assert_eq!(server["properties"]["lazy"]["default"], false);
        assert_eq!(server["properties"]["when_down"]["enum"], serde_json::json!(["keep", "withdraw"]));
        assert_eq!(server["additionalProperties"], false);
        for name in GATEWAY.names() {
            assert!(schema["properties"]["gateway"]["properties"][name]["description"].is_string(), "{name}");
        }
    }
}

//! Tables of all keys of the native config format: name, kind of value, default and manual entry. The decoder, the
//! suggestions for misspelt keys, the JSON Schema, the reference and the effective config are all made from them. The
//! names that other clients use for these keys are in the decoder.

pub(super) mod choices;
mod file;
mod gateway;
mod manual;
mod rules;
mod schema;
mod server;
mod supervision;

pub use super::keys::manual::manual;
pub(super) use file::FILE;
pub(super) use gateway::{GATEWAY, JWT, TLS};
pub(super) use rules::{BUDGET, CLIENT, LISTS, RESTORE_CALL};
pub use schema::schema;
pub(super) use server::{OAUTH, SERVER};

use super::spec::{GatewayConfig, ServerSpec};
use super::units::{self, DurationRange};
use std::ops::RangeInclusive;
use std::time::Duration;

/// A table of the config.
#[derive(Debug)]
pub(super) struct Table {
    /// Manual entry of the table, in a sentence or two.
    pub(super) doc: &'static str,
    /// Keys, in groups that belong together.
    pub(super) groups: &'static [&'static [Row]],
}

impl Table {
    /// The keys in the order of the manual.
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
    pub(super) kind: ValueKind,
    pub(super) default: DefaultValue,
    /// Manual entry: what the key does, when to change it, what goes wrong if the value is too small or too large.
    pub(super) doc: &'static str,
}

/// Kind of value that a key takes.
#[derive(Debug)]
pub(super) enum ValueKind {
    /// True or false.
    Flag,
    /// A whole number.
    Number(RangeInclusive<u32>),
    /// A string such as `"30s"`.
    Duration(DurationRange),
    /// A duration, or this one word.
    DurationOr(DurationRange, &'static str),
    /// A number of bytes, or a string such as `"16MiB"`.
    Size(RangeInclusive<u64>),
    /// One of a few words.
    Choice(fn() -> Vec<&'static str>),
    /// A string. The manual entry describes its form.
    Text,
    /// A string that may refer to variables and files.
    Template,
    /// A list of strings.
    TextList,
    /// A list of words from a fixed set.
    Choices(&'static [&'static str]),
    /// A list of strings that may refer to variables and files.
    Templates,
    /// Any JSON value. Its strings may refer to variables and files.
    AnyJson,
    /// A table with known keys.
    Table(&'static Table),
    /// A list of such tables.
    Tables(&'static Table),
    /// A table with the server keys that are allowed in `[defaults]`.
    ServerKeys,
    /// A table whose keys the user chooses.
    Map(&'static Self),
}

/// Keys that are not allowed in `[defaults]`, because they belong to one server: its target, credentials and name.
const SERVER_ONLY_KEYS: &[&str] = &[
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

/// Returns whether a server key is allowed in `[defaults]`.
pub(super) fn may_be_default(name: &str) -> bool {
    SERVER.row(name).is_some() && !SERVER_ONLY_KEYS.contains(&name)
}

/// Value of a key that the config does not set.
#[derive(Debug)]
pub(super) enum DefaultValue {
    /// The key must be set.
    Required,
    /// No value.
    Absent,
    /// A default that depends on the platform or on other keys, described in words.
    Described(&'static str),
    /// A fixed value, as a config file would write it.
    Literal(&'static str),
    /// The value in the default [`GatewayConfig`], as a config file would write it.
    Gateway(fn(&GatewayConfig) -> String),
    /// The value in the default [`ServerSpec`], as a config file would write it.
    Server(fn(&ServerSpec) -> String),
}

/// A duration as a config file would write it.
fn show(duration: Duration) -> String {
    units::format_duration(duration)
}

/// A duration that may be off, as a config file would write it.
fn or_off(duration: Option<Duration>) -> String {
    units::format_duration(duration.unwrap_or_default())
}

/// A size as a config file would write it.
fn size(bytes: u64) -> String {
    units::format_size(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::collections::BTreeSet;

    /// Collects every key of a table and of the tables inside it, with its full path.
    fn all(path: &str, table: &'static Table, found: &mut Vec<(String, &'static Row)>) {
        for row in table.rows() {
            let path = if path.is_empty() { row.name.to_owned() } else { format!("{path}.{}", row.name) };
            match &row.kind {
                ValueKind::Table(inner) => all(&path, inner, found),
                ValueKind::Map(ValueKind::Table(inner)) => all(&format!("{path}.x"), inner, found),
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

    /// The keys that each table needs to be valid.
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
    fn a_config_that_sets_every_default_equals_one_that_sets_nothing() {
        let mut checked = 0;
        for (path, row) in everything() {
            // `AROUND` already sets the patterns for resources.
            let Some(default) = row.default.written().filter(|_| path != "clients.x.resources.deny") else {
                continue;
            };
            let (_, around) = AROUND.iter().find(|(table, _)| path.starts_with(table)).unwrap();
            let default = row.kind.quoted(&default);
            let [without, with] =
                ["", &format!("{path} = {default}\n")].map(|line| parse(&format!("{around}{line}")));
            assert!(
                with.servers.iter().all(|server| server.spec.is_ok()),
                "{path} = {default}: {:?}",
                with.servers
            );
            assert_eq!(with, without, "{path} = {default}");
            checked += 1;
        }
        assert!(checked > 50, "{checked}");
    }

    #[test]
    fn every_key_has_a_manual_entry_and_no_path_occurs_twice() {
        let mut paths = BTreeSet::new();
        for (path, row) in everything() {
            assert!(row.doc.ends_with('.') && row.doc.len() > 8, "{path}: {}", row.doc);
            assert!(
                !row.doc.contains('|') && !row.doc.contains('\n'),
                "{path}: the text is a cell of a Markdown table"
            );
            assert!(paths.insert(path.clone()), "{path} occurs twice");
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

//! The table `[defaults]`: keys for all servers. They are copied into the tree before it is decoded, so that a server's
//! own key takes precedence and every key means the same in both places.

use super::keys::{Row, Section};
use super::node::{KeyNode, Node, Position, Value};
use super::sections::ServerSpec;

/// The name of the table.
pub(super) const NAME: &str = "defaults";

/// Keys that are not allowed here, because they belong to one server: its target, credentials and name.
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

/// Keys that only a server with a `command` takes.
const COMMAND_KEYS: &[&str] = &["env", "inherit_env", "network_env", "spare"];
/// Keys that only a server with a `url` takes.
const URL_KEYS: &[&str] = &["ca_file"];
/// Keys with the same meaning, including the names of other clients. A server that sets one of them has set the key.
const ALIASES: &[&[&str]] =
    &[&["disabled", "enabled"], &["env", "environment", "envs"], &["inherit_env", "env_keys", "env_vars"]];

/// Copies the keys of `[defaults]` into each server that does not set them.
pub(super) fn apply(mut root: Node, roots: &[&str]) -> Node {
    let Value::Table(entries) = &mut root.value else { return root };
    let defaults = entries.iter().find(|(key, _)| key.name == NAME).map(|(_, node)| node.value.clone());
    let Some(Value::Table(defaults)) = defaults else { return root };
    let servers = entries.iter_mut().find(|(key, _)| roots.contains(&key.name.as_str()));
    if let Some((_, Node { value: Value::Table(servers), .. })) = servers {
        for (_, server) in servers {
            if let Value::Table(server) = &mut server.value {
                fill(server, &defaults);
            }
        }
    }
    root
}

fn fill(server: &mut Vec<(KeyNode, Node)>, defaults: &[(KeyNode, Node)]) {
    let has = |names: &[&str]| server.iter().any(|(key, _)| names.contains(&key.name.as_str()));
    let other_kind = if has(&["command", "cmd"]) { URL_KEYS } else { COMMAND_KEYS };
    let allowed = rows();
    let fitting = defaults.iter().filter(|(key, _)| {
        allowed.iter().any(|row| row.name == key.name) && !other_kind.contains(&key.name.as_str())
    });
    for (key, default) in fitting {
        let same = ALIASES.iter().find(|names| names.contains(&key.name.as_str()));
        let names = same.copied().unwrap_or(&[]);
        let own = server
            .iter_mut()
            .find(|(own, _)| own.name == key.name || names.contains(&own.name.as_str()))
            .map(|(_, node)| &mut node.value);
        match (own, &default.value) {
            (None | Some(Value::Null), _) => server.push((key.clone(), default.clone())),
            (Some(Value::Table(own)), Value::Table(default)) => fill_table(own, default),
            // The server's own value wins.
            (Some(_), _) => {}
        }
    }
}

/// Adds missing entries to a table inside a server's table, such as `timeouts.call`.
fn fill_table(own: &mut Vec<(KeyNode, Node)>, defaults: &[(KeyNode, Node)]) {
    for (key, default) in defaults {
        match (own.iter_mut().find(|(own, _)| own.name == key.name), &default.value) {
            (None, _) => own.push((key.clone(), default.clone())),
            (Some((_, Node { value: Value::Table(own), .. })), Value::Table(default)) => {
                fill_table(own, default);
            }
            (Some(_), _) => {}
        }
    }
}

/// Two servers with nothing but the defaults, one with a `command` and one with a `url`. A mistake in them is a mistake
/// in `[defaults]`.
pub(super) fn samples(defaults: &[(KeyNode, Node)], at: Position) -> [Node; 2] {
    [("command", "x"), ("url", "https://localhost/")].map(|(key, value)| {
        let key = KeyNode { name: key.to_owned(), at };
        let mut server = vec![(key, Node { value: Value::Str(value.to_owned()), at })];
        fill(&mut server, defaults);
        Node { value: Value::Table(server), at }
    })
}

/// The server keys that are allowed in `[defaults]`.
pub(super) fn rows() -> Vec<Row> {
    ServerSpec::rows().into_iter().filter(|row| !SERVER_ONLY_KEYS.contains(&row.name)).collect()
}

//! The table `[defaults]`: keys for all servers. They are put into the tree before it is decoded, so that a server's own
//! key wins and every key means the same in both places.

use super::keys::{self, SERVER};
use super::node::{Key, Node, Position, Value};

/// The name of the table.
pub(super) const NAME: &str = "defaults";

/// Keys that only a server with a `command` has.
const OF_COMMANDS: &[&str] = &["env", "inherit_env", "network_env", "spare"];
/// Keys that only a server with a `url` has.
const OF_URLS: &[&str] = &["ca_file"];
/// Other spellings of a key, in files of other clients too. A server that has one of them has the key.
const SAME: &[&[&str]] =
    &[&["disabled", "enabled"], &["env", "environment", "envs"], &["inherit_env", "env_keys", "env_vars"]];

/// The tree with the keys of `[defaults]` in each server that does not have them.
pub(super) fn applied(mut root: Node, roots: &[&str]) -> Node {
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

fn fill(server: &mut Vec<(Key, Node)>, defaults: &[(Key, Node)]) {
    let has = |names: &[&str]| server.iter().any(|(key, _)| names.contains(&key.name.as_str()));
    let other_kind = if has(&["command", "cmd"]) { OF_URLS } else { OF_COMMANDS };
    let fitting = defaults
        .iter()
        .filter(|(key, _)| keys::may_be_default(&key.name) && !other_kind.contains(&key.name.as_str()));
    for (key, default) in fitting {
        let same = SAME.iter().find(|names| names.contains(&key.name.as_str()));
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

/// Adds the entries that a table inside a server's table does not have, such as `timeouts.call`.
fn fill_table(own: &mut Vec<(Key, Node)>, defaults: &[(Key, Node)]) {
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

/// Two servers that have nothing but the defaults, one with a `command` and one with a `url`: what is wrong with them is
/// wrong with `[defaults]`.
pub(super) fn samples(defaults: &[(Key, Node)], at: Position) -> [Node; 2] {
    [("command", "x"), ("url", "https://localhost/")].map(|(key, value)| {
        let key = Key { name: key.to_owned(), at };
        let mut server = vec![(key, Node { value: Value::Str(value.to_owned()), at })];
        fill(&mut server, defaults);
        Node { value: Value::Table(server), at }
    })
}

/// The keys that may stand in `[defaults]`.
pub(super) fn names() -> impl Iterator<Item = &'static str> + Clone {
    SERVER.names().filter(|name| keys::may_be_default(name))
}

//! Decodes the tree into a [`Config`]. This module handles the file as a whole: its dialect, the key that holds the
//! servers, and unknown keys. An error here is an error of the file; an error inside a server's table is kept with that
//! server and does not affect the others.

use super::defaults;
use super::diagnostic::{Diagnostic, quoted};
use super::fields::{Field, FileDialect, Problems, unknown_key};
use super::formats::Format;
use super::keys::Section;
use super::node::{KeyNode, Node, Position, Value};
use super::sections::{self, FileKeys, ServerSpec, Target};
use super::{Config, ServerEntry};

/// Keys that hold the servers. In TOML only the first and the last: no client writes the other one in TOML.
const ROOTS: &[&str] = &["servers", "mcpServers", "mcp_servers"];

/// The keys that may hold the servers in a format.
pub(super) fn roots(format: Format) -> &'static [&'static str] {
    match format {
        Format::Toml => &["servers", "mcp_servers"],
        Format::Jsonc | Format::Yaml => ROOTS,
    }
}

/// Keys under which other clients keep their servers, for a better error than "unknown key".
const FOREIGN_ROOTS: &[(&str, &str)] = &[
    ("context_servers", "Zed's key"),
    ("mcp", "opencode's key"),
    ("extensions", "Goose's key"),
    ("amp.mcpServers", "Amp's key"),
    ("mcpServers", "the key of JSON files"),
];

/// Decodes a whole file. `root` is `None` if the file is empty.
pub(super) fn config(root: Option<&Node>, format: Format) -> Result<Config, Vec<Diagnostic>> {
    let Some(root) = root else {
        return Err(vec![empty(Position::START, format)]);
    };
    let Value::Table(entries) = &root.value else {
        let message = format!("expected a table at the top, found {}", root.value.kind());
        return Err(vec![Diagnostic::error("", root.at, message)]);
    };
    File { entries, format, at: root.at }.decode()
}

struct File<'n> {
    entries: &'n [(KeyNode, Node)],
    format: Format,
    at: Position,
}

impl<'n> File<'n> {
    fn decode(self) -> Result<Config, Vec<Diagnostic>> {
        let mut problems = Problems::default();
        let root = self.root(&mut problems);
        let origin = match (root, self.format) {
            (Some((key, _)), Format::Yaml) if key.name == "mcp_servers" => FileDialect::Hermes,
            (Some((key, _)), Format::Toml) if key.name == "mcp_servers" => FileDialect::Foreign,
            (_, Format::Toml) => FileDialect::Native,
            (_, Format::Jsonc | Format::Yaml) => FileDialect::Foreign,
        };
        self.unknown_top_level_keys(root, origin, &mut problems);
        if root.is_none()
            && self.get("gateway").is_none()
            && origin != FileDialect::Native
            && problems.errors.is_empty()
        {
            problems.error(self.no_root());
        }

        let gateway = self.field("gateway").map(|field| sections::gateway(&field, &mut problems));
        if let Some((key, node)) = self.get(defaults::NAME) {
            check_defaults(key, node, origin, &mut problems);
        }
        let clients = self.field("clients").map(|field| sections::clients(&field, &mut problems));
        let budgets = self.field("budgets").map(|field| sections::budgets(&field, &mut problems));
        let cluster = self.field("cluster").map(|field| sections::cluster(&field, &mut problems));
        let mut servers =
            root.map(|(key, node)| servers(key, node, origin, &mut problems)).unwrap_or_default();
        if servers.is_empty() && problems.errors.is_empty() {
            let hint = match (self.format, root) {
                (Format::Toml, _) => "add a table `[servers.NAME]` with a `command` or a `url`".to_owned(),
                (Format::Jsonc, Some((key, _))) => {
                    format!("add one to `{}`: \"NAME\": {{ \"command\": \"…\" }}, or with a `url`", key.name)
                }
                (Format::Yaml, Some((key, _))) => {
                    format!("add one to `{}`: a NAME, and under it a `command` or a `url`", key.name)
                }
                (Format::Jsonc | Format::Yaml, None) => {
                    format!("put the servers under `{}`", preferred_root(self.format))
                }
            };
            let at = root.map_or(self.at, |(key, _)| key.at);
            problems.warning(Diagnostic::warning("", at, "no servers in this file").with_hint(hint));
        }
        if !problems.errors.is_empty() {
            return Err(problems.errors);
        }
        let gateway = gateway.unwrap_or_default();
        for spec in servers.iter_mut().filter_map(|entry| entry.spec.as_mut().ok()) {
            if let Target::Url { tls, .. } = &mut spec.target {
                tls.strict_modes = gateway.access.strict_modes;
            }
        }
        Ok(Config {
            gateway,
            servers,
            clients: clients.unwrap_or_default(),
            budgets: budgets.unwrap_or_default(),
            cluster,
            warnings: problems.warnings,
            ..Config::default()
        })
    }

    fn get(&self, name: &str) -> Option<&'n (KeyNode, Node)> {
        self.entries.iter().find(|(key, _)| key.name == name)
    }

    fn field(&self, name: &str) -> Option<Field<'n>> {
        self.get(name).map(|(key, node)| Field::top(key, node))
    }

    fn roots(&self) -> &'static [&'static str] {
        roots(self.format)
    }

    fn root(&self, problems: &mut Problems) -> Option<&'n (KeyNode, Node)> {
        let mut found = self.entries.iter().filter(|(key, _)| self.roots().contains(&key.name.as_str()));
        let root = found.next();
        if let (Some((first, _)), Some((second, _))) = (root, found.next()) {
            let message = format!("both `{}` and `{}` hold servers", first.name, second.name);
            problems.error(
                Diagnostic::error(&second.name, second.at, message)
                    .with_hint(format!("move all of them under `{}`", first.name)),
            );
        }
        root
    }

    /// Reports unknown top-level keys: each as an error in a native file, together as one warning in other files.
    fn unknown_top_level_keys(
        &self,
        root: Option<&(KeyNode, Node)>,
        origin: FileDialect,
        problems: &mut Problems,
    ) {
        let names: Vec<&str> = FileKeys::rows().iter().map(|row| row.name).collect();
        let known = |name: &str| self.roots().contains(&name) || names.contains(&name) || name == "$schema";
        let unknown: Vec<&KeyNode> =
            self.entries.iter().map(|(key, _)| key).filter(|key| !known(&key.name)).collect();
        match origin {
            FileDialect::Native => {
                for key in unknown {
                    problems.error(match self.misplaced(key) {
                        Some(diagnostic) => diagnostic,
                        None => unknown_key(key, "", names.iter().copied()),
                    });
                }
            }
            FileDialect::Foreign | FileDialect::Hermes if root.is_some() => {
                let [first, ..] = unknown.as_slice() else { return };
                let names: Vec<String> = unknown.iter().take(5).map(|key| quoted(&key.name)).collect();
                let more = match unknown.len().saturating_sub(names.len()) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let message = format!("ignored keys that are not about servers: {}{more}", names.join(", "));
                problems.warning(Diagnostic::warning(&first.name, first.at, message));
            }
            FileDialect::Foreign | FileDialect::Hermes => {
                problems.errors.extend(unknown.into_iter().find_map(|key| self.misplaced(key)));
            }
        }
    }

    /// The error for servers under the key of another client.
    fn misplaced(&self, key: &KeyNode) -> Option<Diagnostic> {
        let (_, whose) = FOREIGN_ROOTS.iter().find(|(name, _)| *name == key.name)?;
        let message = format!("found `{}` ({whose}), expected {}", key.name, self.expected());
        let hint = format!("rename it to `{}`", preferred_root(self.format));
        Some(Diagnostic::error(&key.name, key.at, message).with_hint(hint))
    }

    fn no_root(&self) -> Diagnostic {
        match self.entries {
            [] => empty(self.at, self.format),
            [(first, _), ..] => {
                let found: Vec<String> =
                    self.entries.iter().take(5).map(|(key, _)| quoted(&key.name)).collect();
                let message = format!("found {}, expected {}", found.join(", "), self.expected());
                let hint = format!("put the servers under `{}`", preferred_root(self.format));
                Diagnostic::error("", first.at, message).with_hint(hint)
            }
        }
    }

    fn expected(&self) -> String {
        let roots: Vec<String> = self.roots().iter().map(|name| format!("`{name}`")).collect();
        format!("one of {}", roots.join(", "))
    }
}

fn empty(at: Position, format: Format) -> Diagnostic {
    let hint = format!("put the servers under `{}`", preferred_root(format));
    Diagnostic::error("", at, "the file is empty").with_hint(hint)
}

/// The usual key for the servers in a format.
fn preferred_root(format: Format) -> &'static str {
    match format {
        Format::Toml => "servers",
        Format::Jsonc => "mcpServers",
        Format::Yaml => "mcp_servers",
    }
}

/// Reports mistakes in `[defaults]` once, and not for every server.
fn check_defaults(key: &KeyNode, node: &Node, origin: FileDialect, problems: &mut Problems) {
    let Value::Table(entries) = &node.value else {
        problems.error(Field::top(key, node).expected("a table with keys for all servers"));
        return;
    };
    let allowed: Vec<&str> = defaults::rows().iter().map(|row| row.name).collect();
    let is_server_key = |name: &str| ServerSpec::rows().iter().any(|row| row.name == name);
    for (own, _) in entries.iter().filter(|(own, _)| !allowed.contains(&own.name.as_str())) {
        let path = format!("{}.{}", key.name, own.name);
        let message = format!("`{}` cannot be the same for all servers", own.name);
        match origin {
            // In YAML the table may hold anchors for parts of servers.
            FileDialect::Foreign | FileDialect::Hermes => {
                problems.warning(Diagnostic::warning(path, own.at, format!("ignored: {message}")));
            }
            FileDialect::Native if is_server_key(&own.name) => {
                let error = Diagnostic::error(path, own.at, message);
                problems.error(error.with_hint("write it in the table of each server"));
            }
            FileDialect::Native => problems.error(unknown_key(own, &key.name, allowed.iter().copied())),
        }
    }
    let mut found: Vec<Diagnostic> = Vec::new();
    for sample in defaults::samples(entries, node.at) {
        let entry = sections::entry(key, &sample, "", FileDialect::Native, &mut Vec::new());
        for mut error in entry.spec.err().into_iter().flatten() {
            error.path = error.path.trim_start_matches('.').to_owned();
            if !found.contains(&error) {
                found.push(error);
            }
        }
    }
    problems.errors.extend(found);
}

fn servers(key: &KeyNode, node: &Node, origin: FileDialect, problems: &mut Problems) -> Vec<ServerEntry> {
    match &node.value {
        Value::Table(entries) => entries
            .iter()
            .map(|(name, node)| sections::entry(name, node, &key.name, origin, &mut problems.warnings))
            .collect(),
        Value::Null => Vec::new(),
        Value::Bool(_) | Value::Number(_) | Value::Date | Value::Str(_) | Value::List(_) => {
            let message = format!("expected a table with a key for each server, found {}", node.value.kind());
            let error = Diagnostic::error(&key.name, node.at, message);
            problems.error(match node.value {
                Value::List(_) => error.with_hint("turn the `name` of each server into its key"),
                _ => error,
            });
            Vec::new()
        }
    }
}

//! Decodes the tree into a [`Config`]. This module handles the file as a whole: its dialect, the key that holds the
//! servers, and unknown keys. An error here is an error of the file; an error inside a server's table is kept with that
//! server and does not affect the others.

mod access;
mod budget;
mod cache;
mod fields;
mod oauth;
mod policy;
mod restore;
mod server;
mod supervision;
mod target;

use super::defaults;
use super::diagnostic::{Diagnostic, quoted};
use super::formats::Format;
use super::keys;
use super::keys::choices;
use super::node::{KeyNode, Node, Position, Value};
use super::spec::{GatewayConfig, Target};
use super::{Config, ServerEntry};
use fields::{Field, Fields, Problems};
use std::path::PathBuf;

/// Conventions that a file follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileDialect {
    /// The native format: an unknown key is an error.
    Native,
    /// A file that other clients read too: aliases are understood, and an unknown key belongs to another client.
    Foreign,
    /// As `Foreign`, with the conventions of Hermes: `keepalive_interval` is a number of seconds, and an include list
    /// takes precedence over the exclude list.
    Hermes,
}

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
        let gateway_node = self.get("gateway");
        self.unknown_top_level_keys(root, origin, &mut problems);
        if root.is_none()
            && gateway_node.is_none()
            && origin != FileDialect::Native
            && problems.errors.is_empty()
        {
            problems.error(self.no_root());
        }

        let gateway = gateway_node.map(|(key, node)| gateway(Field::top(key, node), &mut problems));
        if let Some((key, node)) = self.get(defaults::NAME) {
            check_defaults(key, node, origin, &mut problems);
        }
        let clients = self.get("clients").map(|(key, node)| policy::clients(key, node, &mut problems));
        let budgets = self.get("budgets").map(|(key, node)| budget::budgets(key, node, &mut problems));
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
            warnings: problems.warnings,
            ..Config::default()
        })
    }

    fn get(&self, name: &str) -> Option<&'n (KeyNode, Node)> {
        self.entries.iter().find(|(key, _)| key.name == name)
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
        let known =
            |name: &str| self.roots().contains(&name) || keys::FILE.row(name).is_some() || name == "$schema";
        let unknown: Vec<&KeyNode> =
            self.entries.iter().map(|(key, _)| key).filter(|key| !known(&key.name)).collect();
        match origin {
            FileDialect::Native => {
                for key in unknown {
                    problems.error(match self.misplaced(key) {
                        Some(diagnostic) => diagnostic,
                        None => fields::unknown_key(key, "", keys::FILE.names()),
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

/// Decodes the table `gateway`. It belongs to gripfast in every format, so an unknown key is always an error.
fn gateway(field: Field<'_>, problems: &mut Problems) -> GatewayConfig {
    let mut gateway = GatewayConfig::default();
    let Some(mut fields) = Fields::open(&field, &keys::GATEWAY, problems) else { return gateway };
    if let Some(field) = fields.take("listen") {
        let listen = match &field.node.value {
            Value::Str(text) => text.parse().map_err(|_| field.error("expected an IP address and a port")),
            _ => Err(field.expected("an IP address and a port")),
        };
        match listen {
            Ok(listen) => gateway.listen = listen,
            Err(error) => {
                problems.error(error.with_hint(
                    "for example \"127.0.0.1:7331\", or \"0.0.0.0:7331\" to let other machines in",
                ))
            }
        }
    }
    if let Some(field) = fields.take("state_dir")
        && let Some(text) = field.text(problems)
    {
        if text.trim().is_empty() {
            problems.error(field.error("expected the path of a directory, found an empty string"));
        }
        gateway.state_dir = Some(PathBuf::from(text));
    }
    fields.duration("startup_wait", &mut gateway.startup_wait, problems);
    fields.duration("session_idle_timeout", &mut gateway.session_idle_timeout, problems);
    fields.duration("shutdown_timeout", &mut gateway.shutdown_timeout, problems);
    fields.duration("linger", &mut gateway.linger, problems);
    if let Some(mut table) = fields.table("limits", problems) {
        let limits = &mut gateway.limits;
        table.whole_number("sessions", &mut limits.sessions, problems);
        table.whole_number("sessions_per_client", &mut limits.sessions_per_client, problems);
        table.whole_number("in_flight", &mut limits.in_flight, problems);
        table.whole_number("in_flight_per_client", &mut limits.in_flight_per_client, problems);
        table.whole_number("connections", &mut limits.connections, problems);
        table.whole_number("connections_per_client", &mut limits.connections_per_client, problems);
        if let Some(size) = table.optional_size("memory", problems) {
            limits.memory = size;
        }
        if let Some(size) = table.optional_size("memory_per_client", problems) {
            limits.memory_per_client = size;
        }
        table.whole_number("nesting", &mut limits.nesting, problems);
        table.whole_number("suspended_calls", &mut limits.suspended_calls, problems);
        table.whole_number("suspended_calls_per_client", &mut limits.suspended_calls_per_client, problems);
        table.whole_number("questions", &mut limits.questions, problems);
        table.whole_number("questions_per_client", &mut limits.questions_per_client, problems);
        table.duration("first_request_timeout", &mut limits.first_request_timeout, problems);
        limits.requests = table.optional_number("requests", problems);
        table.finish(problems);
    }
    fields.choice("ledger", &choices::ledgers(), &mut gateway.ledger.detail, problems);
    if let Some(size) = fields.optional_size("ledger_size", problems) {
        gateway.ledger.size = size;
    }
    gateway.access = access::access(&mut fields, gateway.listen, problems);
    fields.choice("audit", &choices::audits(), &mut gateway.audit.detail, problems);
    if let Some(size) = fields.optional_size("audit_size", problems) {
        gateway.audit.size = size;
    }
    fields.flag("audit_fail_closed", &mut gateway.audit.fail_closed, problems);
    fields.flag("status_tool", &mut gateway.status_tool, problems);
    fields.choice("log_format", &choices::log_formats(), &mut gateway.log_format, problems);
    fields.choice("login_key", &choices::login_keys(), &mut gateway.login_key, problems);
    if let Some(size) = fields.optional_size("cache_size", problems) {
        gateway.cache.bytes = usize::try_from(size).unwrap_or(usize::MAX);
    }
    if let Some(answers) = fields.optional_number("cache_per_tool", problems) {
        gateway.cache.per_topic = answers as usize;
    }
    fields.finish(problems);
    gateway
}

/// Reports mistakes in `[defaults]` once, and not for every server.
fn check_defaults(key: &KeyNode, node: &Node, origin: FileDialect, problems: &mut Problems) {
    let Value::Table(entries) = &node.value else {
        problems.error(Field::top(key, node).expected("a table with keys for all servers"));
        return;
    };
    for (own, _) in entries.iter().filter(|(own, _)| !keys::may_be_default(&own.name)) {
        let path = format!("{}.{}", key.name, own.name);
        let message = format!("`{}` cannot be the same for all servers", own.name);
        match origin {
            // In YAML the table may hold anchors for parts of servers.
            FileDialect::Foreign | FileDialect::Hermes => {
                problems.warning(Diagnostic::warning(path, own.at, format!("ignored: {message}")));
            }
            FileDialect::Native if keys::SERVER.row(&own.name).is_some() => {
                let error = Diagnostic::error(path, own.at, message);
                problems.error(error.with_hint("write it in the table of each server"));
            }
            FileDialect::Native => problems.error(fields::unknown_key(own, &key.name, defaults::names())),
        }
    }
    let mut found: Vec<Diagnostic> = Vec::new();
    for sample in defaults::samples(entries, node.at) {
        let entry = server::entry(key, &sample, "", FileDialect::Native, &mut Vec::new());
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
            .map(|(name, node)| server::entry(name, node, &key.name, origin, &mut problems.warnings))
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

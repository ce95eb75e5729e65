//! From the tree to the config. The file as a whole is decided here: whose file it is, where its servers
//! are, what else stands in it. An error here is an error of the file; an error inside a server's table is
//! kept as that server's and never stops the others.

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
use super::keys::{self, words};
use super::node::{Key, Node, Position, Value};
use super::spec::{GatewayConfig, Target};
use super::{Config, ServerEntry};
use fields::{Field, Fields, Problems};
use std::path::PathBuf;

/// Whose habits a file follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Our own form: a key that we do not know is a mistake.
    Native,
    /// A file that other clients read too: aliases are understood, and a key that we do not know is theirs.
    Foreign,
    /// As `Foreign`, in Hermes' form, where `keepalive_interval` is a number of seconds and an include list
    /// wins over the exclude list.
    Hermes,
}

/// Keys that hold the servers. In TOML only the first and the last: the middle one would be nobody's file.
const ROOTS: &[&str] = &["servers", "mcpServers", "mcp_servers"];

/// The keys that may hold the servers in a format.
pub(super) fn roots(format: Format) -> &'static [&'static str] {
    match format {
        Format::Toml => &["servers", "mcp_servers"],
        Format::Jsonc | Format::Yaml => ROOTS,
    }
}

/// Where other clients keep their servers, for a better answer than "unknown key".
const ROOTS_OF_OTHERS: &[(&str, &str)] = &[
    ("context_servers", "Zed's key"),
    ("mcp", "opencode's key"),
    ("extensions", "Goose's key"),
    ("amp.mcpServers", "Amp's key"),
    ("mcpServers", "the key of JSON files"),
];

/// Decodes a whole file. `root` is `None` when there is nothing in it.
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
    entries: &'n [(Key, Node)],
    format: Format,
    at: Position,
}

impl<'n> File<'n> {
    fn decode(self) -> Result<Config, Vec<Diagnostic>> {
        let mut problems = Problems::default();
        let root = self.root(&mut problems);
        let origin = match (root, self.format) {
            (Some((key, _)), Format::Yaml) if key.name == "mcp_servers" => Origin::Hermes,
            (Some((key, _)), Format::Toml) if key.name == "mcp_servers" => Origin::Foreign,
            (_, Format::Toml) => Origin::Native,
            (_, Format::Jsonc | Format::Yaml) => Origin::Foreign,
        };
        let gateway_node = self.get("gateway");
        self.strangers(root, origin, &mut problems);
        if root.is_none() && gateway_node.is_none() && origin != Origin::Native && problems.errors.is_empty()
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
                    format!("put the servers under `{}`", preferred(self.format))
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

    fn get(&self, name: &str) -> Option<&'n (Key, Node)> {
        self.entries.iter().find(|(key, _)| key.name == name)
    }

    fn roots(&self) -> &'static [&'static str] {
        roots(self.format)
    }

    fn root(&self, problems: &mut Problems) -> Option<&'n (Key, Node)> {
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

    /// Top-level keys that are not ours: each an error in our own file, together one warning in others'.
    fn strangers(&self, root: Option<&(Key, Node)>, origin: Origin, problems: &mut Problems) {
        let known =
            |name: &str| self.roots().contains(&name) || keys::FILE.row(name).is_some() || name == "$schema";
        let strangers: Vec<&Key> =
            self.entries.iter().map(|(key, _)| key).filter(|key| !known(&key.name)).collect();
        match origin {
            Origin::Native => {
                for key in strangers {
                    problems.error(match self.misplaced(key) {
                        Some(diagnostic) => diagnostic,
                        None => fields::unknown(key, "", keys::FILE.names()),
                    });
                }
            }
            Origin::Foreign | Origin::Hermes if root.is_some() => {
                let [first, ..] = strangers.as_slice() else { return };
                let names: Vec<String> = strangers.iter().take(5).map(|key| quoted(&key.name)).collect();
                let more = match strangers.len().saturating_sub(names.len()) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let message = format!("ignored what is not about servers: {}{more}", names.join(", "));
                problems.warning(Diagnostic::warning(&first.name, first.at, message));
            }
            Origin::Foreign | Origin::Hermes => {
                problems.errors.extend(strangers.into_iter().find_map(|key| self.misplaced(key)));
            }
        }
    }

    /// Servers under the key of another client.
    fn misplaced(&self, key: &Key) -> Option<Diagnostic> {
        let (_, whose) = ROOTS_OF_OTHERS.iter().find(|(name, _)| *name == key.name)?;
        let message = format!("found `{}` ({whose}), expected {}", key.name, self.expected());
        let hint = format!("rename it to `{}`", preferred(self.format));
        Some(Diagnostic::error(&key.name, key.at, message).with_hint(hint))
    }

    fn no_root(&self) -> Diagnostic {
        match self.entries {
            [] => empty(self.at, self.format),
            [(first, _), ..] => {
                let found: Vec<String> =
                    self.entries.iter().take(5).map(|(key, _)| quoted(&key.name)).collect();
                let message = format!("found {}, expected {}", found.join(", "), self.expected());
                let hint = format!("put the servers under `{}`", preferred(self.format));
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
    let hint = format!("put the servers under `{}`", preferred(format));
    Diagnostic::error("", at, "the file is empty").with_hint(hint)
}

/// The root key that people expect in a format.
fn preferred(format: Format) -> &'static str {
    match format {
        Format::Toml => "servers",
        Format::Jsonc => "mcpServers",
        Format::Yaml => "mcp_servers",
    }
}

/// The table is ours in every format, so a key that we do not know is a mistake in every format.
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
        if let Some(size) = table.some_size("memory", problems) {
            limits.memory = size;
        }
        if let Some(size) = table.some_size("memory_per_client", problems) {
            limits.memory_per_client = size;
        }
        table.whole_number("nesting", &mut limits.nesting, problems);
        table.whole_number("suspended_calls", &mut limits.suspended_calls, problems);
        table.whole_number("suspended_calls_per_client", &mut limits.suspended_calls_per_client, problems);
        table.whole_number("questions", &mut limits.questions, problems);
        table.whole_number("questions_per_client", &mut limits.questions_per_client, problems);
        table.duration("first_request_timeout", &mut limits.first_request_timeout, problems);
        limits.requests = table.some_number("requests", problems);
        table.finish(problems);
    }
    fields.choice("ledger", &words::ledgers(), &mut gateway.ledger.keeps, problems);
    if let Some(size) = fields.some_size("ledger_size", problems) {
        gateway.ledger.size = size;
    }
    gateway.access = access::access(&mut fields, gateway.listen, problems);
    fields.choice("audit", &words::audits(), &mut gateway.audit.keeps, problems);
    if let Some(size) = fields.some_size("audit_size", problems) {
        gateway.audit.size = size;
    }
    fields.flag("audit_fail_closed", &mut gateway.audit.fail_closed, problems);
    fields.flag("status_tool", &mut gateway.status_tool, problems);
    fields.choice("log_format", &words::log_formats(), &mut gateway.log_format, problems);
    fields.choice("login_key", &words::login_keys(), &mut gateway.login_key, problems);
    if let Some(size) = fields.some_size("cache_size", problems) {
        gateway.cache.bytes = usize::try_from(size).unwrap_or(usize::MAX);
    }
    if let Some(answers) = fields.some_number("cache_per_tool", problems) {
        gateway.cache.per_topic = answers as usize;
    }
    fields.finish(problems);
    gateway
}

/// Reports what is wrong in `[defaults]` once, and not for every server.
fn check_defaults(key: &Key, node: &Node, origin: Origin, problems: &mut Problems) {
    let Value::Table(entries) = &node.value else {
        problems.error(Field::top(key, node).expected("a table with keys for all servers"));
        return;
    };
    for (own, _) in entries.iter().filter(|(own, _)| !keys::may_be_default(&own.name)) {
        let path = format!("{}.{}", key.name, own.name);
        let message = format!("`{}` cannot be the same for all servers", own.name);
        match origin {
            // In YAML it may be an anchor for parts of servers.
            Origin::Foreign | Origin::Hermes => {
                problems.warning(Diagnostic::warning(path, own.at, format!("ignored: {message}")));
            }
            Origin::Native if keys::SERVER.row(&own.name).is_some() => {
                let error = Diagnostic::error(path, own.at, message);
                problems.error(error.with_hint("write it in the table of each server"));
            }
            Origin::Native => problems.error(fields::unknown(own, &key.name, defaults::names())),
        }
    }
    let mut found: Vec<Diagnostic> = Vec::new();
    for sample in defaults::samples(entries, node.at) {
        let entry = server::entry(key, &sample, "", Origin::Native, &mut Vec::new());
        for mut error in entry.spec.err().into_iter().flatten() {
            error.path = error.path.trim_start_matches('.').to_owned();
            if !found.contains(&error) {
                found.push(error);
            }
        }
    }
    problems.errors.extend(found);
}

fn servers(key: &Key, node: &Node, origin: Origin, problems: &mut Problems) -> Vec<ServerEntry> {
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

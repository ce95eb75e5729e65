//! From one server as another client writes it to a table of ours, and everything worth saying about it.

use super::clients::{Client, Unit};
use super::words::Words;
use gripfast::config::{Tree, command_line};
use std::path::Path;
use toml_edit::{Array, InlineTable, Table, value};

/// A server of another client.
#[derive(Debug)]
pub(super) struct Taken {
    /// What it is called there.
    pub(super) name: String,
    /// Our table for it, or why there is none.
    pub(super) table: Result<Table, String>,
    /// What the person should know.
    pub(super) notes: Vec<String>,
}

/// Takes one server of a file.
pub(super) fn take(client: &Client, file: &Path, name: &str, entry: &Tree) -> Taken {
    let mut reading = Reading {
        client,
        tables: vec![entry],
        used: vec!["name"],
        words: Words::of(client, file),
        notes: Vec::new(),
    };
    let table = reading.table();
    let mut notes = reading.words.notes();
    notes.append(&mut reading.notes);
    if table.is_ok() {
        notes.extend(reading.left_over());
    }
    Taken { name: name.to_owned(), table, notes }
}

struct Reading<'e> {
    client: &'e Client,
    /// The entry, after what was found nested in it.
    tables: Vec<&'e Tree>,
    /// The keys that were looked at.
    used: Vec<&'e str>,
    words: Words,
    notes: Vec<String>,
}

/// Every name that clients have for one thing. The first is the most usual.
const TYPE: &[&str] = &["type", "transport", "transportType"];
const COMMAND: &[&str] = &["command", "cmd"];
const URL: &[&str] = &["url", "serverUrl", "httpUrl", "uri", "server_url"];
const ENV: &[&str] = &["env", "environment", "envs"];
const INHERIT: &[&str] = &["env_keys", "env_vars"];
const HEADERS: &[&str] = &["headers", "http_headers"];
const ALLOW: &[&str] = &["enabledTools", "enabled_tools", "includeTools", "allowedTools", "available_tools"];
const DENY: &[&str] = &["disabledTools", "disabled_tools", "excludeTools"];
/// What lets tools be called without asking. It is never taken for a permission.
const APPROVAL: &[&str] =
    &["autoApprove", "alwaysAllow", "trust", "default_tools_approval_mode", "alwaysLoad", "approval_mode"];
const LOGIN: &[&str] = &["oauth", "auth", "scopes", "oauth_resource", "authProviderType"];
const HELPERS: &[&str] = &["headersHelper", "http_headers_helper"];
/// What says nothing about how a server is reached or kept.
const HARMLESS: &[&str] = &[
    "description",
    "display_name",
    "bundled",
    "metadata",
    "remoteConfigured",
    "dev",
    "required",
    "timestamp",
    "supports_parallel_tool_calls",
    "roots",
    "sampling",
    "elicitation",
    "source",
    "settings",
];

impl Taken {
    /// Keeps it switched off, as it is there.
    pub(super) fn switch_off(&mut self, why: &str) {
        if let Ok(table) = &mut self.table
            && table.get("disabled").is_none()
        {
            table.insert("disabled", value(true));
            self.notes.push(format!("{why}, and so it is disabled here"));
        }
    }

    /// Has a command that refers to files of a project start in its directory.
    pub(super) fn start_in(&mut self, project: &str) {
        if let Ok(table) = &mut self.table
            && table.get("cwd").is_none()
            && is_relative(table)
        {
            table.insert("cwd", value(project));
        }
    }
}

/// Whether a command or its arguments name files from the directory in which it starts.
fn is_relative(table: &Table) -> bool {
    let is_path = |word: &str| word == "." || word.starts_with("./") || word.starts_with("../");
    let command = table.get("command").and_then(toml_edit::Item::as_str);
    let args = table.get("args").and_then(toml_edit::Item::as_array);
    let args = args.into_iter().flatten().filter_map(toml_edit::Value::as_str);
    command.is_some() && command.into_iter().chain(args).any(is_path)
}

impl<'e> Reading<'e> {
    fn take(&mut self, names: &[&'e str]) -> Option<&'e Tree> {
        let found = self
            .tables
            .iter()
            .find_map(|table| names.iter().find_map(|name| Some((*name, table.get(name)?))));
        let (name, value) = found?;
        self.used.push(name);
        Some(value).filter(|value| **value != Tree::Null)
    }

    fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    fn table(&mut self) -> Result<Table, String> {
        let mut table = Table::new();
        let kind = self.kind()?;
        let remote = self.command(&mut table)?;
        match self.take(URL).and_then(Tree::text) {
            Some(url) if table.is_empty() && !remote => {
                table.insert("url", value(self.words.said("url", url)?));
            }
            Some(_) => self.note("has both a command and a URL; the command is taken"),
            None if table.is_empty() => return Err("has neither a command nor a URL".to_owned()),
            None => {}
        }
        if let Some(transport) = kind.filter(|_| table.contains_key("url")) {
            table.insert("transport", value(transport));
        }
        self.environment(&mut table)?;
        self.headers(&mut table)?;
        self.switch(&mut table);
        self.tls(&mut table)?;
        self.times(&mut table);
        self.tools(&mut table);
        self.era(&mut table);
        self.aloud();
        Ok(table)
    }

    /// The transport, where the entry says more than the URL alone. Without a type some clients mean SSE and
    /// some HTTP; ours finds out.
    fn kind(&mut self) -> Result<Option<&'static str>, String> {
        match self.take(TYPE) {
            Some(Tree::Text(word)) => match word.as_str() {
                "http" | "streamable-http" | "streamable_http" | "streamableHttp" => Ok(Some("http")),
                "sse" => Ok(Some("sse")),
                "stdio" | "local" | "remote" => Ok(None),
                "ws" | "websocket" => Err("speaks WebSocket, which is no transport of MCP".to_owned()),
                "builtin" | "platform" | "frontend" | "inline_python" => {
                    Err(format!("is part of {} (`{word}`), and no server of its own", self.client.name))
                }
                other => {
                    self.note(format!("its type `{other}` is not known; the way is found out"));
                    Ok(None)
                }
            },
            // Cline has also had everything one level deeper.
            Some(nested @ Tree::Table(_)) => {
                self.tables.insert(0, nested);
                match nested.get("type") {
                    Some(_) => self.kind(),
                    None => Ok(None),
                }
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Puts the command into the table. True if it only stood for a URL, which is there instead.
    fn command(&mut self, table: &mut Table) -> Result<bool, String> {
        let mut words: Vec<String> = match self.take(COMMAND) {
            Some(Tree::Text(command)) => vec![command.clone()],
            Some(Tree::List(words)) => words.iter().filter_map(scalar).collect(),
            // Zed has had `command = { path, args, env }`.
            Some(nested @ Tree::Table(_)) => {
                self.tables.insert(0, nested);
                self.used.push("path");
                nested.get("path").and_then(Tree::text).map(str::to_owned).into_iter().collect()
            }
            Some(_) | None => Vec::new(),
        };
        if words.is_empty() {
            return Ok(false);
        }
        let whole = match &words[..] {
            [line] => command_line(line).filter(|_| !Path::new(line).exists()),
            _ => None,
        };
        if let Some((program, arguments)) = whole {
            let split = std::iter::once(program).chain(arguments).map(str::to_owned).collect();
            self.note("its `command` is a whole line, which is split into `command` and `args`");
            words = split;
        }
        if let Some(Tree::List(arguments)) = self.take(&["args"]) {
            words.extend(arguments.iter().filter_map(scalar));
        }
        if let Some((url, headers)) = bridged(&words) {
            self.note("`mcp-remote` is left out: gripfast reaches the URL itself");
            table.insert("url", value(self.words.said("url", &url)?));
            if !headers.is_empty() {
                let mut inline = InlineTable::new();
                for (name, text) in headers {
                    inline.insert(&name, self.words.secret(&name, &text)?.into());
                }
                table.insert("headers", value(inline));
            }
            return Ok(true);
        }
        table.insert("command", value(self.words.said("command", &words[0])?));
        if words.len() > 1 {
            table.insert("args", value(self.words.arguments(&words[1..])?.into_iter().collect::<Array>()));
        }
        if let Some(cwd) = self.take(&["cwd"]).and_then(Tree::text) {
            table.insert("cwd", value(self.words.said("cwd", cwd)?));
        }
        Ok(false)
    }

    fn environment(&mut self, table: &mut Table) -> Result<(), String> {
        let mut inline = InlineTable::new();
        if let Some(variables) = self.take(ENV) {
            for (name, variable) in variables.entries() {
                match scalar(variable) {
                    Some(text) => {
                        inline.insert(name, self.words.secret(name, &text)?.into());
                    }
                    None => self.note(format!("`{name}` has no value, and is left out")),
                }
            }
        }
        if !inline.is_empty() && table.contains_key("command") {
            table.insert("env", value(inline));
        }
        if let Some(Tree::List(names)) = self.take(INHERIT) {
            // Codex has tables with a `name` besides bare names.
            let names = names.iter().filter_map(|name| scalar(name.get("name").unwrap_or(name)));
            table.insert("inherit_env", value(names.collect::<Array>()));
        }
        if let Some(file) = self.take(&["envFile"]).and_then(Tree::text) {
            self.note(format!("variables of `{file}` are not read: put them into `env`, as `${{env:NAME}}`"));
        }
        Ok(())
    }

    fn headers(&mut self, table: &mut Table) -> Result<(), String> {
        let mut inline = match table.remove("headers").map(toml_edit::Item::into_value) {
            Some(Ok(toml_edit::Value::InlineTable(inline))) => inline,
            _ => InlineTable::new(),
        };
        if let Some(headers) = self.take(HEADERS) {
            for (name, header) in headers.entries() {
                if let Some(text) = scalar(header) {
                    inline.insert(name, self.words.secret(name, &text)?.into());
                }
            }
        }
        if let Some(headers) = self.take(&["env_http_headers"]) {
            for (name, variable) in headers.entries() {
                if let Some(variable) = variable.text() {
                    inline.insert(name, format!("${{env:{variable}}}").into());
                }
            }
        }
        if let Some(variable) = self.take(&["bearer_token_env_var"]).and_then(Tree::text) {
            inline.insert("Authorization", format!("Bearer ${{env:{variable}}}").into());
        }
        if !inline.is_empty() && table.contains_key("url") {
            table.insert("headers", value(inline));
        }
        if self.take(HELPERS).is_some() {
            self.note("its headers come from a command, which is not run: write them as `headers`");
        }
        Ok(())
    }

    /// Some say `enabled`, some `disabled`.
    fn switch(&mut self, table: &mut Table) {
        let off = self.take(&["disabled"]) == Some(&Tree::Bool(true));
        if off || self.take(&["enabled"]) == Some(&Tree::Bool(false)) {
            table.insert("disabled", value(true));
            self.note("is switched off there, and so it is here");
        }
    }

    fn tls(&mut self, table: &mut Table) -> Result<(), String> {
        let mut inline = InlineTable::new();
        match self.take(&["ssl_verify"]) {
            Some(Tree::Text(file)) => {
                inline.insert("ca_file", self.words.said("ssl_verify", file)?.into());
            }
            Some(Tree::Bool(false)) => {
                self.note("`ssl_verify = false` is not taken: certificates are checked")
            }
            Some(_) | None => {}
        }
        for (theirs, ours) in [("client_cert", "client_cert"), ("client_key", "client_key")] {
            if let Some(file) = self.take(&[theirs]).and_then(Tree::text) {
                inline.insert(ours, self.words.said(theirs, file)?.into());
            }
        }
        if !inline.is_empty() {
            table.insert("tls", value(inline));
        }
        Ok(())
    }

    /// Times count in what their client counts in, never in what their size suggests.
    fn times(&mut self, table: &mut Table) {
        let mut times = InlineTable::new();
        let mut put = |name: &str, span: Option<String>| {
            if let Some(span) = span {
                times.insert(name, span.into());
            }
        };
        put("connect", self.time(&["startup_timeout_ms", "connectionTimeout"], Unit::Millis));
        put("connect", self.time(&["startup_timeout_sec", "connect_timeout"], Unit::Seconds));
        put("call", self.time(&["request_timeout_ms", "requestTimeout"], Unit::Millis));
        put("call", self.time(&["tool_timeout_sec"], Unit::Seconds));
        match self.take(&["timeout"]) {
            Some(nested @ Tree::Table(_)) => {
                put("connect", nested.get("startup").and_then(|time| span(time, Unit::Millis)));
                put("call", nested.get("request").and_then(|time| span(time, Unit::Millis)));
            }
            Some(time) => match (self.client.timeout, number(time)) {
                // Claude Code ignores what is less.
                (Unit::Millis, Some(millis)) if self.client.id == "claude-code" && millis < 1000.0 => {
                    self.note("its `timeout` is less than a second, which Claude Code ignores too");
                }
                (Unit::Unknown, _) => self.note("its `timeout` is left out: its unit is not known"),
                (unit, _) => put("call", span(time, unit)),
            },
            None => {}
        }
        let idle = self.time(&["idle_timeout_seconds"], Unit::Seconds);
        let keepalive = self.time(&["keepalive_interval"], Unit::Seconds);
        if !times.is_empty() {
            table.insert("timeouts", value(times));
        }
        for (name, span) in [("idle_timeout", idle), ("keepalive_interval", keepalive)] {
            if let Some(span) = span {
                table.insert(name, value(span));
            }
        }
    }

    fn time(&mut self, names: &[&'e str], unit: Unit) -> Option<String> {
        self.take(names).and_then(|time| span(time, unit))
    }

    fn tools(&mut self, table: &mut Table) {
        let mut allow = self.take(ALLOW).map(names).unwrap_or_default();
        let mut deny = self.take(DENY).map(names).unwrap_or_default();
        match self.take(&["tools"]) {
            Some(list @ Tree::List(_)) => allow = names(list),
            Some(Tree::Text(word)) if word != "*" => allow = vec![word.clone()],
            Some(nested @ Tree::Table(_)) => {
                let listed = |key: &str| nested.get(key).map(names).unwrap_or_default();
                allow.extend(listed("include"));
                deny.extend(listed("exclude"));
            }
            Some(_) | None => {}
        }
        if self.client.id == "hermes" && !allow.is_empty() && !deny.is_empty() {
            self.note(
                "its excluded tools are left out: where some are included, Hermes does not look at them",
            );
            deny.clear();
        }
        if allow == ["*"] {
            allow.clear();
        }
        let mut inline = InlineTable::new();
        for (key, listed) in [("allow", allow), ("deny", deny)] {
            if !listed.is_empty() {
                inline.insert(key, listed.into_iter().collect::<Array>().into());
            }
        }
        if !inline.is_empty() {
            table.insert("tools", value(inline));
        }
    }

    fn era(&mut self, table: &mut Table) {
        if let Some(era @ ("legacy" | "modern")) = self.take(&["protocolEra"]).and_then(Tree::text) {
            table.insert("protocol", value(era));
        }
    }

    /// What is not taken, and has to be said.
    fn aloud(&mut self) {
        for name in APPROVAL {
            if self.take(&[name]).is_some() {
                self.note(format!("`{name}` is left out: gripfast gives nobody permissions"));
            }
        }
        for name in LOGIN {
            if self.take(&[name]).is_some() {
                self.note(format!("`{name}` is left out: logins are not taken over"));
            }
        }
        for name in ["sandboxEnabled", "environment_id", "skip_preflight", "max_lifetime_seconds", "tcp"] {
            if self.take(&[name]).is_some() {
                self.note(format!("`{name}` has no counterpart here"));
            }
        }
    }

    /// The keys that nobody asked for.
    fn left_over(&self) -> Option<String> {
        let known = |key: &str| self.used.contains(&key) || HARMLESS.contains(&key);
        let rest: Vec<String> = self
            .tables
            .iter()
            .flat_map(|table| table.entries())
            .filter(|(key, _)| !known(key))
            .map(|(key, _)| format!("`{key}`"))
            .collect();
        (!rest.is_empty()).then(|| format!("not understood, and left out: {}", rest.join(", ")))
    }
}

/// `npx mcp-remote URL --header 'Name: value'`, which makes a command out of a URL for clients that only start
/// commands.
fn bridged(words: &[String]) -> Option<(String, Vec<(String, String)>)> {
    let at = words.iter().position(|word| word == "mcp-remote" || word.starts_with("mcp-remote@"))?;
    let rest = &words[at + 1..];
    let url = rest.iter().find(|word| word.starts_with("http://") || word.starts_with("https://"))?;
    let flagged = rest.windows(2).filter(|pair| pair[0] == "--header");
    let headers = flagged.filter_map(|pair| {
        let (name, text) = pair[1].split_once(':')?;
        Some((name.trim().to_owned(), text.trim().to_owned()))
    });
    Some((url.clone(), headers.collect()))
}

fn scalar(tree: &Tree) -> Option<String> {
    match tree {
        Tree::Text(text) | Tree::Number(text) => Some(text.clone()),
        Tree::Bool(flag) => Some(flag.to_string()),
        Tree::Null | Tree::List(_) | Tree::Table(_) => None,
    }
}

fn names(tree: &Tree) -> Vec<String> {
    match tree {
        Tree::List(names) => names.iter().filter_map(scalar).collect(),
        other => scalar(other).into_iter().collect(),
    }
}

fn number(tree: &Tree) -> Option<f64> {
    scalar(tree)?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// A span as ours are written. Nothing for what is no time, or none at all.
fn span(tree: &Tree, unit: Unit) -> Option<String> {
    let factor = match unit {
        Unit::Millis => 1.0,
        Unit::Seconds => 1000.0,
        Unit::Unknown => return None,
    };
    let millis = (number(tree)? * factor).round();
    // A day is longer than anybody waits, and fits.
    let millis = (1.0..=86_400_000.0).contains(&millis).then_some(millis)?;
    // It is in the range above.
    let millis = millis as u64;
    Some(if millis.is_multiple_of(1000) { format!("{}s", millis / 1000) } else { format!("{millis}ms") })
}

//! Converts one server entry of another client into a server table of the gripfast config, with notes for the user.

use super::clients::{ClientFormat, TimeoutUnit};
use super::references::ReferenceRewriter;
use gripfast::config::{Tree, command_line};
use std::path::Path;
use toml_edit::{Array, InlineTable, Table, value};

/// A server of another client.
#[derive(Debug)]
pub(super) struct ImportedServer {
    /// Its name in the client's config.
    pub(super) name: String,
    /// The gripfast table, or the reason for which there is none.
    pub(super) table: Result<Table, String>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

/// Converts one server of a file.
pub(super) fn import_server(client: &ClientFormat, file: &Path, name: &str, entry: &Tree) -> ImportedServer {
    let mut reading = Reading {
        client,
        tables: vec![entry],
        used: vec!["name"],
        rewriter: ReferenceRewriter::of(client, file),
        notes: Vec::new(),
    };
    let table = reading.table();
    let mut notes = reading.rewriter.notes();
    notes.append(&mut reading.notes);
    if table.is_ok() {
        notes.extend(reading.unknown_keys());
    }
    ImportedServer { name: name.to_owned(), table, notes }
}

struct Reading<'e> {
    client: &'e ClientFormat,
    /// Tables nested in the entry, and then the entry itself.
    tables: Vec<&'e Tree>,
    /// The keys that were read.
    used: Vec<&'e str>,
    rewriter: ReferenceRewriter,
    notes: Vec<String>,
}

// For each setting, the names that clients use. The first is the most common.
const TYPE: &[&str] = &["type", "transport", "transportType"];
const COMMAND: &[&str] = &["command", "cmd"];
const URL: &[&str] = &["url", "serverUrl", "httpUrl", "uri", "server_url"];
const ENV: &[&str] = &["env", "environment", "envs"];
const INHERIT: &[&str] = &["env_keys", "env_vars"];
const HEADERS: &[&str] = &["headers", "http_headers"];
const ALLOW: &[&str] = &["enabledTools", "enabled_tools", "includeTools", "allowedTools", "available_tools"];
const DENY: &[&str] = &["disabledTools", "disabled_tools", "excludeTools"];
/// Keys that let tools be called without asking the user. They are never imported as permissions.
const APPROVAL: &[&str] =
    &["autoApprove", "alwaysAllow", "trust", "default_tools_approval_mode", "alwaysLoad", "approval_mode"];
const LOGIN: &[&str] = &["oauth", "auth", "scopes", "oauth_resource", "authProviderType"];
const WITHOUT_SETTING: &[&str] =
    &["sandboxEnabled", "environment_id", "skip_preflight", "max_lifetime_seconds", "tcp"];
const HELPERS: &[&str] = &["headersHelper", "http_headers_helper"];
/// Keys without a meaning for gripfast.
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

impl ImportedServer {
    /// Disables the server, as it is in the client.
    pub(super) fn disable(&mut self, why: &str) {
        if let Ok(table) = &mut self.table
            && table.get("disabled").is_none()
        {
            table.insert("disabled", value(true));
            self.notes.push(format!("{why}; imported as disabled"));
        }
    }

    /// Sets the project as working directory of a command with relative paths.
    pub(super) fn set_cwd(&mut self, project: &str) {
        if let Ok(table) = &mut self.table
            && table.get("cwd").is_none()
            && is_relative(table)
        {
            table.insert("cwd", value(project));
        }
    }
}

/// Returns true if a command or its arguments contain relative paths.
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
        let kind = self.transport()?;
        let remote = self.command(&mut table)?;
        match self.take(URL).and_then(Tree::text) {
            Some(url) if table.is_empty() && !remote => {
                table.insert("url", value(self.rewriter.rewrite("url", url)?));
            }
            Some(_) => self.note("has both a command and a URL; only the command is imported"),
            None if table.is_empty() => return Err("has neither a command nor a URL".to_owned()),
            None => {}
        }
        if let Some(transport) = kind.filter(|_| table.contains_key("url")) {
            table.insert("transport", value(transport));
        }
        self.environment(&mut table)?;
        self.headers(&mut table)?;
        self.disabled(&mut table);
        self.tls(&mut table)?;
        self.timeouts(&mut table);
        self.tools(&mut table);
        self.era(&mut table);
        self.note_ignored_keys();
        Ok(table)
    }

    /// The transport, if the entry names one. Without a type some clients mean SSE and some HTTP; gripfast detects it.
    fn transport(&mut self) -> Result<Option<&'static str>, String> {
        match self.take(TYPE) {
            Some(Tree::Text(word)) => match word.as_str() {
                "http" | "streamable-http" | "streamable_http" | "streamableHttp" => Ok(Some("http")),
                "sse" => Ok(Some("sse")),
                "stdio" | "local" | "remote" => Ok(None),
                "ws" | "websocket" => Err("uses WebSocket, which is not an MCP transport".to_owned()),
                "builtin" | "platform" | "frontend" | "inline_python" => {
                    Err(format!("is part of {} (`{word}`) and not a separate server", self.client.name))
                }
                other => {
                    self.note(format!("unknown type `{other}`; gripfast detects the transport"));
                    Ok(None)
                }
            },
            // Some versions of Cline nest the settings one level deeper.
            Some(nested @ Tree::Table(_)) => {
                self.tables.insert(0, nested);
                match nested.get("type") {
                    Some(_) => self.transport(),
                    None => Ok(None),
                }
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Adds the command to the table. Returns true if the command was a bridge to a URL, and the URL was added instead.
    fn command(&mut self, table: &mut Table) -> Result<bool, String> {
        let mut words: Vec<String> = match self.take(COMMAND) {
            Some(Tree::Text(command)) => vec![command.clone()],
            Some(Tree::List(words)) => words.iter().filter_map(scalar).collect(),
            // Older versions of Zed have `command = { path, args, env }`.
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
            self.note("its `command` is a whole command line; split into `command` and `args`");
            words = split;
        }
        if let Some(Tree::List(arguments)) = self.take(&["args"]) {
            words.extend(arguments.iter().filter_map(scalar));
        }
        if let Some((url, headers)) = mcp_remote_target(&words) {
            self.note("`mcp-remote` is left out: gripfast connects to the URL itself");
            table.insert("url", value(self.rewriter.rewrite("url", &url)?));
            if !headers.is_empty() {
                let mut inline = InlineTable::new();
                for (name, text) in headers {
                    inline.insert(&name, self.rewriter.rewrite_secret(&name, &text)?.into());
                }
                table.insert("headers", value(inline));
            }
            return Ok(true);
        }
        table.insert("command", value(self.rewriter.rewrite("command", &words[0])?));
        if words.len() > 1 {
            table.insert(
                "args",
                value(self.rewriter.rewrite_arguments(&words[1..])?.into_iter().collect::<Array>()),
            );
        }
        if let Some(cwd) = self.take(&["cwd"]).and_then(Tree::text) {
            table.insert("cwd", value(self.rewriter.rewrite("cwd", cwd)?));
        }
        Ok(false)
    }

    fn environment(&mut self, table: &mut Table) -> Result<(), String> {
        let mut inline = InlineTable::new();
        if let Some(variables) = self.take(ENV) {
            for (name, variable) in variables.entries() {
                match scalar(variable) {
                    Some(text) => {
                        inline.insert(name, self.rewriter.rewrite_secret(name, &text)?.into());
                    }
                    None => self.note(format!("`{name}` has no value and is left out")),
                }
            }
        }
        if !inline.is_empty() && table.contains_key("command") {
            table.insert("env", value(inline));
        }
        if let Some(Tree::List(names)) = self.take(INHERIT) {
            // Codex allows tables with a `name` besides bare names.
            let names = names.iter().filter_map(|name| scalar(name.get("name").unwrap_or(name)));
            table.insert("inherit_env", value(names.collect::<Array>()));
        }
        if let Some(file) = self.take(&["envFile"]).and_then(Tree::text) {
            self.note(format!(
                "variables in `{file}` are not imported; add them to `env` as `${{env:NAME}}`"
            ));
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
                    inline.insert(name, self.rewriter.rewrite_secret(name, &text)?.into());
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
            self.note("its headers come from a command, which is not imported; add them to `headers`");
        }
        Ok(())
    }

    /// Reads `disabled` or `enabled`, whichever the client uses.
    fn disabled(&mut self, table: &mut Table) {
        let off = self.take(&["disabled"]) == Some(&Tree::Bool(true));
        if off || self.take(&["enabled"]) == Some(&Tree::Bool(false)) {
            table.insert("disabled", value(true));
            self.note("disabled in the client; imported as disabled");
        }
    }

    fn tls(&mut self, table: &mut Table) -> Result<(), String> {
        let mut inline = InlineTable::new();
        match self.take(&["ssl_verify"]) {
            Some(Tree::Text(file)) => {
                inline.insert("ca_file", self.rewriter.rewrite("ssl_verify", file)?.into());
            }
            Some(Tree::Bool(false)) => {
                self.note("`ssl_verify = false` is not imported: gripfast always verifies certificates")
            }
            Some(_) | None => {}
        }
        for (theirs, ours) in [("client_cert", "client_cert"), ("client_key", "client_key")] {
            if let Some(file) = self.take(&[theirs]).and_then(Tree::text) {
                inline.insert(ours, self.rewriter.rewrite(theirs, file)?.into());
            }
        }
        if !inline.is_empty() {
            table.insert("tls", value(inline));
        }
        Ok(())
    }

    /// Reads timeouts in the unit of the client. The unit is never guessed from the size of a number.
    fn timeouts(&mut self, table: &mut Table) {
        let mut times = InlineTable::new();
        let mut put = |name: &str, span: Option<String>| {
            if let Some(span) = span {
                times.insert(name, span.into());
            }
        };
        put("connect", self.timeout(&["startup_timeout_ms", "connectionTimeout"], TimeoutUnit::Millis));
        put("connect", self.timeout(&["startup_timeout_sec", "connect_timeout"], TimeoutUnit::Seconds));
        put("call", self.timeout(&["request_timeout_ms", "requestTimeout"], TimeoutUnit::Millis));
        put("call", self.timeout(&["tool_timeout_sec"], TimeoutUnit::Seconds));
        match self.take(&["timeout"]) {
            Some(nested @ Tree::Table(_)) => {
                put(
                    "connect",
                    nested.get("startup").and_then(|time| duration_text(time, TimeoutUnit::Millis)),
                );
                put("call", nested.get("request").and_then(|time| duration_text(time, TimeoutUnit::Millis)));
            }
            Some(time) => match (self.client.timeout, number(time)) {
                // Claude Code ignores a timeout below one second.
                (TimeoutUnit::Millis, Some(millis)) if self.client.id == "claude-code" && millis < 1000.0 => {
                    self.note("its `timeout` is below one second, which Claude Code ignores too");
                }
                (TimeoutUnit::Unknown, _) => self.note("its `timeout` is left out: the unit is not known"),
                (unit, _) => put("call", duration_text(time, unit)),
            },
            None => {}
        }
        let idle = self.timeout(&["idle_timeout_seconds"], TimeoutUnit::Seconds);
        let keepalive = self.timeout(&["keepalive_interval"], TimeoutUnit::Seconds);
        if !times.is_empty() {
            table.insert("timeouts", value(times));
        }
        for (name, span) in [("idle_timeout", idle), ("keepalive_interval", keepalive)] {
            if let Some(span) = span {
                table.insert(name, value(span));
            }
        }
    }

    fn timeout(&mut self, names: &[&'e str], unit: TimeoutUnit) -> Option<String> {
        self.take(names).and_then(|time| duration_text(time, unit))
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
            self.note("its excluded tools are left out: Hermes ignores them if tools are included");
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

    /// Adds a note for each known key that is not imported.
    fn note_ignored_keys(&mut self) {
        for (names, why) in [
            (APPROVAL, "approvals are not imported"),
            (LOGIN, "logins are not imported"),
            (WITHOUT_SETTING, "gripfast has no such setting"),
        ] {
            for name in names {
                if self.take(&[name]).is_some() {
                    self.note(format!("`{name}` is left out: {why}"));
                }
            }
        }
    }

    /// A note about the keys that were not read.
    fn unknown_keys(&self) -> Option<String> {
        let known = |key: &str| self.used.contains(&key) || HARMLESS.contains(&key);
        let rest: Vec<String> = self
            .tables
            .iter()
            .flat_map(|table| table.entries())
            .filter(|(key, _)| !known(key))
            .map(|(key, _)| format!("`{key}`"))
            .collect();
        (!rest.is_empty()).then(|| format!("unknown keys are left out: {}", rest.join(", ")))
    }
}

/// The URL and headers of `npx mcp-remote URL --header 'Name: value'`, a bridge for clients that only start commands.
fn mcp_remote_target(words: &[String]) -> Option<(String, Vec<(String, String)>)> {
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

/// A duration in the syntax of the gripfast config. `None` if the value is not a duration or out of range.
fn duration_text(tree: &Tree, unit: TimeoutUnit) -> Option<String> {
    let factor = match unit {
        TimeoutUnit::Millis => 1.0,
        TimeoutUnit::Seconds => 1000.0,
        TimeoutUnit::Unknown => return None,
    };
    let millis = (number(tree)? * factor).round();
    // At most a day.
    let millis = (1.0..=86_400_000.0).contains(&millis).then_some(millis)?;
    // The cast is exact within this range.
    let millis = millis as u64;
    Some(if millis.is_multiple_of(1000) { format!("{}s", millis / 1000) } else { format!("{millis}ms") })
}

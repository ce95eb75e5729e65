//! The config as it is in force: every setting with its value, without anything secret, and where it comes from.
//! What the file says is shown as the file says it; what it does not say is shown as it was understood.

use super::node::{Node, Position, Value};
use super::redact;
use super::template::Template;
use super::{Config, GatewayConfig, Isolation, PinMode, ProtocolChoice, ServerSpec};
use gripfast_core::supervise::spec::WhenDown;
use gripfast_core::text::duration;
use std::time::Duration;

/// One setting as it is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Where it belongs, such as `servers.github.timeouts.call`.
    pub path: String,
    /// Its value for people, without anything secret.
    pub value: String,
    /// Where it comes from.
    pub from: SettingFrom,
}

/// Where a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingFrom {
    /// Nobody said anything.
    Default,
    /// The file says so.
    File(Position),
}

/// What servers stand under.
const ROOTS: [&str; 3] = ["servers", "mcpServers", "mcp_servers"];
/// Tables whose values may be secret.
const SECRET: [&str; 5] = ["env", "environment", "envs", "headers", "http_headers"];

/// What a file says, setting by setting. Where and how something is said is no part of what is said: two configs that
/// mean the same are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Said(Vec<Setting>);

impl PartialEq for Said {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Said {
    pub(super) fn in_file(root: Option<&Node>) -> Self {
        let mut said = Vec::new();
        if let Some(root) = root {
            leaves(root, &mut Vec::new(), &redact::secrets(root), &mut said);
        }
        Self(said)
    }
}

impl Config {
    /// Every setting, in the order of the file, each table followed by its defaults.
    pub fn settings(&self) -> Vec<Setting> {
        let said = &self.said.0;
        let mut settings =
            table("gateway", said, of_gateway(&self.gateway), &of_gateway(&GatewayConfig::default()));
        for server in &self.servers {
            let name = format!("servers.{}", server.name);
            let (known, usual) = match &server.spec {
                Ok(spec) => (of_server(spec), of_server(&ServerSpec::new(spec.target.clone()))),
                Err(_) => (Vec::new(), Vec::new()),
            };
            settings.extend(table(&name, said, known, &usual));
        }
        let others: Vec<Setting> = said
            .iter()
            .filter(|setting| settings.iter().all(|known| known.path != setting.path))
            .cloned()
            .collect();
        settings.extend(others);
        settings
    }
}

type Known = (&'static str, String);

/// What is said of one table, and then what is not.
fn table(name: &str, said: &[Setting], known: Vec<Known>, usual: &[Known]) -> Vec<Setting> {
    let inside = format!("{name}.");
    let mut settings: Vec<Setting> =
        said.iter().filter(|setting| setting.path.starts_with(&inside)).cloned().collect();
    for (key, value) in known {
        let path = format!("{inside}{key}");
        if settings.iter().any(|setting| setting.path == path) {
            continue;
        }
        // Other clients say some things in other words; then it is the file all the same.
        let first = settings.first().map(|setting| setting.from);
        let is_usual = usual.iter().any(|(known, usual)| *known == key && *usual == value);
        let from = first.filter(|_| !is_usual).unwrap_or(SettingFrom::Default);
        settings.push(Setting { path, value, from });
    }
    settings
}

fn leaves(node: &Node, path: &mut Vec<String>, secrets: &[String], found: &mut Vec<Setting>) {
    match &node.value {
        Value::Table(entries) => {
            for (key, value) in entries {
                let is_root = path.is_empty() && ROOTS.contains(&key.name.as_str());
                path.push(if is_root { ROOTS[0].to_owned() } else { key.name.clone() });
                leaves(value, path, secrets, found);
                path.pop();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Date | Value::Str(_) | Value::List(_) => {
            let is_secret = path.iter().any(|key| SECRET.contains(&key.as_str()));
            let value = shown(node, is_secret, secrets);
            found.push(Setting { path: path.join("."), value, from: SettingFrom::File(node.at) });
        }
    }
}

fn shown(node: &Node, is_secret: bool, secrets: &[String]) -> String {
    match &node.value {
        Value::Str(text) if is_secret => match Template::parse(text) {
            Ok(template) => template.into_secret().to_string(),
            Err(_) => redact::REDACTED.to_owned(),
        },
        _ if is_secret => redact::REDACTED.to_owned(),
        Value::Str(text) if text.contains("://") => redact::mask_url(text),
        Value::Str(text) | Value::Number(text) => redact::mask_line(text, secrets),
        Value::Bool(yes) => yes.to_string(),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| shown(item, is_secret, secrets)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(entries) => {
            let items = entries.iter().map(|(key, value)| {
                let is_secret = is_secret || SECRET.contains(&key.name.as_str());
                format!("{} = {}", key.name, shown(value, is_secret, secrets))
            });
            format!("{{ {} }}", items.collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Date => node.value.kind().to_owned(),
    }
}

fn of_gateway(gateway: &GatewayConfig) -> Vec<Known> {
    let limits = gateway.limits;
    vec![
        ("listen", gateway.listen.to_string()),
        (
            "state_dir",
            gateway
                .state_dir
                .as_ref()
                .map_or("the platform's own".to_owned(), |dir| dir.display().to_string()),
        ),
        ("startup_wait", duration(gateway.startup_wait)),
        ("session_idle_timeout", duration(gateway.session_idle_timeout)),
        ("ledger", gateway.ledger.keeps.word().to_owned()),
        ("ledger_size", bytes(gateway.ledger.size)),
        ("limits.sessions", limits.sessions.to_string()),
        ("limits.sessions_per_client", limits.sessions_per_client.to_string()),
        ("limits.in_flight", limits.in_flight.to_string()),
        ("limits.in_flight_per_client", limits.in_flight_per_client.to_string()),
        ("limits.connections", limits.connections.to_string()),
        ("limits.connections_per_client", limits.connections_per_client.to_string()),
    ]
}

fn of_server(spec: &ServerSpec) -> Vec<Known> {
    let supervision = &spec.supervision;
    let or_off = |span: Option<Duration>| span.map_or("off".to_owned(), duration);
    vec![
        ("protocol", protocol(spec.protocol).to_owned()),
        ("disabled", spec.disabled.to_string()),
        ("lazy", supervision.lazy.to_string()),
        ("idle_timeout", duration(supervision.idle_timeout)),
        (
            "when_down",
            match supervision.when_down {
                WhenDown::Keep => "keep",
                WhenDown::Withdraw => "withdraw",
            }
            .to_owned(),
        ),
        ("keepalive_interval", or_off(supervision.keepalive.interval)),
        ("keepalive_timeout", duration(supervision.keepalive.timeout)),
        ("circuit.threshold", supervision.circuit.threshold.to_string()),
        ("circuit.cooldown", duration(supervision.circuit.cooldown)),
        ("restart.max", supervision.restart.max.to_string()),
        ("restart.window", duration(supervision.restart.window)),
        ("restart.backoff_min", duration(supervision.restart.backoff_min)),
        ("restart.backoff_max", duration(supervision.restart.backoff_max)),
        ("restart.parked_probe", duration(supervision.restart.parked_probe)),
        ("timeouts.connect", duration(supervision.timeouts.connect)),
        ("timeouts.call", duration(supervision.timeouts.call)),
        ("timeouts.progress", duration(supervision.timeouts.progress)),
        ("timeouts.reconnect_wait", duration(supervision.timeouts.reconnect_wait)),
        ("max_in_flight", supervision.max_in_flight.to_string()),
        ("max_message", bytes(spec.max_message as u64)),
        ("prefix", spec.prefix.clone().unwrap_or_else(|| "the server's name".to_owned())),
        (
            "isolation",
            match spec.isolation {
                Isolation::Auto => "auto",
                Isolation::Shared => "shared",
                Isolation::PerClient => "per_client",
            }
            .to_owned(),
        ),
        ("max_instances", spec.max_instances.to_string()),
        ("pins", pin_mode(spec.pins).to_owned()),
    ]
}

fn protocol(choice: ProtocolChoice) -> &'static str {
    match choice {
        ProtocolChoice::Auto => "auto",
        ProtocolChoice::Legacy => "legacy",
        ProtocolChoice::Modern => "modern",
    }
}

fn pin_mode(mode: PinMode) -> &'static str {
    match mode {
        PinMode::Enforce => "enforce",
        PinMode::Warn => "warn",
        PinMode::Off => "off",
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{} KiB", count >> 10),
        _ => format!("{} MiB", count >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str, file: &str) -> Vec<Setting> {
        Config::parse(text, file.as_ref()).unwrap().settings()
    }

    #[track_caller]
    fn find<'s>(settings: &'s [Setting], path: &str) -> (&'s str, Option<usize>) {
        let setting = settings.iter().find(|setting| setting.path == path);
        let setting = setting.unwrap_or_else(|| panic!("no {path} in {settings:#?}"));
        match setting.from {
            SettingFrom::Default => (&setting.value, None),
            SettingFrom::File(at) => (&setting.value, Some(at.line)),
        }
    }

    #[test]
    fn every_setting_has_its_value_and_its_line_or_is_a_default() {
        let text = "[gateway]\nstartup_wait = \"5s\"\n[servers.a]\ncommand = \"npx\"\nargs = [\"-y\", \"x\"]\n\
                    timeouts = { call = \"30s\" }\n";
        let settings = settings(text, "gripfast.toml");
        assert_eq!(find(&settings, "gateway.startup_wait"), ("5s", Some(2)));
        assert_eq!(find(&settings, "gateway.listen"), ("127.0.0.1:7331", None));
        assert_eq!(find(&settings, "servers.a.args"), ("[-y, x]", Some(5)));
        assert_eq!(find(&settings, "servers.a.timeouts.call"), ("30s", Some(6)));
        assert_eq!(find(&settings, "servers.a.timeouts.connect"), ("30 s", None));
        let mut paths: Vec<_> = settings.iter().map(|setting| &setting.path).collect();
        paths.sort_unstable();
        assert!(paths.is_sorted_by(|one, next| one < next), "none comes twice: {paths:?}");
    }

    #[test]
    fn the_files_of_other_clients_are_shown_under_our_names() {
        let text = "{\"mcpServers\": {\n\"a\": {\"command\": \"npx\", \"disabled\": true}}}";
        let settings = settings(text, "mcp.json");
        assert_eq!(find(&settings, "servers.a.command"), ("npx", Some(2)));
        assert_eq!(find(&settings, "servers.a.disabled"), ("true", Some(2)));
    }

    #[test]
    fn nothing_secret_is_shown() {
        let text = "[servers.a]\nurl = \"https://me:hunter22@h.example/mcp?key=hunter22\"\n\
                    headers = { Authorization = \"Bearer hunter22 ${env:TOKEN}\" }\n\
                    [servers.b]\ncommand = \"x\"\nargs = [\"--key=ghp_0123456789abcdef\", \"hunter22\"]\n\
                    env = { KEY = \"hunter22\" }\n";
        let settings = settings(text, "gripfast.toml");
        let all = format!("{settings:?}");
        assert!(!all.contains("hunter22") && !all.contains("ghp_0"), "{all}");
        assert_eq!(find(&settings, "servers.a.url").0, "https://…@h.example/mcp?…");
        assert_eq!(find(&settings, "servers.a.headers.Authorization").0, "[redacted]${env:TOKEN}");
    }
}

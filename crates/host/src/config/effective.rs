//! The config as it is in force: every setting with its value, without anything secret, and where it comes from.
//! What the file says is shown as the file says it; what it does not say is shown as it was understood.

use super::keys::{self, Kind, Table, Usual};
use super::node::{Node, Position, Value};
use super::redact;
use super::template::Template;
use super::{Config, GatewayConfig, ServerSpec};
use gripfast_core::redact::{KnownSecrets, REDACTED, url};

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

fn leaves(node: &Node, path: &mut Vec<String>, secrets: &KnownSecrets, found: &mut Vec<Setting>) {
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
            let is_secret = path.iter().any(|key| redact::HOLDERS.contains(&key.as_str()));
            let value = shown(node, is_secret, secrets);
            found.push(Setting { path: path.join("."), value, from: SettingFrom::File(node.at) });
        }
    }
}

fn shown(node: &Node, is_secret: bool, secrets: &KnownSecrets) -> String {
    match &node.value {
        Value::Str(text) if is_secret => match Template::parse(text) {
            Ok(template) => template.into_secret().to_string(),
            Err(_) => REDACTED.to_owned(),
        },
        _ if is_secret => REDACTED.to_owned(),
        Value::Str(text) if text.contains("://") => url(text),
        Value::Str(text) | Value::Number(text) => redact::mask_line(text, Some(secrets)),
        Value::Bool(yes) => yes.to_string(),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| shown(item, is_secret, secrets)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(entries) => {
            let items = entries.iter().map(|(key, value)| {
                let is_secret = is_secret || redact::HOLDERS.contains(&key.name.as_str());
                format!("{} = {}", key.name, shown(value, is_secret, secrets))
            });
            format!("{{ {} }}", items.collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Date => node.value.kind().to_owned(),
    }
}

type Known = (String, String);

/// The settings of a table whose value is known, as they would be written.
fn known(table: &Table, value: &dyn Fn(&Usual) -> Option<String>) -> Vec<Known> {
    let mut settings = Vec::new();
    for row in table.rows() {
        match &row.kind {
            Kind::Table(inner) => {
                let inner = known(inner, value).into_iter();
                settings.extend(inner.map(|(key, value)| (format!("{}.{key}", row.name), value)));
            }
            _ => settings.extend(value(&row.usual).map(|value| (row.name.to_owned(), value))),
        }
    }
    settings
}

fn of_gateway(gateway: &GatewayConfig) -> Vec<Known> {
    known(&keys::GATEWAY, &|usual| match usual {
        Usual::Gateway(of) => Some(of(gateway)),
        Usual::Words(words) => Some((*words).to_owned()),
        Usual::Is(_) | Usual::Server(_) | Usual::Needed | Usual::Nothing => None,
    })
}

fn of_server(spec: &ServerSpec) -> Vec<Known> {
    known(&keys::SERVER, &|usual| match usual {
        Usual::Server(of) => Some(of(spec)),
        Usual::Is(_) | Usual::Words(_) | Usual::Gateway(_) | Usual::Needed | Usual::Nothing => None,
    })
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
        assert_eq!(find(&settings, "servers.a.timeouts.connect"), ("5m", None), "`npx` may download");
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
    fn no_secret_of_a_login_or_of_a_restored_call_is_shown() {
        let text = "[servers.a]\nurl = \"https://h.example/mcp\"\n\
                    oauth = { client_id = \"me\", client_secret = \"pw\" }\n\
                    restore = [{ tool = \"login\", arguments = { password = \"hunter22\", pin = 1234 } }]\n";
        let settings = settings(text, "gripfast.toml");
        assert_eq!(find(&settings, "servers.a.oauth.client_secret").0, "[redacted]");
        let all = format!("{settings:?}");
        assert!(!all.contains("hunter22") && !all.contains("1234") && !all.contains("\"pw"), "{all}");
    }

    #[test]
    fn nothing_secret_is_shown() {
        let text = "[servers.a]\nurl = \"https://me:hunter22@h.example/mcp?key=hunter22\"\n\
                    headers = { Authorization = \"Bearer hunter22 ${env:TOKEN}\" }\n\
                    [servers.b]\ncommand = \"x\"\nargs = [\"--key=ghp_0123456789abcdef\", \"hunter22\", \"--password\", \"hunter33\"]\n\
                    env = { KEY = \"hunter22\" }\n";
        let settings = settings(text, "gripfast.toml");
        let all = format!("{settings:?}");
        assert!(!all.contains("hunter22") && !all.contains("hunter33") && !all.contains("ghp_0"), "{all}");
        assert_eq!(find(&settings, "servers.a.url").0, "https://[redacted]@h.example/mcp?key=[redacted]");
        assert_eq!(find(&settings, "servers.a.headers.Authorization").0, "[redacted]${env:TOKEN}");
    }
}

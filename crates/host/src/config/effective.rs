//! The effective config: every setting with its value, without secrets, and its origin. Settings of the file are shown
//! as written, all others with their decoded value.

use super::keys::{KeyValue, Section};
use super::node::{Node, Position, Value};
use super::redact;
use super::{ClusterConfig, Config, GatewayConfig, ServerSpec};
use gripfast_core::redact::{KnownSecrets, REDACTED, url};
use sha2::{Digest, Sha256};

/// One setting of the effective config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Full path of the key, such as `servers.github.timeouts.call`.
    pub path: String,
    /// Value for display, without secrets.
    pub value: String,
    /// Origin of the value.
    pub from: SettingFrom,
}

/// Origin of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingFrom {
    /// The default.
    Default,
    /// The config file, at this position.
    File(Position),
}

/// Top-level keys that hold servers.
const SERVER_ROOTS: [&str; 3] = ["servers", "mcpServers", "mcp_servers"];

/// The settings of a file, as written. All values compare equal, so that two configs that mean the same are equal.
#[derive(Debug, Clone, Default)]
pub(super) struct FileSettings(Vec<Setting>);

impl PartialEq for FileSettings {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl FileSettings {
    pub(super) fn from_tree(root: Option<&Node>) -> Self {
        let mut settings = Vec::new();
        if let Some(root) = root {
            collect_settings(root, &mut Vec::new(), &redact::secrets(root), &mut settings);
        }
        Self(settings)
    }
}

impl Config {
    /// All settings, in the order of the file, each table followed by its defaults.
    pub fn settings(&self) -> Vec<Setting> {
        let in_file = &self.file_settings.0;
        let mut settings =
            table("gateway", in_file, self.gateway.settings(), &GatewayConfig::default().settings());
        if let Some(cluster) = &self.cluster {
            settings.extend(table(
                "cluster",
                in_file,
                cluster.settings(),
                &ClusterConfig::defaults().settings(),
            ));
        }
        for server in &self.servers {
            let name = format!("servers.{}", server.name);
            let (known, defaults) = match &server.spec {
                Ok(spec) => (spec.settings(), ServerSpec::new(spec.target.clone()).settings()),
                Err(_) => (Vec::new(), Vec::new()),
            };
            settings.extend(table(&name, in_file, known, &defaults));
        }
        let others: Vec<Setting> = in_file
            .iter()
            .filter(|setting| settings.iter().all(|known| known.path != setting.path))
            .cloned()
            .collect();
        settings.extend(others);
        settings
    }

    /// Digest of what all replicas of a service should have in common: servers, clients and budgets.
    pub fn shared_digest(&self) -> String {
        let is_shared = |setting: &&Setting| {
            ["servers.", "clients.", "budgets."].iter().any(|table| setting.path.starts_with(table))
        };
        let mut lines: Vec<String> = self
            .settings()
            .iter()
            .filter(is_shared)
            .map(|setting| format!("{}={}", setting.path, setting.value))
            .collect();
        lines.sort_unstable();
        let digest = Sha256::digest(lines.join("\n"));
        digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The settings of one table: those of the file first, then the others.
fn table(name: &str, in_file: &[Setting], known: Vec<KeyValue>, defaults: &[KeyValue]) -> Vec<Setting> {
    let inside = format!("{name}.");
    let mut settings: Vec<Setting> =
        in_file.iter().filter(|setting| setting.path.starts_with(&inside)).cloned().collect();
    for (key, value) in known {
        let path = format!("{inside}{key}");
        if settings.iter().any(|setting| setting.path == path) {
            continue;
        }
        // A value that is not the default comes from the file, even if the file uses another client's name for the key.
        let first = settings.first().map(|setting| setting.from);
        let is_default = defaults.iter().any(|(known, default)| *known == key && *default == value);
        let from = first.filter(|_| !is_default).unwrap_or(SettingFrom::Default);
        settings.push(Setting { path, value, from });
    }
    settings
}

fn collect_settings(node: &Node, path: &mut Vec<String>, secrets: &KnownSecrets, found: &mut Vec<Setting>) {
    match &node.value {
        Value::Table(entries) => {
            for (key, value) in entries {
                let is_root = path.is_empty() && SERVER_ROOTS.contains(&key.name.as_str());
                path.push(if is_root { SERVER_ROOTS[0].to_owned() } else { key.name.clone() });
                collect_settings(value, path, secrets, found);
                path.pop();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Date | Value::Str(_) | Value::List(_) => {
            let is_secret = redact::is_secret(path);
            let value = display_value(node, is_secret, secrets);
            found.push(Setting { path: path.join("."), value, from: SettingFrom::File(node.at) });
        }
    }
}

fn display_value(node: &Node, is_secret: bool, secrets: &KnownSecrets) -> String {
    match &node.value {
        Value::Str(text) if is_secret => redact::references_of(text),
        _ if is_secret => REDACTED.to_owned(),
        Value::Str(text) if text.contains("://") => url(text),
        Value::Str(text) | Value::Number(text) => redact::mask_line(text, Some(secrets)),
        Value::Bool(yes) => yes.to_string(),
        Value::List(items) => {
            let items: Vec<String> =
                items.iter().map(|item| display_value(item, is_secret, secrets)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(entries) => {
            let items = entries.iter().map(|(key, value)| {
                let is_secret = is_secret || redact::SECRET_KEYS.contains(&key.name.as_str());
                format!("{} = {}", key.name, display_value(value, is_secret, secrets))
            });
            format!("{{ {} }}", items.collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Date => node.value.kind().to_owned(),
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
        assert_eq!(find(&settings, "servers.a.timeouts.connect"), ("5m", None), "`npx` may download");
        let mut paths: Vec<_> = settings.iter().map(|setting| &setting.path).collect();
        paths.sort_unstable();
        assert!(paths.is_sorted_by(|one, next| one < next), "none occurs twice: {paths:?}");
    }

    #[test]
    fn the_files_of_other_clients_are_shown_under_our_names() {
        let text = "{\"mcpServers\": {\n\"a\": {\"command\": \"npx\", \"disabled\": true}}}";
        let settings = settings(text, "mcp.json");
        assert_eq!(find(&settings, "servers.a.command"), ("npx", Some(2)));
        assert_eq!(find(&settings, "servers.a.disabled"), ("true", Some(2)));
    }

    #[test]
    fn secrets_of_oauth_and_restore_are_not_shown() {
        let text = "[servers.a]\nurl = \"https://h.example/mcp\"\n\
                    oauth = { client_id = \"me\", client_secret = \"pw\" }\n\
                    restore = [{ tool = \"login\", arguments = { password = \"hunter22\", pin = 1234 } }]\n";
        let settings = settings(text, "gripfast.toml");
        assert_eq!(find(&settings, "servers.a.oauth.client_secret").0, "[redacted]");
        let all = format!("{settings:?}");
        assert!(!all.contains("hunter22") && !all.contains("1234") && !all.contains("\"pw"), "{all}");
    }

    #[test]
    fn secrets_in_urls_headers_args_and_env_are_not_shown() {
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

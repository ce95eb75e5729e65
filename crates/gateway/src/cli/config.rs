//! Loads the config for a command, and looks up servers, the state directory and key files in it.

use super::args::GlobalArgs;
use super::config_trust;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::Screen;
use super::shared_tables;
use etcetera::BaseStrategy;
use gripfast::Code;
use gripfast::auth::Logins;
use gripfast::config::{
    AccessConfig, Config, ConfigError, ConfigFile, ConfigOrigin, ConfigText, Diagnostic, GatewayConfig, Jwks,
    ProcessEnvironment, SearchPaths, ServerEntry, ServerSpec, suggest,
};
use gripfast::private_files::{self, StrictModes, UnsafeFile};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, Table};

/// A config and its origin.
#[derive(Debug)]
pub(crate) struct LoadedConfig {
    pub(crate) path: PathBuf,
    pub(crate) origin: ConfigOrigin,
    pub(crate) config: Config,
}

/// The reason for which there is no usable config.
pub(crate) enum ConfigUnavailable {
    /// The file may not be used: it is not trusted, or another user could have changed it.
    Refused(FailureReport),
    /// The file is missing, unreadable or invalid.
    Unusable(ConfigError),
}

/// Finds the config file.
pub(crate) fn locate(explicit: Option<&Path>) -> Result<ConfigFile, ConfigError> {
    Config::find(explicit, &ProcessEnvironment, &SearchPaths::from_process())
}

/// The path of the config file. Nothing is read, so it need not be trusted.
pub(crate) fn find(explicit: Option<&Path>) -> Result<PathBuf, FailureReport> {
    locate(explicit).map(|file| file.path).map_err(|error| config_failure(&error))
}

/// Finds and reads the config. The only place that decides whether a file is used.
pub(crate) fn load(explicit: Option<&Path>) -> Result<LoadedConfig, ConfigUnavailable> {
    let file = locate(explicit).map_err(ConfigUnavailable::Unusable)?;
    let text = ConfigText::read(&file.path).map_err(ConfigUnavailable::Unusable)?;
    config_trust::require_trust(&file, &text).map_err(ConfigUnavailable::Refused)?;
    match text.config(file.origin) {
        Ok(config) => Ok(LoadedConfig { path: file.path, origin: file.origin, config }),
        Err(error @ ConfigError::Unsafe(_)) => Err(ConfigUnavailable::Refused(config_failure(&error))),
        Err(error) => Err(ConfigUnavailable::Unusable(error)),
    }
}

/// The same for a command that needs the config. Errors of the file as a whole are printed before this returns; errors
/// of one server are left to the caller that uses that server.
pub(crate) fn open(global: &GlobalArgs, screen: &mut Screen) -> Result<LoadedConfig, CommandError> {
    match load(global.config.as_deref()) {
        Ok(opened) => Ok(opened),
        Err(ConfigUnavailable::Unusable(error)) => Err(report_invalid(&error, screen)),
        Err(none @ ConfigUnavailable::Refused(_)) => Err(FailureReport::from(none).into()),
    }
}

/// Prints the errors of an invalid config and returns the reason for which the command stops.
pub(crate) fn report_invalid(error: &ConfigError, screen: &mut Screen) -> CommandError {
    let ConfigError::Invalid { diagnostics } = error else { return config_failure(error).into() };
    let shown: io::Result<()> = diagnostics.iter().try_for_each(|found| screen.finding(&found.render()));
    shown.map_or_else(CommandError::Output, |()| CommandError::Reported(Exit::ConfigInvalid))
}

/// Loads the config for a command that only needs the gateway's address or state directory. An unusable config that
/// was not named counts as none, so that commands which diagnose it still reach the gateway.
pub(crate) fn load_optional(global: &GlobalArgs) -> Result<Option<Config>, FailureReport> {
    match load(global.config.as_deref()) {
        Ok(opened) => Ok(Some(opened.config)),
        Err(ConfigUnavailable::Unusable(_)) if global.config.is_none() => Ok(None),
        Err(none) => Err(none.into()),
    }
}

/// The failure report of a config error.
pub(crate) fn config_failure(error: &ConfigError) -> FailureReport {
    let text = match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    let failure = FailureReport::new(Exit::ConfigInvalid, text);
    match error {
        ConfigError::NotFound { .. } => failure.with_hint(format!(
            "`gripfast import --write` creates one from the servers of other MCP clients, `gripfast add` starts a new one; \
             `--config FILE` or ${} names another file, which may be the JSON or YAML of another client",
            Config::ENV_VAR
        )),
        ConfigError::Unsafe(found) => failure.with_hint(remedy(found)),
        ConfigError::Unreadable { .. } | ConfigError::TooLarge { .. } | ConfigError::Invalid { .. } => failure,
    }
}

/// The hint for a file that another user could have changed.
pub(crate) fn remedy(found: &UnsafeFile) -> String {
    format!(
        "{}; for a container volume, set `strict_modes = false` in the table `gateway` of a config that `--config` names",
        found.remedy()
    )
}

impl From<ConfigUnavailable> for FailureReport {
    fn from(none: ConfigUnavailable) -> Self {
        match none {
            ConfigUnavailable::Refused(failure) => failure,
            ConfigUnavailable::Unusable(error) => config_failure(&error),
        }
    }
}

impl LoadedConfig {
    /// The state directory: as typed, else as configured, else the platform's. `None` without a home directory.
    pub(crate) fn state_dir(&self, global: &GlobalArgs) -> Result<Option<PathBuf>, FailureReport> {
        let chosen = global.state_dir.clone().or_else(|| self.config.gateway.state_dir.clone());
        require_safe_dir(chosen.or_else(platform_state_dir), || self.strict_modes())
    }

    /// The setting `strict_modes`: whether files that another user could have changed are refused.
    pub(crate) fn strict_modes(&self) -> StrictModes {
        self.config.gateway.access.strict_modes
    }

    /// The logins in the state directory, or those of the service of several replicas.
    pub(crate) fn logins(&self, global: &GlobalArgs) -> Result<Logins, FailureReport> {
        let state_dir = self.state_dir(global)?;
        let logins = Logins::new(state_dir.as_deref(), self.config.gateway.login_key);
        Ok(match shared_tables::for_command(&self.config, state_dir.as_deref())? {
            Some(tables) => logins.with_shared_state(tables),
            None => logins,
        })
    }

    /// The server of this name, or an error that suggests the nearest name.
    pub(crate) fn server(&self, name: &str) -> Result<&ServerEntry, FailureReport> {
        if let Some(entry) = self.config.servers.iter().find(|entry| entry.name == name) {
            return Ok(entry);
        }
        let known: Vec<&str> = self.config.servers.iter().map(|entry| entry.name.as_str()).collect();
        let hint = did_you_mean(name, known.iter().copied()).unwrap_or_else(|| match known.is_empty() {
            true => "the file has no servers".to_owned(),
            false => format!("its servers are {}", name_list(&known)),
        });
        let text = format!("no server `{name}` in `{}`", self.path.display());
        Err(FailureReport::for_server(name, Code::UnknownServer, text, Some(hint)))
    }
}

/// The platform's state directory for gripfast. `None` without a home directory.
pub(crate) fn platform_state_dir() -> Option<PathBuf> {
    let platform = etcetera::choose_base_strategy().ok()?;
    // Windows has no directory for state alone.
    Some(platform.state_dir().unwrap_or_else(|| platform.data_dir()).join("gripfast"))
}

/// The failure of a command that needs a state directory, for example `" for keys"`, where there is none.
pub(crate) fn no_state_dir(purpose: &str) -> FailureReport {
    FailureReport::new(Exit::General, format!("no state directory{purpose}: there is no home directory"))
        .with_hint("`--state-dir` names one")
}

/// Refuses a state directory whose content another user could have changed.
pub(crate) fn require_safe_dir(
    directory: Option<PathBuf>,
    strict_modes: impl FnOnce() -> StrictModes,
) -> Result<Option<PathBuf>, FailureReport> {
    match directory.as_deref().map_or(Ok(()), private_files::check_state_directory) {
        Err(found) if strict_modes() == StrictModes::On => {
            let text = format!("the state directory is refused: {found}");
            Err(FailureReport::new(Exit::ConfigInvalid, text).with_hint(remedy(&found)))
        }
        Ok(()) | Err(_) => Ok(directory),
    }
}

/// The state directory of the running gateway, derived from the options and the config.
pub(crate) fn gateway_state_dir(global: &GlobalArgs) -> Result<Option<PathBuf>, FailureReport> {
    let strict_modes = |config: Option<Config>| config.unwrap_or_default().gateway.access.strict_modes;
    if global.state_dir.is_some() {
        let of_config = || load_optional(global).map_or(StrictModes::On, strict_modes);
        return require_safe_dir(global.state_dir.clone(), of_config);
    }
    let config = load_optional(global)?;
    let chosen = config.as_ref().and_then(|config| config.gateway.state_dir.clone());
    require_safe_dir(chosen.or_else(platform_state_dir), || strict_modes(config))
}

/// The `gateway` settings for a command that changes something in the state directory. An unusable config counts as the
/// defaults.
pub(crate) fn gateway_settings(global: &GlobalArgs) -> GatewayConfig {
    load_optional(global).ok().flatten().unwrap_or_default().gateway
}

/// Unsafe key files of the gateway itself, each with the config key that names it. A user who can write one could
/// impersonate the gateway or issue tokens.
pub(crate) fn unsafe_keys(config: &Config) -> Vec<(&'static str, UnsafeFile)> {
    let AccessConfig { tls, jwt, .. } = &config.gateway.access;
    let tls = tls.as_ref().map(|tls| ("gateway.tls.key", &tls.key));
    let jwks = jwt.as_ref().and_then(|jwt| match &jwt.jwks {
        Jwks::File(path) => Some(("gateway.auth.jwt.jwks", path)),
        Jwks::Url(_) => None,
    });
    let found = |(key, path): (&'static str, &PathBuf)| {
        // A missing file is reported by the code that reads it.
        let metadata = std::fs::metadata(path).ok()?;
        Some((key, private_files::check(path, &metadata).err()?))
    };
    tls.into_iter().chain(jwks).filter_map(found).collect()
}

/// The spec of a server, or the reason for which it cannot be started.
pub(crate) fn server_spec(entry: &ServerEntry) -> Result<&ServerSpec, FailureReport> {
    let name = &entry.name;
    match &entry.spec {
        Ok(spec) if spec.disabled => Err(FailureReport::for_server(
            name,
            Code::Stopped,
            format!("server `{name}` is disabled in the config"),
            Some(format!("`gripfast enable {name}` enables it")),
        )),
        Ok(spec) => Ok(spec),
        Err(findings) => {
            let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
            let text = format!("server `{name}` cannot work as configured: {}", findings.join("; "));
            let hint = Some(format!("`gripfast check` explains the config of `{name}`"));
            Err(FailureReport::for_server(name, Code::Unreachable, text, hint).with_exit(Exit::ConfigInvalid))
        }
    }
}

/// The spec of a server table, or the reason for which the config would reject it.
pub(crate) fn spec_of_table(table: Table) -> Result<ServerSpec, String> {
    let servers = Table::from_iter([("server", Item::Table(table))]);
    let document = DocumentMut::from(Table::from_iter([("servers", Item::Table(servers))]));
    let config = Config::parse(&document.to_string(), Config::FILE_NAME.as_ref());
    let entry = config.map_err(|error| error_text(&error))?.servers.into_iter().next();
    let spec = entry.ok_or("there is no server")?.spec;
    let text =
        |findings: Vec<Diagnostic>| findings.into_iter().map(|finding| finding.message).collect::<Vec<_>>();
    spec.map_err(|findings| text(findings).join("; "))
}

/// The text of a config error in one line.
pub(crate) fn error_text(error: &ConfigError) -> String {
    match error {
        ConfigError::Invalid { diagnostics } => diagnostics
            .iter()
            .map(|finding| format!("{finding} (line {})", finding.position.line))
            .collect::<Vec<_>>()
            .join("; "),
        other => other.to_string(),
    }
}

/// Drops hints that need a gateway from the failure of a command that runs without one.
pub(crate) fn without_gateway_hints(
    global: &GlobalArgs,
    server: &str,
    failure: FailureReport,
) -> FailureReport {
    const NEEDS_GATEWAY: [&str; 6] = ["status", "reconnect", "reload", "start", "logs", "calls"];
    let Some(hint) = &failure.hint else { return failure };
    let file = global.config.as_deref().unwrap_or(Path::new("FILE")).display();
    let useful = |part: &&str| {
        let needs = |verb: &str| part.contains(&format!("`gripfast {verb}"));
        !NEEDS_GATEWAY.into_iter().any(needs) && *part != "gripfast retries automatically"
    };
    let mut parts: Vec<String> = hint.split("; ").filter(useful).map(str::to_owned).collect();
    for part in &mut parts {
        *part = part.replace("`gripfast tools ", &format!("`gripfast tools --config {file} "));
    }
    if parts.is_empty() {
        parts.push(format!("`gripfast doctor {server} --config {file}` looks for the cause"));
    }
    failure.with_hint(parts.join("; "))
}

/// The hint that suggests the known name nearest to a misspelt one, if one is near.
pub(crate) fn did_you_mean<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<String> {
    suggest::nearest(name, known).map(|nearest| format!("did you mean `{nearest}`?"))
}

/// Number of names that a hint lists at most.
const MAX_NAMES: usize = 8;

fn name_list(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(MAX_NAMES).map(|name| format!("`{name}`")).collect();
    let more = match names.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    shown.join(", ") + &more
}

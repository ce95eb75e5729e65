//! Opening the config that a verb works with, and picking servers out of it.

use super::args::Global;
use super::config_trust;
use super::exit::Exit;
use super::render::Screen;
use super::stop::{Failure, Stop};
use etcetera::BaseStrategy;
use gripfast::Code;
use gripfast::auth::Logins;
use gripfast::config::{
    AccessConfig, Config, ConfigError, ConfigFile, ConfigOrigin, ConfigText, GatewayConfig, Jwks, Places,
    ProcessEnvironment, ServerEntry, ServerSpec, suggest,
};
use gripfast::private_files::{self, StrictModes, UnsafeFile};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// A config and where it came from.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) origin: ConfigOrigin,
    pub(crate) config: Config,
}

/// Why there is no config to work with.
pub(crate) enum NoConfig {
    /// The file is not to be used, whatever is in it: nobody trusts it, or another user could have changed it.
    Refused(Failure),
    /// There is none, or it makes no sense.
    Unusable(ConfigError),
}

/// Which file is meant.
pub(crate) fn locate(explicit: Option<&Path>) -> Result<ConfigFile, ConfigError> {
    Config::find(explicit, &ProcessEnvironment, &Places::of_this_process())
}

/// Its path, to be named: nothing is read, and nobody has to trust it for that.
pub(crate) fn find(explicit: Option<&Path>) -> Result<PathBuf, Failure> {
    locate(explicit).map(|file| file.path).map_err(|error| unusable(&error))
}

/// Finds and reads the config. The one place that decides whether a file is used.
pub(crate) fn load(explicit: Option<&Path>) -> Result<Opened, NoConfig> {
    let file = locate(explicit).map_err(NoConfig::Unusable)?;
    let text = ConfigText::read(&file.path).map_err(NoConfig::Unusable)?;
    config_trust::require(&file, &text).map_err(NoConfig::Refused)?;
    match text.config(file.origin) {
        Ok(config) => Ok(Opened { path: file.path, origin: file.origin, config }),
        Err(error @ ConfigError::Unsafe(_)) => Err(NoConfig::Refused(unusable(&error))),
        Err(error) => Err(NoConfig::Unusable(error)),
    }
}

/// The same for a verb that works with the config. What is wrong with the file as a whole is told before this returns;
/// what is wrong with one server is left to whoever wants that server.
pub(crate) fn open(global: &Global, screen: &mut Screen) -> Result<Opened, Stop> {
    match load(global.config.as_deref()) {
        Ok(opened) => Ok(opened),
        Err(NoConfig::Unusable(error)) => Err(told(&error, screen)),
        Err(none @ NoConfig::Refused(_)) => Err(Failure::from(none).into()),
    }
}

/// Why a verb stops that wants to use a file, whose mistakes are shown one after the other.
pub(crate) fn told(error: &ConfigError, screen: &mut Screen) -> Stop {
    let ConfigError::Invalid { diagnostics } = error else { return unusable(error).into() };
    let shown: io::Result<()> = diagnostics.iter().try_for_each(|found| screen.finding(&found.render()));
    shown.map_or_else(Stop::Output, |()| Stop::Told(Exit::ConfigInvalid))
}

/// The same for a verb that only asks a gateway, and wants to know where it is. A config that was not named and makes no
/// sense says nothing about it: somebody who looks for what is wrong should find the gateway all the same.
pub(crate) fn glance(global: &Global) -> Result<Option<Config>, Failure> {
    match load(global.config.as_deref()) {
        Ok(opened) => Ok(Some(opened.config)),
        Err(NoConfig::Unusable(_)) if global.config.is_none() => Ok(None),
        Err(none) => Err(none.into()),
    }
}

/// Why there is no config, for a person.
pub(crate) fn unusable(error: &ConfigError) -> Failure {
    let text = match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    let failure = Failure::new(Exit::ConfigInvalid, text);
    match error {
        ConfigError::NotFound { .. } => failure.with_hint(format!(
            "`gripfast import --write` makes one of the servers that other MCP clients have, `gripfast add` begins one; \
             `--config FILE` or ${} names another, also the JSON or YAML of another client",
            Config::VARIABLE
        )),
        ConfigError::Unsafe(found) => failure.with_hint(remedy(found)),
        ConfigError::Unreadable { .. } | ConfigError::TooLarge { .. } | ConfigError::Invalid { .. } => failure,
    }
}

/// What to do about a file that another user could have changed.
pub(crate) fn remedy(found: &UnsafeFile) -> String {
    format!(
        "{}; for a container volume, `strict_modes = false` in the table `gateway` of a config that `--config` names",
        found.remedy()
    )
}

impl From<NoConfig> for Failure {
    fn from(none: NoConfig) -> Self {
        match none {
            NoConfig::Refused(failure) => failure,
            NoConfig::Unusable(error) => unusable(&error),
        }
    }
}

impl Opened {
    /// Where state is kept: as typed, as the config says, or where the platform likes it. `None` without a home.
    pub(crate) fn state_dir(&self, global: &Global) -> Result<Option<PathBuf>, Failure> {
        let chosen = global.state_dir.clone().or_else(|| self.config.gateway.state_dir.clone());
        judged(chosen.or_else(platform_state_dir), || self.strict_modes())
    }

    /// Whether files that another user could have changed are refused.
    pub(crate) fn strict_modes(&self) -> StrictModes {
        self.config.gateway.access.strict_modes
    }

    /// The logins that are kept there.
    pub(crate) fn logins(&self, global: &Global) -> Result<Logins, Failure> {
        Ok(Logins::of(self.state_dir(global)?.as_deref(), self.config.gateway.login_key))
    }

    /// The server of this name, or an error that names the nearest one.
    pub(crate) fn server(&self, name: &str) -> Result<&ServerEntry, Failure> {
        if let Some(entry) = self.config.servers.iter().find(|entry| entry.name == name) {
            return Ok(entry);
        }
        let known: Vec<&str> = self.config.servers.iter().map(|entry| entry.name.as_str()).collect();
        let hint = match suggest::nearest(name, known.iter().copied()) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None if known.is_empty() => "it names no servers at all".to_owned(),
            None => format!("it has {}", list(&known)),
        };
        let text = format!("no server `{name}` in `{}`", self.path.display());
        Err(Failure::about(name, Code::UnknownServer, text, Some(hint)))
    }
}

/// Where the platform keeps state. `None` without a home.
pub(crate) fn platform_state_dir() -> Option<PathBuf> {
    let platform = etcetera::choose_base_strategy().ok()?;
    // Windows has no directory for state alone.
    Some(platform.state_dir().unwrap_or_else(|| platform.data_dir()).join("gripfast"))
}

/// A state directory, unless another user could have changed what is in it.
pub(crate) fn judged(
    directory: Option<PathBuf>,
    strict_modes: impl FnOnce() -> StrictModes,
) -> Result<Option<PathBuf>, Failure> {
    match directory.as_deref().map_or(Ok(()), private_files::judge_state_directory) {
        Err(found) if strict_modes() == StrictModes::On => {
            let text = format!("the state directory is refused: {found}");
            Err(Failure::new(Exit::ConfigInvalid, text).with_hint(remedy(&found)))
        }
        Ok(()) | Err(_) => Ok(directory),
    }
}

/// Where a gateway that runs already keeps its state, as far as can be told from here.
pub(crate) fn state_dir_of_gateway(global: &Global) -> Result<Option<PathBuf>, Failure> {
    let strict_modes = |config: Option<Config>| config.unwrap_or_default().gateway.access.strict_modes;
    if global.state_dir.is_some() {
        let of_config = || glance(global).map_or(StrictModes::On, strict_modes);
        return judged(global.state_dir.clone(), of_config);
    }
    let config = glance(global)?;
    let chosen = config.as_ref().and_then(|config| config.gateway.state_dir.clone());
    judged(chosen.or_else(platform_state_dir), || strict_modes(config))
}

/// The settings of the gateway that is meant, for a command that changes something in its state directory. A config that
/// cannot be used says nothing.
pub(crate) fn gateway_settings(global: &Global) -> GatewayConfig {
    glance(global).ok().flatten().unwrap_or_default().gateway
}

/// What is wrong with the files of keys that the gateway itself goes by, each with the key that names it: whoever can
/// write one can be taken for the gateway, or make tokens.
pub(crate) fn unsafe_keys(config: &Config) -> Vec<(&'static str, UnsafeFile)> {
    let AccessConfig { tls, jwt, .. } = &config.gateway.access;
    let tls = tls.as_ref().map(|tls| ("gateway.tls.key", &tls.key));
    let jwks = jwt.as_ref().and_then(|jwt| match &jwt.jwks {
        Jwks::File(path) => Some(("gateway.auth.jwt.jwks", path)),
        Jwks::Url(_) => None,
    });
    let found = |(key, path): (&'static str, &PathBuf)| {
        // One that is not there is told by whoever wants to read it.
        let metadata = std::fs::metadata(path).ok()?;
        Some((key, private_files::judge(path, &metadata).err()?))
    };
    tls.into_iter().chain(jwks).filter_map(found).collect()
}

/// What the config says about a server, or why it cannot be started.
pub(crate) fn usable(entry: &ServerEntry) -> Result<&ServerSpec, Failure> {
    let name = &entry.name;
    match &entry.spec {
        Ok(spec) if spec.disabled => Err(Failure::about(
            name,
            Code::Stopped,
            format!("server `{name}` is disabled in the config"),
            Some(format!("`gripfast enable {name}` takes `disabled` out of its table")),
        )),
        Ok(spec) => Ok(spec),
        Err(findings) => {
            let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
            let text = format!("server `{name}` cannot work as configured: {}", findings.join("; "));
            let hint = Some(format!("`gripfast check` explains the config of `{name}`"));
            Err(Failure::about(name, Code::Unreachable, text, hint).exiting(Exit::ConfigInvalid))
        }
    }
}

/// A failure of a verb that runs without a gateway, with no advice that needs one.
pub(crate) fn without_gateway(global: &Global, server: &str, failure: Failure) -> Failure {
    const NEEDS_GATEWAY: [&str; 6] = ["status", "reconnect", "reload", "start", "logs", "calls"];
    let Some(hint) = &failure.hint else { return failure };
    let file = global.config.as_deref().unwrap_or(Path::new("FILE")).display();
    let useful = |part: &&str| {
        let needs = |verb: &str| part.contains(&format!("`gripfast {verb}"));
        !NEEDS_GATEWAY.into_iter().any(needs) && *part != "it is tried again by itself"
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

/// More names than this are a page, not a hint.
const NAMED: usize = 8;

fn list(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    shown.join(", ") + &more
}

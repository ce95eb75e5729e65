//! Opening the config that a verb works with, and picking servers out of it.

use super::args::Global;
use super::exit::Exit;
use super::render::Screen;
use super::stop::{Failure, Stop};
use etcetera::BaseStrategy;
use gripfast::Code;
use gripfast::auth::Logins;
use gripfast::config::{Config, ConfigError, Places, ProcessEnvironment, ServerEntry, ServerSpec, suggest};
use std::error::Error;
use std::path::{Path, PathBuf};

/// A config and where it came from.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) config: Config,
}

/// Which file is meant.
pub(crate) fn find(explicit: Option<&Path>) -> Result<PathBuf, Failure> {
    Config::find(explicit, &ProcessEnvironment, &Places::of_this_process()).map_err(|error| unusable(&error))
}

/// Finds and reads the config. What is wrong with the file as a whole is told before this returns; what is
/// wrong with one server is left to whoever wants that server.
pub(crate) fn open(global: &Global, screen: &mut Screen) -> Result<Opened, Stop> {
    let path = find(global.config.as_deref())?;
    match Config::load(&path) {
        Ok(config) => Ok(Opened { path, config }),
        Err(ConfigError::Invalid { diagnostics }) => {
            for diagnostic in &diagnostics {
                screen.finding(&diagnostic.render())?;
            }
            Err(Stop::Told(Exit::ConfigInvalid))
        }
        Err(error) => Err(unusable(&error).into()),
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
        ConfigError::Unreadable { .. } | ConfigError::TooLarge { .. } | ConfigError::Invalid { .. } => failure,
    }
}

impl Opened {
    /// Where state is kept: as typed, as the config says, or where the platform likes it. `None` without a home.
    pub(crate) fn state_dir(&self, global: &Global) -> Option<PathBuf> {
        let chosen = global.state_dir.clone().or_else(|| self.config.gateway.state_dir.clone());
        chosen.or_else(platform_state_dir)
    }

    /// The logins that are kept there.
    pub(crate) fn logins(&self, global: &Global) -> Logins {
        Logins::of(self.state_dir(global).as_deref(), self.config.gateway.login_key)
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

fn platform_state_dir() -> Option<PathBuf> {
    let platform = etcetera::choose_base_strategy().ok()?;
    // Windows has no directory for state alone.
    Some(platform.state_dir().unwrap_or_else(|| platform.data_dir()).join("gripfast"))
}

/// Where a gateway that runs already keeps its state, as far as can be told from here. A config that was not
/// named and cannot be used says nothing about it: somebody who wants to stop a server should be able to.
pub(crate) fn state_dir_of_gateway(global: &Global) -> Result<Option<PathBuf>, Failure> {
    if global.state_dir.is_some() {
        return Ok(global.state_dir.clone());
    }
    let loaded =
        find(global.config.as_deref()).and_then(|path| Config::load(&path).map_err(|error| unusable(&error)));
    match loaded {
        Ok(config) => Ok(config.gateway.state_dir.or_else(platform_state_dir)),
        Err(failure) if global.config.is_some() => Err(failure),
        Err(_) => Ok(platform_state_dir()),
    }
}

/// What the config says about a server, or why it cannot be started.
pub(crate) fn usable(entry: &ServerEntry) -> Result<&ServerSpec, Failure> {
    let name = &entry.name;
    match &entry.spec {
        Ok(spec) if spec.disabled => Err(Failure::about(
            name,
            Code::Stopped,
            format!("server `{name}` is disabled in the config"),
            Some(format!("take `disabled` out of the table of `{name}` to use it")),
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

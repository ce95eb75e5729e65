//! `gripfast add`, `remove`, `enable` and `disable`: edit one server in the config and leave the rest of the file as it
//! is.

use super::args::GlobalArgs;
use super::config;
use super::config_trust::Editing;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::import::absolute;
use super::preflight;
use super::render::Screen;
use clap::Args;
use gripfast::config::{Config, ConfigError, ProcessEnvironment};
use std::path::Path;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, value};

#[derive(Debug, Args)]
#[command(after_help = "\
Writes a table into the config; comments and order stay as they are, and a missing file is created. An invalid server \
is not written. A gateway that runs with this config notices the change by itself.

Do not write secrets into the file: a value such as `${env:GITHUB_TOKEN}` is looked up whenever the server is started.

Examples:
  gripfast add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  gripfast add github --env 'TOKEN=${env:GITHUB_TOKEN}' -- npx -y some-server
  gripfast add docs --url https://example.com/mcp --header 'Authorization=Bearer ${env:DOCS_TOKEN}'")]
pub(crate) struct AddArgs {
    /// Name of the server
    #[arg(value_name = "NAME")]
    name: String,

    /// URL of a server that is reached over HTTP
    #[arg(long, value_name = "URL", conflicts_with = "command", required_unless_present = "command")]
    url: Option<String>,

    /// Environment variable for the command
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, requires = "command")]
    env: Vec<(String, String)>,

    /// HTTP header for all requests
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, requires = "url")]
    header: Vec<(String, String)>,

    /// Working directory of the command
    #[arg(long, value_name = "DIR", requires = "command")]
    cwd: Option<String>,

    /// Start the server on first use
    #[arg(long)]
    lazy: bool,

    /// Command that starts the server, and its arguments
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Removes the server's table from the config; all other lines stay as they are. A gateway that runs with this config \
stops the server by itself.")]
pub(crate) struct RemoveArgs {
    /// Name of the server
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
`disable` writes `disabled = true` into the server's table, `enable` removes it. A disabled server stays in the \
config, and no client is offered its tools. A gateway that runs with this config notices the change by itself. \
`gripfast stop NAME` stops a server until the gateway is restarted, without changing the config.")]
pub(crate) struct SwitchArgs {
    /// Name of the server
    #[arg(value_name = "NAME")]
    name: String,
}

/// The state that `enable` and `disable` set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    On,
    Off,
}

fn pair(typed: &str) -> Result<(String, String), &'static str> {
    match typed.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        Some(_) | None => Err("expected NAME=VALUE"),
    }
}

pub(crate) fn add(global: &GlobalArgs, args: &AddArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let editing = Editing::open(global)?;
    let Editing { path, before, .. } = &editing;
    let mut document = editing.toml(NOT_TOML)?;
    let servers = servers_table(&mut document, path)?;
    if servers.contains_key(&args.name) {
        let text = format!("`{}` already has a server `{}`", path.display(), args.name);
        return Err(FailureReport::new(Exit::General, text)
            .with_hint(format!("`gripfast remove {}` removes it", args.name))
            .into());
    }
    servers.insert(&args.name, Item::Table(args.table()));
    let text = document.to_string();
    validate(path, &text, &args.name, screen)?;
    editing.write(global, &text, screen)?;
    let made = if before.is_none() { " (new file)" } else { "" };
    screen.message(&format!("added `{}` to `{}`{made}", args.name, absolute(path)))?;
    warn_if_not_startable(&text, &args.name, screen)?;
    Ok(Exit::Ok)
}

pub(crate) fn remove(
    global: &GlobalArgs,
    args: &RemoveArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let (editing, mut document) = open_existing(global)?;
    let path = &editing.path;
    let servers = servers_table(&mut document, path)?;
    if servers.remove(&args.name).is_none() {
        return Err(unknown_server(&args.name, servers, path).into());
    }
    editing.write(global, &document.to_string(), screen)?;
    screen.message(&format!("removed `{}` from `{}`", args.name, absolute(path)))?;
    Ok(Exit::Ok)
}

/// Enables or disables a server in the config.
pub(crate) fn switch(
    global: &GlobalArgs,
    to: Switch,
    args: &SwitchArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let (editing, mut document) = open_existing(global)?;
    let SwitchArgs { name } = args;
    let path = &editing.path;
    let servers = servers_table(&mut document, path)?;
    let Some(server) = servers.get_mut(name).and_then(Item::as_table_like_mut) else {
        return Err(unknown_server(name, servers, path).into());
    };
    let is_off = server.get("disabled").and_then(Item::as_bool) == Some(true);
    let (word, is_so) = match to {
        Switch::On => ("enabled", !is_off),
        Switch::Off => ("disabled", is_off),
    };
    if is_so {
        screen.message(&format!("server `{name}` is already {word} in `{}`", absolute(path)))?;
        return Ok(Exit::Ok);
    }
    match to {
        Switch::On => server.remove("disabled"),
        Switch::Off => server.insert("disabled", value(true)),
    };
    let text = document.to_string();
    validate(path, &text, name, screen)?;
    editing.write(global, &text, screen)?;
    screen.message(&format!("{word} `{name}` in `{}`", absolute(path)))?;
    if to == Switch::On {
        warn_if_not_startable(&text, name, screen)?;
    }
    Ok(Exit::Ok)
}

/// Opens the existing config for editing.
fn open_existing(global: &GlobalArgs) -> Result<(Editing, DocumentMut), FailureReport> {
    config::find(global.config.as_deref())?;
    let editing = Editing::open(global)?;
    if editing.before.is_none() {
        return Err(config::config_failure(&ConfigError::NotFound { looked_for: vec![editing.path] }));
    }
    let document = editing.toml(NOT_TOML)?;
    Ok((editing, document))
}

fn unknown_server(name: &str, servers: &Table, path: &Path) -> FailureReport {
    FailureReport::new(Exit::General, format!("no server `{name}` in `{}`", path.display()))
        .with_hint_if_any(config::did_you_mean(name, servers.iter().map(|(name, _)| name)))
}

/// Warns about everything that keeps a server from starting in the present environment.
fn warn_if_not_startable(text: &str, name: &str, screen: &mut Screen) -> Result<(), CommandError> {
    let config = Config::parse(text, Config::FILE_NAME.as_ref()).unwrap_or_default();
    let entry = config.servers.iter().find(|entry| entry.name == name);
    let Some(Ok(spec)) = entry.map(|entry| &entry.spec) else { return Ok(()) };
    for missing in preflight::missing(spec, &ProcessEnvironment) {
        screen.warning(&format!("server `{name}` cannot start: {}", missing.message))?;
        screen.hint(&missing.hint)?;
    }
    Ok(())
}

/// The hint for a config that is not TOML.
const NOT_TOML: &str = "`gripfast import --write` converts it into a gripfast.toml";

fn servers_table<'d>(document: &'d mut DocumentMut, path: &Path) -> Result<&'d mut Table, FailureReport> {
    let mut fresh = Table::new();
    // Without a line `[servers]` of its own.
    fresh.set_implicit(true);
    let item = document.entry("servers").or_insert(Item::Table(fresh));
    item.as_table_mut().ok_or_else(|| {
        let text = format!("`servers` in `{}` is not a table of tables", path.display());
        FailureReport::new(Exit::ConfigInvalid, text).with_hint("write each server as `[servers.NAME]`")
    })
}

impl AddArgs {
    fn table(&self) -> Table {
        let mut table = Table::new();
        if let [command, arguments @ ..] = self.command.as_slice() {
            table.insert("command", value(command));
            if !arguments.is_empty() {
                table.insert("args", value(arguments.iter().collect::<Array>()));
            }
        }
        if let Some(url) = &self.url {
            table.insert("url", value(url));
        }
        for (key, pairs) in [("env", &self.env), ("headers", &self.header)] {
            if !pairs.is_empty() {
                let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                table.insert(key, value(pairs.collect::<InlineTable>()));
            }
        }
        if let Some(cwd) = &self.cwd {
            table.insert("cwd", value(cwd));
        }
        if self.lazy {
            table.insert("lazy", value(true));
        }
        table
    }
}

/// Refuses a text in which the server would be invalid, before it is written.
fn validate(path: &Path, text: &str, name: &str, screen: &mut Screen) -> Result<(), CommandError> {
    let config = match Config::parse(text, path) {
        Ok(config) => config,
        Err(error) => return Err(config::config_failure(&error).into()),
    };
    let entry = config.servers.iter().find(|entry| entry.name == name);
    let Some(Err(findings)) = entry.map(|entry| &entry.spec) else { return Ok(()) };
    for finding in findings {
        screen.finding(&finding.render())?;
    }
    Err(FailureReport::new(Exit::ConfigInvalid, format!("nothing was written to `{}`", path.display()))
        .into())
}

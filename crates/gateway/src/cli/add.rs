//! `gripfast add`, `remove`, `enable` and `disable`: one server in the config, everything else in the file as it was.

use super::args::Global;
use super::config;
use super::config_trust::Editing;
use super::exit::Exit;
use super::import::absolute;
use super::render::Screen;
use super::stop::{Failure, Stop};
use super::surroundings;
use clap::Args;
use gripfast::config::{Config, ConfigError, ProcessEnvironment, suggest};
use std::path::Path;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, value};

#[derive(Debug, Args)]
#[command(after_help = "\
Writes a table into the config, whose comments and order stay as they are; a file that does not exist is \
made. What would not be a valid server is not written. A gateway that runs with this config takes it by \
itself.

Values that begin with `${env:` are looked up whenever the server is started: do not write secrets into the \
file.

Examples:
  gripfast add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  gripfast add github --env 'TOKEN=${env:GITHUB_TOKEN}' -- npx -y some-server
  gripfast add docs --url https://example.com/mcp --header 'Authorization=Bearer ${env:DOCS_TOKEN}'")]
pub(crate) struct AddArgs {
    /// The name of the server
    #[arg(value_name = "NAME")]
    name: String,

    /// The address of a server that is reached over HTTP
    #[arg(long, value_name = "URL", conflicts_with = "command", required_unless_present = "command")]
    url: Option<String>,

    /// A variable for the command
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, requires = "command")]
    env: Vec<(String, String)>,

    /// A header for the requests
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, requires = "url")]
    header: Vec<(String, String)>,

    /// The directory in which the command starts
    #[arg(long, value_name = "DIR", requires = "command")]
    cwd: Option<String>,

    /// Start it on first use
    #[arg(long)]
    lazy: bool,

    /// The command that starts it, and its arguments
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Takes the server's table out of the config, whose other lines stay as they are. A gateway that runs with this \
config stops it by itself.")]
pub(crate) struct RemoveArgs {
    /// The name of the server
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Writes `disabled = true` into the server's table, or takes it out. The server stays in the config; its tools are \
offered to no client while it is disabled. A gateway that runs with this config takes the change by itself. \
`gripfast stop NAME` stops a server until the gateway is restarted, without a change of the config.")]
pub(crate) struct SwitchArgs {
    /// The name of the server
    #[arg(value_name = "NAME")]
    name: String,
}

/// Whether a server is used.
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

pub(crate) fn add(global: &Global, args: &AddArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let editing = Editing::of(global)?;
    let Editing { path, before, .. } = &editing;
    let mut document = parsed(path, before.as_deref().unwrap_or_default())?;
    let servers = servers(&mut document, path)?;
    if servers.contains_key(&args.name) {
        let text = format!("`{}` has a server `{}` already", path.display(), args.name);
        return Err(Failure::new(Exit::General, text)
            .with_hint(format!("`gripfast remove {}` takes it out", args.name))
            .into());
    }
    servers.insert(&args.name, Item::Table(args.table()));
    let text = document.to_string();
    check(path, &text, &args.name, screen)?;
    editing.write(global, &text, screen)?;
    let made = if before.is_none() { ", which is new" } else { "" };
    screen.talk(&format!("added `{}` to `{}`{made}", args.name, absolute(path)))?;
    warn_of_missing(&text, &args.name, screen)?;
    Ok(Exit::Ok)
}

pub(crate) fn remove(global: &Global, args: &RemoveArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let (editing, mut document) = existing(global)?;
    let path = &editing.path;
    let servers = servers(&mut document, path)?;
    if servers.remove(&args.name).is_none() {
        return Err(no_server(&args.name, servers, path).into());
    }
    editing.write(global, &document.to_string(), screen)?;
    screen.talk(&format!("removed `{}` from `{}`", args.name, absolute(path)))?;
    Ok(Exit::Ok)
}

/// Enables or disables a server in the config.
pub(crate) fn switch(
    global: &Global,
    to: Switch,
    args: &SwitchArgs,
    screen: &mut Screen,
) -> Result<Exit, Stop> {
    let (editing, mut document) = existing(global)?;
    let SwitchArgs { name } = args;
    let path = &editing.path;
    let servers = servers(&mut document, path)?;
    let Some(server) = servers.get_mut(name).and_then(Item::as_table_like_mut) else {
        return Err(no_server(name, servers, path).into());
    };
    let is_off = server.get("disabled").and_then(Item::as_bool) == Some(true);
    let (word, is_so) = match to {
        Switch::On => ("enabled", !is_off),
        Switch::Off => ("disabled", is_off),
    };
    if is_so {
        screen.talk(&format!("`{name}` is {word} already in `{}`", absolute(path)))?;
        return Ok(Exit::Ok);
    }
    match to {
        Switch::On => server.remove("disabled"),
        Switch::Off => server.insert("disabled", value(true)),
    };
    let text = document.to_string();
    check(path, &text, name, screen)?;
    editing.write(global, &text, screen)?;
    screen.talk(&format!("{word} `{name}` in `{}`", absolute(path)))?;
    if to == Switch::On {
        warn_of_missing(&text, name, screen)?;
    }
    Ok(Exit::Ok)
}

/// The config that there is, to be edited.
fn existing(global: &Global) -> Result<(Editing, DocumentMut), Failure> {
    config::find(global.config.as_deref())?;
    let editing = Editing::of(global)?;
    let Some(before) = &editing.before else {
        return Err(config::unusable(&ConfigError::NotFound { looked_for: vec![editing.path] }));
    };
    let document = parsed(&editing.path, before)?;
    Ok((editing, document))
}

fn no_server(name: &str, servers: &Table, path: &Path) -> Failure {
    let failure = Failure::new(Exit::General, format!("no server `{name}` in `{}`", path.display()));
    match suggest::nearest(name, servers.iter().map(|(name, _)| name)) {
        Some(near) => failure.with_hint(format!("did you mean `{near}`?")),
        None => failure,
    }
}

/// Says what keeps a server from starting as things are right now.
fn warn_of_missing(text: &str, name: &str, screen: &mut Screen) -> Result<(), Stop> {
    let config = Config::parse(text, Config::FILE_NAME.as_ref()).unwrap_or_default();
    let entry = config.servers.iter().find(|entry| entry.name == name);
    let Some(Ok(spec)) = entry.map(|entry| &entry.spec) else { return Ok(()) };
    for missing in surroundings::missing(spec, &ProcessEnvironment) {
        screen.warning(&format!("server `{name}` could not start: {}", missing.message))?;
        screen.hint(&missing.hint)?;
    }
    Ok(())
}

/// Other formats are other programs' files, or somebody's choice to write it all by hand.
fn parsed(path: &Path, text: &str) -> Result<DocumentMut, Failure> {
    let toml = path.extension().is_none_or(|ending| ending.eq_ignore_ascii_case("toml"));
    if !toml {
        let text = format!("`{}` is not TOML, and only TOML is edited", path.display());
        return Err(Failure::new(Exit::General, text)
            .with_hint(format!("`gripfast import --write` makes a {} out of it", Config::FILE_NAME)));
    }
    text.parse().map_err(|_| {
        Failure::new(Exit::ConfigInvalid, format!("`{}` is not valid TOML", path.display()))
            .with_hint("`gripfast check` explains what is wrong")
    })
}

fn servers<'d>(document: &'d mut DocumentMut, path: &Path) -> Result<&'d mut Table, Failure> {
    let mut fresh = Table::new();
    // Without a line `[servers]` of its own.
    fresh.set_implicit(true);
    let item = document.entry("servers").or_insert(Item::Table(fresh));
    item.as_table_mut().ok_or_else(|| {
        let text = format!("`servers` in `{}` is not a table of tables", path.display());
        Failure::new(Exit::ConfigInvalid, text).with_hint("write each server as `[servers.NAME]`")
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

/// Nothing is written that could not be used.
fn check(path: &Path, text: &str, name: &str, screen: &mut Screen) -> Result<(), Stop> {
    let config = match Config::parse(text, path) {
        Ok(config) => config,
        Err(error) => return Err(config::unusable(&error).into()),
    };
    let entry = config.servers.iter().find(|entry| entry.name == name);
    let Some(Err(findings)) = entry.map(|entry| &entry.spec) else { return Ok(()) };
    for finding in findings {
        screen.finding(&finding.render())?;
    }
    Err(Failure::new(Exit::ConfigInvalid, format!("nothing was written to `{}`", path.display())).into())
}

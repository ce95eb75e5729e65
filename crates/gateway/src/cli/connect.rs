//! `gripfast connect`: points another MCP client at gripfast, in that client's own config. One entry is written;
//! comments, order and spacing stay, a copy of the file is kept, and `--undo` puts everything back.

mod entry;
mod yaml;

use super::args::{Global, Meant};
use super::config;
use super::edit;
use super::exit::Exit;
use super::import::{Client, Entry, Root, named};
use super::render::Screen;
use super::stop::{Failure, Stop};
use clap::Args;
use entry::Wanted;
use gripfast::config::ProcessEnvironment;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "\
Adds the server `gripfast` to the client's config, whose comments and formatting stay; the file as it was is kept \
beside it, with the ending `.gripfast-backup`. A client that only starts commands gets `gripfast stdio`. Servers \
that the client has already are left alone: `gripfast import` takes them over.

--undo puts back the copy. If the client or you have changed the file meanwhile, only the entry is taken out.

Examples:
  gripfast connect cursor
  gripfast connect claude-code --undo")]
pub(crate) struct ConnectArgs {
    /// The client: claude-desktop, claude-code, vscode, cursor, windsurf, zed, codex, gemini, copilot, …
    #[arg(value_name = "CLIENT", value_parser = named)]
    client: &'static Client,

    /// Take the entry out again
    #[arg(long)]
    undo: bool,

    #[command(flatten)]
    gateway: Meant,
}

/// The ending of the copy.
const BACKUP: &str = "gripfast-backup";

pub(crate) fn run(global: &Global, args: &ConnectArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let client = args.client;
    let wanted = Wanted::of(client, &reached(global, args)?);
    let path = place(client)?;
    let text = edit::read(&path)?;
    if args.undo {
        undo(client, &wanted, &path, text, screen)
    } else {
        let exit = connect(client, &wanted, &path, text, screen)?;
        if config::glance(global)?.is_some_and(|config| config.gateway.access.asks()) {
            screen.hint(
                "this gateway lets in whom it knows: `gripfast keys add NAME` makes a key, which the client's entry \
                 has to send as `Authorization: Bearer KEY`",
            )?;
        }
        Ok(exit)
    }
}

fn connect(
    client: &Client,
    wanted: &Wanted,
    path: &Path,
    text: Option<String>,
    screen: &mut Screen,
) -> Result<Exit, Stop> {
    let before = text.as_deref().unwrap_or_default();
    let after = wanted.put_into(client, before).map_err(|why| unusable(path, &why))?;
    if after == before {
        screen.talk(&format!("{} is connected already: {}", client.name, path.display()))?;
        return Ok(Exit::Ok);
    }
    let backup = edit::beside(path, BACKUP);
    // The first copy is the one from before gripfast.
    if text.is_some() && !backup.exists() {
        edit::write(&backup, before)?;
        screen.talk(&format!("a copy is in {}", backup.display()))?;
    }
    edit::write(path, &after)?;
    screen.talk(&format!("{} is connected: {}", client.name, path.display()))?;
    screen.hint(&format!("restart {} to have it look; `--undo` takes it back", client.name))?;
    Ok(Exit::Ok)
}

fn undo(
    client: &Client,
    wanted: &Wanted,
    path: &Path,
    text: Option<String>,
    screen: &mut Screen,
) -> Result<Exit, Stop> {
    let backup = edit::beside(path, BACKUP);
    let copy = edit::read(&backup)?;
    let Some(now) = text else {
        screen.talk(&format!("{} is not connected: there is no {}", client.name, path.display()))?;
        return Ok(Exit::Ok);
    };
    let untouched = |before: &str| wanted.put_into(client, before).is_ok_and(|after| after == now);
    let gone = |path: &Path| {
        std::fs::remove_file(path).map_err(|error| {
            Failure::new(Exit::General, format!("cannot remove `{}`: {error}", path.display()))
        })
    };
    match &copy {
        Some(before) if untouched(before) => {
            edit::write(path, before)?;
            screen.talk(&format!("{} is as it was: {}", client.name, path.display()))?;
        }
        None if untouched("") => {
            gone(path)?;
            screen.talk(&format!("{} is gone, as it was before", path.display()))?;
        }
        Some(_) | None => {
            let after = wanted.taken_out_of(client, &now).map_err(|why| unusable(path, &why))?;
            if after == now {
                screen.talk(&format!("{} is not connected: {}", client.name, path.display()))?;
            } else {
                edit::write(path, &after)?;
                screen.talk(&format!(
                    "the entry is taken out of {}, which has changed since",
                    path.display()
                ))?;
            }
        }
    }
    if copy.is_some() {
        gone(&backup)?;
    }
    Ok(Exit::Ok)
}

fn unusable(path: &Path, why: &str) -> Failure {
    Failure::new(Exit::General, format!("`{}` cannot be edited: {why}", path.display()))
        .with_hint("nothing was changed")
}

/// The file to write to: the one that there is, or else the one that the client would make.
fn place(client: &Client) -> Result<PathBuf, Failure> {
    let own = || client.files.iter().filter(|place| !place.is_of_a_project());
    let paths: Vec<PathBuf> = own().filter_map(|place| place.path(&ProcessEnvironment)).collect();
    let there = paths.iter().find(|path| path.is_file()).or(paths.first());
    there.cloned().ok_or_else(|| Failure::new(Exit::General, "there is no home directory to look in"))
}

/// How the client reaches gripfast.
fn reached(global: &Global, args: &ConnectArgs) -> Result<entry::Way, Stop> {
    if args.client.entry != Entry::Command {
        let url = args.gateway.address(global)?;
        return Ok(entry::Way::Url(format!("{}/mcp", url.for_clients())));
    }
    let program =
        std::env::current_exe().map_or_else(|_| "gripfast".into(), |path| path.display().to_string());
    let mut words = vec!["stdio".to_owned()];
    // Such clients start commands anywhere. What is named there is used without being asked for trust again.
    config::glance(global)?;
    if let Ok(config) =
        config::find(global.config.as_deref()).map(|path| std::path::absolute(&path).unwrap_or(path))
    {
        words.extend(["--config".to_owned(), config.display().to_string()]);
    }
    Ok(entry::Way::Command(program, words))
}

/// Where the entry goes.
fn keys(client: &Client) -> Vec<&'static str> {
    match client.root {
        Root::Under(keys) => keys.to_vec(),
        Root::AndProjects(key) | Root::List(key) => vec![key],
    }
}

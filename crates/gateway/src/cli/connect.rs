//! `gripfast connect`: points another MCP client at gripfast, in that client's own config. One entry is written;
//! comments, order and spacing stay, a copy of the file is kept, and `--undo` puts everything back.

mod answer;
mod entry;
mod yaml;

use super::address::GatewayUrl;
use super::args::{Global, Meant};
use super::config;
use super::edit;
use super::exit::Exit;
use super::import::{Client, Entry, Root, named};
use super::render::{Screen, plural};
use super::stop::{Failure, Stop};
use answer::Answer;
use clap::Args;
use entry::{Wanted, Way};
use gripfast::config::{ProcessEnvironment, Tree};
use gripfast_gateway::auth::keys::{self, NoKey};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "\
Adds the server `gripfast` to the client's config, whose comments and formatting stay; the file as it was is kept \
beside it, with the ending `.gripfast-backup`. Then the address is tried as the client will: it is connected when \
the gateway has answered. If the gateway asks clients for keys (`gateway.auth`), a key with the client's name is made \
and written into the entry. A client that only starts commands gets `gripfast stdio --background`, so that all such clients share one gateway. Servers that the client has \
already are left alone: `gripfast import` takes them over.

--undo puts back the copy and removes the key, whatever flags were given before. If the client or you have changed \
the file meanwhile, only the entry is taken out.

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
const AUTHORIZATION: &str = "Authorization";

pub(crate) fn run(global: &Global, args: &ConnectArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let client = args.client;
    if args.undo {
        return undo(global, client, screen);
    }
    let path = place(client)?;
    let text = edit::read(&path)?;
    if client.entry == Entry::Command {
        let wanted = Wanted::of(client, &command(global)?);
        if connect(client, &wanted, &path, text.as_deref(), screen)? {
            screen.talk(&format!("{} starts gripfast from now on: {}", client.name, path.display()))?;
            screen.hint(&format!("restart {} to have it look; `--undo` takes it back", client.name))?;
        } else {
            screen.talk(&format!("{} starts gripfast already: {}", client.name, path.display()))?;
        }
        return Ok(Exit::Ok);
    }
    let url = args.gateway.address(global)?;
    let known = headers(client, &path, text.as_deref());
    let key = match known.iter().any(|(name, _)| name.eq_ignore_ascii_case(AUTHORIZATION)) {
        true => None,
        false => Key::made(global, &url, client, screen)?,
    };
    let bearer = key.as_ref().map(|key| (AUTHORIZATION.to_owned(), format!("Bearer {}", key.text)));
    let address = format!("{}/mcp", url.for_clients());
    let all: Vec<(String, String)> = known.into_iter().chain(bearer).collect();
    let headers = if key.is_some() { all.clone() } else { Vec::new() };
    let wanted = Wanted::of(client, &Way::Url { url: address.clone(), headers });
    let is_new = match connect(client, &wanted, &path, text.as_deref(), screen) {
        Ok(is_new) => is_new,
        Err(stop) => {
            // Nobody has it.
            key.into_iter().try_for_each(|key| key.remove()).map_err(|error| no_key(&error))?;
            return Err(stop);
        }
    };
    if let Some(Key { name, .. }) = &key {
        screen.talk(&format!("made the key `{name}` and wrote it into the entry"))?;
        if can_be_read_by_others(&path) {
            let path = path.display();
            screen.warning(&format!("other users of this machine can read the key: `chmod 600 {path}`"))?;
        }
    }
    tell(client, &path, is_new, answer::of(&address, &all, screen)?, screen)?;
    Ok(Exit::Ok)
}

/// Says whether the client has a gateway to talk to.
fn tell(client: &Client, path: &Path, is_new: bool, answer: Answer, screen: &mut Screen) -> Result<(), Stop> {
    let (name, path) = (client.name, path.display());
    match answer {
        Answer::Tools(count) => {
            let already = if is_new { "" } else { " already" };
            screen.talk(&format!("{name} is connected{already}, to {}: {path}", plural(count, "tool")))?;
        }
        Answer::Nothing { why, step } => {
            let already = if is_new { "now" } else { "already" };
            screen.talk(&format!("{name} has the entry {already}: {path}"))?;
            screen.warning(&format!("it is not connected: {why}"))?;
            screen.hint(&step)?;
        }
    }
    if is_new {
        screen.hint(&format!("restart {name} to have it look; `--undo` takes it back"))?;
    }
    Ok(())
}

/// Writes the entry. Whether the file had to be changed for that.
fn connect(
    client: &Client,
    wanted: &Wanted,
    path: &Path,
    text: Option<&str>,
    screen: &mut Screen,
) -> Result<bool, Stop> {
    let before = text.unwrap_or_default();
    let after = wanted.put_into(client, before).map_err(|why| unusable(path, &why))?;
    if after == before {
        return Ok(false);
    }
    let backup = edit::beside(path, BACKUP);
    // The copy is the file from before gripfast. One that gripfast has made itself was not there.
    let keeps = match has_entry(client, path, before) {
        true => !backup.exists() && !is_all(client, before),
        false => text.is_some(),
    };
    if keeps {
        edit::write(&backup, before)?;
        screen.talk(&format!("a copy is in {}", backup.display()))?;
    }
    edit::write(path, &after)?;
    Ok(true)
}

/// Takes the entry out of the client's file and removes its key. Where the gateway listens makes no difference.
fn undo(global: &Global, client: &Client, screen: &mut Screen) -> Result<Exit, Stop> {
    let paths = places(client)?;
    let is_connected =
        |path: &&PathBuf| edit::read(path).ok().flatten().is_some_and(|text| has_entry(client, path, &text));
    let Some(path) = paths.iter().find(is_connected) else {
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        screen.talk(&format!("{} is not connected: {}", client.name, paths.join(", ")))?;
        return Ok(Exit::Ok);
    };
    let now = edit::read(path)?.unwrap_or_default();
    let bearer = headers(client, path, Some(&now)).into_iter().find_map(|(name, value)| {
        let key = value.strip_prefix("Bearer ").filter(|key| key.starts_with(keys::PREFIX))?;
        name.eq_ignore_ascii_case(AUTHORIZATION).then(|| key.to_owned())
    });
    let backup = edit::beside(path, BACKUP);
    let copy = edit::read(&backup)?;
    let cleared = Wanted::taken_out_of(client, &now).map_err(|why| unusable(path, &why))?;
    // Whatever the entry says, nothing else may have changed.
    let is_untouched = |before: &str| {
        let connected = Wanted::any(client).put_into(client, before);
        connected.and_then(|text| Wanted::taken_out_of(client, &text)).is_ok_and(|text| text == cleared)
    };
    match &copy {
        Some(before) if is_untouched(before) => {
            edit::write(path, before)?;
            screen.talk(&format!("{} is as it was: {}", client.name, path.display()))?;
        }
        None if is_all(client, &now) => {
            gone(path)?;
            screen.talk(&format!("{} is gone, as it was before", path.display()))?;
        }
        Some(_) | None => {
            let had_table = copy.as_deref().is_some_and(|before| has_table(client, path, before));
            let after = match had_table {
                true => cleared,
                false => Wanted::without_empty_table(client, &cleared).map_err(|why| unusable(path, &why))?,
            };
            edit::write(path, &after)?;
            screen.talk(&format!("the entry is taken out of {}, which has changed since", path.display()))?;
        }
    }
    if copy.is_some() {
        gone(&backup)?;
    }
    if let Some(key) = bearer {
        forget(global, client, &key, screen)?;
    }
    Ok(Exit::Ok)
}

/// Removes the key that connecting has made. Where it cannot be found, the file is as it was all the same.
fn forget(global: &Global, client: &Client, key: &str, screen: &mut Screen) -> Result<(), Stop> {
    let directory = config::state_dir_of_gateway(global).ok().flatten();
    let name = directory.as_deref().and_then(|directory| keys::name_of(directory, key).ok().flatten());
    // A key of another name was made by a person, who may use it elsewhere.
    let made = name.filter(|name| {
        name.strip_prefix(client.id).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    });
    match (directory, made) {
        (Some(directory), Some(name)) => {
            keys::remove(&directory, &name).map_err(|error| no_key(&error))?;
            screen.talk(&format!("the key `{name}` is removed"))?;
        }
        _ => {
            screen.hint("its key is good as before; `gripfast keys ls` and `keys rm` show and remove keys")?
        }
    }
    Ok(())
}

/// Whether the entry is all that a file has.
fn is_all(client: &Client, text: &str) -> bool {
    let cleared = |text: &str| Wanted::taken_out_of(client, text);
    let made = Wanted::any(client).put_into(client, "").and_then(|made| cleared(&made));
    made.is_ok() && made == cleared(text)
}

fn gone(path: &Path) -> Result<(), Failure> {
    std::fs::remove_file(path)
        .map_err(|error| Failure::new(Exit::General, format!("cannot remove `{}`: {error}", path.display())))
}

fn tree(path: &Path, text: &str) -> Option<Tree> {
    Tree::parse(text, path).ok()
}

fn has_entry(client: &Client, path: &Path, text: &str) -> bool {
    tree(path, text).is_some_and(|tree| entry::present(client, &tree).is_some())
}

fn has_table(client: &Client, path: &Path, text: &str) -> bool {
    let tree = tree(path, text);
    tree.is_some_and(|tree| keys(client).iter().try_fold(&tree, |tree, key| tree.get(key)).is_some())
}

/// The headers of the entry that a file has.
fn headers(client: &Client, path: &Path, text: Option<&str>) -> Vec<(String, String)> {
    let tree = text.and_then(|text| tree(path, text));
    let entry = tree.as_ref().and_then(|tree| entry::present(client, tree));
    entry.map(|entry| entry::headers_of(client, entry)).unwrap_or_default()
}

/// A key that was made for a client.
struct Key {
    directory: PathBuf,
    name: String,
    text: String,
}

impl Key {
    /// Makes a key if the gateway is that of the config here, and asks for one.
    fn made(
        global: &Global,
        url: &GatewayUrl,
        client: &Client,
        screen: &mut Screen,
    ) -> Result<Option<Self>, Stop> {
        const MOST: usize = 100;
        let Some(config) = config::glance(global)? else { return Ok(None) };
        let access = &config.gateway.access;
        if !access.asks() || (url.is_named() && !is_at(url, config.gateway.listen)) {
            return Ok(None);
        }
        if !access.keys {
            screen.hint("this gateway takes tokens of its issuer only: the client has to log in there")?;
            return Ok(None);
        }
        let Some(directory) = config::state_dir_of_gateway(global)? else { return Ok(None) };
        for number in 1..=MOST {
            let name = if number == 1 { client.id.to_owned() } else { format!("{}-{number}", client.id) };
            match keys::add(&directory, &name) {
                Ok(text) => return Ok(Some(Self { directory, name, text })),
                Err(NoKey::Taken(_)) => {}
                Err(error @ (NoKey::BadName(_) | NoKey::TooMany | NoKey::Io(_))) => {
                    return Err(Failure::new(Exit::General, error.to_string()).into());
                }
            }
        }
        let text = format!("there are {MOST} keys for `{}` already", client.id);
        Err(Failure::new(Exit::General, text).with_hint("`gripfast keys ls` lists them").into())
    }

    fn remove(self) -> std::io::Result<()> {
        keys::remove(&self.directory, &self.name).map(drop)
    }
}

/// Whether an address that was named is where the config here listens.
fn is_at(url: &GatewayUrl, listen: SocketAddr) -> bool {
    let fits = |address: &SocketAddr| {
        address.port() == listen.port() && (listen.ip().is_unspecified() || listen.ip() == address.ip())
    };
    url.local_addresses().iter().any(fits)
}

fn no_key(error: &std::io::Error) -> Failure {
    Failure::new(Exit::General, format!("the key cannot be removed: {error}"))
}

#[cfg(unix)]
fn can_be_read_by_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o044 != 0)
}

#[cfg(not(unix))]
fn can_be_read_by_others(_path: &Path) -> bool {
    false
}

fn unusable(path: &Path, why: &str) -> Failure {
    Failure::new(Exit::General, format!("`{}` cannot be edited: {why}", path.display()))
        .with_hint("nothing was changed")
}

/// The file to write to: the one that there is, or else the one that the client would make.
fn place(client: &Client) -> Result<PathBuf, Failure> {
    let paths = places(client)?;
    let there = paths.iter().find(|path| path.is_file()).or(paths.first());
    there.cloned().ok_or_else(no_home)
}

/// The files of a client that are not of a project.
fn places(client: &Client) -> Result<Vec<PathBuf>, Failure> {
    let own = client.files.iter().filter(|place| !place.is_of_a_project());
    let paths: Vec<PathBuf> = own.filter_map(|place| place.path(&ProcessEnvironment)).collect();
    if paths.is_empty() { Err(no_home()) } else { Ok(paths) }
}

fn no_home() -> Failure {
    Failure::new(Exit::General, "there is no home directory to look in")
}

/// How a client that only starts commands reaches gripfast.
fn command(global: &Global) -> Result<Way, Stop> {
    let program =
        std::env::current_exe().map_or_else(|_| "gripfast".into(), |path| path.display().to_string());
    let mut words = vec!["stdio".to_owned(), "--background".to_owned()];
    // Such clients start commands anywhere. What is named there is used without being asked for trust again.
    config::glance(global)?;
    if let Ok(config) =
        config::find(global.config.as_deref()).map(|path| std::path::absolute(&path).unwrap_or(path))
    {
        words.extend(["--config".to_owned(), config.display().to_string()]);
    }
    Ok(Way::Command(program, words))
}

/// Where the entry goes.
fn keys(client: &Client) -> Vec<&'static str> {
    match client.root {
        Root::Under(keys) => keys.to_vec(),
        Root::AndProjects(key) | Root::List(key) => vec![key],
    }
}

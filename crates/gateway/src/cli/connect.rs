//! `gripfast connect`: adds an entry for gripfast to the config of another MCP client. Comments, order and spacing of
//! the file stay, a backup is kept, and `--undo` restores it.

mod client_entry;
mod probe;
mod yaml;

use super::address::GatewayUrl;
use super::args::{GatewayTarget, GlobalArgs};
use super::config;
use super::connect::probe::ProbeResult;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::import::{ClientFormat, ConnectEntry, ServersKey, named};
use super::key_store::{KeyStore, not_changed};
use super::render::{Screen, plural};
use super::write_file;
use clap::Args;
use client_entry::{ClientTransport, EntrySpec};
use gripfast::config::{ProcessEnvironment, Tree};
use gripfast_gateway::auth::keys::{self, KeyError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "\
Adds the server `gripfast` to the client's config and keeps comments and formatting. A backup of the file is stored \
beside it with the extension `.gripfast-backup`. Then the command tries the address as the client will, and reports \
whether the gateway answers. If the gateway asks clients for keys (`gateway.auth`), a key with the client's name is \
created and written into the entry. A client that only starts commands gets `gripfast stdio --background`, so that all \
such clients share one gateway. Other servers of the client are left alone: `gripfast import` imports them.

--undo restores the backup and removes the key, whatever flags were given before. If the file has changed since, only \
the entry is removed.

Examples:
  gripfast connect cursor
  gripfast connect claude-code --undo")]
pub(crate) struct ConnectArgs {
    /// The client: claude-desktop, claude-code, vscode, cursor, windsurf, zed, codex, gemini, copilot, …
    #[arg(value_name = "CLIENT", value_parser = named)]
    client: &'static ClientFormat,

    /// Remove the entry again
    #[arg(long)]
    undo: bool,

    #[command(flatten)]
    gateway: GatewayTarget,
}

/// Extension of the backup file.
const BACKUP_EXTENSION: &str = "gripfast-backup";
const AUTHORIZATION: &str = "Authorization";

pub(crate) fn run(
    global: &GlobalArgs,
    args: &ConnectArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let client = args.client;
    if args.undo {
        return undo(global, client, screen);
    }
    let path = config_path(client)?;
    let text = write_file::read(&path)?;
    if client.entry == ConnectEntry::Command {
        let wanted = EntrySpec::of(client, &command(global)?);
        if connect(client, &wanted, &path, text.as_deref(), screen)? {
            screen.message(&format!("{} is set up to start gripfast: {}", client.name, path.display()))?;
            screen.hint(&format!("restart {} to apply it; `--undo` reverts it", client.name))?;
        } else {
            screen.message(&format!(
                "{} is already set up to start gripfast: {}",
                client.name,
                path.display()
            ))?;
        }
        return Ok(Exit::Ok);
    }
    let url = args.gateway.resolve(global)?;
    let known = entry_headers(client, &path, text.as_deref());
    let key = match known.iter().any(|(name, _)| name.eq_ignore_ascii_case(AUTHORIZATION)) {
        true => None,
        false => Key::create(global, &url, client, screen)?,
    };
    let bearer = key.as_ref().map(|key| (AUTHORIZATION.to_owned(), format!("Bearer {}", key.text)));
    let address = format!("{}/mcp", url.for_clients());
    let all: Vec<(String, String)> = known.into_iter().chain(bearer).collect();
    let headers = if key.is_some() { all.clone() } else { Vec::new() };
    let wanted = EntrySpec::of(client, &ClientTransport::Url { url: address.clone(), headers });
    let is_new = match connect(client, &wanted, &path, text.as_deref(), screen) {
        Ok(is_new) => is_new,
        Err(stop) => {
            // The entry was not written, so no client has the key.
            key.into_iter().try_for_each(Key::remove)?;
            return Err(stop);
        }
    };
    if let Some(Key { name, .. }) = &key {
        screen.message(&format!("created the key `{name}` and wrote it into the entry"))?;
        if can_be_read_by_others(&path) {
            let path = path.display();
            screen.warning(&format!(
                "other users of this machine can read the key; `chmod 600 {path}` prevents that"
            ))?;
        }
    }
    report(client, &path, is_new, probe::probe(&address, &all, screen)?, screen)?;
    Ok(Exit::Ok)
}

/// Reports whether the gateway answered at the address in the entry.
fn report(
    client: &ClientFormat,
    path: &Path,
    is_new: bool,
    answer: ProbeResult,
    screen: &mut Screen,
) -> Result<(), CommandError> {
    let (name, path) = (client.name, path.display());
    match answer {
        ProbeResult::Tools(count) => {
            let already = if is_new { "" } else { "already " };
            screen
                .message(&format!("{name} is {already}connected, with {}: {path}", plural(count, "tool")))?;
        }
        ProbeResult::Failed { why, step } => {
            let already = if is_new { "now" } else { "already" };
            screen.message(&format!("{name} {already} has the entry: {path}"))?;
            screen.warning(&format!("the gateway does not answer: {why}"))?;
            screen.hint(&step)?;
        }
    }
    if is_new {
        screen.hint(&format!("restart {name} to apply it; `--undo` reverts it"))?;
    }
    Ok(())
}

/// Writes the entry, and returns whether that changed the file.
fn connect(
    client: &ClientFormat,
    wanted: &EntrySpec,
    path: &Path,
    text: Option<&str>,
    screen: &mut Screen,
) -> Result<bool, CommandError> {
    let before = text.unwrap_or_default();
    let after = wanted.insert_into(client, before).map_err(|why| not_editable(path, &why))?;
    if after == before {
        return Ok(false);
    }
    let backup = write_file::with_suffix(path, BACKUP_EXTENSION);
    // The backup is the file as it was without gripfast. A file that gripfast created needs none.
    let needs_backup = match has_entry(client, path, before) {
        true => !backup.exists() && !is_only_entry(client, before),
        false => text.is_some(),
    };
    if needs_backup {
        write_file::write(&backup, before)?;
        screen.message(&format!("a backup is in {}", backup.display()))?;
    }
    write_file::write(path, &after)?;
    Ok(true)
}

/// Removes the entry from the client's file, and its key. Independent of the gateway's address.
fn undo(global: &GlobalArgs, client: &ClientFormat, screen: &mut Screen) -> Result<Exit, CommandError> {
    let paths = config_paths(client)?;
    let is_connected = |path: &&PathBuf| {
        write_file::read(path).ok().flatten().is_some_and(|text| has_entry(client, path, &text))
    };
    let Some(path) = paths.iter().find(is_connected) else {
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        screen.message(&format!("{} is not connected: {}", client.name, paths.join(", ")))?;
        return Ok(Exit::Ok);
    };
    let now = write_file::read(path)?.unwrap_or_default();
    let bearer = entry_headers(client, path, Some(&now)).into_iter().find_map(|(name, value)| {
        let key = value.strip_prefix("Bearer ").filter(|key| key.starts_with(keys::PREFIX))?;
        name.eq_ignore_ascii_case(AUTHORIZATION).then(|| key.to_owned())
    });
    let backup = write_file::with_suffix(path, BACKUP_EXTENSION);
    let copy = write_file::read(&backup)?;
    let cleared = EntrySpec::remove_from(client, &now).map_err(|why| not_editable(path, &why))?;
    // The backup is restored only if nothing but the entry differs from it.
    let is_untouched = |before: &str| {
        let connected = EntrySpec::placeholder(client).insert_into(client, before);
        connected.and_then(|text| EntrySpec::remove_from(client, &text)).is_ok_and(|text| text == cleared)
    };
    match &copy {
        Some(before) if is_untouched(before) => {
            write_file::write(path, before)?;
            screen.message(&format!("restored the config of {}: {}", client.name, path.display()))?;
        }
        None if is_only_entry(client, &now) => {
            remove_file(path)?;
            screen.message(&format!("removed {}, which did not exist before", path.display()))?;
        }
        Some(_) | None => {
            let had_table = copy.as_deref().is_some_and(|before| has_table(client, path, before));
            let after = match had_table {
                true => cleared,
                false => EntrySpec::without_empty_table(client, &cleared)
                    .map_err(|why| not_editable(path, &why))?,
            };
            write_file::write(path, &after)?;
            screen.message(&format!(
                "removed the entry from {}; the file has changed since, so the backup was not restored",
                path.display()
            ))?;
        }
    }
    if copy.is_some() {
        remove_file(&backup)?;
    }
    if let Some(key) = bearer {
        remove_key(global, client, &key, screen)?;
    }
    Ok(Exit::Ok)
}

/// Removes the key that `connect` created. If it cannot be found, a hint tells the user.
fn remove_key(
    global: &GlobalArgs,
    client: &ClientFormat,
    key: &str,
    screen: &mut Screen,
) -> Result<(), CommandError> {
    let store = KeyStore::open(global).ok().flatten();
    let name = store.as_ref().and_then(|store| store.name_of(key));
    // A key of another name was created by the user, who may use it elsewhere.
    let made = name.filter(|name| {
        name.strip_prefix(client.id).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    });
    match (store, made) {
        (Some(store), Some(name)) => {
            store.remove(&name)?;
            screen.message(&format!("removed the key `{name}`"))?;
        }
        _ => screen.hint(
            "its key is still valid; `gripfast keys ls` lists the keys, and `gripfast keys rm` removes one",
        )?,
    }
    Ok(())
}

/// Returns true if a file contains nothing but the entry.
fn is_only_entry(client: &ClientFormat, text: &str) -> bool {
    let cleared = |text: &str| EntrySpec::remove_from(client, text);
    let made = EntrySpec::placeholder(client).insert_into(client, "").and_then(|made| cleared(&made));
    made.is_ok() && made == cleared(text)
}

fn remove_file(path: &Path) -> Result<(), FailureReport> {
    std::fs::remove_file(path).map_err(|error| {
        FailureReport::new(Exit::General, format!("cannot remove `{}`: {error}", path.display()))
    })
}

fn tree(path: &Path, text: &str) -> Option<Tree> {
    Tree::parse(text, path).ok()
}

fn has_entry(client: &ClientFormat, path: &Path, text: &str) -> bool {
    tree(path, text).is_some_and(|tree| client_entry::find_entry(client, &tree).is_some())
}

fn has_table(client: &ClientFormat, path: &Path, text: &str) -> bool {
    let tree = tree(path, text);
    tree.is_some_and(|tree| {
        servers_key_path(client).iter().try_fold(&tree, |tree, key| tree.get(key)).is_some()
    })
}

/// The headers of the entry in a file.
fn entry_headers(client: &ClientFormat, path: &Path, text: Option<&str>) -> Vec<(String, String)> {
    let tree = text.and_then(|text| tree(path, text));
    let entry = tree.as_ref().and_then(|tree| client_entry::find_entry(client, tree));
    entry.map(|entry| client_entry::headers_of(client, entry)).unwrap_or_default()
}

/// A key that was created for a client.
struct Key {
    store: KeyStore,
    name: String,
    text: String,
}

impl Key {
    /// Creates a key if the gateway is that of this config and asks clients for keys.
    fn create(
        global: &GlobalArgs,
        url: &GatewayUrl,
        client: &ClientFormat,
        screen: &mut Screen,
    ) -> Result<Option<Self>, CommandError> {
        const MOST: usize = 100;
        let Some(config) = config::load_optional(global)? else { return Ok(None) };
        let access = &config.gateway.access;
        if !access.requires_auth() || (url.is_named() && !listens_at(url, config.gateway.listen)) {
            return Ok(None);
        }
        if !access.keys {
            screen.hint("this gateway accepts only tokens of its issuer: the client has to log in there")?;
            return Ok(None);
        }
        let Some(store) = KeyStore::open(global)? else { return Ok(None) };
        for number in 1..=MOST {
            let name = if number == 1 { client.id.to_owned() } else { format!("{}-{number}", client.id) };
            match store.add(&name, None) {
                Ok(text) => return Ok(Some(Self { store, name, text })),
                Err(KeyError::NameTaken(_)) => {}
                Err(KeyError::Shared(error)) => return Err(not_changed(&error).into()),
                Err(error @ (KeyError::BadName(_) | KeyError::TooMany | KeyError::Io(_))) => {
                    return Err(FailureReport::new(Exit::General, error.to_string()).into());
                }
            }
        }
        let text = format!("there are already {MOST} keys for `{}`", client.id);
        Err(FailureReport::new(Exit::General, text).with_hint("`gripfast keys ls` lists them").into())
    }

    fn remove(self) -> Result<(), FailureReport> {
        self.store.remove(&self.name).map(drop)
    }
}

/// Returns true if a named URL is the address at which the gateway of this config listens.
fn listens_at(url: &GatewayUrl, listen: SocketAddr) -> bool {
    let fits = |address: &SocketAddr| {
        address.port() == listen.port() && (listen.ip().is_unspecified() || listen.ip() == address.ip())
    };
    url.local_addresses().iter().any(fits)
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

fn not_editable(path: &Path, why: &str) -> FailureReport {
    FailureReport::new(Exit::General, format!("`{}` cannot be edited: {why}", path.display()))
        .with_hint("nothing was changed")
}

/// The file to write to: the first that exists, or else the one that the client would create.
fn config_path(client: &ClientFormat) -> Result<PathBuf, FailureReport> {
    let paths = config_paths(client)?;
    let there = paths.iter().find(|path| path.is_file()).or(paths.first());
    there.cloned().ok_or_else(no_home)
}

/// The config files of a client outside of projects.
fn config_paths(client: &ClientFormat) -> Result<Vec<PathBuf>, FailureReport> {
    let own = client.files.iter().filter(|place| !place.is_in_project());
    let paths: Vec<PathBuf> = own.filter_map(|place| place.path(&ProcessEnvironment)).collect();
    if paths.is_empty() { Err(no_home()) } else { Ok(paths) }
}

fn no_home() -> FailureReport {
    FailureReport::new(Exit::General, "there is no home directory to look for the client's config in")
}

/// The command for a client that only starts commands.
fn command(global: &GlobalArgs) -> Result<ClientTransport, CommandError> {
    let program =
        std::env::current_exe().map_or_else(|_| "gripfast".into(), |path| path.display().to_string());
    let mut words = vec!["stdio".to_owned(), "--background".to_owned()];
    // Such clients start commands in any directory, so the config is named. A named config needs no further trust, so
    // it has to be usable now.
    config::load_optional(global)?;
    if let Ok(config) =
        config::find(global.config.as_deref()).map(|path| std::path::absolute(&path).unwrap_or(path))
    {
        words.extend(["--config".to_owned(), config.display().to_string()]);
    }
    Ok(ClientTransport::Command(program, words))
}

/// The path of keys to the servers in the client's config.
fn servers_key_path(client: &ClientFormat) -> Vec<&'static str> {
    match client.root {
        ServersKey::Under(keys) => keys.to_vec(),
        ServersKey::AndProjects(key) | ServersKey::List(key) => vec![key],
    }
}

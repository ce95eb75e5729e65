//! `gripfast import`: the servers that other MCP clients on this machine have, as a config of ours. Their files
//! are read and never written.

mod clients;
mod take;
mod veil;
mod words;

pub(crate) use clients::{Client, Entry, Root, named};

use super::address::GatewayUrl;
use super::args::{Form, Global, Output};
use super::config_trust::Editing;
use super::edit;
use super::exit::Exit;
use super::render::{Screen, plural};
use super::stop::{Failure, Stop};
use super::surroundings;
use clap::Args;
use clients::{CLIENTS, recognised};
use gripfast::config::{Config, ConfigError, ProcessEnvironment, Target, Tree};
use serde::Serialize;
use std::path::{Path, PathBuf};
use take::{Taken, take};
use toml_edit::{DocumentMut, Item, Table};
use veil::veiled;

#[derive(Debug, Args)]
#[command(after_help = "\
Looks for the configs of Claude Desktop, Claude Code, VS Code, Cursor, Windsurf, Zed, Codex, Gemini CLI, Copilot \
CLI, opencode, Goose, Hermes, Cline, Kiro, Continue, LM Studio, Factory, Kimi, Antigravity, Trae, MCP Inspector, \
Amp and Mistral Vibe, in the home directory and in the current one. Prints a config with their servers; with \
--write they are added to the config, whose own servers stay as they are. Values of variables and headers, and what \
else may be a secret, are printed nowhere; --write puts them into the file. What cannot be taken, and whatever \
means something else here than there, is said aloud. The files of the clients are not touched.

A project's file starts commands that somebody else may have written: look at what is printed before you write \
it.

Examples:
  gripfast import                        look at what there is
  gripfast import --from cursor --write
  gripfast import ~/backup/mcp.json      one file, wherever it is
  gripfast import --write")]
pub(crate) struct ImportArgs {
    /// Only this file, in the form of any of these clients
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Only this client, or the client whose form FILE has: claude-desktop, claude-code, vscode, cursor, windsurf, zed, codex, gemini, …
    #[arg(long, value_name = "CLIENT", value_parser = named)]
    from: Option<&'static Client>,

    /// Add the servers to the config
    #[arg(long)]
    write: bool,

    #[command(flatten)]
    output: Output,
}

/// No name of a client is longer.
const LONGEST_SUFFIX: usize = 14;

/// What one file has.
struct Found {
    client: &'static Client,
    path: PathBuf,
    /// Whether it came with the current directory.
    of_a_project: bool,
    servers: Result<Vec<Server>, String>,
}

/// One server of a file, and what becomes of it.
struct Server {
    taken: Taken,
    /// What it is called here.
    name: String,
    /// What its name gets if another server has it: the project it is of, or the client.
    suffix: String,
}

/// The shape of `-o json`.
#[derive(Serialize)]
struct Report<'f> {
    files: Vec<FileReport<'f>>,
}

#[derive(Serialize)]
struct FileReport<'f> {
    client: &'static str,
    path: String,
    error: Option<&'f str>,
    servers: Vec<ServerReport<'f>>,
}

#[derive(Serialize)]
struct ServerReport<'f> {
    name: &'f str,
    taken: bool,
    left_out: Option<&'f str>,
    notes: &'f [String],
}

pub(crate) fn run(global: &Global, args: &ImportArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let editing = Editing::of(global)?;
    let path = &editing.path;
    let before = editing.before.as_deref().unwrap_or_default();
    // What is wrong with the config matters once it is written.
    let known = if args.write { parsed(path, before)? } else { before.parse().unwrap_or_default() };
    let mut document = if args.write { known.clone() } else { DocumentMut::new() };
    let mut found = match &args.file {
        Some(file) => vec![named_file(file, args.from)?],
        None => look(args.from),
    };
    // Whatever is wrong with the config or the environment is not the matter here.
    let own = GatewayUrl::meant(global, None).unwrap_or_default();
    merge(&mut found, &mut document, &known, &own);
    match args.output.form {
        Form::Json => screen.json(&report(&found))?,
        Form::Text => {
            tell(&found, screen)?;
            if !args.write && !document.is_empty() {
                let (all, shown) = (document.to_string(), veiled(document.clone()).to_string());
                screen.line(shown.trim_end())?;
                if shown != all {
                    screen.talk(
                        "values that may be secret are not printed; `--write` puts them into the file",
                    )?;
                }
            }
        }
    }
    let count = found.iter().flat_map(Found::taken).count();
    if count == 0 {
        screen.talk("there is nothing to import")?;
        if found.is_empty() {
            screen.hint("no config of another MCP client was found; `gripfast import --help` says whose are looked for")?;
        }
        return Ok(Exit::Ok);
    }
    if args.write {
        let came_along = found.iter().any(|file| file.of_a_project && file.taken().next().is_some());
        let path = absolute(path);
        let editing = if came_along { editing.unvouched() } else { editing };
        editing.write(global, &document.to_string(), screen)?;
        screen.talk(&format!("{} added to `{path}`", plural(count, "server")))?;
        if came_along {
            screen.hint("some of them came with this directory; `gripfast trust` shows what they run and trusts the file")?;
        }
    } else {
        screen.talk(&format!(
            "nothing was written; `--write` adds {} to `{}`",
            plural(count, "server"),
            absolute(path)
        ))?;
    }
    Ok(Exit::Ok)
}

/// A path as a person finds it from any directory.
pub(crate) fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

fn parsed(path: &Path, text: &str) -> Result<DocumentMut, Failure> {
    if path.extension().is_some_and(|ending| !ending.eq_ignore_ascii_case("toml")) {
        let text = format!("`{}` is not TOML, and only TOML is written", path.display());
        return Err(Failure::new(Exit::General, text).with_hint("`--config gripfast.toml` names another"));
    }
    text.parse().map_err(|_| {
        Failure::new(Exit::ConfigInvalid, format!("`{}` is not valid TOML", path.display()))
            .with_hint("`gripfast check` explains what is wrong")
    })
}

/// Reads the files that there are.
fn look(from: Option<&'static Client>) -> Vec<Found> {
    let clients = CLIENTS.iter().filter(|client| from.is_none_or(|from| from.id == client.id));
    let mut found = Vec::new();
    for client in clients {
        for place in client.files {
            let Some(path) = place.path(&ProcessEnvironment) else { continue };
            if path.is_file() {
                let of_a_project = place.is_of_a_project();
                let servers = tree(&path).and_then(|tree| taken(client, &path, &tree));
                found.push(Found { client, servers, path, of_a_project });
            }
        }
    }
    found
}

/// Reads the one file that was named.
fn named_file(path: &Path, from: Option<&'static Client>) -> Result<Found, Failure> {
    if !path.is_file() {
        return Err(Failure::new(Exit::General, format!("there is no file `{}`", path.display())));
    }
    let unusable = |why: String| {
        Failure::new(Exit::ConfigInvalid, format!("`{}` cannot be imported: {why}", path.display()))
    };
    let tree = tree(path).map_err(unusable)?;
    let is_toml = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml"));
    if is_toml && matches!(tree.get("servers"), Some(Tree::Table(_))) {
        return Err(unusable("it is a config of gripfast".to_owned())
            .with_hint(format!("`--config {}` uses it as it is", path.display())));
    }
    let client = from.unwrap_or_else(|| recognised(path, &tree));
    let servers = taken(client, path, &tree).map_err(unusable)?;
    // The user chose it, like a config that `--config` names.
    Ok(Found { client, path: path.to_owned(), of_a_project: false, servers: Ok(servers) })
}

fn tree(path: &Path) -> Result<Tree, String> {
    let text = edit::read(path).map_err(|failure| failure.text)?.unwrap_or_default();
    Tree::parse(&text, path).map_err(|error| told(&error))
}

fn taken(client: &'static Client, path: &Path, tree: &Tree) -> Result<Vec<Server>, String> {
    let mut servers: Vec<Server> = Vec::new();
    for Listed { name, entry, project } in servers_of(client, tree)? {
        let mut taken = take(client, path, name, entry);
        if let Some(project) = project {
            if Path::new(project).is_dir() {
                taken.start_in(project);
                taken.notes.push(format!("is of the project `{project}`"));
            } else {
                taken.table = Err(format!("is of the project `{project}`, which does not exist"));
            }
        }
        if let Some(why) = switched_off(client, tree, name, project) {
            taken.switch_off(why);
        }
        let folder = project.and_then(|project| Path::new(project).file_name()?.to_str());
        let short = |folder: &str| usable_name(&folder.chars().take(LONGEST_SUFFIX).collect::<String>());
        let suffix = folder.map_or_else(|| client.id.to_owned(), short);
        servers.push(Server { name: taken.name.clone(), taken, suffix });
    }
    Ok(servers)
}

/// Why a client does not use a server, where a list besides the servers says so.
fn switched_off(client: &Client, tree: &Tree, name: &str, project: Option<&str>) -> Option<&'static str> {
    let lists = |list: Option<&Tree>| match list {
        Some(Tree::List(names)) => Some(names.iter().any(|listed| listed.text() == Some(name))),
        Some(_) | None => None,
    };
    match client.id {
        "gemini" => {
            let mcp = tree.get("mcp");
            let list = |new: &str, old: &str| lists(mcp.and_then(|mcp| mcp.get(new)).or(tree.get(old)));
            if list("excluded", "excludeMCPServers") == Some(true) {
                Some("is excluded there (`mcp.excluded`)")
            } else if list("allowed", "allowMCPServers") == Some(false) {
                Some("is not allowed there (`mcp.allowed`)")
            } else {
                None
            }
        }
        "claude-code" => {
            let settings = project.and_then(|project| tree.get("projects")?.get(project));
            (lists(settings.and_then(|settings| settings.get("disabledMcpServers"))) == Some(true))
                .then_some("is disabled there (`disabledMcpServers`)")
        }
        _ => None,
    }
}

fn told(error: &ConfigError) -> String {
    match error {
        ConfigError::Invalid { diagnostics } => diagnostics
            .iter()
            .map(|finding| format!("{finding} (line {})", finding.at.line))
            .collect::<Vec<_>>()
            .join("; "),
        other => other.to_string(),
    }
}

/// One server as a file has it.
struct Listed<'t> {
    name: &'t str,
    entry: &'t Tree,
    /// The directory of the project that it belongs to.
    project: Option<&'t str>,
}

/// The servers of a file. Under another client's key they are not silently missed.
fn servers_of<'t>(client: &Client, tree: &'t Tree) -> Result<Vec<Listed<'t>>, String> {
    let under = |tree: &'t Tree, keys: &[&str]| keys.iter().try_fold(tree, |tree, key| tree.get(key));
    let listed = |project: Option<&'t str>, table: &'t Tree| {
        table.entries().iter().map(move |(name, entry)| Listed { name, entry, project })
    };
    let found: Option<Vec<Listed<'_>>> = match client.root {
        Root::Under(keys) => under(tree, keys).map(|table| {
            // opencode's second form is one level deeper.
            let nested =
                table.get("servers").filter(|nested| client.id == "opencode" && nested.get("type").is_none());
            listed(None, nested.unwrap_or(table)).collect()
        }),
        Root::AndProjects(key) => {
            let everywhere = tree.get(key);
            let projects = tree.get("projects");
            let own = projects.map(Tree::entries).unwrap_or_default().iter();
            let own =
                own.filter_map(|(project, settings)| Some((Some(project.as_str()), settings.get(key)?)));
            let tables = everywhere.map(|table| (None, table)).into_iter().chain(own);
            let known = everywhere.is_some() || projects.is_some();
            known.then(|| tables.flat_map(|(project, table)| listed(project, table)).collect())
        }
        Root::List(key) => match tree.get(key) {
            Some(Tree::List(entries)) => {
                let named =
                    |entry: &'t Tree| Some(Listed { name: entry.get("name")?.text()?, entry, project: None });
                Some(entries.iter().filter_map(named).collect())
            }
            Some(_) | None => None,
        },
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let others = ["mcpServers", "servers", "mcp_servers", "context_servers", "mcp", "extensions"];
    match others.iter().find(|key| matches!(tree.get(key), Some(Tree::Table(_)))) {
        Some(key) => Err(format!("has servers under `{key}`, where {} does not look for them", client.name)),
        None => Ok(Vec::new()),
    }
}

/// Puts what was taken into the document, each under a name of its own that the config does not have yet.
fn merge(found: &mut [Found], document: &mut DocumentMut, config: &DocumentMut, own: &GatewayUrl) {
    let mut placed: Vec<(Tree, String)> = known(config);
    for Found { servers, .. } in found {
        for Server { taken, name, suffix } in servers.iter_mut().flatten() {
            let Ok(table) = &taken.table else { continue };
            if is_gripfast(&taken.name, table, own) {
                taken.table = Err("is gripfast itself".to_owned());
                continue;
            }
            let said = Tree::parse(&table.to_string(), Config::FILE_NAME.as_ref()).unwrap_or(Tree::Null);
            if let Some((_, other)) = placed.iter().find(|(known, _)| *known == said) {
                taken.table = Err(format!("is the same as `{other}`, which is there already"));
                continue;
            }
            let target = match usable(table) {
                Ok(target) => target,
                Err(cause) => {
                    taken.table = Err(cause);
                    continue;
                }
            };
            let wanted = usable_name(&taken.name);
            let has = |document: &DocumentMut, name: &str| {
                [document, config].into_iter().any(|document| {
                    let servers = document.get("servers").and_then(Item::as_table_like);
                    servers.is_some_and(|servers| servers.contains_key(name))
                })
            };
            let mut free = wanted.clone();
            if has(document, &free) {
                free = format!("{wanted}-{suffix}");
            }
            let mut number = 2;
            while has(document, &free) {
                free = format!("{wanted}-{number}");
                number += 1;
            }
            if free != taken.name {
                taken.notes.push(format!("is called `{free}` here"));
            }
            let dropped =
                target.and_then(|target| surroundings::dropped(&taken.name, &target, &ProcessEnvironment));
            taken.notes.extend(dropped.map(|(message, hint)| format!("{message}; {hint}")));
            insert(document, &free, table.clone());
            placed.push((said, free.clone()));
            *name = free;
        }
    }
}

/// The servers that the config has already: what was imported before is not imported again under another name.
fn known(document: &DocumentMut) -> Vec<(Tree, String)> {
    let tree = Tree::parse(&document.to_string(), Config::FILE_NAME.as_ref()).unwrap_or(Tree::Null);
    let servers = tree.get("servers").map(Tree::entries).unwrap_or_default().iter();
    servers.map(|(name, entry)| (entry.clone(), name.clone())).collect()
}

fn insert(document: &mut DocumentMut, name: &str, table: Table) {
    let mut fresh = Table::new();
    fresh.set_implicit(true);
    let servers = document.entry("servers").or_insert(Item::Table(fresh));
    if let Some(servers) = servers.as_table_like_mut() {
        servers.insert(name, Item::Table(table));
    }
}

/// How a server of this table is reached, if it could be kept.
fn usable(table: &Table) -> Result<Option<Target>, String> {
    let mut document = DocumentMut::new();
    insert(&mut document, "server", table.clone());
    let config =
        Config::parse(&document.to_string(), Config::FILE_NAME.as_ref()).map_err(|error| told(&error))?;
    match config.servers.into_iter().next().map(|entry| entry.spec) {
        Some(Err(findings)) => {
            Err(findings.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>().join("; "))
        }
        Some(Ok(spec)) => Ok(Some(spec.target)),
        None => Ok(None),
    }
}

/// A client that was connected to gripfast before, by its name or by where it leads: a gateway behind itself would ask
/// itself for ever.
fn is_gripfast(name: &str, table: &Table, own: &GatewayUrl) -> bool {
    let text = |key: &str| table.get(key).and_then(Item::as_str).unwrap_or_default();
    let command = Path::new(text("command")).file_stem().is_some_and(|stem| stem == "gripfast");
    let serves = table.get("args").is_none_or(|args| !args.to_string().contains("demo-server"));
    let url = text("url").replace("://localhost", "://127.0.0.1");
    let leads_here =
        [own.to_string().as_str(), own.for_clients()].iter().any(|base| url == format!("{base}/mcp"));
    (command && serves) || leads_here || url.ends_with(":7331/mcp") || name == "gripfast"
}

/// A name that our config accepts, as near as can be.
fn usable_name(name: &str) -> String {
    let mut usable = String::new();
    for letter in name.chars().take(48) {
        match letter {
            '_' if usable.ends_with('_') => {}
            letter if letter.is_ascii_alphanumeric() || letter == '_' => usable.push(letter),
            _ if usable.ends_with('-') => {}
            _ => usable.push('-'),
        }
    }
    match usable.trim_matches(['-', '_']) {
        "" => "server".to_owned(),
        name => name.to_owned(),
    }
}

impl Found {
    fn taken(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().flatten().filter(|server| server.taken.table.is_ok())
    }
}

fn tell(found: &[Found], screen: &mut Screen) -> Result<(), Stop> {
    for Found { client, path, servers, of_a_project } in found {
        let whose = if *of_a_project { ", which came with this directory" } else { "" };
        screen.talk(&format!("{}: {}{whose}", client.name, path.display()))?;
        match servers {
            Err(cause) => screen.talk(&format!("  cannot be used: {cause}"))?,
            Ok(servers) if servers.is_empty() => screen.talk("  has no servers")?,
            Ok(servers) => {
                for Server { taken, name, suffix: _ } in servers {
                    match &taken.table {
                        Ok(_) => screen.talk(&format!("  + {name}"))?,
                        Err(cause) => screen.talk(&format!("  - {} {cause}", taken.name))?,
                    }
                    for note in &taken.notes {
                        screen.talk(&format!("      {note}"))?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn report(found: &[Found]) -> Report<'_> {
    let files = found.iter().map(|Found { client, path, servers, .. }| FileReport {
        client: client.id,
        path: path.display().to_string(),
        error: servers.as_ref().err().map(String::as_str),
        servers: servers.iter().flatten().map(ServerReport::of).collect(),
    });
    Report { files: files.collect() }
}

impl<'f> ServerReport<'f> {
    fn of(server: &'f Server) -> Self {
        let Server { taken, name, suffix: _ } = server;
        Self {
            name,
            taken: taken.table.is_ok(),
            left_out: taken.table.as_ref().err().map(String::as_str),
            notes: &taken.notes,
        }
    }
}

//! `gripfast import`: converts the servers of other MCP clients on this machine into a gripfast config. The clients'
//! files are read and never written.

mod clients;
mod convert;
mod redact;
mod references;

pub(crate) use clients::{ClientFormat, ConnectEntry, FileLayout, ServersKey, named};

use super::address::GatewayUrl;
use super::args::{GlobalArgs, OutputArgs, OutputFormat};
use super::config;
use super::config_trust::Editing;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::import::convert::{ImportedServer, import_server};
use super::import::redact::redacted;
use super::preflight;
use super::render::{Screen, plural};
use super::write_file;
use clap::Args;
use clients::{CLIENTS, detect};
use gripfast::config::{Config, ProcessEnvironment, Tree};
use serde::Serialize;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, Table};

#[derive(Debug, Args)]
#[command(after_help = "\
Looks for the configs of Claude Desktop, Claude Code, VS Code, Cursor, Windsurf, Zed, Codex, Gemini CLI, Copilot \
CLI, opencode, Goose, Hermes, Cline, Kiro, Continue, LM Studio, Factory, Kimi, Antigravity, Trae, MCP Inspector, \
Amp and Mistral Vibe, in the home directory and in the current one. Prints a config with their servers; with --write \
they are added to the config, and its own servers stay as they are. Values of variables and headers, and other possible \
secrets, are not printed; --write writes them into the file. The output names everything that cannot be imported, or \
that means something else in gripfast. The files of the clients are not changed.

The file of a project may start commands that another person has written: check the printed config before you write it.

Examples:
  gripfast import                        show what can be imported
  gripfast import --from cursor --write
  gripfast import ~/backup/mcp.json      one file, wherever it is
  gripfast import --write")]
pub(crate) struct ImportArgs {
    /// Only this file, in the format of any of these clients
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Only this client, or the client whose format FILE has: claude-desktop, claude-code, vscode, cursor, windsurf, zed,
    /// codex, gemini, …
    #[arg(long, value_name = "CLIENT", value_parser = named)]
    from: Option<&'static ClientFormat>,

    /// Add the servers to the config
    #[arg(long)]
    write: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// The hint for a config that is not TOML.
const NOT_TOML: &str = "name a TOML file, such as `--config gripfast.toml`";
/// Longest suffix of a server name; no client id is longer.
const MAX_SUFFIX: usize = 14;

/// One file of a client, and its servers.
struct ImportFile {
    client: &'static ClientFormat,
    path: PathBuf,
    /// True if the file belongs to the project in the current directory.
    is_from_project: bool,
    servers: Result<Vec<Server>, String>,
}

/// One server of a file, and the result of its import.
struct Server {
    taken: ImportedServer,
    /// Its name in the gripfast config.
    name: String,
    /// Suffix for its name if another server has that name: its project, or the client.
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

pub(crate) fn run(global: &GlobalArgs, args: &ImportArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let editing = Editing::open(global)?;
    let path = &editing.path;
    let before = editing.before.as_deref().unwrap_or_default();
    // Errors in the config matter only if it is written.
    let known = if args.write { editing.toml(NOT_TOML)? } else { before.parse().unwrap_or_default() };
    let mut document = if args.write { known.clone() } else { DocumentMut::new() };
    let mut found = match &args.file {
        Some(file) => vec![read_named_file(file, args.from)?],
        None => find_files(args.from),
    };
    // Errors in the config or the environment do not matter here.
    let own = GatewayUrl::resolve(global, None).unwrap_or_default();
    merge(&mut found, &mut document, &known, &own);
    match args.output.form {
        OutputFormat::Json => screen.json(&report(&found))?,
        OutputFormat::Text => {
            print_report(&found, screen)?;
            if !args.write && !document.is_empty() {
                let (all, shown) = (document.to_string(), redacted(document.clone()).to_string());
                screen.line(shown.trim_end())?;
                if shown != all {
                    screen
                        .message("possible secrets are not printed; `--write` writes them into the file")?;
                }
            }
        }
    }
    let count = found.iter().flat_map(ImportFile::imported).count();
    if count == 0 {
        screen.message("nothing to import")?;
        if found.is_empty() {
            screen.hint(
                "no config of another MCP client was found; `gripfast import --help` lists the known clients",
            )?;
        }
        return Ok(Exit::Ok);
    }
    if args.write {
        let from_project = found.iter().any(|file| file.is_from_project && file.imported().next().is_some());
        let path = absolute(path);
        let editing = if from_project { editing.without_trust() } else { editing };
        editing.write(global, &document.to_string(), screen)?;
        screen.message(&format!("added {} to `{path}`", plural(count, "server")))?;
        if from_project {
            screen.hint("some of them come from files in this directory; `gripfast trust` shows what they run and trusts the file")?;
        }
    } else {
        screen.message(&format!(
            "nothing was written; `--write` adds {} to `{}`",
            plural(count, "server"),
            absolute(path)
        ))?;
    }
    Ok(Exit::Ok)
}

/// A path as absolute text.
pub(crate) fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Finds and reads the config files of the known clients.
fn find_files(from: Option<&'static ClientFormat>) -> Vec<ImportFile> {
    let clients = CLIENTS.iter().filter(|client| from.is_none_or(|from| from.id == client.id));
    let mut found = Vec::new();
    for client in clients {
        for place in client.files {
            let Some(path) = place.path(&ProcessEnvironment) else { continue };
            if path.is_file() {
                let is_from_project = place.is_in_project();
                let servers = tree(&path).and_then(|tree| import_servers(client, &path, &tree));
                found.push(ImportFile { client, servers, path, is_from_project });
            }
        }
    }
    found
}

/// Reads the file that the user named.
fn read_named_file(path: &Path, from: Option<&'static ClientFormat>) -> Result<ImportFile, FailureReport> {
    if !path.is_file() {
        return Err(FailureReport::new(Exit::General, format!("there is no file `{}`", path.display())));
    }
    let unusable = |why: String| {
        FailureReport::new(Exit::ConfigInvalid, format!("`{}` cannot be imported: {why}", path.display()))
    };
    let tree = tree(path).map_err(unusable)?;
    let is_toml = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml"));
    if is_toml && matches!(tree.get("servers"), Some(Tree::Table(_))) {
        return Err(unusable("it is already a gripfast config".to_owned())
            .with_hint(format!("`--config {}` uses it directly", path.display())));
    }
    let client = from.unwrap_or_else(|| detect(path, &tree));
    let servers = import_servers(client, path, &tree).map_err(unusable)?;
    // The user named it, as with `--config`, so it does not count as a project's file.
    Ok(ImportFile { client, path: path.to_owned(), is_from_project: false, servers: Ok(servers) })
}

fn tree(path: &Path) -> Result<Tree, String> {
    let text = write_file::read(path).map_err(|failure| failure.text)?.unwrap_or_default();
    Tree::parse(&text, path).map_err(|error| config::error_text(&error))
}

fn import_servers(client: &'static ClientFormat, path: &Path, tree: &Tree) -> Result<Vec<Server>, String> {
    let mut servers: Vec<Server> = Vec::new();
    for ListedServer { name, entry, project } in servers_of(client, tree)? {
        let mut taken = import_server(client, path, name, entry);
        if let Some(project) = project {
            if Path::new(project).is_dir() {
                taken.set_cwd(project);
                taken.notes.push(format!("belongs to the project `{project}`"));
            } else {
                taken.table = Err(format!("belongs to the project `{project}`, which does not exist"));
            }
        }
        if let Some(why) = switched_off(client, tree, name, project) {
            taken.disable(why);
        }
        let folder = project.and_then(|project| Path::new(project).file_name()?.to_str());
        let short = |folder: &str| usable_name(&folder.chars().take(MAX_SUFFIX).collect::<String>());
        let suffix = folder.map_or_else(|| client.id.to_owned(), short);
        servers.push(Server { name: taken.name.clone(), taken, suffix });
    }
    Ok(servers)
}

/// The reason for which a client does not use a server, if a list outside the server's entry disables it.
fn switched_off(
    client: &ClientFormat,
    tree: &Tree,
    name: &str,
    project: Option<&str>,
) -> Option<&'static str> {
    let lists = |list: Option<&Tree>| match list {
        Some(Tree::List(names)) => Some(names.iter().any(|listed| listed.text() == Some(name))),
        Some(_) | None => None,
    };
    match client.id {
        "gemini" => {
            let mcp = tree.get("mcp");
            let list = |new: &str, old: &str| lists(mcp.and_then(|mcp| mcp.get(new)).or(tree.get(old)));
            if list("excluded", "excludeMCPServers") == Some(true) {
                Some("excluded in the client (`mcp.excluded`)")
            } else if list("allowed", "allowMCPServers") == Some(false) {
                Some("not allowed in the client (`mcp.allowed`)")
            } else {
                None
            }
        }
        "claude-code" => {
            let settings = project.and_then(|project| tree.get("projects")?.get(project));
            (lists(settings.and_then(|settings| settings.get("disabledMcpServers"))) == Some(true))
                .then_some("disabled in the client (`disabledMcpServers`)")
        }
        _ => None,
    }
}

/// One server entry of a file.
struct ListedServer<'t> {
    name: &'t str,
    entry: &'t Tree,
    /// The directory of its project.
    project: Option<&'t str>,
}

/// The servers of a file. Servers under another client's key are an error, so that they are not silently missed.
fn servers_of<'t>(client: &ClientFormat, tree: &'t Tree) -> Result<Vec<ListedServer<'t>>, String> {
    let under = |tree: &'t Tree, keys: &[&str]| keys.iter().try_fold(tree, |tree, key| tree.get(key));
    let listed = |project: Option<&'t str>, table: &'t Tree| {
        table.entries().iter().map(move |(name, entry)| ListedServer { name, entry, project })
    };
    let found: Option<Vec<ListedServer<'_>>> = match client.root {
        ServersKey::Under(keys) => under(tree, keys).map(|table| {
            // opencode also nests servers one level deeper.
            let nested =
                table.get("servers").filter(|nested| client.id == "opencode" && nested.get("type").is_none());
            listed(None, nested.unwrap_or(table)).collect()
        }),
        ServersKey::AndProjects(key) => {
            let everywhere = tree.get(key);
            let projects = tree.get("projects");
            let own = projects.map(Tree::entries).unwrap_or_default().iter();
            let own =
                own.filter_map(|(project, settings)| Some((Some(project.as_str()), settings.get(key)?)));
            let tables = everywhere.map(|table| (None, table)).into_iter().chain(own);
            let known = everywhere.is_some() || projects.is_some();
            known.then(|| tables.flat_map(|(project, table)| listed(project, table)).collect())
        }
        ServersKey::List(key) => match tree.get(key) {
            Some(Tree::List(entries)) => {
                let named = |entry: &'t Tree| {
                    Some(ListedServer { name: entry.get("name")?.text()?, entry, project: None })
                };
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
        Some(key) => Err(format!("it has servers under `{key}`, which {} does not read", client.name)),
        None => Ok(Vec::new()),
    }
}

/// Adds the imported servers to the document, each under a name that the config does not have yet.
fn merge(found: &mut [ImportFile], document: &mut DocumentMut, known: &DocumentMut, own: &GatewayUrl) {
    let mut placed: Vec<(Tree, String)> = existing_servers(known);
    for ImportFile { servers, .. } in found {
        for Server { taken, name, suffix } in servers.iter_mut().flatten() {
            let Ok(table) = &taken.table else { continue };
            if is_gripfast(&taken.name, table, own) {
                taken.table = Err("this is gripfast itself".to_owned());
                continue;
            }
            let parsed = Tree::parse(&table.to_string(), Config::FILE_NAME.as_ref()).unwrap_or(Tree::Null);
            if let Some((_, other)) = placed.iter().find(|(other, _)| *other == parsed) {
                taken.table = Err(format!("same as `{other}`, which the config already has"));
                continue;
            }
            let target = match config::spec_of_table(table.clone()) {
                Ok(spec) => spec.target,
                Err(cause) => {
                    taken.table = Err(cause);
                    continue;
                }
            };
            let wanted = usable_name(&taken.name);
            let has = |document: &DocumentMut, name: &str| {
                [document, known].into_iter().any(|document| {
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
                taken.notes.push(format!("renamed to `{free}`"));
            }
            let dropped = preflight::dropped_variables(&taken.name, &target, &ProcessEnvironment);
            taken.notes.extend(dropped.map(|(message, hint)| format!("{message}; {hint}")));
            insert(document, &free, table.clone());
            placed.push((parsed, free.clone()));
            *name = free;
        }
    }
}

/// The servers that the config already has, so that none is imported again under another name.
fn existing_servers(document: &DocumentMut) -> Vec<(Tree, String)> {
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

/// Returns true if a server is gripfast itself, by its name or its target: a gateway that serves itself would call
/// itself without end.
fn is_gripfast(name: &str, table: &Table, own: &GatewayUrl) -> bool {
    let text = |key: &str| table.get(key).and_then(Item::as_str).unwrap_or_default();
    let command = Path::new(text("command")).file_stem().is_some_and(|stem| stem == "gripfast");
    let serves = table.get("args").is_none_or(|args| !args.to_string().contains("demo-server"));
    let url = text("url").replace("://localhost", "://127.0.0.1");
    let leads_here =
        [own.to_string().as_str(), own.for_clients()].iter().any(|base| url == format!("{base}/mcp"));
    (command && serves) || leads_here || url.ends_with(":7331/mcp") || name == "gripfast"
}

/// The nearest server name that the config accepts.
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

impl ImportFile {
    fn imported(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().flatten().filter(|server| server.taken.table.is_ok())
    }
}

fn print_report(found: &[ImportFile], screen: &mut Screen) -> Result<(), CommandError> {
    for ImportFile { client, path, servers, is_from_project } in found {
        let origin = if *is_from_project { " (from this directory)" } else { "" };
        screen.message(&format!("{}: {}{origin}", client.name, path.display()))?;
        match servers {
            Err(cause) => screen.message(&format!("  cannot be imported: {cause}"))?,
            Ok(servers) if servers.is_empty() => screen.message("  no servers")?,
            Ok(servers) => {
                for Server { taken, name, suffix: _ } in servers {
                    match &taken.table {
                        Ok(_) => screen.message(&format!("  + {name}"))?,
                        Err(cause) => screen.message(&format!("  - {}: {cause}", taken.name))?,
                    }
                    for note in &taken.notes {
                        screen.message(&format!("      {note}"))?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn report(found: &[ImportFile]) -> Report<'_> {
    let files = found.iter().map(|ImportFile { client, path, servers, .. }| FileReport {
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

//! The known MCP clients: locations of their config files, and the formats of their server entries.

use crate::cli::config::did_you_mean;
use gripfast::config::{Lookup, Tree};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The config format of one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientFormat {
    /// Name on the command line.
    pub(crate) id: &'static str,
    /// Display name.
    pub(crate) name: &'static str,
    /// Its config files; the client reads those that exist. `connect` creates the first if none exists.
    pub(crate) files: &'static [FileLocation],
    /// The key of its servers.
    pub(crate) root: ServersKey,
    /// The unit of its `timeout`.
    pub(crate) timeout: TimeoutUnit,
    /// The entry that connects it to gripfast.
    pub(crate) entry: ConnectEntry,
}

use FileLocation::{App, DotConfig, Home, Project, Variable};

/// Location of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FileLocation {
    /// In the home directory.
    Home(&'static str),
    /// In the platform's directory for application configs.
    App(&'static str),
    /// In `~/.config`; on Windows in the directory for application configs.
    DotConfig(&'static str),
    /// In the directory that a variable names, else in a directory of the home directory: variable, directory, file.
    Variable(&'static str, &'static str, &'static str),
    /// In the current directory. Never written.
    Project(&'static str),
}

/// Location of the servers within a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServersKey {
    /// A table of servers under these nested keys.
    Under(&'static [&'static str]),
    /// A table of servers under this key, and one for each project directory under `projects`.
    AndProjects(&'static str),
    /// A list of servers, each with a `name`.
    List(&'static str),
}

/// Unit of a bare number in `timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeoutUnit {
    Millis,
    Seconds,
    /// The client has no such key.
    Unknown,
}

/// Shape of the entry that connects a client to gripfast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectEntry {
    /// `{"type": "http", "url": …}`
    TypeHttp,
    /// `{"url": …}`
    Url,
    /// `{"serverUrl": …}`
    ServerUrl,
    /// `{"type": "remote", "url": …}`
    TypeRemote,
    /// `{"type": "streamableHttp", "url": …}`
    TypeStreamableHttp,
    /// For a client that only starts commands: `{"command": "gripfast", "args": ["stdio"]}`
    Command,
    /// A TOML table with a `url`.
    TomlUrl,
    /// An item of a TOML list of tables, with a `name`.
    ListedToml,
    /// Goose's YAML entry, which calls the address `uri`.
    Goose,
    /// A YAML table with a `url`.
    YamlUrl,
    /// An item of a YAML list, with a `name`.
    ListedYaml,
}

/// Format of a client's config file, as far as it decides how the entry is edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileLayout {
    Json,
    /// TOML with a table of servers.
    Toml,
    /// TOML with a list of servers.
    TomlList,
    Yaml,
}

impl ConnectEntry {
    pub(crate) const fn layout(self) -> FileLayout {
        match self {
            Self::TomlUrl => FileLayout::Toml,
            Self::ListedToml => FileLayout::TomlList,
            Self::Goose | Self::YamlUrl | Self::ListedYaml => FileLayout::Yaml,
            Self::TypeHttp
            | Self::Url
            | Self::ServerUrl
            | Self::TypeRemote
            | Self::TypeStreamableHttp
            | Self::Command => FileLayout::Json,
        }
    }
}

/// A client whose servers are in the object `mcpServers` of a JSON file, with a `url` in the entry for gripfast.
const fn json(id: &'static str, name: &'static str, files: &'static [FileLocation]) -> ClientFormat {
    let root = ServersKey::Under(&["mcpServers"]);
    ClientFormat { id, name, files, root, timeout: TimeoutUnit::Unknown, entry: ConnectEntry::Url }
}

impl ClientFormat {
    /// Sets the key of the servers.
    const fn root(self, root: ServersKey) -> Self {
        Self { root, ..self }
    }

    /// Sets the unit of `timeout`.
    const fn timeout(self, timeout: TimeoutUnit) -> Self {
        Self { timeout, ..self }
    }

    /// Sets the entry for gripfast.
    const fn entry(self, entry: ConnectEntry) -> Self {
        Self { entry, ..self }
    }
}

/// All known clients.
pub(crate) const CLIENTS: &[ClientFormat] = &[
    json("claude-desktop", "Claude Desktop", &[App("Claude/claude_desktop_config.json")])
        .entry(ConnectEntry::Command),
    json("claude-code", "Claude Code", &[Home(".claude.json"), Project(".mcp.json")])
        .root(ServersKey::AndProjects("mcpServers"))
        .timeout(TimeoutUnit::Millis)
        .entry(ConnectEntry::TypeHttp),
    json("vscode", "VS Code", &[App("Code/User/mcp.json"), Project(".vscode/mcp.json")])
        .root(ServersKey::Under(&["servers"]))
        .entry(ConnectEntry::TypeHttp),
    json("cursor", "Cursor", &[Home(".cursor/mcp.json"), Project(".cursor/mcp.json")]),
    json(
        "windsurf",
        "Windsurf",
        &[Home(".codeium/windsurf/mcp_config.json"), Home(".codeium/mcp_config.json")],
    )
    .entry(ConnectEntry::ServerUrl),
    json("zed", "Zed", &[DotConfig("zed/settings.json"), Project(".zed/settings.json")])
        .root(ServersKey::Under(&["context_servers"]))
        .timeout(TimeoutUnit::Seconds),
    json("codex", "Codex", &[Variable("CODEX_HOME", ".codex", "config.toml"), Project(".codex/config.toml")])
        .root(ServersKey::Under(&["mcp_servers"]))
        .timeout(TimeoutUnit::Seconds)
        .entry(ConnectEntry::TomlUrl),
    json("gemini", "Gemini CLI", &[Home(".gemini/settings.json"), Project(".gemini/settings.json")])
        .timeout(TimeoutUnit::Millis),
    json("copilot", "Copilot CLI", &[Home(".copilot/mcp-config.json"), Project(".github/mcp.json")])
        .entry(ConnectEntry::TypeHttp),
    json(
        "opencode",
        "opencode",
        &[
            DotConfig("opencode/opencode.json"),
            DotConfig("opencode/opencode.jsonc"),
            Project("opencode.json"),
            Project("opencode.jsonc"),
        ],
    )
    .root(ServersKey::Under(&["mcp"]))
    .timeout(TimeoutUnit::Millis)
    .entry(ConnectEntry::TypeRemote),
    json("goose", "Goose", &[DotConfig("goose/config.yaml")])
        .root(ServersKey::Under(&["extensions"]))
        .timeout(TimeoutUnit::Seconds)
        .entry(ConnectEntry::Goose),
    json("hermes", "Hermes", &[Variable("HERMES_HOME", ".hermes", "config.yaml")])
        .root(ServersKey::Under(&["mcp_servers"]))
        .timeout(TimeoutUnit::Seconds)
        .entry(ConnectEntry::YamlUrl),
    json(
        "cline",
        "Cline",
        &[
            Home(".cline/data/settings/cline_mcp_settings.json"),
            App("Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
        ],
    )
    .timeout(TimeoutUnit::Seconds)
    .entry(ConnectEntry::TypeStreamableHttp),
    json("kiro", "Kiro", &[Home(".kiro/settings/mcp.json"), Project(".kiro/settings/mcp.json")]),
    json("continue", "Continue", &[Home(".continue/config.yaml")])
        .root(ServersKey::List("mcpServers"))
        .entry(ConnectEntry::ListedYaml),
    json("lmstudio", "LM Studio", &[Home(".lmstudio/mcp.json")]),
    json("factory", "Factory", &[Home(".factory/mcp.json")]).entry(ConnectEntry::TypeHttp),
    json("kimi", "Kimi", &[Home(".kimi/mcp.json")]),
    json("antigravity", "Antigravity", &[Home(".gemini/antigravity/mcp_config.json")])
        .entry(ConnectEntry::ServerUrl),
    json("trae", "Trae", &[App("Trae/User/mcp.json")]),
    json("inspector", "MCP Inspector", &[Home(".mcp-inspector/mcp.json")])
        .timeout(TimeoutUnit::Millis)
        .entry(ConnectEntry::TypeHttp),
    json("amp", "Amp", &[DotConfig("amp/settings.json")]).root(ServersKey::Under(&["amp.mcpServers"])),
    json("vibe", "Mistral Vibe", &[Home(".vibe/config.toml")])
        .root(ServersKey::List("mcp_servers"))
        .entry(ConnectEntry::ListedToml),
];

/// Format of a file whose client is unknown: the one that most clients share.
pub(crate) const UNKNOWN: ClientFormat = json("file", "MCP client", &[]);

/// Detects the client of a file, by its path or else by the key of its servers.
pub(crate) fn detect(path: &Path, tree: &Tree) -> &'static ClientFormat {
    let file_name = |place: &FileLocation| Path::new(place.path_suffix()).file_name().map(ToOwned::to_owned);
    let has_file = |client: &ClientFormat, wanted: Option<&OsStr>| {
        client.files.iter().any(|place| file_name(place).as_deref() == wanted)
    };
    // Only Claude Desktop has a `claude_desktop_config.json`, but many clients have a `mcp.json`.
    let is_telling = CLIENTS.iter().filter(|client| has_file(client, path.file_name())).count() == 1;
    let is_of = |client: &&ClientFormat| {
        let by_path = client.files.iter().any(|place| path.ends_with(place.path_suffix()));
        by_path || (is_telling && has_file(client, path.file_name()))
    };
    let has_root = |client: &&ClientFormat| match client.root {
        ServersKey::Under(keys) => {
            matches!(keys.iter().try_fold(tree, |tree, key| tree.get(key)), Some(Tree::Table(_)))
        }
        ServersKey::AndProjects(key) => tree.get(key).is_some() || tree.get("projects").is_some(),
        ServersKey::List(key) => matches!(tree.get(key), Some(Tree::List(_))),
    };
    let is_list = |client: &&ClientFormat| matches!(client.root, ServersKey::List(_));
    let known = CLIENTS.iter().find(|client| is_of(client) && has_root(client));
    let listed = || CLIENTS.iter().find(|client| is_list(client) && has_root(client));
    let by_key = || {
        let others =
            |client: &&ClientFormat| client.root != UNKNOWN.root && !is_list(client) && has_root(client);
        CLIENTS.iter().find(|client| others(client) && client.id != "claude-code")
    };
    known.or_else(listed).or_else(by_key).unwrap_or(&UNKNOWN)
}

/// Parses the name of a client on the command line.
pub(crate) fn named(typed: &str) -> Result<&'static ClientFormat, String> {
    let ids = || CLIENTS.iter().map(|client| client.id);
    CLIENTS.iter().find(|client| client.id == typed).ok_or_else(|| {
        did_you_mean(typed, ids())
            .unwrap_or_else(|| format!("known clients are {}", ids().collect::<Vec<_>>().join(", ")))
    })
}

impl FileLocation {
    /// The path on this machine; `None` without a home directory.
    pub(crate) fn path(self, lookup: &dyn Lookup) -> Option<PathBuf> {
        let home = || lookup.variable(if cfg!(windows) { "USERPROFILE" } else { "HOME" }).map(PathBuf::from);
        let roaming = || lookup.variable("APPDATA").map(PathBuf::from);
        let dotted = || match lookup.variable("XDG_CONFIG_HOME").filter(|set| !set.is_empty()) {
            Some(set) => Some(PathBuf::from(set)),
            None => Some(home()?.join(".config")),
        };
        Some(match self {
            Self::Home(rest) => home()?.join(rest),
            Self::App(rest) if cfg!(target_os = "macos") => {
                home()?.join("Library/Application Support").join(rest)
            }
            Self::App(rest) | Self::DotConfig(rest) if cfg!(windows) => roaming()?.join(rest),
            Self::App(rest) | Self::DotConfig(rest) => dotted()?.join(rest),
            Self::Variable(name, directory, file) => {
                match lookup.variable(name).filter(|set| !set.is_empty()) {
                    Some(set) => Path::new(&set).join(file),
                    None => home()?.join(directory).join(file),
                }
            }
            Self::Project(rest) => Path::new(".").join(rest),
        })
    }

    /// The end of the path, which identifies a copy of the file elsewhere.
    fn path_suffix(self) -> &'static str {
        match self {
            Self::Home(rest) | Self::App(rest) | Self::DotConfig(rest) | Self::Project(rest) => rest,
            Self::Variable(_, _, file) => file,
        }
    }

    /// Returns true if the file is in the current directory, where another person may have put it.
    pub(crate) fn is_in_project(self) -> bool {
        matches!(self, Self::Project(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_is_found_by_its_name() {
        for client in CLIENTS {
            assert_eq!(named(client.id).unwrap().name, client.name);
            assert!(!client.files[0].is_in_project(), "{}: a project's file is not written to", client.id);
        }
        assert_eq!(named("cursr").unwrap_err(), "did you mean `cursor`?");
    }

    #[test]
    fn a_file_is_detected_by_its_path_or_by_the_key_of_its_servers() {
        for (path, text, id) in [
            ("/x/.claude.json", r#"{"mcpServers": {}}"#, "claude-code"),
            ("/repo/.mcp.json", r#"{"mcpServers": {}}"#, "claude-code"),
            ("/x/.gemini/settings.json", r#"{"mcpServers": {}}"#, "gemini"),
            ("/x/claude_desktop_config.json", r#"{"mcpServers": {}}"#, "claude-desktop"),
            ("/x/mcp.json", r#"{"mcpServers": {}}"#, "file"),
            ("/x/config.toml", "[[mcp_servers]]", "vibe"),
            ("a.json", r#"{"servers": {}}"#, "vscode"),
            ("a.json", r#"{"context_servers": {}}"#, "zed"),
            ("a.json", r#"{"mcp": {}}"#, "opencode"),
            ("a.toml", "[mcp_servers.a]", "codex"),
            ("a.toml", "[[mcp_servers]]", "vibe"),
            ("a.yaml", "extensions: {}", "goose"),
            ("a.yaml", "mcpServers: []", "continue"),
            ("a.json", "{}", "file"),
        ] {
            let tree = Tree::parse(text, path.as_ref()).unwrap();
            assert_eq!(detect(path.as_ref(), &tree).id, id, "{path}: {text}");
        }
    }
}

//! The known MCP clients: locations of their config files, and the formats of their server entries.

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

const fn json(
    id: &'static str,
    name: &'static str,
    files: &'static [FileLocation],
    timeout: TimeoutUnit,
    entry: ConnectEntry,
) -> ClientFormat {
    ClientFormat { id, name, files, root: ServersKey::Under(&["mcpServers"]), timeout, entry }
}

/// All known clients.
pub(crate) const CLIENTS: &[ClientFormat] = &[
    json(
        "claude-desktop",
        "Claude Desktop",
        &[FileLocation::App("Claude/claude_desktop_config.json")],
        TimeoutUnit::Unknown,
        ConnectEntry::Command,
    ),
    ClientFormat {
        root: ServersKey::AndProjects("mcpServers"),
        ..json(
            "claude-code",
            "Claude Code",
            &[FileLocation::Home(".claude.json"), FileLocation::Project(".mcp.json")],
            TimeoutUnit::Millis,
            ConnectEntry::TypeHttp,
        )
    },
    ClientFormat {
        root: ServersKey::Under(&["servers"]),
        ..json(
            "vscode",
            "VS Code",
            &[FileLocation::App("Code/User/mcp.json"), FileLocation::Project(".vscode/mcp.json")],
            TimeoutUnit::Unknown,
            ConnectEntry::TypeHttp,
        )
    },
    json(
        "cursor",
        "Cursor",
        &[FileLocation::Home(".cursor/mcp.json"), FileLocation::Project(".cursor/mcp.json")],
        TimeoutUnit::Unknown,
        ConnectEntry::Url,
    ),
    json(
        "windsurf",
        "Windsurf",
        &[
            FileLocation::Home(".codeium/windsurf/mcp_config.json"),
            FileLocation::Home(".codeium/mcp_config.json"),
        ],
        TimeoutUnit::Unknown,
        ConnectEntry::ServerUrl,
    ),
    ClientFormat {
        root: ServersKey::Under(&["context_servers"]),
        ..json(
            "zed",
            "Zed",
            &[FileLocation::DotConfig("zed/settings.json"), FileLocation::Project(".zed/settings.json")],
            TimeoutUnit::Seconds,
            ConnectEntry::Url,
        )
    },
    ClientFormat {
        id: "codex",
        name: "Codex",
        files: &[
            FileLocation::Variable("CODEX_HOME", ".codex", "config.toml"),
            FileLocation::Project(".codex/config.toml"),
        ],
        root: ServersKey::Under(&["mcp_servers"]),
        timeout: TimeoutUnit::Seconds,
        entry: ConnectEntry::TomlUrl,
    },
    json(
        "gemini",
        "Gemini CLI",
        &[FileLocation::Home(".gemini/settings.json"), FileLocation::Project(".gemini/settings.json")],
        TimeoutUnit::Millis,
        ConnectEntry::Url,
    ),
    json(
        "copilot",
        "Copilot CLI",
        &[FileLocation::Home(".copilot/mcp-config.json"), FileLocation::Project(".github/mcp.json")],
        TimeoutUnit::Unknown,
        ConnectEntry::TypeHttp,
    ),
    ClientFormat {
        root: ServersKey::Under(&["mcp"]),
        ..json(
            "opencode",
            "opencode",
            &[
                FileLocation::DotConfig("opencode/opencode.json"),
                FileLocation::DotConfig("opencode/opencode.jsonc"),
                FileLocation::Project("opencode.json"),
                FileLocation::Project("opencode.jsonc"),
            ],
            TimeoutUnit::Millis,
            ConnectEntry::TypeRemote,
        )
    },
    ClientFormat {
        id: "goose",
        name: "Goose",
        files: &[FileLocation::DotConfig("goose/config.yaml")],
        root: ServersKey::Under(&["extensions"]),
        timeout: TimeoutUnit::Seconds,
        entry: ConnectEntry::Goose,
    },
    ClientFormat {
        id: "hermes",
        name: "Hermes",
        files: &[FileLocation::Variable("HERMES_HOME", ".hermes", "config.yaml")],
        root: ServersKey::Under(&["mcp_servers"]),
        timeout: TimeoutUnit::Seconds,
        entry: ConnectEntry::YamlUrl,
    },
    json(
        "cline",
        "Cline",
        &[
            FileLocation::Home(".cline/data/settings/cline_mcp_settings.json"),
            FileLocation::App(
                "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ),
        ],
        TimeoutUnit::Seconds,
        ConnectEntry::TypeStreamableHttp,
    ),
    json(
        "kiro",
        "Kiro",
        &[FileLocation::Home(".kiro/settings/mcp.json"), FileLocation::Project(".kiro/settings/mcp.json")],
        TimeoutUnit::Unknown,
        ConnectEntry::Url,
    ),
    ClientFormat {
        id: "continue",
        name: "Continue",
        files: &[FileLocation::Home(".continue/config.yaml")],
        root: ServersKey::List("mcpServers"),
        timeout: TimeoutUnit::Unknown,
        entry: ConnectEntry::ListedYaml,
    },
    json(
        "lmstudio",
        "LM Studio",
        &[FileLocation::Home(".lmstudio/mcp.json")],
        TimeoutUnit::Unknown,
        ConnectEntry::Url,
    ),
    json(
        "factory",
        "Factory",
        &[FileLocation::Home(".factory/mcp.json")],
        TimeoutUnit::Unknown,
        ConnectEntry::TypeHttp,
    ),
    json("kimi", "Kimi", &[FileLocation::Home(".kimi/mcp.json")], TimeoutUnit::Unknown, ConnectEntry::Url),
    json(
        "antigravity",
        "Antigravity",
        &[FileLocation::Home(".gemini/antigravity/mcp_config.json")],
        TimeoutUnit::Unknown,
        ConnectEntry::ServerUrl,
    ),
    json("trae", "Trae", &[FileLocation::App("Trae/User/mcp.json")], TimeoutUnit::Unknown, ConnectEntry::Url),
    json(
        "inspector",
        "MCP Inspector",
        &[FileLocation::Home(".mcp-inspector/mcp.json")],
        TimeoutUnit::Millis,
        ConnectEntry::TypeHttp,
    ),
    ClientFormat {
        root: ServersKey::Under(&["amp.mcpServers"]),
        ..json(
            "amp",
            "Amp",
            &[FileLocation::DotConfig("amp/settings.json")],
            TimeoutUnit::Unknown,
            ConnectEntry::Url,
        )
    },
    ClientFormat {
        id: "vibe",
        name: "Mistral Vibe",
        files: &[FileLocation::Home(".vibe/config.toml")],
        root: ServersKey::List("mcp_servers"),
        timeout: TimeoutUnit::Unknown,
        entry: ConnectEntry::ListedToml,
    },
];

/// Format of a file whose client is unknown: the one that most clients share.
pub(crate) const UNKNOWN: ClientFormat =
    json("file", "MCP client", &[], TimeoutUnit::Unknown, ConnectEntry::Url);

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
        match gripfast::config::suggest::nearest(typed, ids()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known clients are {}", ids().collect::<Vec<_>>().join(", ")),
        }
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

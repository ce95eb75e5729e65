//! The MCP clients whose configs are known: where they are, where the servers are in them, and how they differ.

use gripfast::config::{Lookup, Tree};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    /// What is typed.
    pub(crate) id: &'static str,
    /// What it is called.
    pub(crate) name: &'static str,
    /// Its files, of which it reads those that exist; the first is the one that is written to.
    pub(crate) files: &'static [Place],
    /// Where its servers are.
    pub(crate) root: Root,
    /// In what its `timeout` counts.
    pub(crate) timeout: Unit,
    /// How it can be pointed at gripfast.
    pub(crate) entry: Entry,
}

/// Where a file is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// In the home directory.
    Home(&'static str),
    /// Where the platform keeps the configs of applications.
    App(&'static str),
    /// In `~/.config`, on every platform but Windows, where it is the first piece under the applications'.
    Dotted(&'static str),
    /// In the directory that a variable names, or else in the home directory.
    Variable(&'static str, &'static str, &'static str),
    /// In the current directory. Never written to.
    Project(&'static str),
}

/// Where the servers are in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    /// A table of servers under these keys, one in the other.
    Under(&'static [&'static str]),
    /// The same, and one for each project directory under `projects`.
    AndProjects(&'static str),
    /// A list of servers, each with its `name`.
    List(&'static str),
}

/// What a bare number in `timeout` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Millis,
    Seconds,
    /// The client has no such key.
    Unknown,
}

/// What a client needs to be told to use gripfast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
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
    /// It only starts commands: `{"command": "gripfast", "args": ["stdio"]}`
    Command,
    /// A table of TOML with a `url`.
    TomlUrl,
    /// A table of a list of TOML, with its `name`.
    ListedToml,
    /// Goose's words in YAML, which call the address `uri`.
    Goose,
    /// A table of YAML with a `url`.
    YamlUrl,
    /// An item of a list of YAML, with its `name`.
    ListedYaml,
}

const fn json(
    id: &'static str,
    name: &'static str,
    files: &'static [Place],
    timeout: Unit,
    entry: Entry,
) -> Client {
    Client { id, name, files, root: Root::Under(&["mcpServers"]), timeout, entry }
}

/// All of them.
pub(crate) const CLIENTS: &[Client] = &[
    json(
        "claude-desktop",
        "Claude Desktop",
        &[Place::App("Claude/claude_desktop_config.json")],
        Unit::Unknown,
        Entry::Command,
    ),
    Client {
        root: Root::AndProjects("mcpServers"),
        ..json(
            "claude-code",
            "Claude Code",
            &[Place::Home(".claude.json"), Place::Project(".mcp.json")],
            Unit::Millis,
            Entry::TypeHttp,
        )
    },
    Client {
        root: Root::Under(&["servers"]),
        ..json(
            "vscode",
            "VS Code",
            &[Place::App("Code/User/mcp.json"), Place::Project(".vscode/mcp.json")],
            Unit::Unknown,
            Entry::TypeHttp,
        )
    },
    json(
        "cursor",
        "Cursor",
        &[Place::Home(".cursor/mcp.json"), Place::Project(".cursor/mcp.json")],
        Unit::Unknown,
        Entry::Url,
    ),
    json(
        "windsurf",
        "Windsurf",
        &[Place::Home(".codeium/windsurf/mcp_config.json"), Place::Home(".codeium/mcp_config.json")],
        Unit::Unknown,
        Entry::ServerUrl,
    ),
    Client {
        root: Root::Under(&["context_servers"]),
        ..json(
            "zed",
            "Zed",
            &[Place::Dotted("zed/settings.json"), Place::Project(".zed/settings.json")],
            Unit::Seconds,
            Entry::Url,
        )
    },
    Client {
        id: "codex",
        name: "Codex",
        files: &[
            Place::Variable("CODEX_HOME", ".codex", "config.toml"),
            Place::Project(".codex/config.toml"),
        ],
        root: Root::Under(&["mcp_servers"]),
        timeout: Unit::Seconds,
        entry: Entry::TomlUrl,
    },
    json(
        "gemini",
        "Gemini CLI",
        &[Place::Home(".gemini/settings.json"), Place::Project(".gemini/settings.json")],
        Unit::Millis,
        Entry::Url,
    ),
    json(
        "copilot",
        "Copilot CLI",
        &[Place::Home(".copilot/mcp-config.json"), Place::Project(".github/mcp.json")],
        Unit::Unknown,
        Entry::TypeHttp,
    ),
    Client {
        root: Root::Under(&["mcp"]),
        ..json(
            "opencode",
            "opencode",
            &[
                Place::Dotted("opencode/opencode.json"),
                Place::Dotted("opencode/opencode.jsonc"),
                Place::Project("opencode.json"),
                Place::Project("opencode.jsonc"),
            ],
            Unit::Millis,
            Entry::TypeRemote,
        )
    },
    Client {
        id: "goose",
        name: "Goose",
        files: &[Place::Dotted("goose/config.yaml")],
        root: Root::Under(&["extensions"]),
        timeout: Unit::Seconds,
        entry: Entry::Goose,
    },
    Client {
        id: "hermes",
        name: "Hermes",
        files: &[Place::Variable("HERMES_HOME", ".hermes", "config.yaml")],
        root: Root::Under(&["mcp_servers"]),
        timeout: Unit::Seconds,
        entry: Entry::YamlUrl,
    },
    json(
        "cline",
        "Cline",
        &[
            Place::Home(".cline/data/settings/cline_mcp_settings.json"),
            Place::App("Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
        ],
        Unit::Seconds,
        Entry::TypeStreamableHttp,
    ),
    json(
        "kiro",
        "Kiro",
        &[Place::Home(".kiro/settings/mcp.json"), Place::Project(".kiro/settings/mcp.json")],
        Unit::Unknown,
        Entry::Url,
    ),
    Client {
        id: "continue",
        name: "Continue",
        files: &[Place::Home(".continue/config.yaml")],
        root: Root::List("mcpServers"),
        timeout: Unit::Unknown,
        entry: Entry::ListedYaml,
    },
    json("lmstudio", "LM Studio", &[Place::Home(".lmstudio/mcp.json")], Unit::Unknown, Entry::Url),
    json("factory", "Factory", &[Place::Home(".factory/mcp.json")], Unit::Unknown, Entry::TypeHttp),
    json("kimi", "Kimi", &[Place::Home(".kimi/mcp.json")], Unit::Unknown, Entry::Url),
    json(
        "antigravity",
        "Antigravity",
        &[Place::Home(".gemini/antigravity/mcp_config.json")],
        Unit::Unknown,
        Entry::ServerUrl,
    ),
    json("trae", "Trae", &[Place::App("Trae/User/mcp.json")], Unit::Unknown, Entry::Url),
    json(
        "inspector",
        "MCP Inspector",
        &[Place::Home(".mcp-inspector/mcp.json")],
        Unit::Millis,
        Entry::TypeHttp,
    ),
    Client {
        root: Root::Under(&["amp.mcpServers"]),
        ..json("amp", "Amp", &[Place::Dotted("amp/settings.json")], Unit::Unknown, Entry::Url)
    },
    Client {
        id: "vibe",
        name: "Mistral Vibe",
        files: &[Place::Home(".vibe/config.toml")],
        root: Root::List("mcp_servers"),
        timeout: Unit::Unknown,
        entry: Entry::ListedToml,
    },
];

/// A file whose client is not known, with the form that most clients share.
pub(crate) const UNKNOWN: Client = json("file", "MCP client", &[], Unit::Unknown, Entry::Url);

/// The client whose form a file has: by its path, or else by the key under which its servers are.
pub(crate) fn recognised(path: &Path, tree: &Tree) -> &'static Client {
    let file_name = |place: &Place| Path::new(place.rest()).file_name().map(ToOwned::to_owned);
    let has_file = |client: &Client, wanted: Option<&OsStr>| {
        client.files.iter().any(|place| file_name(place).as_deref() == wanted)
    };
    // `claude_desktop_config.json` is Claude Desktop's wherever it is, and `mcp.json` may be anybody's.
    let is_telling = CLIENTS.iter().filter(|client| has_file(client, path.file_name())).count() == 1;
    let is_of = |client: &&Client| {
        let by_path = client.files.iter().any(|place| path.ends_with(place.rest()));
        by_path || (is_telling && has_file(client, path.file_name()))
    };
    let has_root = |client: &&Client| match client.root {
        Root::Under(keys) => {
            matches!(keys.iter().try_fold(tree, |tree, key| tree.get(key)), Some(Tree::Table(_)))
        }
        Root::AndProjects(key) => tree.get(key).is_some() || tree.get("projects").is_some(),
        Root::List(key) => matches!(tree.get(key), Some(Tree::List(_))),
    };
    let is_list = |client: &&Client| matches!(client.root, Root::List(_));
    let known = CLIENTS.iter().find(|client| is_of(client) && has_root(client));
    let listed = || CLIENTS.iter().find(|client| is_list(client) && has_root(client));
    let by_key = || {
        let others = |client: &&Client| client.root != UNKNOWN.root && !is_list(client) && has_root(client);
        CLIENTS.iter().find(|client| others(client) && client.id != "claude-code")
    };
    known.or_else(listed).or_else(by_key).unwrap_or(&UNKNOWN)
}

/// The client that is typed like this.
pub(crate) fn named(typed: &str) -> Result<&'static Client, String> {
    let ids = || CLIENTS.iter().map(|client| client.id);
    CLIENTS.iter().find(|client| client.id == typed).ok_or_else(|| {
        match gripfast::config::suggest::nearest(typed, ids()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known are {}", ids().collect::<Vec<_>>().join(", ")),
        }
    })
}

impl Place {
    /// The path on this machine; `None` without a home.
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
            Self::App(rest) | Self::Dotted(rest) if cfg!(windows) => roaming()?.join(rest),
            Self::App(rest) | Self::Dotted(rest) => dotted()?.join(rest),
            Self::Variable(name, directory, file) => {
                match lookup.variable(name).filter(|set| !set.is_empty()) {
                    Some(set) => Path::new(&set).join(file),
                    None => home()?.join(directory).join(file),
                }
            }
            Self::Project(rest) => Path::new(".").join(rest),
        })
    }

    /// The end of the path, by which a copy of the file elsewhere is recognised.
    fn rest(self) -> &'static str {
        match self {
            Self::Home(rest) | Self::App(rest) | Self::Dotted(rest) | Self::Project(rest) => rest,
            Self::Variable(_, _, file) => file,
        }
    }

    /// Whether the file comes with the current directory. Somebody else may have put it there.
    pub(crate) fn is_of_a_project(self) -> bool {
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
            assert!(!client.files[0].is_of_a_project(), "{}: a project's file is not written to", client.id);
        }
        assert_eq!(named("cursr").unwrap_err(), "did you mean `cursor`?");
    }

    #[test]
    fn a_file_is_recognised_by_its_path_or_by_where_its_servers_are() {
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
            assert_eq!(recognised(path.as_ref(), &tree).id, id, "{path}: {text}");
        }
    }
}

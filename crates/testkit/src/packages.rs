//! Programs from package registries, run as users run them: stdio servers that a config starts, and the Inspector,
//! which is a client.
//!
//! `cargo xtask test` installs them under `target/peers`, in the versions that `crates/testkit/peers` pins.

use std::fmt;
use std::path::PathBuf;

use crate::peers::{PeerCommand, is_in_path, is_usable, peers_dir, python};

/// A third-party program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Package {
    /// npm `@modelcontextprotocol/server-filesystem DIR…`, on the TypeScript SDK v1.
    Filesystem,
    /// npm `@modelcontextprotocol/server-memory`, on the TypeScript SDK v1. `MEMORY_FILE_PATH` is its storage file.
    Memory,
    /// PyPI `mcp-server-time`, on the Python SDK 2.x.
    Time,
    /// PyPI `mcp-server-git --repository DIR`, on the Python SDK 2.x.
    Git,
    /// PyPI `mcp-server-sqlite --db-path FILE`, on the Python SDK 1.x.
    Sqlite,
    /// npm `@modelcontextprotocol/inspector --cli …`, on its own Node if installed.
    Inspector,
    /// PyPI `schemathesis …`, which tests a web API with valid and invalid requests derived from its document.
    Schemathesis,
    /// PyPI `kubernetes-validate FILE…`, which checks resources against the schemas of Kubernetes.
    KubernetesValidate,
    /// npm `gpt-tokenizer`, by the script `count-tokens.mjs`.
    Tokenizer,
}

impl Package {
    /// True if the program is installed; a test returns early on `false`.
    ///
    /// # Panics
    ///
    /// If it is not installed and was not left out on purpose (`cargo xtask test --allow-missing`).
    #[must_use]
    pub fn require(self) -> bool {
        is_usable(self.name(), &self, || self.missing())
    }

    /// Name in messages and in `GRIPFAST_MISSING_PEERS`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Filesystem => "server-filesystem",
            Self::Memory => "server-memory",
            Self::Time => "mcp-server-time",
            Self::Git => "mcp-server-git",
            Self::Sqlite => "mcp-server-sqlite",
            Self::Inspector => "inspector",
            Self::Schemathesis => "schemathesis",
            Self::KubernetesValidate => "kubernetes-validate",
            Self::Tokenizer => "gpt-tokenizer",
        }
    }

    /// Command with these arguments.
    #[must_use]
    pub fn command<'a>(self, args: impl IntoIterator<Item = &'a str>) -> PeerCommand {
        let (program, first) = self.program();
        let args = first.into_iter().chain(args.into_iter().map(str::to_owned)).collect();
        let modules = |dir: &str| ("PEER_MODULES".to_owned(), peers_dir().join(dir).display().to_string());
        let env = match self {
            Self::Tokenizer => vec![modules("tokenizer")],
            _ => Vec::new(),
        };
        PeerCommand { program, args, env }
    }

    fn missing(self) -> Option<String> {
        let (program, args) = self.program();
        // For a script, check the script: its interpreter may come from PATH.
        let needed = match self {
            Self::Tokenizer => peers_dir().join("tokenizer/node_modules/gpt-tokenizer"),
            _ => args.first().map_or(program, PathBuf::from),
        };
        if !needed.exists() {
            return Some(format!("there is no {}", needed.display()));
        }
        let on_node = matches!(self, Self::Filesystem | Self::Memory | Self::Tokenizer);
        (on_node && !is_in_path("node")).then(|| "there is no `node` in PATH".to_owned())
    }

    /// Program and its leading arguments.
    fn program(self) -> (PathBuf, Vec<String>) {
        let script = |of: &str| vec![peers_dir().join(of).display().to_string()];
        let beside_python = |venv: &str| (python(venv).with_file_name(self.name()), Vec::new());
        match self {
            Self::Filesystem => (
                "node".into(),
                script("npm-servers/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"),
            ),
            Self::Memory => (
                "node".into(),
                script("npm-servers/node_modules/@modelcontextprotocol/server-memory/dist/index.js"),
            ),
            Self::Time | Self::Git => beside_python("py-servers"),
            Self::Sqlite => beside_python("py-sqlite"),
            Self::Tokenizer => {
                let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/count-tokens.mjs");
                ("node".into(), vec![script.to_owned()])
            }
            Self::Schemathesis => beside_python("py-schemathesis"),
            Self::KubernetesValidate => beside_python("py-kubernetes"),
            Self::Inspector => {
                let mut args = script(
                    "inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js",
                );
                args.push("--cli".to_owned());
                let own = peers_dir().join("inspector/node_modules/.bin/node");
                (if own.exists() { own } else { "node".into() }, args)
            }
        }
    }
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// Runs each program with `--help`, which loads all of its packages.
    #[test]
    fn each_package_can_be_started() {
        let packages = [
            Package::Time,
            Package::Git,
            Package::Sqlite,
            Package::Inspector,
            Package::Schemathesis,
            Package::KubernetesValidate,
        ];
        for package in packages.into_iter().filter(|package| package.require()) {
            let mut command = package.command(["--help"]).to_command();
            let said = command.stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&said.stdout);
            assert!(said.to_lowercase().contains("usage: "), "{package}: {said}");
        }
    }

    /// Servers that take a directory and exit when their input ends.
    #[test]
    fn each_package_on_node_can_be_started() {
        for package in [Package::Filesystem, Package::Memory].into_iter().filter(|package| package.require())
        {
            let mut command = package.command([env!("CARGO_MANIFEST_DIR")]).to_command();
            let said = command.stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&said.stderr);
            assert!(said.contains("running on stdio"), "{package}: {said}");
        }
    }
}

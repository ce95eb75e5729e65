//! What a person who writes a config meets: every mistake and its message, every format and its meaning.

mod equivalence;
mod file_errors;
mod finding;
mod foreign;
mod foreign_errors;
mod robustness;
mod secrets;
mod server_errors;
mod supervision_errors;
mod syntax_errors;
mod target_errors;
mod template_errors;
mod templates;

use gripfast::config::{Config, Diagnostic, Lookup, ServerSpec};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

const TOML: &str = "gripfast.toml";
const JSON: &str = "mcp.json";
const YAML: &str = "config.yaml";

/// Everything that is said about a config, as `gripfast check` shows it.
fn report(file: &str, text: &str) -> String {
    match Config::parse(text, Path::new(file)) {
        Ok(config) => config.diagnostics().map(Diagnostic::render).collect::<Vec<_>>().join("\n\n"),
        Err(error) => error.to_string(),
    }
}

/// A config that is fine as a whole.
fn parse(file: &str, text: &str) -> Config {
    Config::parse(text, Path::new(file)).unwrap_or_else(|error| panic!("{error}"))
}

/// The spec of the only server of a config without mistakes. Warnings are fine.
fn only_server(file: &str, text: &str) -> ServerSpec {
    let config = parse(file, text);
    let [server] = config.servers.as_slice() else { panic!("{:?}", config.servers) };
    server.spec.clone().unwrap_or_else(|_| panic!("{}", report(file, text)))
}

/// An environment of a test's own making.
#[derive(Default)]
struct World {
    variables: HashMap<&'static str, OsString>,
    files: HashMap<PathBuf, String>,
}

impl World {
    fn with_variable(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.insert(name, value.into());
        self
    }

    fn with_file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(PathBuf::from(path), text.to_owned());
        self
    }
}

impl Lookup for World {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(name).cloned()
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

//! Config files as users write them: every error with its message, every format with its meaning.

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

/// All messages about a config, as `gripfast check` shows them.
fn report(file: &str, text: &str) -> String {
    match Config::parse(text, Path::new(file)) {
        Ok(config) => config.diagnostics().map(Diagnostic::render).collect::<Vec<_>>().join("\n\n"),
        Err(error) => error.to_string(),
    }
}

/// Parses a config without errors.
fn parse(file: &str, text: &str) -> Config {
    Config::parse(text, Path::new(file)).unwrap_or_else(|error| panic!("{error}"))
}

/// Spec of the only server in a config without errors. Warnings are allowed.
fn only_server(file: &str, text: &str) -> ServerSpec {
    let config = parse(file, text);
    let [server] = config.servers.as_slice() else { panic!("{:?}", config.servers) };
    server.spec.clone().unwrap_or_else(|_| panic!("{}", report(file, text)))
}

/// Environment variables and files of a test.
#[derive(Default)]
struct TestLookup {
    variables: HashMap<&'static str, OsString>,
    files: HashMap<PathBuf, String>,
}

impl TestLookup {
    fn with_variable(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.insert(name, value.into());
        self
    }

    fn with_file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(PathBuf::from(path), text.to_owned());
        self
    }
}

impl Lookup for TestLookup {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(name).cloned()
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

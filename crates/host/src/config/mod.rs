//! Configuration: finds the file, reads it in one of three formats, and turns it into checked specs.
//!
//! [`Config::find`] chooses the file, [`Config::load`] reads it, a parser per format turns it into one tree with
//! positions, and the decoder turns the tree into a [`Config`]. Nothing is started or looked up in the process:
//! references to variables and files stay [`Template`]s until a server is connected. A mistake in the file as a whole
//! is a [`ConfigError`]; a mistake inside one server's table is kept in its [`ServerEntry`] and does not affect the
//! other servers.

mod decode;
mod defaults;
mod diagnostic;
mod dropped_variables;
mod effective;
mod fields;
mod formats;
mod keys;
mod launcher;
mod load;
mod lookup;
mod node;
mod program;
mod redact;
mod sections;
pub mod suggest;
mod template;
mod tree;
mod units;
mod variables;

pub use crate::cache::{CacheLimits, CacheSpec};
pub use crate::config::dropped_variables::dropped_variables;
pub use crate::pins::PinMode;
pub use diagnostic::{Diagnostic, Severity};
pub use effective::{Setting, SettingFrom};
pub use gripfast_core::isolation::Isolation;
pub use keys::{manual, schema};
pub use launcher::{command_hint, command_line};
pub use load::{ConfigError, ConfigFile, ConfigOrigin, ConfigText, SearchPaths};
pub use lookup::{Lookup, ProcessEnvironment};
pub use node::Position;
pub use redact::redact_value;
pub(crate) use sections::is_loopback;
pub use sections::{
    AccessConfig, Argument, ClientLimits, ClusterConfig, EmbeddingsConfig, EndpointError, GatewayConfig,
    Grant, Jwks, JwtConfig, ListenerTls, LogFormat, LoginKey, OAuthSpec, Placement, ProtocolChoice,
    ReplayRules, RestoreCall, SearchConfig, ServerSpec, StoreLoss, Target, TlsSpec, TokenTypes, UrlTransport,
    endpoint, is_confidential,
};
pub use template::{ExpandError, Expanded, Reference, Template, TemplateError};
pub use tree::Tree;
pub use units::parse_duration;

use crate::call::BudgetSpec;
use crate::policy::ClientPolicy;
use diagnostic::Source;
use effective::FileSettings;
use formats::Format;
use std::path::Path;

/// A decoded config file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    /// The gateway's own settings.
    pub gateway: GatewayConfig,
    /// The servers in the order of the file, which decides who keeps a public name when two collide.
    pub servers: Vec<ServerEntry>,
    /// Access rules for clients: the tables `clients.NAME`, where the name may be a pattern. Each has the keys
    /// `tools`, `resources` and `prompts` as a server has, with entries of the form `SERVER/NAME`. If several tables
    /// match a client, each of them must allow the access. Without client authentication every program on this
    /// machine is the client `local`.
    pub clients: Vec<ClientPolicy>,
    /// Call budgets: the tables `budgets.NAME`, with `client`, `server` and `tool` (patterns, by default `*`), `per`
    /// (which of `client`, `server`, `tool` have separate counters; by default none), `calls` within `within`,
    /// `window` (`sliding` by default, or `fixed`), and `in_flight`.
    pub budgets: Vec<BudgetSpec>,
    /// The service that the gateway belongs to; `None` if it runs alone.
    pub cluster: Option<ClusterConfig>,
    /// Findings that stop nothing.
    pub warnings: Vec<Diagnostic>,
    file_settings: FileSettings,
}

/// One server of a config: its spec, or the mistakes in its table.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerEntry {
    /// Its name in the file. Valid only if `spec` is `Ok`.
    pub name: String,
    /// The checked spec, or everything that is wrong with the table.
    pub spec: Result<ServerSpec, Vec<Diagnostic>>,
    /// Position of its key in the file.
    pub position: Position,
}

impl Config {
    /// Decodes a text. `path` gives the format by its extension and the file name for diagnostics; nothing is read
    /// from it.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] when the file as a whole cannot be used.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let format = Format::of(path, text);
        let root = match format.parse(text) {
            Ok(root) => root.map(|root| defaults::apply(root, decode::roots(format))),
            Err(error) => {
                let mut diagnostic = Diagnostic::error("", error.at, error.message);
                diagnostic.hint = error.hint;
                Source::new(path, text, None).complete(&mut diagnostic);
                return Err(ConfigError::Invalid { diagnostics: vec![diagnostic] });
            }
        };
        let source = Source::new(path, text, root.as_ref().map(redact::secrets));
        match decode::config(root.as_ref(), format) {
            Ok(mut config) => {
                config.file_settings = FileSettings::from_tree(root.as_ref());
                config.diagnostics_mut().for_each(|diagnostic| source.complete(diagnostic));
                Ok(config)
            }
            Err(mut diagnostics) => {
                diagnostics.iter_mut().for_each(|diagnostic| source.complete(diagnostic));
                Err(ConfigError::Invalid { diagnostics })
            }
        }
    }

    /// All findings about this config, those of single servers included.
    pub fn diagnostics(&self) -> impl Iterator<Item = &Diagnostic> {
        let of_servers = self.servers.iter().filter_map(|server| server.spec.as_ref().err()).flatten();
        self.warnings.iter().chain(of_servers)
    }

    fn diagnostics_mut(&mut self) -> impl Iterator<Item = &mut Diagnostic> {
        let of_servers = self.servers.iter_mut().filter_map(|server| server.spec.as_mut().err()).flatten();
        self.warnings.iter_mut().chain(of_servers)
    }
}

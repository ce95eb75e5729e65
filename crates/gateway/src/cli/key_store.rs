//! The API keys that a command uses: those of the state directory, or those of the service that the config names.

use super::args::GlobalArgs;
use super::error::FailureReport;
use super::exit::Exit;
use super::{config, local_host, shared_tables};
use gripfast_gateway::auth::keys::{self, Key, KeyError};
use gripfast_gateway::cluster::SharedTables;
use gripfast_gateway::cluster::shared_tables::TableError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Place of the keys.
pub(crate) struct KeyStore {
    directory: PathBuf,
    service: Option<(Runtime, Arc<SharedTables>)>,
}

impl KeyStore {
    /// Opens the keys. `None` if there is no state directory.
    pub(crate) fn open(global: &GlobalArgs) -> Result<Option<Self>, FailureReport> {
        let Some(directory) = config::gateway_state_dir(global)? else { return Ok(None) };
        let has_service = config::load_optional(global)?.is_some_and(|config| config.cluster.is_some());
        let service = if has_service {
            let runtime = local_host::runtime()?;
            let tables = runtime.block_on(shared_tables::connect(global))?;
            tables.map(|tables| (runtime, tables))
        } else {
            None
        };
        Ok(Some(Self { directory, service }))
    }

    /// The state directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// True if the keys are those of a service of several replicas.
    pub(crate) fn is_shared(&self) -> bool {
        self.service.is_some()
    }

    /// Creates a key.
    pub(crate) fn add(&self, name: &str, lifetime: Option<Duration>) -> Result<String, KeyError> {
        let Some((runtime, tables)) = &self.service else {
            return keys::add_with_lifetime(&self.directory, name, lifetime);
        };
        let attempt = async || keys::add_shared(tables, name, lifetime).await;
        runtime.block_on(shared_tables::change_key(attempt))
    }

    /// Removes a key. Returns true if there was one.
    pub(crate) fn remove(&self, name: &str) -> Result<bool, FailureReport> {
        let Some((runtime, tables)) = &self.service else {
            return keys::remove(&self.directory, name).map_err(|error| self.unusable(&error));
        };
        let attempt = async || keys::remove_shared(tables, name).await;
        runtime.block_on(shared_tables::change_key(attempt)).map_err(|error| match &error {
            KeyError::Shared(error) => not_changed(error),
            KeyError::BadName(_) | KeyError::NameTaken(_) | KeyError::TooMany | KeyError::Io(_) => {
                FailureReport::new(Exit::General, error.to_string())
            }
        })
    }

    /// All keys, in the order of their creation.
    pub(crate) fn list(&self) -> Result<Vec<Key>, FailureReport> {
        match &self.service {
            Some((_, tables)) => Ok(keys::list_shared(tables, Some(&self.directory))),
            None => keys::list(&self.directory).map_err(|error| self.unusable(&error)),
        }
    }

    /// The name of this key, if it is known here.
    pub(crate) fn name_of(&self, key: &str) -> Option<String> {
        match &self.service {
            Some((_, tables)) => keys::name_of_shared(tables, key),
            None => keys::name_of(&self.directory, key).ok().flatten(),
        }
    }

    /// The report of a key file that cannot be used.
    pub(crate) fn unusable(&self, cause: &std::io::Error) -> FailureReport {
        let path = self.directory.join(keys::KEYS_FILE);
        FailureReport::new(Exit::General, format!("`{}` cannot be used: {cause}", path.display()))
            .with_hint("`--state-dir` names another directory")
    }
}

/// The report of a change that the service did not make.
pub(crate) fn not_changed(error: &TableError) -> FailureReport {
    FailureReport::new(Exit::Unreachable, format!("the keys of the service are not changed: {error}"))
        .with_hint(error.hint())
}

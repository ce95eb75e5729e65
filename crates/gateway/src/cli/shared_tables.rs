//! Shared tables for commands: a command on the machine of a replica changes them in the store itself.

use super::args::GlobalArgs;
use super::error::FailureReport;
use super::exit::Exit;
use super::{config, local_host};
use gripfast::config::{Config, ProcessEnvironment};
use gripfast_gateway::auth::keys::KeyError;
use gripfast_gateway::cluster::shared_tables::TableError;
use gripfast_gateway::cluster::{ClusterSettings, SharedTables};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time to wait until the replicas have reported to a store that is new or was away.
const GRACE_TIMEOUT: Duration = Duration::from_secs(20);

/// The service of a config, if it has one, and its tables with the copies in a state directory.
pub(crate) fn open(
    config: &Config,
    state_dir: Option<&Path>,
) -> Result<Option<(ClusterSettings, Arc<SharedTables>)>, FailureReport> {
    let Some(cluster) = &config.cluster else { return Ok(None) };
    let settings = ClusterSettings::from_config(cluster, config.shared_digest(), &ProcessEnvironment);
    let opened = settings.and_then(|settings| {
        let tables = SharedTables::open(&settings, state_dir)?;
        Ok((settings, tables))
    });
    opened
        .map(Some)
        .map_err(|error| FailureReport::new(Exit::ConfigInvalid, error.to_string()).with_hint(error.hint()))
}

/// The tables of the service of this config, for a command whose own work may need them. Without the store it uses the
/// copies of the replica on this machine, and changes nothing. `None` if the config has no service.
pub(crate) fn for_command(
    config: &Config,
    state_dir: Option<&Path>,
) -> Result<Option<Arc<SharedTables>>, FailureReport> {
    let Some((_, tables)) = open(config, state_dir)? else { return Ok(None) };
    // A replica on this machine writes the copies.
    let tables = SharedTables::read_only(tables);
    if let Err(error) = local_host::runtime()?.block_on(tables.connect()) {
        tables.block(&error.to_string());
    }
    Ok(Some(tables))
}

/// The tables of the service of this config, read from the store. `None` if the config has no service.
pub(crate) async fn connect(global: &GlobalArgs) -> Result<Option<Arc<SharedTables>>, FailureReport> {
    let Some(config) = config::load_optional(global)? else { return Ok(None) };
    // The copies are those of the replica: a command writes none.
    let Some((_, tables)) = open(&config, None)? else { return Ok(None) };
    tables.connect().await.map_err(|error| {
        FailureReport::new(Exit::Unreachable, format!("the tables of the service cannot be read: {error}"))
            .with_hint("start the store, or correct the table `cluster`; `gripfast doctor` checks it")
    })?;
    Ok(Some(tables))
}

/// Changes a key, and waits while the store refuses changes because it is new or was away.
pub(crate) async fn change_key<T>(
    mut attempt: impl AsyncFnMut() -> Result<T, KeyError>,
) -> Result<T, KeyError> {
    let started = tokio::time::Instant::now();
    loop {
        match attempt().await {
            Err(KeyError::Shared(TableError::Grace(left))) if started.elapsed() + left <= GRACE_TIMEOUT => {
                tokio::time::sleep(left).await;
            }
            result => return result,
        }
    }
}

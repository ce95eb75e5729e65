//! Status answers of a gateway. A gateway of another version may send more or fewer fields: unknown fields are skipped,
//! missing ones have defaults.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// All servers of a gateway, and the gateway's own state.
#[derive(Debug, Deserialize)]
pub(crate) struct FleetModel {
    pub(super) version: String,
    pub(super) uptime_ms: u64,
    pub(super) upstreams: Vec<ServerModel>,
    #[serde(default)]
    pub(super) ledger: LedgerModel,
    #[serde(default)]
    pub(super) config: Option<WatchedFile>,
    #[serde(default)]
    pub(super) tls: Option<WatchedFile>,
    /// Damaged files that have been replaced.
    #[serde(default)]
    pub(super) set_aside: Vec<String>,
}

/// A file that the gateway reloads when it changes: its config, or the certificate of its listener.
#[derive(Debug, Deserialize)]
pub(crate) struct WatchedFile {
    /// The absolute path of a config.
    #[serde(default)]
    path: Option<PathBuf>,
    /// The reason for which the present content is not in use.
    #[serde(default)]
    pub(super) error: Option<String>,
}

/// The state of the call ledger.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct LedgerModel {
    /// The reason for which it cannot be written at present.
    #[serde(default)]
    pub(super) cause: Option<String>,
}

impl FleetModel {
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.upstreams.iter().map(|upstream| upstream.name.as_str())
    }

    /// The config file of the gateway, if it has one and reports it.
    pub(crate) fn config_path(&self) -> Option<&Path> {
        self.config.as_ref()?.path.as_deref()
    }

    pub(crate) fn upstreams(&self) -> &[ServerModel] {
        &self.upstreams
    }
}

/// One server.
#[derive(Debug, Deserialize)]
pub(crate) struct ServerModel {
    pub(crate) name: String,
    pub(super) state: String,
    #[serde(default)]
    pub(super) circuit: String,
    pub(super) cause: Option<String>,
    pub(super) next_attempt_ms: Option<u64>,
    pub(super) attempt: Option<AttemptModel>,
    pub(super) transport: Option<String>,
    pub(super) era: Option<String>,
    pub(super) protocol_version: Option<String>,
    pub(super) pid: Option<u32>,
    #[serde(default)]
    pub(super) tools: u64,
    #[serde(default)]
    pub(super) restarts: u64,
    #[serde(default)]
    pub(super) consecutive_failures: u64,
    #[serde(default)]
    pub(super) in_flight: u64,
    #[serde(default)]
    pub(super) calls: u64,
    #[serde(default)]
    pub(super) errors: u64,
    #[serde(default)]
    pub(super) tool_errors: u64,
    pub(super) last_ok_ms: Option<u64>,
    pub(super) since_ms: Option<u64>,
    pub(super) hint: Option<String>,
    pub(super) url: Option<String>,
    pub(super) server_info: Option<String>,
    pub(super) session_age_ms: Option<u64>,
    pub(super) restored: Option<String>,
    #[serde(default)]
    pub(super) not_restored: Vec<String>,
    #[serde(default)]
    pub(super) restarts_in_window: u64,
    #[serde(default)]
    pub(super) waiting: u64,
    #[serde(default)]
    pub(super) replacing: bool,
    #[serde(default)]
    pub(super) outdated: bool,
    pub(super) spare: Option<String>,
    pub(super) p50_ms: Option<f64>,
    pub(super) p95_ms: Option<f64>,
    #[serde(default)]
    pub(super) instances: u64,
    #[serde(default)]
    pub(super) max_instances: u64,
    #[serde(default)]
    pub(super) instance_states: BTreeMap<String, u64>,
    pub(super) instance_cause: Option<String>,
    #[serde(default)]
    pub(super) renamed: Vec<RenamedModel>,
}

/// A connection attempt in progress.
#[derive(Debug, Deserialize)]
pub(crate) struct AttemptModel {
    /// The attempt as text.
    pub(super) text: String,
}

/// A tool that was renamed because of a name conflict.
#[derive(Debug, Deserialize)]
pub(crate) struct RenamedModel {
    pub(super) wanted: String,
    pub(super) public: String,
}

/// One server with its recent events and stderr.
#[derive(Debug, Deserialize)]
pub(crate) struct DetailModel {
    #[serde(flatten)]
    pub(super) upstream: ServerModel,
    #[serde(default)]
    pub(super) events: Vec<EventModel>,
    #[serde(default)]
    pub(super) stderr: Vec<String>,
}

/// An event of a server.
#[derive(Debug, Deserialize)]
pub(crate) struct EventModel {
    /// Milliseconds since the Unix epoch.
    pub(super) at: u64,
    pub(super) kind: String,
    pub(super) text: String,
}

//! Status as a gateway tells it. A gateway of another version may say more or less: what is not known is
//! skipped, what is missing is taken for nothing.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The whole fleet.
#[derive(Debug, Deserialize)]
pub(crate) struct Fleet {
    pub(super) version: String,
    pub(super) uptime_ms: u64,
    pub(super) upstreams: Vec<Upstream>,
    #[serde(default)]
    pub(super) ledger: Ledger,
    #[serde(default)]
    pub(super) config: Option<Watched>,
    #[serde(default)]
    pub(super) tls: Option<Watched>,
    /// Damaged files that have been replaced.
    #[serde(default)]
    pub(super) set_aside: Vec<String>,
}

/// Files that the gateway goes by, and takes when they change: its config, the certificate of its listener.
#[derive(Debug, Deserialize)]
pub(crate) struct Watched {
    /// Of a config: its absolute path.
    #[serde(default)]
    path: Option<PathBuf>,
    /// Why what is in them at present is not what is in use.
    #[serde(default)]
    pub(super) error: Option<String>,
}

/// What the gateway notes down of calls.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Ledger {
    /// Why it cannot, at present.
    #[serde(default)]
    pub(super) cause: Option<String>,
}

impl Fleet {
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.upstreams.iter().map(|upstream| upstream.name.as_str())
    }

    /// The config file that the gateway uses, if it uses one and says so.
    pub(crate) fn config_path(&self) -> Option<&Path> {
        self.config.as_ref()?.path.as_deref()
    }

    pub(crate) fn upstreams(&self) -> &[Upstream] {
        &self.upstreams
    }
}

/// One server.
#[derive(Debug, Deserialize)]
pub(crate) struct Upstream {
    pub(crate) name: String,
    pub(super) state: String,
    #[serde(default)]
    pub(super) circuit: String,
    pub(super) cause: Option<String>,
    pub(super) next_attempt_ms: Option<u64>,
    pub(super) attempt: Option<Attempt>,
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
    pub(super) renamed: Vec<Renamed>,
}

/// An attempt to connect that is running.
#[derive(Debug, Deserialize)]
pub(crate) struct Attempt {
    /// The attempt in a sentence.
    pub(super) text: String,
}

/// A name that had to give way to an earlier server's.
#[derive(Debug, Deserialize)]
pub(crate) struct Renamed {
    pub(super) wanted: String,
    pub(super) public: String,
}

/// One server with its recent past.
#[derive(Debug, Deserialize)]
pub(crate) struct Detail {
    #[serde(flatten)]
    pub(super) upstream: Upstream,
    #[serde(default)]
    pub(super) events: Vec<Event>,
    #[serde(default)]
    pub(super) stderr: Vec<String>,
}

/// Something that happened to it.
#[derive(Debug, Deserialize)]
pub(crate) struct Event {
    /// Milliseconds since the Unix epoch.
    pub(super) at: u64,
    pub(super) kind: String,
    pub(super) text: String,
}

//! What happens to one upstream, as typed facts. Whoever watches turns them into log lines, metrics and
//! feeds; whoever emits them knows nothing about that.

use crate::supervise::status::State;
use std::time::Duration;

/// Something worth telling about one upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It is in another state than before.
    StateChanged {
        /// The state it left.
        from: State,
        /// The state it is in.
        to: State,
        /// Why, if it went wrong.
        cause: Option<String>,
    },
    /// An attempt to bring it back begins.
    Restarting {
        /// Restarts within the window, this one included.
        in_window: u32,
    },
    /// It is usable again after having been away.
    Revived {
        /// How long it was away.
        away: Duration,
    },
    /// Its session was replaced; the link stayed.
    SessionRenewed,
    /// Its credential was replaced; the link stayed.
    CredentialRenewed,
    /// Too many failures in a row: calls are refused for a while.
    CircuitOpened {
        /// The failures that did it.
        failures: u32,
        /// When a trial is let through.
        cooldown: Duration,
    },
    /// Calls flow again.
    CircuitClosed,
    /// A probe was not answered as it should be.
    ProbeFailed {
        /// What happened.
        cause: String,
    },
    /// The machine slept; the link is checked before it is trusted.
    Slept,
    /// Its catalog was listed, and differs from what was known.
    CatalogChanged {
        /// Items that are new.
        added: usize,
        /// Items that are gone.
        removed: usize,
        /// Items that read differently.
        changed: usize,
    },
    /// Its catalog could not be listed; it is tried again.
    CatalogFailed {
        /// What happened.
        cause: String,
    },
    /// Lines on its stdout that were not MCP.
    JunkSkipped {
        /// How many so far.
        lines: u64,
        /// The beginning of the last one.
        sample: String,
    },
}

impl Event {
    /// The word for this kind of event in logs, metrics and feeds.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::StateChanged { .. } => "state_changed",
            Self::Restarting { .. } => "restarting",
            Self::Revived { .. } => "revived",
            Self::SessionRenewed => "session_renewed",
            Self::CredentialRenewed => "credential_renewed",
            Self::CircuitOpened { .. } => "circuit_opened",
            Self::CircuitClosed => "circuit_closed",
            Self::ProbeFailed { .. } => "probe_failed",
            Self::Slept => "slept",
            Self::CatalogChanged { .. } => "catalog_changed",
            Self::CatalogFailed { .. } => "catalog_failed",
            Self::JunkSkipped { .. } => "junk_skipped",
        }
    }
}

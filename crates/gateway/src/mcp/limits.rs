//! The terms under which clients are served: how long they are waited for, and how much of everything one of
//! them, and all of them, may have.

use gripfast::config::{ClientLimits, GatewayConfig};
use std::time::Duration;

/// What the config says about clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// How long the first list waits for servers that were never listed.
    pub startup_wait: Duration,
    /// How long a legacy session lives without a request or an open stream.
    pub session_idle_timeout: Duration,
    /// How long everything may take once we are told to stop.
    pub shutdown_timeout: Duration,
    /// How much clients may have at a time.
    pub limits: ClientLimits,
    /// Whether clients are offered the tool `gripfast_status`.
    pub status_tool: bool,
}

impl From<&GatewayConfig> for Terms {
    fn from(config: &GatewayConfig) -> Self {
        Self {
            startup_wait: config.startup_wait,
            session_idle_timeout: config.session_idle_timeout,
            shutdown_timeout: config.shutdown_timeout,
            limits: config.limits,
            status_tool: config.status_tool,
        }
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self::from(&GatewayConfig::default())
    }
}

//! Timeouts and limits for clients, taken from the `gateway` table of the config.

use gripfast::config::{ClientLimits, GatewayConfig};
use std::time::Duration;

/// Timeouts and limits for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum wait of the first list request for servers that have never been listed.
    pub startup_wait: Duration,
    /// Lifetime of a legacy session without a request or an open stream.
    pub session_idle_timeout: Duration,
    /// Maximum duration of a shutdown.
    pub shutdown_timeout: Duration,
    /// Part of that time in which the gateway serves as before; `None` depends on the socket.
    pub drain_wait: Option<Duration>,
    /// Quotas per client and in total.
    pub client: ClientLimits,
    /// Offers the tool `gripfast_status` to clients.
    pub status_tool: bool,
}

impl From<&GatewayConfig> for Limits {
    fn from(config: &GatewayConfig) -> Self {
        Self {
            startup_wait: config.startup_wait,
            session_idle_timeout: config.session_idle_timeout,
            shutdown_timeout: config.shutdown_timeout,
            drain_wait: config.drain_wait,
            client: config.limits,
            status_tool: config.status_tool,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::from(&GatewayConfig::default())
    }
}

//! Shared parts of the programs that measure a gateway from outside, bench and chaos: processes, percentiles, goals,
//! tables, and the environment of a run. It shares no code with the gateway.

pub mod figure;
pub mod place;
#[cfg(unix)]
pub mod proc;
pub mod store;
pub mod table;
pub mod times;

use serde::Serialize;
use std::fmt;

/// A failure of the measurement itself, not a finding about a gateway.
#[derive(Debug)]
pub struct MeasureError(String);

impl MeasureError {
    /// Creates an error from the failed operation and its cause.
    pub fn new(what: &str, why: &dyn fmt::Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

impl fmt::Display for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MeasureError {}

impl From<std::io::Error> for MeasureError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Result of a measuring operation.
pub type Result<T> = std::result::Result<T, MeasureError>;

/// Protocol era of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Era {
    /// With `initialize` and a session.
    Legacy,
    /// Every request is self-contained.
    Modern,
}

impl Era {
    /// The newest protocol revision of the era.
    #[must_use]
    pub fn revision(self) -> &'static str {
        match self {
            Self::Legacy => "2025-11-25",
            Self::Modern => "2026-07-28",
        }
    }
}

/// A free port on loopback.
///
/// # Errors
/// The system has no free port.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

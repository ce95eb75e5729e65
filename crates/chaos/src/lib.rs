//! What `cargo xtask chaos` runs: real servers, broken in every way we know under a live gateway and a steady load,
//! and a count of what its clients lost.
//!
//! A [`fault`](fault::FAULTS) is a small value. [`row::run`] sets a scene for it on one transport (servers,
//! gateway, clients), lets it strike, waits until tools are back, and judges every call that anybody made: answered,
//! lost, unknown, hung, carried out twice. What is left behind when all is over is counted too.
//!
//! It is a stranger to the gateway's code: it knows its command line, its config and MCP, and nothing else, so that
//! any other gateway can be put in its place.
#![cfg(target_os = "linux")]

pub mod alone;
pub mod args;
pub mod attack;
pub mod client;
pub mod fault;
pub mod figure;
pub mod fleet;
pub mod gateway;
pub mod ledger;
pub mod load;
pub mod plan;
pub mod proc;
pub mod proxy;
pub mod renewal;
pub mod report;
pub mod row;
pub mod scene;
pub mod server;
pub mod soak;
pub mod stage;
mod strike;

use std::fmt;

/// Why a run cannot go on. Not a finding about the gateway: the harness itself is in trouble.
#[derive(Debug)]
pub struct Cannot(String);

impl Cannot {
    /// With what cannot be done, and why.
    pub fn because(what: &str, why: &dyn fmt::Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

impl fmt::Display for Cannot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cannot {}

impl From<std::io::Error> for Cannot {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// What a harness may be unable to do.
pub type Result<T> = std::result::Result<T, Cannot>;

/// A lock whose holder cannot leave it in a bad state.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

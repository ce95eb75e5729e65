//! Fault injection for gateways (`cargo xtask chaos`): breaks real servers behind a live gateway under a steady load,
//! and counts the calls that clients lose.
//!
//! A [`fault`](fault::FAULTS) is a value. [`row::run`] starts servers, gateway and clients for it on one transport,
//! applies it, waits until tools are back, and classifies every call: answered, lost, unknown, hung, executed twice.
//! It also counts the processes, files and memory that are left at the end.
//!
//! The crate shares no code with the gateway and uses only its command line, its config and MCP, so that any other
//! gateway can be tested in the same way.
#![cfg(target_os = "linux")]

pub mod args;
pub mod attack;
pub mod baseline;
pub mod client;
pub mod environment;
pub mod fault;
pub mod fault_setup;
pub mod figure;
pub mod gateway;
pub mod ledger;
pub mod load;
pub mod neighbours;
pub mod plan;
pub mod proxy;
pub mod renewal;
pub mod replicas;
pub mod report;
pub mod row;
pub mod server;
pub mod soak;
mod strike;

/// Locks a mutex and ignores poisoning: no holder leaves it in an invalid state.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

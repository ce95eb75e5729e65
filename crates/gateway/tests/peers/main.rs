//! Real MCP servers and clients, written by others. The library against servers: spoken to in each era that they
//! know, killed and restarted under a live host, and caught in the middle of a call. The gateway against clients, in
//! every mode and over every transport that each of them has; between them, all at once, the servers that people run.
//! And the sample server, on which other tests rely, against the same clients.
//!
//! They are those of `gripfast_testkit`; `cargo xtask test` installs them.

#![expect(clippy::unwrap_used, reason = "tests")]

mod clients;
mod gateway;
mod in_flight;
mod inspector;
mod relay;
mod restart;
mod sample_server;
mod scene;
mod servers;
mod session;
#[cfg(target_os = "linux")]
mod shared;
mod speak;

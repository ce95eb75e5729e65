//! Third-party MCP servers and clients. The library against servers: in each era that they support, killed and
//! restarted under a live host, also during a call. The gateway against clients, in every mode and over every
//! transport, and with popular servers behind it. The sample server, on which other tests rely, against the same
//! clients.
//!
//! `gripfast_testkit` defines them; `cargo xtask test` installs them.

#![expect(clippy::unwrap_used, reason = "tests")]

#[cfg(target_os = "linux")]
mod background_gateway;
mod clients;
mod eras;
mod gateway;
mod in_flight;
mod inspector;
mod lost_session;
mod peer_host;
mod relay;
mod restart;
mod sample_server;
mod search;
mod servers;

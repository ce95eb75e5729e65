//! The library against real MCP servers, written by others: spoken to in each era that they know, killed and
//! restarted under a live host, and caught in the middle of a call. And the other way round: the sample server
//! against the official clients.
//!
//! The servers are those of `gripfast_testkit::peers`; `cargo xtask test` installs them.

#![expect(clippy::unwrap_used, reason = "tests")]

mod in_flight;
mod relay;
mod restart;
mod sample_server;
mod scene;
mod session;
mod speak;

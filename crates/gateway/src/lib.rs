//! The gateway: one MCP endpoint, of both protocol eras, in front of all servers of a host.

#![warn(missing_docs)]

pub mod admin;
pub mod auth;
pub mod client_count;
mod connection_table;
mod connections;
#[cfg(unix)]
pub mod control_socket;
mod credential;
mod dashboard;
pub mod downstream;
mod file_stamp;
mod front;
mod memory;
pub mod metrics;
pub mod reload;
mod request_body;
mod request_framing;
mod request_limits;
pub mod server;
mod shares;
mod steady;
pub mod telemetry;
pub mod tls;
pub mod trust_list;

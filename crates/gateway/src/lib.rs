//! Gateway: one MCP endpoint for both protocol eras, in front of all servers of a host.

#![warn(missing_docs)]

pub mod api;
pub mod auth;
pub mod cluster;
mod dashboard;
mod file_stamp;
pub mod mcp;
pub mod metrics;
pub mod reload;
pub mod server;
pub mod telemetry;
pub mod trust_list;

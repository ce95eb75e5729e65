//! MCP endpoint with paused Tokio time, for timeouts of sessions. There is no socket; requests go straight to the
//! routes.

#![expect(clippy::unwrap_used, reason = "tests")]

mod memory_gateway;
mod sessions;

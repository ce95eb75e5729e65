//! Transports towards clients: Streamable HTTP in both eras, legacy HTTP+SSE, and stdio.

pub(crate) mod body;
pub(crate) mod channel;
pub(crate) mod chunks;
pub(crate) mod dropped_messages;
pub(crate) mod event_id;
pub(crate) mod http_sse;
pub(crate) mod origin_check;
pub(crate) mod replay_buffer;
pub(crate) mod stateless_http;
pub(crate) mod stdio;
#[cfg(unix)]
pub mod stdio_bridge;
pub(crate) mod streamable_http;

//! HTTP/1: what client and server share (framing of bodies, headers of the last head, the read buffer), and the
//! connections of a server.
//!
//! The server refuses a request that two readers could read differently, so that no proxy in front of it can be made to see
//! another request than it does.

mod body;
mod header_lines;
mod read_buffer;
pub mod server;

pub use body::{BodyReader, BodyStep, Chunks, Malformed};
pub use header_lines::{HeaderKind, HeaderLines};
pub use read_buffer::ReadBuffer;

//! HTTP/1: framing of bodies for both sides, and the connections of a server.
//!
//! A request or response that two readers could read differently is refused, so that no proxy in front of the gateway and
//! no server behind it can be made to see another message than the gateway does.

mod body;
mod header_lines;
mod read_buffer;
pub mod server;

pub use body::{BodyReader, BodyStep, Chunks, Malformed};
pub use header_lines::{HeaderKind, HeaderLines};
pub use read_buffer::ReadBuffer;

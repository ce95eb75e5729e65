//! MCP messages as bytes: parsing of the fields that a host needs, and patching of single fields without touching the
//! others. Covers both protocol eras; no IO, no clock, no runtime.
//!
//! The rule of this crate is that bytes stay bytes. A message is validated and read while it is borrowed; a change is a
//! splice into the original text. Members that a later protocol revision adds, the order of keys, the spelling of
//! numbers and the whitespace all survive, because nothing here rebuilds a message from a model.
//!
//! | module | content |
//! |---|---|
//! | [`envelope`] | kind, id and method of a JSON-RPC message |
//! | [`patch`] | changing members of an object in place |
//! | [`batch`] | splitting JSON-RPC arrays, and joining answers |
//! | [`sse`] | reading and writing server-sent events |
//! | [`era`] | protocol versions, eras, handshakes and request contexts |
//! | [`headers`] | the HTTP headers that mirror a message, and their comparison with the body |
//! | [`results`] | the few fields of results, lists and notifications that a host decides on |
//! | [`schema`] | conversion of output schemas for legacy clients |
//! | [`apps`] | the UI resource of a tool (MCP Apps) |
//! | [`url_elicitation`] | elicitation by URL |
//! | [`tasks`] | tasks, and their ids |
//! | [`roots`] | methods of roots |
//! | [`log`] | log levels |
//! | [`trace`] | W3C trace context of a request |
//! | [`subscriptions`] | subscriptions and their notifications |
//! | [`nesting`] | nesting depth of a message |
//! | [`partial`] | buffers for incomplete messages |
//! | [`codes`] | JSON-RPC error codes with a meaning in MCP |
//!
//! Nesting depth is bounded by memory only, never by the stack: values are skipped by an iterative scanner and stay
//! raw, and all code that does look deeper refuses to go past a fixed depth.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod apps;
pub mod batch;
pub mod codes;
pub mod envelope;
pub mod era;
pub mod headers;
pub mod log;
pub mod nesting;
pub mod partial;
pub mod patch;
mod raw;
pub mod results;
pub mod roots;
mod scan;
pub mod schema;
pub mod sse;
pub mod subscriptions;
pub mod tasks;
pub mod trace;
pub mod url_elicitation;

pub use envelope::{Id, Malformed, Message, Outcome, RequestId};
pub use era::{Era, ProtocolVersion};
/// JSON values, kept as text.
pub use gripfast_core::json_text::{Json, JsonText};
pub use patch::{Object, Patch};

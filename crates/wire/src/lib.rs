//! MCP as bytes: what a message is, where its fields lie, and how to change one field without touching the
//! others. Both protocol eras, no IO, no clock, no runtime.
//!
//! The rule of this crate is that bytes stay bytes. A message is validated and looked into while it is
//! borrowed; a change is a splice into the original text. Members that a later protocol revision adds, the
//! order of keys, the spelling of numbers and the whitespace all survive, because nothing here rebuilds a
//! message from a model.
//!
//! | module | answers |
//! |---|---|
//! | [`envelope`] | which kind of JSON-RPC message is this, and who is it for |
//! | [`patch`] | the same object with these members changed |
//! | [`batch`] | the messages of a JSON-RPC array, and the array of their answers |
//! | [`sse`] | the events of a byte stream, and an event as bytes |
//! | [`era`] | which protocol version, which era, and what a server said about itself |
//! | [`headers`] | the HTTP headers that mirror a message, and whether they tell the truth |
//! | [`results`] | the few fields of results, lists and notifications that a host decides on |
//! | [`schema`] | the schema of a tool's output as the legacy era takes it |
//! | [`apps`] | the resource that shows a tool's result |
//! | [`pages`] | pages that a person has to visit first |
//! | [`tasks`] | the ids of work that goes on after its answer |
//! | [`roots`] | the directories that servers may work in |
//! | [`log`] | how severe a log message is |
//! | [`trace`] | the trace that a request is part of |
//! | [`subscriptions`] | what is followed, and what tells of it |
//! | [`nesting`] | how deeply a message is nested |
//! | [`held`] | bytes that wait for the rest of their message |
//! | [`codes`] | JSON-RPC error codes with a meaning in MCP |
//!
//! Nesting depth is bounded by memory only, never by the stack: values are skipped by an iterative scanner
//! and stay raw, and every place that does look deeper refuses to go past a fixed depth.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod apps;
pub mod batch;
pub mod codes;
pub mod envelope;
pub mod era;
pub mod headers;
pub mod held;
pub mod log;
pub mod nesting;
pub mod pages;
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

pub use envelope::{Id, Malformed, Message, Outcome, RequestId};
pub use era::{Era, ProtocolVersion};
pub use patch::{Object, Patch};
/// One JSON value, kept as its bytes. Re-exported so that users of this crate agree on the version.
pub use serde_json::value::RawValue;

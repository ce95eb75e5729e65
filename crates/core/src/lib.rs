//! Decision logic of gripfast: supervision, failure classification, policy, catalog, ledger and redaction.
//!
//! Nothing in this crate reads a clock, a socket or a file. Every decision takes the time as an argument, so that a
//! test covers twelve idle hours in a microsecond.

#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm)]

#[macro_use]
mod words;

pub mod address;
pub mod cache;
pub mod catalog;
pub mod credential;
pub mod descriptors;
pub mod event;
pub mod exposure;
pub mod failure;
pub mod file_modes;
pub mod hash_chain;
pub mod ids;
pub mod isolation;
pub mod jitter;
pub mod json;
pub mod json_line;
pub mod json_text;
pub mod ledger;
pub mod log_dedup;
pub mod placement;
pub mod policy;
pub mod rate;
pub mod redact;
pub mod search;
pub mod security;
pub mod session_state;
pub mod supervise;
pub mod text;
pub mod time;
pub mod token_estimate;

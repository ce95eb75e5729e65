//! Pure decisions of gripfast: what waits, counts, classifies or chooses.
//!
//! Nothing in this crate reads a clock, a socket or a file. Every decision takes the time as an argument,
//! so twelve idle hours are a microsecond in a test.

#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm)]

pub mod address;
pub mod cache;
pub mod catalog;
pub mod chain;
pub mod credential;
pub mod descriptors;
pub mod event;
pub mod failure;
pub mod file_modes;
pub mod ids;
pub mod isolation;
pub mod jitter;
pub mod json;
pub mod ledger;
pub mod line;
pub mod policy;
pub mod rate;
pub mod redact;
pub mod repeats;
pub mod security;
pub mod standing;
pub mod supervise;
pub mod text;
pub mod time;

//! Performance scaffolding: adapters that save wake-ups of the Tokio runtime. Nothing here decides what a client gets.

pub(crate) mod inline_call;
pub(crate) mod keep_warm;
pub(crate) mod repoll;

//! Performance scaffolding: adapters that save wake-ups of the Tokio runtime. Nothing here decides what a client gets.
//! ADR 0011 has the measured worth of each.

pub(crate) mod inline_call;

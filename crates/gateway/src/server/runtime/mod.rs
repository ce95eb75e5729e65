//! Performance scaffolding: an adapter that saves a task for each call. It does not decide what a client gets. ADR 0011 has
//! its measured worth.

pub(crate) mod inline_call;

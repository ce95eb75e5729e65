//! Behaviour of the host as an embedding program sees it, in virtual time and with an in-memory server.

#![expect(clippy::unwrap_used, reason = "tests may")]

mod attribution;
mod audit;
mod budgets;
mod cache;
mod calls;
mod circuit;
mod dedicated_pins;
mod elicitation;
mod instances;
mod intercepting_link;
mod ledger;
mod lifecycle;
mod memory_server;
mod names;
mod operations;
mod pins;
mod policy;
mod principals;
mod replacing;
mod restoring;
mod security;
mod sessions;
mod standby;
mod subscriptions;
mod unlisted;
mod withdrawal;

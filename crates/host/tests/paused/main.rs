//! The host with its time turned by hand: the promises as a program that embeds it would see them. The
//! server is in memory, so that nothing but the clock decides when things happen.

#![expect(clippy::unwrap_used, reason = "tests may")]

mod attribution;
mod audit;
mod budgets;
mod cache;
mod calls;
mod circuit;
mod instances;
mod ledger;
mod lifecycle;
mod meddled;
mod names;
mod own_pins;
mod pins;
mod policy;
mod principals;
mod questions;
mod replacing;
mod restoring;
mod seconds;
mod security;
mod sessions;
mod subscriptions;
mod unlisted;
mod verbs;
mod withdrawn;
mod world;

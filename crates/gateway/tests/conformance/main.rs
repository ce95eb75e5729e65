//! The official conformance suite, in both of its versions.
//!
//! First it asks a server of ours directly, which passes every scenario. Then it asks the same server through gripfast:
//! in all pairings of eras, over both transports, alone and among others. What held directly has to hold through
//! gripfast; what cannot is in `exceptions.rs`, each with its reason.
//!
//! The suite speaks HTTP only. That the server says the same on a pipe, where gripfast meets it as a child, is shown by
//! the server's own tests.
//!
//! At last the suite plays the server, and gripfast is the client.

#![expect(clippy::unwrap_used, reason = "tests")]

mod auth;
mod clients;
mod direct;
mod exceptions;
mod player;
mod scene;
mod set;
mod through;

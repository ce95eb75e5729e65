//! Official conformance suite, in both of its versions.
//!
//! The suite first tests our conformance server directly, which passes every scenario, and then the same server through
//! gripfast: in all pairings of eras, over both transports, alone and among other servers. Every check that passes
//! directly must pass through gripfast; exceptions are in `exceptions.rs`, each with its reason.
//!
//! The suite uses HTTP only. The server's own tests show that it behaves the same on stdio.
//!
//! In the client scenarios the suite is the server and gripfast the client.

#![expect(clippy::unwrap_used, reason = "tests")]

mod auth;
mod clients;
mod direct;
mod exceptions;
mod scenario_set;
mod search;
mod test_client;
mod test_gateway;
mod through_gateway;

//! The official conformance suite, in both of its versions.
//!
//! First it asks a server of ours directly, which passes every scenario.
//!
//! The suite speaks HTTP only. That the server says the same on a pipe, where gripfast meets it as a child, is shown by
//! the server's own tests.

#![expect(clippy::unwrap_used, reason = "tests")]

mod direct;
mod set;

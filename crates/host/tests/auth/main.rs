//! Servers that require a token, with a real authorization server: the effect on callers when tokens expire, are
//! refused, are replaced by another process, or need a user.

#![expect(clippy::unwrap_used, reason = "tests")]

mod auth_test;
mod client_credentials;
mod devices;
mod leases;
mod logins;
mod renewals;
mod secrets;
mod shared_logins;
mod token_responses;

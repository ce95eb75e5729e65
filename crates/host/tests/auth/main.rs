//! Servers that want a token, with a real authorization server beside them: what callers notice of tokens that end, are
//! refused, are replaced by others, or are to be had from a person only.

#![expect(clippy::unwrap_used, reason = "tests")]

mod by_itself;
mod devices;
mod leases;
mod logins;
mod renewals;
mod secrets;
mod stage;
mod token_answers;

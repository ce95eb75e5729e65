//! Admin API over HTTP: a host with real child processes, and its router on a port.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod actions;
mod calls;
mod events;
mod openapi;
mod sign_in;
mod status;
mod test_api;
mod tools;

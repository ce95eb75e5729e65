//! The admin API as programs meet it: a host over real child processes, the router on a port of its own,
//! requests over HTTP.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod acting;
mod calls;
mod events;
mod openapi;
mod scene;
mod sign_in;
mod status;
mod tools;

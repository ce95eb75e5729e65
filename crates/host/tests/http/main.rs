//! The HTTP transports against real sockets: the sample server, and a scripted one for what the sample server
//! is too polite to do.

#![expect(clippy::unwrap_used, reason = "tests")]

mod answers;
mod bounds;
mod calls;
mod connections;
mod eras;
mod frames;
mod old_sse;
mod outages;
mod proxies;
mod questions;
mod redirects;
mod replays;
mod script;
mod sessions;
mod sharing;
mod stage;
mod streams;
mod tls;

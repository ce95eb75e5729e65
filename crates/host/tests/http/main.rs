//! HTTP transports over real sockets: against the sample server, and against a scripted one for misbehaviour.

#![expect(clippy::unwrap_used, reason = "tests")]

mod bounds;
mod calls;
mod connections;
mod elicitation;
mod eras;
mod http_host;
mod http_sse;
mod outages;
mod proxies;
mod redirects;
mod replays;
mod responses;
mod scripted_h2_server;
mod scripted_server;
mod sessions;
mod sharing;
mod streams;
mod tls;

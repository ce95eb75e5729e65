//! Tests of the sample server with raw bytes, in both eras and on every transport.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

mod client;
mod http_legacy;
mod http_modern;
mod http_sse;
mod messages;
mod stdio;

//! The endpoint as clients meet it: both eras on one path, old HTTP+SSE and stdio, over sample servers of
//! either era. Each test names a promise; the clients here are a few lines of raw HTTP, so that nothing between
//! the test and the wire is polite on the gateway's behalf. The official ones are in `tests/peers`.

#![expect(clippy::unwrap_used, reason = "tests")]

mod access;
mod aggregation;
mod apps;
mod bad_clients;
mod batches;
mod bounds;
mod client;
mod crowd;
mod depth;
mod eras;
mod failure;
mod fidelity;
mod flight;
mod freshness;
mod isolation;
mod killed;
mod legacy;
mod limits;
mod logs;
mod memory;
mod modern;
mod news;
mod older_words;
mod pages;
mod pipe;
mod policy;
mod principals;
mod questions;
mod roots;
mod scene;
mod script;
mod seen;
mod status_tool;
mod subscriptions;
mod tasks;
mod tls;
mod trace;
mod unknown;

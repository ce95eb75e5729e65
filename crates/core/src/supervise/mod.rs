//! Supervision of one upstream: small state machines with one decision each, and the upstream machine that composes
//! them. The supervisor task in the host calls them, performs their actions and reports the results; it contains no
//! policy.

pub mod backoff;
pub mod circuit;
pub mod connect_limit;
pub mod keepalive;
mod link;
mod principals;
pub mod restarts;
pub mod spec;
pub mod status;
pub mod upstream;

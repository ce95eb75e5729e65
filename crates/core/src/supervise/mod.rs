//! Supervision of one upstream: small machines that each decide one thing, and the upstream machine that
//! composes them. The shell asks, performs and reports back; it decides nothing.

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

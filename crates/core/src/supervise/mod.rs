//! Supervision of one upstream.

pub mod spec;

//! Servers as real processes: killed, stopped, flooded, left behind. The host must keep them while it lives and
//! take them along when it ends, in whatever way.
//!
//! The child is the demo server of the real binary. Every child carries a mark of its test in its environment,
//! so that its descendants are found wherever they went.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests")]

mod alone;
mod deaths;
mod endings;
mod endurance;
mod environment;
mod frames;
mod instances;
mod neighbours;
mod proc;
mod seconds;
mod silence;
mod stage;
mod starts;
mod unusable;

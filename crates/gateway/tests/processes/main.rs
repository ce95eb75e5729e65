//! Servers as real child processes: killed, stopped, flooding their output, or with processes of their own. The host
//! restarts them while it runs, and leaves no process behind when it ends.
//!
//! The child is the demo server of the real binary. Every child has a variable of its test in its environment, so that
//! the tests find all of its descendants.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests")]

mod concurrency;
mod config_errors;
mod crashes;
mod environment;
mod frames;
mod instances;
mod own_process;
mod repeated_restarts;
mod shutdown;
mod standby;
mod startup;
mod test_host;
mod unresponsive;

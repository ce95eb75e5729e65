//! Processes in tests: signals, and facts from `/proc`. A zombie does not count as alive.

pub use gripfast_measure::proc::{
    command_line, has_ended, is_alive, living_children, pids_with_env, zombies,
};

use gripfast_measure::proc;
use rustix::process::Signal;

/// Sends a signal to one process.
///
/// # Panics
/// The process does not exist or belongs to another user.
pub fn signal(pid: u32, signal: Signal) {
    proc::signal(pid, signal).expect("the process exists");
}

/// The files that this process has open.
///
/// # Panics
/// There is no `/proc`.
#[must_use]
pub fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux has /proc").count()
}

/// The memory that a process occupies, in bytes.
///
/// # Panics
/// The process has ended.
#[must_use]
pub fn memory(pid: u32) -> usize {
    of_running(proc::resident_memory(&[pid]))
}

/// The most memory that a process ever occupied, in bytes.
///
/// # Panics
/// The process has ended.
#[must_use]
pub fn peak_memory(pid: u32) -> usize {
    of_running(proc::peak_memory(pid))
}

fn of_running(bytes: u64) -> usize {
    assert!(bytes > 0, "a process that runs occupies memory");
    usize::try_from(bytes).expect("memory has addresses")
}

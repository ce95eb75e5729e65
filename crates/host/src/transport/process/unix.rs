//! Process groups, signals and memory on Unix.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use tokio::process::Command;

/// Initial buffer size; most environments are smaller.
const USUAL_ENVIRONMENT: usize = 32 << 10;

pub(super) fn set_own_group(command: &mut Command) {
    command.process_group(0);
}

pub(super) fn terminate_group(leader: u32) {
    signal_group(leader, Signal::TERM);
}

pub(super) fn kill_group(leader: u32) {
    signal_group(leader, Signal::KILL);
}

/// Returns whether the file is executable but neither a binary of this machine nor a script.
pub(super) fn is_exec_format_error(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error())
}

pub(super) fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// Kills the processes that carry `variable=tag` in their environment, in any group. A process that makes a session of
/// its own leaves our group, but keeps its environment. Does nothing where there is no `/proc`.
pub(super) fn kill_tagged(variable: &str, tag: &str) {
    let marker = format!("{variable}={tag}");
    let Ok(processes) = std::fs::read_dir("/proc") else { return };
    // There may be hundreds of processes, and a file without a known length would be read in small pieces, each of
    // which costs as much as the whole.
    let mut environment = Vec::with_capacity(USUAL_ENVIRONMENT);
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        environment.clear();
        let Ok(mut file) = File::open(process.path().join("environ")) else { continue };
        if file.read_to_end(&mut environment).is_ok()
            && environment.split(|byte| *byte == 0).any(|entry| entry == marker.as_bytes())
            && let Some(pid) = Pid::from_raw(pid)
        {
            // It may have ended meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Returns the resident memory of the group of `leader` in bytes; `None` where there is no `/proc`.
pub(super) fn group_memory(leader: u32) -> Option<u64> {
    let processes = std::fs::read_dir("/proc").ok()?;
    let mut total = None;
    for process in processes.flatten() {
        let directory = process.path();
        let Ok(stat) = std::fs::read_to_string(directory.join("stat")) else { continue };
        if group_of(&stat) != Some(leader) {
            continue;
        }
        let Ok(status) = std::fs::read_to_string(directory.join("status")) else { continue };
        total = Some(total.unwrap_or(0) + resident_bytes(&status).unwrap_or(0));
    }
    total
}

/// Returns the process group: the third field after the command, which stands in brackets and may contain anything.
fn group_of(stat: &str) -> Option<u32> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(2)?.parse().ok()
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

fn signal_group(leader: u32, signal: Signal) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // A group that is gone is the desired state.
        let _ = kill_process_group(group, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_found_behind_a_command_with_brackets_and_spaces() {
        assert_eq!(group_of("12 (a) b) c) S 1 77 12 0 -1"), Some(77));
        assert_eq!(group_of("no stat"), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t    2048 kB\nThreads: 1"), Some(2 << 20));
        assert_eq!(resident_bytes("Name:\tkthreadd"), None, "a kernel thread has none");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn our_own_group_holds_memory_and_an_unknown_one_does_not() {
        let own = rustix::process::getpgrp().as_raw_pid().unsigned_abs();
        assert!(group_memory(own).is_some_and(|bytes| bytes > 100_000));
        assert_eq!(group_memory(u32::MAX), None);
    }
}

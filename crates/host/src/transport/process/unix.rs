//! Process groups and signals.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use tokio::process::Command;

pub(super) fn lead_own_group(command: &mut Command) {
    command.process_group(0);
}

pub(super) fn ask_group_to_end(leader: u32) {
    signal_group(leader, Signal::TERM);
}

pub(super) fn kill_group(leader: u32) {
    signal_group(leader, Signal::KILL);
}

/// The file is there and may be executed, but it is neither a binary of this machine nor a script.
pub(super) fn is_not_a_program(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error())
}

pub(super) fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// Kills the processes that carry `variable=tag` in their environment, in whatever group they are. A
/// process that makes a session of its own leaves our group, but it takes its environment along.
/// Where there is no `/proc`, only the group is ended.
pub(super) fn kill_tagged(variable: &str, tag: &str) {
    let marker = format!("{variable}={tag}");
    let Ok(processes) = std::fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(environment) = std::fs::read(process.path().join("environ")) else { continue };
        if environment.split(|byte| *byte == 0).any(|entry| entry == marker.as_bytes())
            && let Some(pid) = Pid::from_raw(pid)
        {
            // It may have ended meanwhile; then there is nothing left to do.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn signal_group(leader: u32, signal: Signal) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // No such group any more is what we want.
        let _ = kill_process_group(group, signal);
    }
}

//! Facts about processes from `/proc`. Zombies do not count as alive.

use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;

/// Sends a signal to one process.
pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// Returns true if the process runs, sleeps or is stopped.
pub(crate) fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// The processes whose environment holds this entry.
pub(crate) fn carrying(entry: &str) -> Vec<u32> {
    let carries = |pid: &u32| {
        let environment = std::fs::read(of(*pid).join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == entry.as_bytes())
    };
    all().filter(carries).collect()
}

/// The children of a process that have ended and were not reaped.
pub(crate) fn zombies_of(parent: u32) -> Vec<u32> {
    children(parent, |state| state == 'Z')
}

/// The children of a process that live.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    children(parent, |state| !matches!(state, 'Z' | 'X'))
}

/// The name of a process and its arguments, with a space after each.
pub(crate) fn command_line(pid: u32) -> String {
    let line = std::fs::read(of(pid).join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// The files that this process has open.
pub(crate) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The memory that this process occupies, in bytes.
pub(crate) fn memory() -> usize {
    kilobytes("VmRSS:") * 1024
}

/// The most memory that this process ever occupied, in bytes.
pub(crate) fn peak_memory() -> usize {
    kilobytes("VmHWM:") * 1024
}

fn kilobytes(what: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn children(parent: u32, wanted: impl Fn(char) -> bool) -> Vec<u32> {
    all().filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == parent && wanted(stat.state))).collect()
}

struct Stat {
    state: char,
    parent: u32,
}

fn stat(pid: u32) -> Option<Stat> {
    let line = std::fs::read_to_string(of(pid).join("stat")).ok()?;
    // The name is in parentheses and may hold anything.
    let (_, rest) = line.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    Some(Stat { state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
}

fn all() -> impl Iterator<Item = u32> {
    let names = std::fs::read_dir("/proc").unwrap().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

//! Processes of a measurement: signals, and what `/proc` shows of them: children, zombies, open files, CPU time and
//! memory.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::{MeasureError, Result};

/// Sends a signal to one process.
///
/// # Errors
/// The process does not exist or belongs to another user.
pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let target = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let target =
        target.ok_or_else(|| MeasureError::new("sending a signal", &format!("{pid} is not a process id")))?;
    kill_process(target, signal)
        .map_err(|error| MeasureError::new(&format!("sending a signal to {pid}"), &error))
}

/// Kills a process and waits until its files are closed, so that it serves nothing any more. Returns the time of the
/// kill.
///
/// # Errors
/// The process does not exist.
pub async fn kill(pid: u32) -> Result<Instant> {
    let at = Instant::now();
    signal(pid, Signal::KILL)?;
    while !has_ended(pid) {
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    Ok(at)
}

/// True if the process and all its threads are gone, except for a zombie. Until the last thread is gone, its pipes
/// accept input and its sockets are open.
#[must_use]
pub fn has_ended(pid: u32) -> bool {
    let has_threads = std::fs::read_dir(proc_dir(pid).join("task")).is_ok_and(|threads| threads.count() > 1);
    !is_alive(pid) && !has_threads
}

/// True if the process runs, sleeps or is stopped.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Live processes with this environment entry and this word in their command line.
#[must_use]
pub fn pids_with_env(entry: &str, word: &str) -> Vec<u32> {
    let fits = |pid: &u32| has_env(*pid, entry) && is_alive(*pid) && command_line(*pid).contains(word);
    all_pids().filter(fits).collect()
}

/// Children of a process. Reads only that process, so it is cheap.
#[must_use]
pub fn children_of(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(proc_dir(pid).join("task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Children of a process that live. Reads all processes.
#[must_use]
pub fn living_children(pid: u32) -> Vec<u32> {
    children(pid, |state| !matches!(state, 'Z' | 'X'))
}

/// Children of a process that have exited and were not reaped.
#[must_use]
pub fn zombies(pid: u32) -> Vec<u32> {
    children(pid, |state| state == 'Z')
}

/// Peak resident memory of a process, in bytes.
#[must_use]
pub fn peak_memory(pid: u32) -> u64 {
    status_kilobytes(pid, "VmHWM:") * 1024
}

/// True if the environment of a process has this entry.
#[must_use]
pub fn has_env(pid: u32, entry: &str) -> bool {
    let environment = std::fs::read(proc_dir(pid).join("environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|one| one == entry.as_bytes())
}

/// Command line of a process, with a space after each argument.
#[must_use]
pub fn command_line(pid: u32) -> String {
    let line = std::fs::read(proc_dir(pid).join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// CPU time of all threads of these processes.
#[must_use]
pub fn cpu_time(pids: &[u32]) -> Duration {
    let of_thread = |path: PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
        nanos.map_or(Duration::ZERO, Duration::from_nanos)
    };
    let of_process = |pid: &u32| {
        let threads = std::fs::read_dir(proc_dir(*pid).join("task")).into_iter().flatten().flatten();
        threads.map(|thread| of_thread(thread.path())).sum::<Duration>()
    };
    pids.iter().map(of_process).sum()
}

/// CPU time of this process and of all its descendants that have ended and were waited for.
#[must_use]
pub fn total_cpu_time() -> Duration {
    // Clock ticks are hundredths of a second on all platforms with /proc: user and system time, and those of children.
    let line = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = line.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks: u64 = rest.split(' ').skip(11).take(4).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Resident memory of these processes, in bytes.
#[must_use]
pub fn resident_memory(pids: &[u32]) -> u64 {
    pids.iter().map(|pid| status_kilobytes(*pid, "VmRSS:") * 1024).sum()
}

/// Removes the proxies of the environment from a command: they would stand between the gateway and its servers on
/// loopback.
pub fn without_proxies(command: &mut std::process::Command) {
    for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(proxy);
    }
}

/// Resources of a process at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// Exited children that were not reaped.
    pub zombies: usize,
    /// Open files. Established connections are not counted, because they come and go with the traffic; connections
    /// whose peer is gone are counted.
    pub files: usize,
    /// Resident memory in bytes.
    pub memory: u64,
    /// Peak resident memory in bytes.
    pub peak_memory: u64,
}

impl Footprint {
    /// Reads the resources of a process.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self {
            zombies: zombies(pid).len(),
            files: open_files(pid),
            memory: resident_memory(&[pid]),
            peak_memory: peak_memory(pid),
        }
    }
}

fn open_files(pid: u32) -> usize {
    let up = established_sockets();
    let Ok(open) = std::fs::read_dir(proc_dir(pid).join("fd")) else { return 0 };
    let targets = open.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    let held = targets.filter(|target| {
        let name = target.to_string_lossy();
        let inode = name.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        !inode.is_some_and(|inode| up.contains(inode))
    });
    held.count()
}

/// Inodes of established TCP connections.
fn established_sockets() -> HashSet<String> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    let up = rows.filter_map(|row| {
        let fields: Vec<&str> = row.split_whitespace().collect();
        (*fields.get(3)? == "01").then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    });
    up.collect()
}

fn status_kilobytes(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(proc_dir(pid).join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

fn children(parent: u32, wanted: impl Fn(char) -> bool) -> Vec<u32> {
    all_pids()
        .filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == parent && wanted(stat.state)))
        .collect()
}

struct Stat {
    state: char,
    parent: u32,
}

fn stat(pid: u32) -> Option<Stat> {
    let line = std::fs::read_to_string(proc_dir(pid).join("stat")).ok()?;
    // The name is in parentheses and may contain any character.
    let (_, rest) = line.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    Some(Stat { state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
}

fn all_pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn proc_dir(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_child_that_has_ended_counts() {
        let before = total_cpu_time();
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        assert!(std::process::Command::new("sh").args(["-c", busy]).status().unwrap().success());
        assert!(total_cpu_time() > before);
    }

    #[test]
    fn only_connections_without_a_peer_count_as_open_files() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let pid = std::process::id();
        let before = open_files(pid);
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        assert_eq!(open_files(pid), before);
        drop(theirs);
        assert_eq!(open_files(pid), before + 1);
        drop(ours);
        assert_eq!(open_files(pid), before);
    }
}

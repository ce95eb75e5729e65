//! What `/proc` says about a gateway and what it started: children, zombies, open files, memory. The gateway's own
//! tests read it too, in their own words: this crate shares no code with what it judges.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::{Cannot, Result};

/// Sends a signal to one process.
///
/// # Errors
/// It is not there, or not ours.
pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let target = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let target = target.ok_or_else(|| Cannot::because("a signal", &format!("no process can be {pid}")))?;
    kill_process(target, signal).map_err(|error| Cannot::because(&format!("signal to {pid}"), &error))
}

/// Kills a process and waits until its files are closed, so that nothing is served by it any more. Answers with the
/// moment of the blow.
///
/// # Errors
/// It is not there.
pub async fn kill(pid: u32) -> Result<Instant> {
    let at = Instant::now();
    signal(pid, Signal::KILL)?;
    while is_alive(pid) || has_threads(pid) {
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    Ok(at)
}

/// Whether a process that has ended still has threads on their way out: until the last of them is gone its pipes take
/// what is written to them.
fn has_threads(pid: u32) -> bool {
    std::fs::read_dir(of(pid).join("task")).is_ok_and(|threads| threads.count() > 1)
}

/// Whether the process runs, sleeps or is stopped.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// The living processes whose environment holds this entry and whose command line holds this word.
#[must_use]
pub fn carrying(entry: &str, word: &str) -> Vec<u32> {
    let fits = |pid: &u32| carries(*pid, entry) && is_alive(*pid) && command_line(*pid).contains(word);
    all().filter(fits).collect()
}

/// The children of a process. Looks at that process only, which costs next to nothing.
#[must_use]
pub fn children_of(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(of(pid).join("task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Whether the environment of a process holds this entry.
#[must_use]
pub fn carries(pid: u32, entry: &str) -> bool {
    let environment = std::fs::read(of(pid).join("environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|one| one == entry.as_bytes())
}

/// The name of a process and its arguments, with a space after each.
#[must_use]
pub fn command_line(pid: u32) -> String {
    let line = std::fs::read(of(pid).join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// What a process holds at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// Children that have ended and were not reaped.
    pub zombies: usize,
    /// Open files. Connections that are up are not counted: they come and go with the traffic; those whose other
    /// end is gone are.
    pub files: usize,
    /// Memory that it occupies, in bytes.
    pub memory: u64,
    /// The most that it ever occupied.
    pub peak_memory: u64,
}

impl Footprint {
    /// Of this process, now.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self {
            zombies: children(pid, |state| state == 'Z').len(),
            files: files(pid),
            memory: kilobytes(pid, "VmRSS:") * 1024,
            peak_memory: kilobytes(pid, "VmHWM:") * 1024,
        }
    }
}

fn files(pid: u32) -> usize {
    let up = connections_that_are_up();
    let Ok(open) = std::fs::read_dir(of(pid).join("fd")) else { return 0 };
    let targets = open.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    let held = targets.filter(|target| {
        let name = target.to_string_lossy();
        let inode = name.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        !inode.is_some_and(|inode| up.contains(inode))
    });
    held.count()
}

/// The inodes of established TCP connections.
fn connections_that_are_up() -> HashSet<String> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    let up = rows.filter_map(|row| {
        let fields: Vec<&str> = row.split_whitespace().collect();
        (*fields.get(3)? == "01").then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    });
    up.collect()
}

fn kilobytes(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(of(pid).join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
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
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_up_is_no_open_file_and_one_whose_other_end_is_gone_is() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let pid = std::process::id();
        let before = files(pid);
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        assert_eq!(files(pid), before);
        drop(theirs);
        assert_eq!(files(pid), before + 1);
        drop(ours);
        assert_eq!(files(pid), before);
    }
}

//! Faults of the process as a whole: at start, processes left behind, and exits.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::io::AsyncWriteExt;

use crate::options::{ExitAtStart, Options};

/// Long enough to be found by a test, short enough not to run forever.
const GRANDCHILD_SECONDS: &str = "600";

/// Performs the faults at start, before the server reads or listens. May exit the process.
pub(crate) async fn start(options: &Options) -> io::Result<()> {
    let faults = &options.faults;
    if let Some(path) = &options.pid_file {
        fs::write(path, std::process::id().to_string())?;
    }
    if let Some(path) = &options.starts_file {
        let line = format!("{} {}\n", unix_millis(), std::process::id());
        OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())?;
    }
    if exits_at_start(options) {
        let mut stderr = tokio::io::stderr();
        stderr.write_all(b"demo server: exiting at start, as told\n").await?;
        stderr.flush().await?;
        exit(faults.exit_code());
    }
    if faults.ignore_sigterm {
        ignore_sigterm()?;
    }
    if let Some(time) = faults.live_for {
        let code = faults.exit_code();
        // Not tracked: the task ends with the process.
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            exit(code)
        });
    }
    if faults.fork_grandchild {
        spawn_grandchild(Group::Inherited)?;
    }
    flood_stderr(faults.fill_stderr).await?;
    tokio::time::sleep(faults.start_delay.unwrap_or_default()).await;
    Ok(())
}

fn exits_at_start(options: &Options) -> bool {
    let starts = options.starts_file.as_deref();
    match options.faults.exit_at_start {
        None => false,
        Some(ExitAtStart::Always) => true,
        // This start is already in the file.
        Some(ExitAtStart::Starts(count)) => starts.is_some_and(|path| count_lines(path) <= count),
        Some(ExitAtStart::For(time)) => starts
            .and_then(first_start)
            .is_some_and(|first| Duration::from_millis(unix_millis().saturating_sub(first)) < time),
    }
}

/// Number of lines; 0 if the file does not exist.
pub(crate) fn count_lines(path: &Path) -> u64 {
    fs::read(path).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count() as u64)
}

fn first_start(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Writes lines of filler, `bytes` in total. Blocks the caller, not the server, while the parent does not read.
pub(crate) async fn flood_stderr(bytes: usize) -> io::Result<()> {
    // Tokio hands every write to another thread, so a line at a time would take seconds for some megabytes.
    let lines = format!("{:-<127}\n", "demo server: filling stderr ").repeat(256);
    let mut stderr = tokio::io::stderr();
    let mut left = bytes;
    while left > 0 {
        let size = left.min(lines.len());
        stderr.write_all(&lines.as_bytes()[..size]).await?;
        left -= size;
    }
    stderr.flush().await
}

/// Process group of a grandchild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Inherited,
    /// A new one, so that a signal to the server's group does not reach it.
    Own,
}

/// Starts a process that outlives the server and holds its pipes open. Returns its id.
pub(crate) fn spawn_grandchild(group: Group) -> io::Result<u32> {
    let mut command = Command::new("sleep");
    command.arg(GRANDCHILD_SECONDS).stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    #[cfg(unix)]
    if group == Group::Own {
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
    }
    #[cfg(not(unix))]
    let _ = group;
    Ok(command.spawn()?.id())
}

#[cfg(unix)]
fn ignore_sigterm() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut signals = signal(SignalKind::terminate())?;
    // The task ends with the process. A registered handler prevents the default action.
    tokio::spawn(async move { while signals.recv().await.is_some() {} });
    Ok(())
}

#[cfg(not(unix))]
fn ignore_sigterm() -> io::Result<()> {
    Ok(())
}

#[expect(clippy::exit, reason = "a sudden exit is one of the faults of this server")]
pub(crate) fn exit(code: i32) -> ! {
    std::process::exit(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Faults;

    #[test]
    fn only_the_first_starts_fail() {
        let directory = tempfile::tempdir().unwrap();
        let starts = directory.path().join("starts");
        let faults = Faults { exit_at_start: Some(ExitAtStart::Starts(2)), ..Faults::default() };
        let options = Options { starts_file: Some(starts.clone()), faults, ..Options::default() };
        let mut exits = Vec::new();
        for start in 1..=3 {
            fs::write(&starts, "0 1\n".repeat(start)).unwrap();
            exits.push(exits_at_start(&options));
        }
        assert_eq!(exits, [true, true, false]);
    }

    #[test]
    fn starts_fail_for_a_time_after_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let starts = directory.path().join("starts");
        let faults =
            Faults { exit_at_start: Some(ExitAtStart::For(Duration::from_secs(60))), ..Faults::default() };
        let options = Options { starts_file: Some(starts.clone()), faults, ..Options::default() };
        fs::write(&starts, format!("{} 1\n", unix_millis() - 30_000)).unwrap();
        assert!(exits_at_start(&options), "half of the minute is over");
        fs::write(&starts, format!("{} 1\n", unix_millis() - 61_000)).unwrap();
        assert!(!exits_at_start(&options), "the minute is over");
    }
}

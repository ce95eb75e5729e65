//! Child processes as process trees: each child leads its own process group, is stopped with all its descendants,
//! leaves no zombie, and does not outlive this process.
//!
//! Differences between operating systems are in `os`; `orphan_reaper` has the watcher that ends our children when this
//! process is killed.

mod environment;
mod lease_watcher;
mod orphan_reaper;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(not(unix))]
#[path = "other.rs"]
mod os;
mod program;

pub use environment::{Environment, NetworkVariables};
pub(crate) use lease_watcher::renew_child_leases;
pub(crate) use program::Program;

use super::process::orphan_reaper::OrphanReaper;
use crate::config::command_hint;
use crate::file_limit;
use gripfast_core::failure::Observed;
use gripfast_core::supervise::upstream::CloseMode;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Exit status of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
}

/// Pipes of a freshly started child.
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// A child and all its descendants. Dropping it kills them all.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    pid: u32,
    reaper: OrphanReaper,
    exit: ExitWatch,
    /// The group was killed. It must not be killed again: by then the id may belong to another process.
    killed: AtomicBool,
}

/// Lifetime of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildLifetime {
    /// It may run as long as this process.
    Process,
    /// It may run as long as the leases of this process are renewed.
    Lease,
}

/// Observes the exit of a child, without being able to cause it.
#[derive(Debug, Clone)]
pub(crate) struct ExitWatch(watch::Receiver<Option<Exit>>);

impl ExitWatch {
    /// Waits until the child itself has exited and was reaped.
    pub(crate) async fn wait(&self) -> Exit {
        let mut exit = self.0.clone();
        let ended = exit.wait_for(Option::is_some).await;
        ended.ok().and_then(|exit| *exit).unwrap_or(Exit { code: None, signal: None })
    }
}

impl ProcessTree {
    /// Time for a child to exit after its stdin was closed, before it is sent SIGTERM.
    const STDIN_GRACE: Duration = Duration::from_secs(2);
    /// Time for a child to exit after SIGTERM, before it is killed.
    const TERM_GRACE: Duration = Duration::from_secs(2);

    /// Time limit for reaping a killed child.
    const KILL_GRACE: Duration = Duration::from_secs(5);

    /// Starts `program` as the leader of its own group. `prepare` sets its arguments, directory and environment.
    ///
    /// Dropping the future ends the child too, a moment later if it is just being started. `until_gone` is dropped when
    /// the child was reaped, or was never started.
    pub(crate) async fn start(
        program: &Program,
        until_gone: TaskTrackerToken,
        lifetime: ChildLifetime,
        prepare: impl Fn(&mut Command),
    ) -> Result<(Self, Pipes), io::Error> {
        let prepared = |mut command| {
            prepare(&mut command);
            command
        };
        let (found, named) = (program.resolved_command().map(prepared), prepared(program.named_command()));
        // The thread that starts a child blocks until the child runs its own program, which takes a while on a busy
        // machine. Worker threads are needed for calls.
        let starting = tokio::task::spawn_blocking(move || {
            match found.map(|found| Self::spawn(found, until_gone.clone(), lifetime)) {
                Some(Ok(started)) => Ok(started),
                // The system's own search decides, also about the error.
                Some(Err(_)) | None => Self::spawn(named, until_gone, lifetime),
            }
        });
        starting.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    fn spawn(
        mut command: Command,
        until_gone: TaskTrackerToken,
        lifetime: ChildLifetime,
    ) -> Result<(Self, Pipes), io::Error> {
        let reaper = OrphanReaper::new(lifetime);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env(OrphanReaper::VARIABLE, reaper.tag())
            .kill_on_drop(true);
        os::set_own_group(&mut command);
        let mut child = command.spawn()?;
        let (Some(pid), Some(stdin), Some(stdout), Some(stderr)) =
            (child.id(), child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("the child process ended before its pipes could be opened"));
        };
        // The child has not done anything yet: it has just replaced our program by its own.
        file_limit::restore_for(pid);
        reaper.register(pid);
        let exit = reap(child, until_gone);
        Ok((Self { pid, reaper, exit, killed: AtomicBool::new(false) }, Pipes { stdin, stdout, stderr }))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the resident memory of the child and its group in bytes, where the system reports it. Reads files.
    pub(crate) fn resident_memory(&self) -> Option<u64> {
        os::group_memory(self.pid)
    }

    /// Returns a watch for the exit of the child.
    pub(crate) fn exit_watch(&self) -> ExitWatch {
        self.exit.clone()
    }

    /// Stops the whole tree. The caller has closed, or will drop, the child's stdin.
    pub(crate) async fn stop(&self, manner: CloseMode) {
        match manner {
            CloseMode::Graceful => {
                if tokio::time::timeout(Self::STDIN_GRACE, self.exit.wait()).await.is_err() {
                    os::terminate_group(self.pid);
                    let _ = tokio::time::timeout(Self::TERM_GRACE, self.exit.wait()).await;
                }
            }
            CloseMode::Immediate => {}
        }
        if let Some(stragglers) = self.kill_group() {
            // Reads a file of every process, which takes milliseconds that other upstreams must not pay for. It
            // continues even if the caller stops waiting.
            let _ = tokio::task::spawn_blocking(move || stragglers.kill()).await;
        }
        // The kernel may hold a process that cannot be killed, so the wait is bounded.
        let _ = tokio::time::timeout(Self::KILL_GRACE, self.exit.wait()).await;
    }

    /// Kills the group, once. Returns the processes that have left the group, which are still to be killed.
    fn kill_group(&self) -> Option<TaggedProcesses> {
        if self.killed.swap(true, Ordering::AcqRel) {
            return None;
        }
        os::kill_group(self.pid);
        Some(TaggedProcesses { leader: self.pid, reaper: self.reaper.clone() })
    }
}

/// Processes that have left the group of `leader` but still carry our tag.
struct TaggedProcesses {
    leader: u32,
    reaper: OrphanReaper,
}

impl TaggedProcesses {
    fn kill(&self) {
        os::kill_tagged(OrphanReaper::VARIABLE, self.reaper.tag());
        self.reaper.unregister(self.leader);
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        if let Some(stragglers) = self.kill_group() {
            stragglers.kill();
        }
    }
}

/// Waits for the child in a task of its own, so that it never becomes a zombie.
fn reap(mut child: Child, until_gone: TaskTrackerToken) -> ExitWatch {
    let (sender, exit) = watch::channel(None);
    tokio::spawn(async move {
        let _until_gone = until_gone;
        let status = child.wait().await;
        let ended = match status {
            Ok(status) => Exit { code: status.code(), signal: os::signal_of(status) },
            Err(_) => Exit { code: None, signal: None },
        };
        let _ = sender.send(Some(ended));
    });
    ExitWatch(exit)
}

/// Translates a failure to start into evidence.
pub(crate) fn spawn_failure(error: &io::Error, program: &str) -> Observed {
    let hint = || command_hint(program).map(|hint| format!("; {hint}")).unwrap_or_default();
    if let Some(text) = file_limit::exhausted_by_start(error) {
        return Observed::OutOfResources(text.to_owned());
    }
    match error.kind() {
        io::ErrorKind::NotFound => Observed::NoExecutable(match Path::new(program).components().count() {
            1 => format!("command `{program}` was not found on the PATH of its environment{}", hint()),
            _ => format!("command `{program}` was not found{}", hint()),
        }),
        io::ErrorKind::PermissionDenied => {
            Observed::NoExecutable(format!("command `{program}` may not be executed: permission denied"))
        }
        _ if os::is_exec_format_error(error) => {
            Observed::NoExecutable(format!("command `{program}` is not a program that this system can run"))
        }
        _ => Observed::SpawnFailed(error.to_string()),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn b03_lack_of_resources_is_not_a_fault_of_the_server() {
        let seen =
            |errno: Errno| spawn_failure(&io::Error::from_raw_os_error(errno.raw_os_error()), "server");
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN] {
            assert!(matches!(seen(errno), Observed::OutOfResources(_)), "{errno:?}: {:?}", seen(errno));
        }
        assert!(matches!(seen(Errno::NOENT), Observed::NoExecutable(_)));
        assert!(matches!(seen(Errno::IO), Observed::SpawnFailed(_)));
    }
}

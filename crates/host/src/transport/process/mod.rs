//! Child processes as whole trees: each child leads a process group of its own, is stopped with all its
//! descendants, leaves no zombie, and does not outlive us.
//!
//! What differs between operating systems sits in `os`; the watcher that ends our children when we are
//! killed sits in `leash`.

mod environment;
mod leash;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(not(unix))]
#[path = "other.rs"]
mod os;
mod program;

pub use environment::{Environment, NetworkVariables};
pub(crate) use program::Program;

use crate::config::command_hint;
use crate::file_limit;
use gripfast_core::failure::Observed;
use gripfast_core::supervise::upstream::Manner;
use leash::Leash;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
}

/// The pipes of a freshly started child.
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// A child and all its descendants. Dropping it kills them all.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    pid: u32,
    leash: Leash,
    exit: ExitWatch,
    /// Everything was killed. Not to be done again: by then the id may be somebody else's.
    killed: AtomicBool,
}

/// Sees a child's end, without being able to cause it.
#[derive(Debug, Clone)]
pub(crate) struct ExitWatch(watch::Receiver<Option<Exit>>);

impl ExitWatch {
    /// Waits until the child itself has ended and was reaped.
    pub(crate) async fn ended(&self) -> Exit {
        let mut exit = self.0.clone();
        let ended = exit.wait_for(Option::is_some).await;
        ended.ok().and_then(|exit| *exit).unwrap_or(Exit { code: None, signal: None })
    }
}

impl ProcessTree {
    /// After its stdin was closed, a child has this long to end by itself before it is asked to.
    const STDIN_GRACE: Duration = Duration::from_secs(2);
    /// After having been asked to end, it has this long before it is made to.
    const TERM_GRACE: Duration = Duration::from_secs(2);

    /// After having been killed, it is reaped within this.
    const KILL_GRACE: Duration = Duration::from_secs(5);

    /// Starts `program` as the leader of its own group. `prepare` says with which arguments, where and with what
    /// environment.
    ///
    /// Whoever gives up on it ends the child, too, a moment later if it is just being started. `until_gone` is let go of
    /// when the child was reaped, or was never started.
    pub(crate) async fn start(
        program: &Program,
        until_gone: TaskTrackerToken,
        prepare: impl Fn(&mut Command),
    ) -> Result<(Self, Pipes), io::Error> {
        let prepared = |mut command| {
            prepare(&mut command);
            command
        };
        let (found, named) = (program.found().map(prepared), prepared(program.named()));
        // Until the child runs its own program, which on a busy machine takes a while, the thread that starts it
        // stands still. Calls need theirs.
        let starting = tokio::task::spawn_blocking(move || {
            match found.map(|found| Self::spawn(found, until_gone.clone())) {
                Some(Ok(started)) => Ok(started),
                // The system's own search has the last word, also over what went wrong.
                Some(Err(_)) | None => Self::spawn(named, until_gone),
            }
        });
        starting.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    fn spawn(mut command: Command, until_gone: TaskTrackerToken) -> Result<(Self, Pipes), io::Error> {
        let leash = Leash::new();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env(Leash::VARIABLE, leash.tag())
            .kill_on_drop(true);
        os::lead_own_group(&mut command);
        let mut child = command.spawn()?;
        let (Some(pid), Some(stdin), Some(stdout), Some(stderr)) =
            (child.id(), child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("the child ended before its pipes could be taken"));
        };
        // Before the child has done anything: it has just replaced our program by its own.
        file_limit::restore_for(pid);
        leash.tie(pid);
        let exit = reap(child, until_gone);
        Ok((Self { pid, leash, exit, killed: AtomicBool::new(false) }, Pipes { stdin, stdout, stderr }))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The memory that the child and its group hold, in bytes, where the system tells. Reads files.
    pub(crate) fn resident(&self) -> Option<u64> {
        os::resident_in_group(self.pid)
    }

    /// Sees the child's end.
    pub(crate) fn exit(&self) -> ExitWatch {
        self.exit.clone()
    }

    /// Ends the whole tree. The caller has closed, or will drop, the child's stdin.
    pub(crate) async fn end(&self, manner: Manner) {
        match manner {
            Manner::Politely => {
                if tokio::time::timeout(Self::STDIN_GRACE, self.exit.ended()).await.is_err() {
                    os::ask_group_to_end(self.pid);
                    let _ = tokio::time::timeout(Self::TERM_GRACE, self.exit.ended()).await;
                }
            }
            Manner::AtOnce => {}
        }
        if let Some(stragglers) = self.kill_group() {
            // Reads a file of every process there is, which takes milliseconds that other upstreams must not pay
            // for. It goes on even if nobody waits for it.
            let _ = tokio::task::spawn_blocking(move || stragglers.kill()).await;
        }
        // The kernel may hold a process that nobody can kill; nobody waits for it either.
        let _ = tokio::time::timeout(Self::KILL_GRACE, self.exit.ended()).await;
    }

    /// Kills the group, once; whoever left it is left to do.
    fn kill_group(&self) -> Option<Stragglers> {
        if self.killed.swap(true, Ordering::AcqRel) {
            return None;
        }
        os::kill_group(self.pid);
        Some(Stragglers { leader: self.pid, leash: self.leash.clone() })
    }
}

/// Whoever left the group of `leader` but still carries our tag.
struct Stragglers {
    leader: u32,
    leash: Leash,
}

impl Stragglers {
    fn kill(&self) {
        os::kill_tagged(Leash::VARIABLE, self.leash.tag());
        self.leash.untie(self.leader);
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        if let Some(stragglers) = self.kill_group() {
            stragglers.kill();
        }
    }
}

/// Waits for the child in a task of its own, so that it never becomes a zombie, whoever forgets about it.
fn reap(mut child: Child, until_gone: TaskTrackerToken) -> ExitWatch {
    let (tell, exit) = watch::channel(None);
    tokio::spawn(async move {
        let _until_gone = until_gone;
        let status = child.wait().await;
        let ended = match status {
            Ok(status) => Exit { code: status.code(), signal: os::signal_of(status) },
            Err(_) => Exit { code: None, signal: None },
        };
        let _ = tell.send(Some(ended));
    });
    ExitWatch(exit)
}

/// What a failure to start means.
pub(crate) fn why_not_started(error: &io::Error, program: &str) -> Observed {
    let hint = || command_hint(program).map(|hint| format!("; {hint}")).unwrap_or_default();
    if let Some(text) = file_limit::exhausted_by_start(error) {
        return Observed::LacksResources(text.to_owned());
    }
    match error.kind() {
        io::ErrorKind::NotFound => Observed::NoExecutable(match Path::new(program).components().count() {
            1 => format!("command `{program}` was not found on the PATH of its environment{}", hint()),
            _ => format!("command `{program}` was not found{}", hint()),
        }),
        io::ErrorKind::PermissionDenied => {
            Observed::NoExecutable(format!("command `{program}` may not be executed: permission denied"))
        }
        _ if os::is_not_a_program(error) => {
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
    fn b03_what_has_run_out_is_told_from_what_is_wrong_with_a_server() {
        let seen =
            |errno: Errno| why_not_started(&io::Error::from_raw_os_error(errno.raw_os_error()), "server");
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN] {
            assert!(matches!(seen(errno), Observed::LacksResources(_)), "{errno:?}: {:?}", seen(errno));
        }
        assert!(matches!(seen(Errno::NOENT), Observed::NoExecutable(_)));
        assert!(matches!(seen(Errno::IO), Observed::SpawnFailed(_)));
    }
}

//! Limit of open files: raised at the start of the process, and restored for child processes, because some programs
//! loop over all descriptors or cannot use large ones. Also tells which errors mean that a resource has run out.

use std::io;
#[cfg(unix)]
use std::sync::OnceLock;

pub use gripfast_core::descriptors::DescriptorNeeds;

/// The soft limit before it was raised.
#[cfg(unix)]
static SOFT_LIMIT_BEFORE: OnceLock<u64> = OnceLock::new();

/// More than gripfast needs. Some systems refuse to set an unlimited value.
#[cfg(unix)]
const MAX_LIMIT: u64 = 1 << 20;

/// Raises the soft limit of open files to the hard limit and returns the resulting limit. If the system refuses, the
/// limit stays. Child processes on Linux get the limit from before; elsewhere they inherit the raised one.
#[cfg(unix)]
pub fn raise() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let before = current.unwrap_or(u64::MAX);
    let wanted = maximum.unwrap_or(u64::MAX).min(MAX_LIMIT);
    if wanted <= before {
        return Some(before);
    }
    // macOS has an additional limit below the reported hard limit.
    for wanted in [wanted, 10_240] {
        let raised = Rlimit { current: Some(wanted), maximum };
        if wanted > before && setrlimit(Resource::Nofile, raised).is_ok() {
            let _ = SOFT_LIMIT_BEFORE.set(before);
            return Some(wanted);
        }
    }
    Some(before)
}

/// There is no such limit on this system.
#[cfg(not(unix))]
pub fn raise() -> Option<u64> {
    None
}

/// Restores the original limit for a child process.
#[cfg(target_os = "linux")]
pub(crate) fn restore_for(child: u32) {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    let (Some(before), Some(child)) =
        (SOFT_LIMIT_BEFORE.get(), i32::try_from(child).ok().and_then(Pid::from_raw))
    else {
        return;
    };
    let as_before = Rlimit { current: Some(*before), maximum: getrlimit(Resource::Nofile).maximum };
    // The child may have ended already.
    let _ = prlimit(Some(child), Resource::Nofile, as_before);
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn restore_for(_child: u32) {}

/// The resource that has run out, if `error` says so.
#[cfg(unix)]
pub fn exhausted(error: &io::Error) -> Option<&'static str> {
    use rustix::io::Errno;
    let code = error.raw_os_error()?;
    let descriptions = [
        (Errno::MFILE, "gripfast has no free file descriptors"),
        (Errno::NFILE, "this machine has no free file descriptors"),
        (Errno::NOMEM, "this machine has no free memory"),
        (Errno::NOBUFS, "this machine has no free memory for connections"),
    ];
    descriptions.into_iter().find(|(errno, _)| errno.raw_os_error() == code).map(|(_, text)| text)
}

/// The resource that has run out, if `error` says so.
#[cfg(not(unix))]
pub fn exhausted(error: &io::Error) -> Option<&'static str> {
    (error.kind() == io::ErrorKind::OutOfMemory).then_some("this machine has no free memory")
}

/// The resource that the start of a process lacks, including the limit of processes.
pub(crate) fn exhausted_by_start(error: &io::Error) -> Option<&'static str> {
    let too_many =
        || (error.kind() == io::ErrorKind::WouldBlock).then_some("this user may start no more processes");
    exhausted(error).or_else(too_many)
}

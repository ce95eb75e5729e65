//! The limit of open files of this process: raised at the start, and given to children as it was before, because some
//! programs loop over all descriptors or cannot use large ones. Which errors mean that something has run out is here, too.

use std::io;
#[cfg(unix)]
use std::sync::OnceLock;

pub use gripfast_core::descriptors::Needs;

/// The soft limit before it was raised.
#[cfg(unix)]
static BEFORE: OnceLock<u64> = OnceLock::new();

/// More than any process of ours uses. Some systems refuse to set a limit that they call unlimited.
#[cfg(unix)]
const MOST: u64 = 1 << 20;

/// Raises the soft limit of open files to the hard one, and answers with the limit that counts then. Where the system
/// does not say or does not let us, the limit stays as it is. Children are started with the limit from before; on
/// systems other than Linux they inherit the raised one.
#[cfg(unix)]
pub fn raise() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let before = current.unwrap_or(u64::MAX);
    let wanted = maximum.unwrap_or(u64::MAX).min(MOST);
    if wanted <= before {
        return Some(before);
    }
    // macOS has a limit of its own, below what it calls the hard one.
    for wanted in [wanted, 10_240] {
        let raised = Rlimit { current: Some(wanted), maximum };
        if wanted > before && setrlimit(Resource::Nofile, raised).is_ok() {
            let _ = BEFORE.set(before);
            return Some(wanted);
        }
    }
    Some(before)
}

/// Elsewhere there is no such limit.
#[cfg(not(unix))]
pub fn raise() -> Option<u64> {
    None
}

/// Gives a child that was just started the limit that this process had before it was raised.
#[cfg(target_os = "linux")]
pub(crate) fn restore_for(child: u32) {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    let (Some(before), Some(child)) = (BEFORE.get(), i32::try_from(child).ok().and_then(Pid::from_raw))
    else {
        return;
    };
    let as_before = Rlimit { current: Some(*before), maximum: getrlimit(Resource::Nofile).maximum };
    // It may have ended already.
    let _ = prlimit(Some(child), Resource::Nofile, as_before);
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn restore_for(_child: u32) {}

/// What this process or machine has run out of, if `error` says so.
#[cfg(unix)]
pub fn exhausted(error: &io::Error) -> Option<&'static str> {
    use rustix::io::Errno;
    let code = error.raw_os_error()?;
    let means = [
        (Errno::MFILE, "gripfast has no free file descriptors"),
        (Errno::NFILE, "this machine has no free file descriptors"),
        (Errno::NOMEM, "this machine has no free memory"),
        (Errno::NOBUFS, "this machine has no free memory for connections"),
    ];
    means.into_iter().find(|(errno, _)| errno.raw_os_error() == code).map(|(_, text)| text)
}

/// What this process or machine has run out of, if `error` says so.
#[cfg(not(unix))]
pub fn exhausted(error: &io::Error) -> Option<&'static str> {
    (error.kind() == io::ErrorKind::OutOfMemory).then_some("this machine has no free memory")
}

/// The same for the start of a process, which a limit of processes can forbid.
pub(crate) fn exhausted_by_start(error: &io::Error) -> Option<&'static str> {
    let too_many =
        || (error.kind() == io::ErrorKind::WouldBlock).then_some("this user may start no more processes");
    exhausted(error).or_else(too_many)
}

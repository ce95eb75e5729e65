//! Common parts of the ledger and the audit log: segment files that one process at a time writes to, locks that show
//! whether it still lives, and the state of writing while it fails.

use crate::private_files;
use std::fs::{self, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Detail that the ledger or the audit log records of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordDetail {
    /// Nothing is recorded.
    Nothing,
    /// Everything but the arguments, of which only a digest is recorded.
    Digest,
    /// The arguments too, up to 16 KiB of them, redacted.
    Arguments,
}

impl RecordDetail {
    /// Returns the name in the config and in status.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "off",
            Self::Digest => "digest",
            Self::Arguments => "arguments",
        }
    }
}

/// Returns the segments of a directory, sorted by name. A directory that does not exist has none.
pub(super) fn segments(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let files = match fs::read_dir(directory) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = files.map(|file| Ok(file?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    paths.sort_unstable();
    Ok(paths)
}

/// Returns whether another process holds the lock of a file.
pub(super) fn is_locked(path: &Path) -> bool {
    // A lock that cannot be tested counts as free: locks are the only sign that a process lives.
    let lock = private_files::open(path, |how| how.read(true)).map(|file| file.try_lock_shared());
    matches!(lock, Ok(Err(TryLockError::WouldBlock)))
}

/// A number that tells apart files and runs that begin in the same millisecond.
pub(super) fn unique_suffix() -> u64 {
    crate::clock::unique_number() & 0xffff
}

/// Failed writes. The first failure and the recovery are logged by the owner, nothing in between.
#[derive(Debug, Default)]
pub(super) struct WriteFailures {
    /// Cause of the last failure, until a write succeeds, and the number of failures until then.
    present: Option<(String, u64)>,
    total: u64,
}

impl WriteFailures {
    /// Records `count` failures. Returns whether writing worked before.
    pub(super) fn add(&mut self, cause: String, count: u64) -> bool {
        self.total += count;
        let before = self.present.as_ref().map(|(_, failed)| *failed);
        self.present = Some((cause, before.unwrap_or(0) + count));
        before.is_none()
    }

    /// Records that writing works. Returns the number of failures before, if it has failed.
    pub(super) fn clear(&mut self) -> Option<u64> {
        self.present.take().map(|(_, failed)| failed)
    }

    /// Returns the reason why nothing can be written at present.
    pub(super) fn cause(&self) -> Option<&str> {
        self.present.as_ref().map(|(cause, _)| cause.as_str())
    }

    /// Returns the number of failures since the start.
    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_and_the_recovery_are_told_apart() {
        let mut failures = WriteFailures::default();
        assert_eq!((failures.clear(), failures.cause()), (None, None));
        assert!(failures.add("full".to_owned(), 2));
        assert!(!failures.add("slow".to_owned(), 1));
        assert_eq!((failures.cause(), failures.total()), (Some("slow"), 3));
        assert_eq!((failures.clear(), failures.clear()), (Some(3), None));
        assert!(failures.add("full".to_owned(), 0), "it worked meanwhile");
        assert_eq!((failures.clear(), failures.total()), (Some(0), 3));
    }

    #[test]
    fn a_directory_that_does_not_exist_has_no_segments() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(segments(&directory.path().join("absent")).unwrap(), Vec::<PathBuf>::new());
        for name in ["b.jsonl", "a.jsonl", "a.lock"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let names = ["a.jsonl", "b.jsonl"].map(|name| directory.path().join(name));
        assert_eq!(segments(directory.path()).unwrap(), names);
    }
}

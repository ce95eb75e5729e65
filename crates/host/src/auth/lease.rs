//! Who may replace a login: one at a time among all that share it, for a refresh token that is shown twice ends the login.

use crate::private_files;
use crate::transport::BoxFuture;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Gives one of all who share a login the right to replace it.
///
/// Processes of one machine that share a state directory lock files, and need nothing else. A program whose state
/// directory is on several machines, where locks on files mean little, brings leases of its own
/// ([`Logins::leased_by`](super::Logins::leased_by)), from a store such as Redis. There, to acquire is to set a key that
/// is not there (`SET login NUMBER NX PX …`); the lease renews its key while it is held, and dropping it deletes the key
/// if it is still its own. Whoever may sleep while its key runs out needs a number that only grows beside the login too,
/// to find that somebody else was faster.
pub trait Leases: Send + Sync {
    /// Waits until nobody else replaces this login, but no longer than `within`. `login` is a file name: it names the
    /// server and a digest of its address. An error is taken as passing: what is held stays in use, and it is tried again.
    fn acquire(&self, login: &str, within: Duration) -> BoxFuture<'_, io::Result<Lease>>;
}

/// The right to replace a login. Dropping it gives it back, and so must the end of the process.
pub struct Lease(#[expect(dead_code, reason = "whatever it is, it is held until it is dropped")] Held);

type Held = Option<Box<dyn Send + Sync>>;

impl Lease {
    /// A right that lasts until `guard` is dropped.
    #[must_use]
    pub fn of(guard: impl Send + Sync + 'static) -> Self {
        Self(Some(Box::new(guard)))
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Lease")
    }
}

/// Locks on files, which the system releases when a process dies.
pub(crate) struct FileLeases {
    /// Where the files are.
    pub(crate) directory: PathBuf,
}

impl FileLeases {
    /// How often a lock that another process holds is tried.
    const TRY_EVERY: Duration = Duration::from_millis(20);
}

impl Leases for FileLeases {
    fn acquire(&self, login: &str, within: Duration) -> BoxFuture<'_, io::Result<Lease>> {
        let path = self.directory.join(format!("{login}.lock"));
        Box::pin(async move {
            let Some(file) = private_files::blocking(move || lock_at(&path)).await?? else {
                return Ok(Lease(None));
            };
            let trying = async {
                loop {
                    match file.try_lock() {
                        Ok(()) => return Ok(()),
                        Err(TryLockError::WouldBlock) => tokio::time::sleep(Self::TRY_EVERY).await,
                        Err(TryLockError::Error(error)) => return Err(error),
                    }
                }
            };
            match tokio::time::timeout(within, trying).await {
                Ok(locked) => locked?,
                Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "another process holds it")),
            }
            Ok(Lease::of(file))
        })
    }
}

/// The file to lock. There is none where nothing can be written: then a login can be used, and nobody takes turns.
fn lock_at(path: &Path) -> io::Result<Option<File>> {
    let made = path.parent().map_or(Ok(()), private_files::make_part);
    let opened = made.and_then(|()| private_files::open_lock(path));
    opened.map(Some).or_else(|error| without_writing(path, error))
}

/// Somebody else may be able to write there, and has made the file then: it can be locked all the same.
fn without_writing(path: &Path, error: io::Error) -> io::Result<Option<File>> {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            Ok(private_files::open(path, |how| how.read(true)).ok())
        }
        _ => Err(error),
    }
}

/// For logins that no other process knows of: within one, [`super::Credential`] takes turns by itself.
pub(crate) struct Alone;

impl Leases for Alone {
    fn acquire(&self, _login: &str, _within: Duration) -> BoxFuture<'_, io::Result<Lease>> {
        Box::pin(std::future::ready(Ok(Lease(None))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E01
    #[tokio::test]
    async fn e01_two_that_replace_a_login_take_turns() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| FileLeases { directory: dir.path().join("logins") });
        let first = one.acquire("notes", Duration::from_secs(1)).await.unwrap();
        assert!(other.acquire("notes", Duration::from_millis(50)).await.is_err());
        other.acquire("wiki", Duration::from_secs(1)).await.unwrap();
        drop(first);
        other.acquire("notes", Duration::from_secs(1)).await.unwrap();
    }

    #[test]
    fn e02_where_nothing_can_be_written_a_lock_that_is_there_is_taken_and_one_that_is_not_is_done_without() {
        let dir = tempfile::tempdir().unwrap();
        let (there, missing) = (dir.path().join("notes.lock"), dir.path().join("wiki.lock"));
        std::fs::write(&there, "").unwrap();
        for kind in [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied] {
            let found = without_writing(&there, kind.into()).unwrap().expect("it is there");
            found.try_lock().unwrap();
            assert!(without_writing(&missing, kind.into()).unwrap().is_none());
        }
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::Other] {
            assert!(without_writing(&there, kind.into()).is_err(), "this passes: {kind}");
        }
    }
}

//! Who may replace a login: one at a time among all that share it, for a refresh token that is shown twice ends the login.

use super::private;
use crate::transport::BoxFuture;
use std::fs::TryLockError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Gives one of all who share a login the right to replace it.
///
/// Those who share it are the processes of one machine today, and files are locked ([`FileLeases`]). Replicas on several
/// machines would share the records and the leases in a store such as Redis. There, to acquire is to set a key that is
/// not there (`SET login NUMBER NX PX …`) to a number that only grows. The lease renews its key while it is held, and
/// dropping it deletes the key if the number is still its own. The number goes into the record: a holder that was
/// asleep while its key ran out, and somebody else replaced the login, then finds a higher number and writes nothing.
pub(crate) trait Leases: Send + Sync {
    /// Waits until nobody else replaces this login, but no longer than `within`.
    fn acquire(&self, login: &str, within: Duration) -> BoxFuture<'_, io::Result<Lease>>;
}

/// The right to replace a login. Dropping it gives it back, and so does the end of the process.
pub(crate) struct Lease(#[expect(dead_code, reason = "whatever it is, it is held until it is dropped")] Held);

type Held = Option<Box<dyn Send + Sync>>;

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
            let file = private::blocking(move || private::open(&path)).await??;
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
            Ok(Lease(Some(Box::new(file))))
        })
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
}

//! Leases for replacing a login: one process at a time, because a refresh token that is used twice ends the login.

use super::http::REQUEST_TIMEOUT;
use crate::clock::Clock;
use crate::private_files;
use crate::shared_state::{SharedState, StateError, StateTable};
use crate::transport::BoxFuture;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Grants one of the processes that share a login the right to replace it.
///
/// Processes of one machine that share a state directory lock files, and need nothing else. A program whose state
/// directory is on several machines, where file locks are unreliable, brings its own leases
/// ([`Logins::with_leases`](super::Logins::with_leases)), for example from Redis. There, a lease is acquired by setting
/// a key that does not exist (`SET login NUMBER NX PX …`); it renews its key while it is held, and deletes it on drop
/// if the key is still its own. A process that may be suspended while its key expires also needs a number that only
/// grows beside the login, to detect that another process was faster.
pub trait Leases: Send + Sync {
    /// Waits until no other process replaces this login, but no longer than `within`. `login` is a file name: it holds
    /// the name of the server and a digest of its address. An error is taken as temporary: the current token stays in
    /// use, and the renewal is tried again.
    fn acquire(&self, login: &str, within: Duration) -> BoxFuture<'_, io::Result<RefreshLease>>;
}

/// The right to replace a login. Dropping it releases it, and so must the end of the process.
pub struct RefreshLease(Held);

enum Held {
    /// A guard of any kind, or none.
    Guard(#[expect(dead_code, reason = "held until it is dropped")] Option<Box<dyn Send + Sync>>),
    /// A claim in the state that several hosts share. It ends by time, so it is confirmed before it is used.
    Claim(SharedClaim),
}

impl RefreshLease {
    /// Creates a lease that lasts until `guard` is dropped.
    #[must_use]
    pub fn new(guard: impl Send + Sync + 'static) -> Self {
        Self(Held::Guard(Some(Box::new(guard))))
    }

    const fn none() -> Self {
        Self(Held::Guard(None))
    }

    /// Returns whether the lease is still held, and the login still has this version.
    pub(crate) async fn is_valid(&self, version: u64) -> io::Result<bool> {
        match &self.0 {
            Held::Guard(_) => Ok(true),
            Held::Claim(SharedClaim { shared, login, number, clock, .. }) => {
                let is_confirmed = shared.confirm(login, *number, version).await.map_err(io::Error::other)?;
                // The process may have been suspended since the answer was made.
                Ok(is_confirmed && clock.elapsed() <= SharedLeases::SEND_WITHIN)
            }
        }
    }

    /// Releases the lease and waits for it. A command needs this: its process ends before work in the background does.
    pub(crate) async fn release(self) {
        if let Held::Claim(mut claim) = self.0 {
            claim.given_back().await;
        }
    }
}

struct SharedClaim {
    shared: Arc<dyn SharedState>,
    login: String,
    number: u64,
    /// Started before the claim was made.
    clock: Clock,
    is_given_back: bool,
}

impl SharedClaim {
    fn given_back(&mut self) -> BoxFuture<'static, ()> {
        self.is_given_back = true;
        Arc::clone(&self.shared).release(std::mem::take(&mut self.login), self.number)
    }
}

impl Drop for SharedClaim {
    fn drop(&mut self) {
        if !self.is_given_back
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(self.given_back());
        }
    }
}

/// Leases in the state that several hosts share.
pub(crate) struct SharedLeases(pub(crate) Arc<dyn SharedState>);

impl SharedLeases {
    /// Time from the claim within which the request of a refresh may be sent.
    const SEND_WITHIN: Duration = Duration::from_secs(10);
    /// Time by which a claim outlasts the request, for storing the new login and for clocks of different speed.
    const MARGIN: Duration = Duration::from_secs(10);
    /// Lifetime of a claim: 40 s.
    const LIFETIME: Duration =
        Duration::from_secs(Self::SEND_WITHIN.as_secs() + REQUEST_TIMEOUT.as_secs() + Self::MARGIN.as_secs());
    /// Interval at which a claim of another host is tried again.
    const RETRY_INTERVAL: Duration = Duration::from_millis(100);
}

impl Leases for SharedLeases {
    fn acquire(&self, login: &str, within: Duration) -> BoxFuture<'_, io::Result<RefreshLease>> {
        let login = login.to_owned();
        Box::pin(async move {
            let claiming = async {
                loop {
                    let clock = Clock::new();
                    match self.0.claim(&login, Self::LIFETIME).await {
                        Ok(Some(number)) => return Ok((number, clock)),
                        Ok(None) => tokio::time::sleep(Self::RETRY_INTERVAL).await,
                        Err(StateError::Later { left, .. }) => tokio::time::sleep(left).await,
                        Err(error) => return Err(io::Error::other(error)),
                    }
                }
            };
            let (number, clock) = match tokio::time::timeout(within, claiming).await {
                Ok(claimed) => claimed?,
                Err(_) => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "another replica replaces it"));
                }
            };
            let shared = Arc::clone(&self.0);
            let claim = SharedClaim { shared, login, number, clock, is_given_back: false };
            // Another host may have replaced the login while this one waited.
            self.0.refresh(StateTable::Logins).await.map_err(io::Error::other)?;
            Ok(RefreshLease(Held::Claim(claim)))
        })
    }
}

impl std::fmt::Debug for RefreshLease {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Lease")
    }
}

/// File locks, which the system releases when a process dies.
pub(crate) struct FileLeases {
    /// Directory of the lock files.
    pub(crate) directory: PathBuf,
}

impl FileLeases {
    /// Interval at which a lock that another process holds is tried again.
    const RETRY_INTERVAL: Duration = Duration::from_millis(20);
}

impl Leases for FileLeases {
    fn acquire(&self, login: &str, within: Duration) -> BoxFuture<'_, io::Result<RefreshLease>> {
        let path = self.directory.join(format!("{login}.lock"));
        Box::pin(async move {
            let Some(file) = private_files::blocking(move || open_lock_file(&path)).await?? else {
                return Ok(RefreshLease::none());
            };
            let trying = async {
                loop {
                    match file.try_lock() {
                        Ok(()) => return Ok(()),
                        Err(TryLockError::WouldBlock) => tokio::time::sleep(Self::RETRY_INTERVAL).await,
                        Err(TryLockError::Error(error)) => return Err(error),
                    }
                }
            };
            match tokio::time::timeout(within, trying).await {
                Ok(locked) => locked?,
                Err(_) => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "another process holds the lock"));
                }
            }
            Ok(RefreshLease::new(file))
        })
    }
}

/// Opens the file to lock. `None` where nothing can be written: the login is then used without a lease.
fn open_lock_file(path: &Path) -> io::Result<Option<File>> {
    let made = path.parent().map_or(Ok(()), private_files::create_subdirectory);
    let opened = made.and_then(|()| private_files::open_lock(path));
    opened.map(Some).or_else(|error| open_existing_lock(path, error))
}

/// Opens an existing lock file for reading: another user may be able to write there, and have created it.
fn open_existing_lock(path: &Path, error: io::Error) -> io::Result<Option<File>> {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            Ok(private_files::open(path, |how| how.read(true)).ok())
        }
        _ => Err(error),
    }
}

/// Leases for logins that no other process knows: within one process, [`super::Credential`] serialises renewals itself.
pub(crate) struct NoLeases;

impl Leases for NoLeases {
    fn acquire(&self, _login: &str, _within: Duration) -> BoxFuture<'_, io::Result<RefreshLease>> {
        Box::pin(std::future::ready(Ok(RefreshLease::none())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_state::StateField;
    use crate::sync::Mutex;
    use tokio::sync::watch;

    /// E01
    #[tokio::test]
    async fn e01_only_one_process_at_a_time_replaces_a_login() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| FileLeases { directory: dir.path().join("logins") });
        let first = one.acquire("notes", Duration::from_secs(1)).await.unwrap();
        assert!(other.acquire("notes", Duration::from_millis(50)).await.is_err());
        other.acquire("wiki", Duration::from_secs(1)).await.unwrap();
        drop(first);
        other.acquire("notes", Duration::from_secs(1)).await.unwrap();
    }

    /// Grants every claim, and records the lifetime of the last one.
    #[derive(Default)]
    struct GrantingState(Mutex<Duration>);

    impl SharedState for GrantingState {
        fn get(&self, _: StateTable, _: &str) -> StateField {
            StateField::default()
        }

        fn refresh(&self, _: StateTable) -> BoxFuture<'_, Result<(), StateError>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn set<'a>(
            &'a self,
            _: StateTable,
            _: &'a str,
            expected: u64,
            _: Option<String>,
        ) -> BoxFuture<'a, Result<u64, StateError>> {
            Box::pin(std::future::ready(Ok(expected + 1)))
        }

        fn claim<'a>(
            &'a self,
            _: &'a str,
            lifetime: Duration,
        ) -> BoxFuture<'a, Result<Option<u64>, StateError>> {
            *self.0.lock() = lifetime;
            Box::pin(std::future::ready(Ok(Some(1))))
        }

        fn confirm<'a>(&'a self, _: &'a str, _: u64, _: u64) -> BoxFuture<'a, Result<bool, StateError>> {
            Box::pin(std::future::ready(Ok(true)))
        }

        fn release(self: Arc<Self>, _: String, _: u64) -> BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }

        fn changes(&self) -> watch::Receiver<u64> {
            watch::Sender::default().subscribe()
        }
    }

    /// E01. The last moment to send, the request's own time limit, and 10 s.
    #[tokio::test(start_paused = true)]
    async fn e01_a_shared_lease_outlasts_the_latest_refresh_by_ten_seconds() {
        let state = Arc::new(GrantingState::default());
        let leases = SharedLeases(Arc::clone(&state) as Arc<dyn SharedState>);
        let lease = leases.acquire("notes", Duration::from_secs(1)).await.unwrap();
        let mut last_valid = Duration::ZERO;
        while lease.is_valid(1).await.unwrap() {
            assert!(last_valid < Duration::from_secs(60), "it ends");
            last_valid += Duration::from_millis(500);
            tokio::time::advance(Duration::from_millis(500)).await;
        }
        assert!(
            last_valid > Duration::from_secs(5),
            "a slow store does not prevent a refresh: {last_valid:?}"
        );
        let lifetime = *state.0.lock();
        assert!(
            lifetime >= last_valid - Duration::from_millis(500) + REQUEST_TIMEOUT + Duration::from_secs(10)
        );
    }

    #[test]
    fn e02_on_a_read_only_disk_an_existing_lock_is_used_and_a_missing_one_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let (there, missing) = (dir.path().join("notes.lock"), dir.path().join("wiki.lock"));
        std::fs::write(&there, "").unwrap();
        for kind in [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied] {
            let found = open_existing_lock(&there, kind.into()).unwrap().expect("it is there");
            found.try_lock().unwrap();
            assert!(open_existing_lock(&missing, kind.into()).unwrap().is_none());
        }
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::Other] {
            assert!(open_existing_lock(&there, kind.into()).is_err(), "this passes: {kind}");
        }
    }
}

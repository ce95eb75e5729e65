//! Where the login of one server is kept: a file of its own in `STATE_DIR/logins`, which only its owner may read. Any
//! number of gripfast processes share it. Whoever replaces a token holds the lock beside it from reading to writing, so
//! that no token is spent twice; a lease between several machines would go into [`Vault::lock`].

use gripfast_core::credential::Lifetime;
use gripfast_core::time::Wall;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// What is known of a login. It has no `Debug`: nearly all of it is secret.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The server that the tokens are for.
    pub(crate) resource: String,
    /// Who gave them. They are shown to nobody else.
    #[serde(default)]
    pub(crate) issuer: Option<String>,
    pub(crate) client_id: String,
    #[serde(default)]
    pub(crate) client_secret: Option<String>,
    #[serde(default)]
    pub(crate) access_token: Option<String>,
    #[serde(default)]
    pub(crate) refresh_token: Option<String>,
    /// Seconds since 1970.
    #[serde(default)]
    pub(crate) received_at: u64,
    /// Seconds from then on.
    #[serde(default)]
    pub(crate) expires_in: Option<u64>,
    /// What was granted.
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
    /// What the server has asked for besides; the next login asks for it.
    #[serde(default)]
    pub(crate) wanted: Vec<String>,
}

impl Record {
    pub(crate) fn lifetime(&self) -> Lifetime {
        Lifetime {
            received: Wall::at(Duration::from_secs(self.received_at)),
            lasts: self.expires_in.map(Duration::from_secs),
        }
    }
}

/// Tells one content of the file from another without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
}

/// The place of one server's login.
#[derive(Clone)]
pub(crate) enum Vault {
    Disk {
        file: PathBuf,
        lock: PathBuf,
    },
    /// Without a state directory it ends with the process.
    Memory(Arc<Mutex<Option<Record>>>),
}

/// Held by whoever replaces the login. Dropping it gives it back.
pub(crate) struct Lock(#[expect(dead_code, reason = "it is the open file that holds the lock")] Option<File>);

impl Vault {
    /// How often a lock that another process holds is tried.
    const TRY_EVERY: Duration = Duration::from_millis(20);

    /// The login of the server `name`, which the config says is at `address`.
    pub(crate) fn of(state_dir: Option<&Path>, name: &str, address: &str) -> Self {
        let Some(state_dir) = state_dir else { return Self::Memory(Arc::default()) };
        let digest = Sha256::digest(address.as_bytes());
        let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let logins = state_dir.join("logins");
        let file = logins.join(format!("{name}-{digest}.json"));
        Self::Disk { lock: file.with_extension("lock"), file }
    }

    /// What is kept, and the look of it. What cannot be read is not there.
    pub(crate) async fn load(&self) -> (Option<Record>, Option<Stamp>) {
        match self {
            Self::Disk { file, .. } => {
                let file = file.clone();
                blocking(move || {
                    let stamp = stamp_of(&file);
                    let record = std::fs::read(&file).ok();
                    (record.and_then(|bytes| serde_json::from_slice(&bytes).ok()), stamp)
                })
                .await
                .unwrap_or_default()
            }
            Self::Memory(kept) => (kept.lock().unwrap_or_else(PoisonError::into_inner).clone(), None),
        }
    }

    /// The look of what is kept.
    pub(crate) async fn stamp(&self) -> Option<Stamp> {
        match self {
            Self::Disk { file, .. } => {
                let file = file.clone();
                blocking(move || stamp_of(&file)).await.ok().flatten()
            }
            Self::Memory(_) => None,
        }
    }

    /// Keeps this in the place of what was there. A reader sees one or the other, and nobody else sees either.
    pub(crate) async fn save(&self, record: &Record) -> io::Result<()> {
        match self {
            Self::Disk { file, .. } => {
                let (file, bytes) = (file.clone(), serde_json::to_vec(record)?);
                blocking(move || write_privately(&file, &bytes)).await?
            }
            Self::Memory(kept) => {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.clone());
                Ok(())
            }
        }
    }

    /// Forgets it. Says whether there was anything.
    pub(crate) async fn remove(&self) -> io::Result<bool> {
        match self {
            Self::Disk { file, .. } => {
                let file = file.clone();
                blocking(move || match std::fs::remove_file(&file) {
                    Ok(()) => Ok(true),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                    Err(error) => Err(error),
                })
                .await?
            }
            Self::Memory(kept) => Ok(kept.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()),
        }
    }

    /// Waits until no other process replaces this login.
    pub(crate) async fn lock(&self, within: Duration) -> io::Result<Lock> {
        let Self::Disk { lock, .. } = self else { return Ok(Lock(None)) };
        let path = lock.clone();
        let file = blocking(move || open_privately(&path)).await??;
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
        Ok(Lock(Some(file)))
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}

fn stamp_of(file: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(file).ok()?;
    Some(Stamp { modified: found.modified().ok(), length: found.len() })
}

fn write_privately(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = file.with_extension(format!("{}.new", std::process::id()));
    let mut writing = open_privately(&beside)?;
    writing.set_len(0)?;
    writing.write_all(bytes)?;
    writing.sync_all()?;
    std::fs::rename(&beside, file)
}

/// Opens or makes a file, and its directory, that only their owner may use.
fn open_privately(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    let mut directory = std::fs::DirBuilder::new();
    directory.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        options.mode(0o600);
        directory.mode(0o700);
    }
    if let Some(parent) = file.parent() {
        directory.create(parent)?;
    }
    options.open(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(token: &str) -> Record {
        Record {
            resource: "https://example.com/mcp".to_owned(),
            issuer: None,
            client_id: "me".to_owned(),
            client_secret: None,
            access_token: Some(token.to_owned()),
            refresh_token: None,
            received_at: 0,
            expires_in: None,
            scopes: Vec::new(),
            wanted: Vec::new(),
        }
    }

    /// E04
    #[cfg(unix)]
    #[tokio::test]
    async fn e04_only_the_owner_may_read_a_login() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let vault = Vault::of(Some(dir.path()), "github", "https://example.com/mcp");
        let _lock = vault.lock(Duration::from_secs(1)).await.unwrap();
        vault.save(&record("secret")).await.unwrap();
        let logins = dir.path().join("logins");
        assert_eq!(std::fs::metadata(&logins).unwrap().permissions().mode() & 0o777, 0o700);
        let files: Vec<_> = std::fs::read_dir(&logins).unwrap().map(|file| file.unwrap()).collect();
        assert_eq!(files.len(), 2);
        for file in files {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
        }
    }

    #[tokio::test]
    async fn a_login_belongs_to_one_address_and_is_gone_when_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let vault = Vault::of(Some(dir.path()), "github", "https://example.com/mcp");
        vault.save(&record("secret")).await.unwrap();
        let elsewhere = Vault::of(Some(dir.path()), "github", "https://example.org/mcp");
        assert!(elsewhere.load().await.0.is_none());
        assert!(vault.load().await.0.is_some_and(|found| found.access_token.as_deref() == Some("secret")));
        assert!(vault.remove().await.unwrap());
        assert!(!vault.remove().await.unwrap());
        assert!(vault.load().await.0.is_none());
    }

    /// E01
    #[tokio::test]
    async fn e01_two_that_replace_a_login_take_turns() {
        let dir = tempfile::tempdir().unwrap();
        let vault = Vault::of(Some(dir.path()), "github", "https://example.com/mcp");
        let first = vault.lock(Duration::from_secs(1)).await.unwrap();
        assert!(vault.lock(Duration::from_millis(50)).await.is_err());
        drop(first);
        vault.lock(Duration::from_secs(1)).await.unwrap();
    }
}

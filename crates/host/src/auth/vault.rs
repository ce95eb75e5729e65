//! Stored logins: encrypted, one file for each server in `STATE_DIR/logins`, readable by its owner only. Any number of
//! gripfast processes share it. A process that replaces a token holds the lease of the login from reading to writing,
//! so that no token is spent twice.

use super::lease::{FileLeases, Leases, NoLeases, RefreshLease, SharedLeases};
use super::record::Record;
use super::sealing_key::{KeyLocation, SealingKeyError};
use crate::config::LoginKey;
use crate::private_files;
use crate::shared_state::{SharedState, StateError, StateField, StateTable};
use crate::sync::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_util::task::TaskTracker;

/// Logins of a state directory, or of this process.
#[derive(Clone)]
pub struct Logins {
    location: VaultLocation,
    leases: Arc<dyn Leases>,
    /// Renewals in progress of the hosts with these logins.
    pub(super) renewals: TaskTracker,
}

#[derive(Clone)]
enum VaultLocation {
    Disk {
        directory: PathBuf,
        key: KeyLocation,
    },
    /// Logins without a state directory, which end with the process.
    Memory(Arc<Mutex<BTreeMap<String, MemoryEntry>>>),
    /// Logins of several hosts. One that was made before this host shared its state is taken along.
    Shared {
        shared: Arc<dyn SharedState>,
        before: Box<Self>,
    },
}

struct MemoryEntry {
    version: u64,
    record: Option<Record>,
}

impl Logins {
    /// Creates a handle to the logins in this state directory, encrypted with a key of this kind. Without a directory
    /// they end with the process.
    #[must_use]
    pub fn new(state_dir: Option<&Path>, key: LoginKey) -> Self {
        let (location, leases): (_, Arc<dyn Leases>) = match state_dir {
            Some(state_dir) => {
                let directory = state_dir.join("logins");
                let leases = FileLeases { directory: directory.clone() };
                (
                    VaultLocation::Disk { key: KeyLocation::new(directory.clone(), key), directory },
                    Arc::new(leases),
                )
            }
            None => (VaultLocation::Memory(Arc::default()), Arc::new(NoLeases)),
        };
        Self { location, leases, renewals: TaskTracker::new() }
    }

    /// Uses leases of the embedding program instead of file locks.
    #[must_use]
    pub fn with_leases(self, leases: Arc<dyn Leases>) -> Self {
        Self { leases, ..self }
    }

    /// Keeps the logins in the state that several hosts share. Logins of the state directory are used until there is one
    /// in the shared state.
    #[must_use]
    pub fn with_shared_state(self, shared: Arc<dyn SharedState>) -> Self {
        let before = Box::new(self.location);
        let leases = Arc::new(SharedLeases(Arc::clone(&shared)));
        Self { location: VaultLocation::Shared { shared, before }, leases, renewals: self.renewals }
    }

    /// Waits, for a bounded time, until no renewal is in progress: a refresh token that was sent is spent, and only the
    /// answer has the next one.
    pub(crate) async fn wait_for_renewals(&self) {
        self.renewals.close();
        let _ = tokio::time::timeout(RENEWALS_TIMEOUT, self.renewals.wait()).await;
    }
}

/// Time limit for renewals at shutdown, the same as for calls.
const RENEWALS_TIMEOUT: Duration = Duration::from_secs(10);

/// Shows neither secrets nor their number.
impl std::fmt::Debug for Logins {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.location {
            VaultLocation::Disk { directory, .. } => write!(out, "Logins in {}", directory.display()),
            VaultLocation::Memory(_) => out.write_str("Logins in memory"),
            VaultLocation::Shared { .. } => out.write_str("Logins of several hosts"),
        }
    }
}

/// Tells one content from another without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ContentStamp {
    File { modified: Option<SystemTime>, length: u64 },
    Version(u64),
}

/// Stored state of a login.
pub(crate) enum StoredLogin {
    Absent,
    Login(Record),
    /// Not encrypted, as older versions have left it.
    Unsealed(Record),
    /// It cannot be decrypted any more.
    Lost(String),
    /// It cannot be read now.
    Unavailable(String),
}

impl StoredLogin {
    /// Returns the login, if it can be read.
    pub(crate) fn login(self) -> Option<Record> {
        match self {
            Self::Login(record) | Self::Unsealed(record) => Some(record),
            Self::Absent | Self::Lost(_) | Self::Unavailable(_) => None,
        }
    }
}

/// File format of a login.
#[derive(Serialize, Deserialize)]
struct Sealed {
    sealed: String,
}

/// Storage of one server's login.
#[derive(Clone)]
pub(crate) struct Vault {
    location: VaultLocation,
    /// Name of the login among the others.
    login: String,
    leases: Arc<dyn Leases>,
}

impl Vault {
    /// Creates the storage for the login of the server `name`, with `address` from the config.
    pub(crate) fn new(logins: &Logins, name: &str, address: &str) -> Self {
        let digest = Sha256::digest(address.as_bytes());
        let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let Logins { location, leases, .. } = logins.clone();
        Self { location, login: format!("{name}-{digest}"), leases }
    }

    /// Loads the login, and its stamp.
    pub(crate) async fn load(&self) -> (StoredLogin, Option<ContentStamp>) {
        let (file, key) = match &self.location {
            VaultLocation::Disk { directory, key } => (self.file(directory), key),
            VaultLocation::Memory(kept) => {
                let kept = kept.lock();
                let entry = kept.get(&self.login);
                let record = entry.and_then(|entry| entry.record.clone());
                let stamp = entry.map(|entry| ContentStamp::Version(entry.version));
                return (record.map_or(StoredLogin::Absent, StoredLogin::Login), stamp);
            }
            VaultLocation::Shared { shared, before } => {
                return Box::pin(self.load_shared(&**shared, before)).await;
            }
        };
        let read = private_files::blocking(move || (stamp_of(&file), read(&file))).await;
        let (stamp, read) = read.unwrap_or_else(|error| (None, Err(error)));
        let kept = match read {
            Ok(bytes) => self.decode(&bytes, key).await,
            Err(error) if error.kind() == io::ErrorKind::NotFound => StoredLogin::Absent,
            Err(error) => StoredLogin::Unavailable(format!("the stored login cannot be read: {error}")),
        };
        (kept, stamp)
    }

    async fn load_shared(
        &self,
        shared: &dyn SharedState,
        before: &VaultLocation,
    ) -> (StoredLogin, Option<ContentStamp>) {
        let read = || {
            let StateField { version, value } = shared.get(StateTable::Logins, &self.login);
            let stored = value.map_or(StoredLogin::Absent, |value| {
                let damaged = || StoredLogin::Lost("the login of the service cannot be read".to_owned());
                serde_json::from_str(&value).map_or_else(|_| damaged(), StoredLogin::Login)
            });
            (stored, (version > 0).then_some(ContentStamp::Version(version)))
        };
        let (stored, stamp) = read();
        if stamp.is_some() {
            return (stored, stamp);
        }
        let before =
            Self { location: before.clone(), login: self.login.clone(), leases: Arc::clone(&self.leases) };
        let (stored, _) = Box::pin(before.load()).await;
        let Some(record) = stored.login() else { return (StoredLogin::Absent, None) };
        let Ok(value) = serde_json::to_string(&record) else { return (StoredLogin::Absent, None) };
        match shared.set(StateTable::Logins, &self.login, 0, Some(value)).await {
            Ok(_) | Err(StateError::Changed) => read(),
            // It is taken along later.
            Err(_) => (StoredLogin::Login(record), None),
        }
    }

    async fn decode(&self, bytes: &[u8], key: &KeyLocation) -> StoredLogin {
        let Ok(Sealed { sealed }) = serde_json::from_slice(bytes) else {
            return match serde_json::from_slice(bytes) {
                Ok(record) => StoredLogin::Unsealed(record),
                Err(_) => StoredLogin::Lost("the stored login is damaged".to_owned()),
            };
        };
        let key = match key.find().await {
            Ok(key) => key,
            Err(SealingKeyError::Missing) => {
                return StoredLogin::Lost("the key of the stored login is missing or damaged".to_owned());
            }
            Err(SealingKeyError::Unavailable(why)) => {
                return StoredLogin::Unavailable(format!("the stored login cannot be decrypted: {why}"));
            }
        };
        let opened = key.open(&self.login, &sealed);
        let record = opened.and_then(|opened| serde_json::from_slice(&opened).ok());
        record.map_or_else(
            || StoredLogin::Lost("the stored login is encrypted with another key, or damaged".to_owned()),
            StoredLogin::Login,
        )
    }

    /// Returns the stamp of the stored login.
    pub(crate) async fn stamp(&self) -> Option<ContentStamp> {
        match &self.location {
            VaultLocation::Disk { directory, .. } => {
                let file = self.file(directory);
                private_files::blocking(move || stamp_of(&file)).await.ok().flatten()
            }
            VaultLocation::Memory(kept) => {
                kept.lock().get(&self.login).map(|entry| ContentStamp::Version(entry.version))
            }
            VaultLocation::Shared { shared, .. } => {
                let version = shared.get(StateTable::Logins, &self.login).version;
                (version > 0).then_some(ContentStamp::Version(version))
            }
        }
    }

    /// Ensures that a login can be encrypted, before a person is sent for one.
    pub(crate) async fn ensure_key(&self) -> io::Result<()> {
        match &self.location {
            VaultLocation::Disk { key, .. } => key.find_or_create().await.map(drop),
            VaultLocation::Memory(_) => Ok(()),
            // A login that cannot be stored is refused before a person is sent for one.
            VaultLocation::Shared { shared, .. } => {
                shared.refresh(StateTable::Logins).await.map_err(io::Error::other)
            }
        }
    }

    /// Replaces the stored login. A reader sees the old or the new one, and other users see neither. Where several
    /// hosts share it, it must still have the stamp with which it was read; if not, the error is `AlreadyExists`.
    pub(crate) async fn save(&self, record: &Record, read: Option<&ContentStamp>) -> io::Result<()> {
        match &self.location {
            VaultLocation::Shared { shared, .. } => {
                let value = serde_json::to_string(record)?;
                let set = shared.set(StateTable::Logins, &self.login, version_of(read), Some(value)).await;
                set.map(drop).map_err(not_set)
            }
            VaultLocation::Disk { directory, key } => {
                let sealed = key.find_or_create().await?.seal(&self.login, &serde_json::to_vec(record)?)?;
                let (file, bytes) = (self.file(directory), serde_json::to_vec(&Sealed { sealed })?);
                private_files::blocking(move || private_files::replace(&file, &bytes)).await?
            }
            VaultLocation::Memory(kept) => {
                self.set_in_memory(kept, Some(record.clone()));
                Ok(())
            }
        }
    }

    /// Removes the login. Returns whether there was one.
    pub(crate) async fn remove(&self) -> io::Result<bool> {
        match &self.location {
            VaultLocation::Disk { directory, .. } => {
                let file = self.file(directory);
                private_files::blocking(move || match std::fs::remove_file(&file) {
                    Ok(()) => Ok(true),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                    Err(error) => Err(error),
                })
                .await?
            }
            VaultLocation::Memory(kept) => Ok(self.set_in_memory(kept, None)),
            VaultLocation::Shared { shared, before } => {
                let StateField { version, value } = shared.get(StateTable::Logins, &self.login);
                let login = self.login.clone();
                let before = Self { location: (**before).clone(), login, leases: Arc::clone(&self.leases) };
                // A login from before is removed too, so that it does not come back.
                let was_before = Box::pin(before.remove()).await?;
                if value.is_some() {
                    let set = shared.set(StateTable::Logins, &self.login, version, None).await;
                    set.map_err(not_set)?;
                }
                Ok(was_before || value.is_some())
            }
        }
    }

    /// Waits until no other process replaces this login.
    pub(crate) async fn lease(&self, within: Duration) -> io::Result<RefreshLease> {
        self.leases.acquire(&self.login, within).await
    }

    /// Waits until no other process replaces this login, where [`Self::save`] does not find out by itself.
    pub(crate) async fn lease_to_save(&self, within: Duration) -> io::Result<Option<RefreshLease>> {
        match &self.location {
            VaultLocation::Shared { .. } => Ok(None),
            VaultLocation::Disk { .. } | VaultLocation::Memory(_) => self.lease(within).await.map(Some),
        }
    }

    /// Encrypts a login that is not encrypted, unless another process has done so meanwhile.
    pub(crate) async fn seal(&self, within: Duration) -> io::Result<()> {
        let _lease = self.lease(within).await?;
        match self.load().await.0 {
            StoredLogin::Unsealed(record) => self.save(&record, None).await,
            StoredLogin::Absent
            | StoredLogin::Login(_)
            | StoredLogin::Lost(_)
            | StoredLogin::Unavailable(_) => Ok(()),
        }
    }

    fn file(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{}.json", self.login))
    }

    fn set_in_memory(&self, kept: &Mutex<BTreeMap<String, MemoryEntry>>, record: Option<Record>) -> bool {
        let mut kept = kept.lock();
        let entry = kept.entry(self.login.clone()).or_insert(MemoryEntry { version: 0, record: None });
        entry.version += 1;
        std::mem::replace(&mut entry.record, record).is_some()
    }
}

/// Version of a shared login that was read with this stamp; zero if there was none.
pub(crate) fn version_of(stamp: Option<&ContentStamp>) -> u64 {
    match stamp {
        Some(ContentStamp::Version(version)) => *version,
        Some(ContentStamp::File { .. }) | None => 0,
    }
}

fn not_set(error: StateError) -> io::Error {
    match error {
        StateError::Changed => io::Error::new(io::ErrorKind::AlreadyExists, error),
        StateError::Later { .. } | StateError::Unavailable(_) => io::Error::other(error),
    }
}

/// Reads the bytes of a login, from a directory that is not a symlink.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    /// Tokens are a few thousand bytes.
    const LARGEST: u64 = 4 << 20;
    file.parent().map_or(Ok(()), private_files::check_subdirectory)?;
    private_files::read(file, LARGEST)
}

fn stamp_of(file: &Path) -> Option<ContentStamp> {
    let found = std::fs::symlink_metadata(file).ok()?;
    Some(ContentStamp::File { modified: found.modified().ok(), length: found.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(token: &str) -> Record {
        Record {
            resource: "https://example.com/mcp".to_owned(),
            audience: None,
            issuer: None,
            token_endpoint: None,
            revocation_endpoint: None,
            client_id: "me".to_owned(),
            client_secret: None,
            secret_in_body: false,
            access_token: Some(token.to_owned()),
            refresh_token: None,
            received_at: 0,
            expires_in: None,
            scopes: Vec::new(),
            wanted: Vec::new(),
            unknown: BTreeMap::new(),
        }
    }

    fn vault_in(state_dir: &Path) -> Vault {
        let logins = Logins::new(Some(state_dir), LoginKey::File);
        Vault::new(&logins, "github", "https://example.com/mcp")
    }

    fn files_of(state_dir: &Path) -> Vec<PathBuf> {
        std::fs::read_dir(state_dir.join("logins")).unwrap().map(|file| file.unwrap().path()).collect()
    }

    async fn token_in(vault: &Vault) -> Option<String> {
        vault.load().await.0.login().and_then(|record| record.access_token)
    }

    /// E04
    #[cfg(unix)]
    #[tokio::test]
    async fn e04_only_the_owner_may_read_a_login() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let vault = vault_in(dir.path());
        let _lease = vault.lease(Duration::from_secs(1)).await.unwrap();
        vault.save(&record("secret"), None).await.unwrap();
        let logins = dir.path().join("logins");
        assert_eq!(std::fs::metadata(&logins).unwrap().permissions().mode() & 0o777, 0o700);
        let files = files_of(dir.path());
        assert_eq!(files.len(), 4, "the login, its lease, the key and the lock of the key: {files:?}");
        for file in files {
            let mode = std::fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file:?}");
        }
    }

    /// E04
    #[cfg(unix)]
    #[tokio::test]
    async fn e04_no_part_of_a_login_is_read_or_written_through_a_symlink() {
        use std::os::unix::fs::symlink;
        let theirs = tempfile::tempdir().unwrap();
        vault_in(theirs.path()).save(&record("theirs"), None).await.unwrap();
        let before: Vec<_> =
            files_of(theirs.path()).iter().map(|file| std::fs::read(file).unwrap()).collect();
        let login = vault_in(theirs.path()).login;
        let parts = ["logins", "logins/key", "logins/key.lock", &format!("logins/{login}.json")];
        for part in parts {
            let dir = tempfile::tempdir().unwrap();
            if part != "logins" {
                std::fs::create_dir(dir.path().join("logins")).unwrap();
            }
            symlink(theirs.path().join(part), dir.path().join(part)).unwrap();
            let vault = vault_in(dir.path());
            let saved = vault.save(&record("mine"), None).await;
            assert_eq!(
                saved.is_ok(),
                part.ends_with(".json"),
                "a symlink instead of the login is replaced: {part}"
            );
            let after: Vec<_> =
                files_of(theirs.path()).iter().map(|file| std::fs::read(file).unwrap()).collect();
            assert_eq!(after, before, "{part}");
            assert_ne!(token_in(&vault).await.as_deref(), Some("theirs"), "{part}");
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("logins")).unwrap();
        let absent = theirs.path().join("absent");
        let vault = vault_in(dir.path());
        symlink(&absent, dir.path().join(format!("logins/{login}.lock"))).unwrap();
        assert!(vault.lease(Duration::from_secs(1)).await.is_err());
        assert!(!absent.exists());
    }

    /// E04
    #[tokio::test]
    async fn e04_no_file_holds_a_token_that_can_be_read_without_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let vault = vault_in(dir.path());
        vault.save(&record("a-token-to-look-for"), None).await.unwrap();
        for file in files_of(dir.path()) {
            let bytes = std::fs::read(&file).unwrap();
            assert!(memchr::memmem::find(&bytes, b"a-token-to-look-for").is_none(), "{file:?}");
        }
        assert_eq!(token_in(&vault).await.as_deref(), Some("a-token-to-look-for"));
    }

    /// E04
    #[tokio::test]
    async fn e04_an_unencrypted_login_of_an_older_version_is_read_and_encrypted() {
        let dir = tempfile::tempdir().unwrap();
        let vault = vault_in(dir.path());
        vault.save(&record("other"), None).await.unwrap();
        let login = dir.path().join("logins").join(format!("{}.json", vault.login));
        std::fs::write(&login, serde_json::to_vec(&record("plain")).unwrap()).unwrap();
        assert!(matches!(vault.load().await.0, StoredLogin::Unsealed(_)));
        vault.seal(Duration::from_secs(1)).await.unwrap();
        assert!(matches!(vault.load().await.0, StoredLogin::Login(_)));
        assert_eq!(token_in(&vault).await.as_deref(), Some("plain"));
        assert!(memchr::memmem::find(&std::fs::read(&login).unwrap(), b"plain").is_none());
    }

    #[tokio::test]
    async fn a_login_without_its_key_is_lost_and_the_next_one_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        let vault = vault_in(dir.path());
        vault.save(&record("first"), None).await.unwrap();
        std::fs::remove_file(dir.path().join("logins").join("key")).unwrap();
        assert!(matches!(vault.load().await.0, StoredLogin::Lost(why) if why.contains("is missing")));
        let another =
            Vault::new(&Logins::new(Some(dir.path()), LoginKey::File), "wiki", "https://example.org");
        another.save(&record("another"), None).await.unwrap();
        assert!(matches!(vault.load().await.0, StoredLogin::Lost(why) if why.contains("another key")));
        vault.save(&record("second"), None).await.unwrap();
        assert_eq!(token_in(&vault).await.as_deref(), Some("second"));
        assert_eq!(token_in(&another).await.as_deref(), Some("another"));
    }

    #[tokio::test]
    async fn a_login_belongs_to_one_address_and_is_gone_when_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        for logins in [Logins::new(Some(dir.path()), LoginKey::File), Logins::new(None, LoginKey::File)] {
            let vault = Vault::new(&logins, "github", "https://example.com/mcp");
            let before = vault.stamp().await;
            vault.save(&record("secret"), None).await.unwrap();
            assert_ne!(vault.stamp().await, before, "a process that checks the vault notices");
            let elsewhere = Vault::new(&logins, "github", "https://example.org/mcp");
            assert!(elsewhere.load().await.0.login().is_none());
            assert_eq!(token_in(&vault).await.as_deref(), Some("secret"));
            assert!(vault.remove().await.unwrap());
            assert!(!vault.remove().await.unwrap());
            assert!(vault.load().await.0.login().is_none());
        }
    }
}

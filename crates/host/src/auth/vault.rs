//! Where logins are kept: sealed, one file for each server in `STATE_DIR/logins`, which only its owner may read. Any
//! number of gripfast processes share it. Whoever replaces a token holds the lease of the login from reading to writing,
//! so that no token is spent twice.

use super::key::{KeyPlace, NoKey};
use super::lease::{Alone, FileLeases, Lease, Leases};
use super::record::Record;
use crate::config::LoginKey;
use crate::private_files;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio_util::task::TaskTracker;

/// The logins of a state directory, or of this process.
#[derive(Clone)]
pub struct Logins {
    place: Place,
    leases: Arc<dyn Leases>,
    /// The renewals that hosts with these logins are about.
    pub(super) under_way: TaskTracker,
}

#[derive(Clone)]
enum Place {
    Disk {
        directory: PathBuf,
        key: KeyPlace,
    },
    /// Without a state directory they end with the process. There are as many as somebody has logged in to.
    Memory(Arc<Mutex<BTreeMap<String, Noted>>>),
}

struct Noted {
    version: u64,
    record: Option<Record>,
}

impl Logins {
    /// Those in this state directory, sealed with a key of this kind. Without a directory they end with the process.
    #[must_use]
    pub fn of(state_dir: Option<&Path>, key: LoginKey) -> Self {
        let (place, leases): (_, Arc<dyn Leases>) = match state_dir {
            Some(state_dir) => {
                let directory = state_dir.join("logins");
                let leases = FileLeases { directory: directory.clone() };
                (Place::Disk { key: KeyPlace::new(directory.clone(), key), directory }, Arc::new(leases))
            }
            None => (Place::Memory(Arc::default()), Arc::new(Alone)),
        };
        Self { place, leases, under_way: TaskTracker::new() }
    }

    /// The same, with leases of the program's own in the place of locks on files.
    #[must_use]
    pub fn leased_by(self, leases: Arc<dyn Leases>) -> Self {
        Self { leases, ..self }
    }

    /// Waits, for a while, until no renewal is under way: a refresh token that was sent is spent, and only the answer
    /// has the next one.
    pub(crate) async fn settled(&self) {
        self.under_way.close();
        let _ = tokio::time::timeout(SETTLED_WITHIN, self.under_way.wait()).await;
    }
}

/// A shutdown waits no longer for an authorization server than for calls.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// Secrets are not shown, and neither is how many there are.
impl std::fmt::Debug for Logins {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            Place::Disk { directory, .. } => write!(out, "Logins in {}", directory.display()),
            Place::Memory(_) => out.write_str("Logins in memory"),
        }
    }
}

/// Tells one content from another without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stamp {
    File { modified: Option<SystemTime>, length: u64 },
    Version(u64),
}

/// What is kept of a login.
pub(crate) enum Kept {
    Nothing,
    Login(Record),
    /// As older versions have left it, for everybody to read who can read the file.
    Unsealed(Record),
    /// Nobody can open it any more.
    Lost(String),
    /// It cannot be opened now.
    Away(String),
}

impl Kept {
    /// The login, if it can be read.
    pub(crate) fn login(self) -> Option<Record> {
        match self {
            Self::Login(record) | Self::Unsealed(record) => Some(record),
            Self::Nothing | Self::Lost(_) | Self::Away(_) => None,
        }
    }
}

/// A login as it stands in its file.
#[derive(Serialize, Deserialize)]
struct Sealed {
    sealed: String,
}

/// The place of one server's login.
#[derive(Clone)]
pub(crate) struct Vault {
    place: Place,
    /// Names the login among the others.
    login: String,
    leases: Arc<dyn Leases>,
}

impl Vault {
    /// The login of the server `name`, which the config says is at `address`.
    pub(crate) fn of(logins: &Logins, name: &str, address: &str) -> Self {
        let digest = Sha256::digest(address.as_bytes());
        let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let Logins { place, leases, .. } = logins.clone();
        Self { place, login: format!("{name}-{digest}"), leases }
    }

    /// What is kept, and the look of it.
    pub(crate) async fn load(&self) -> (Kept, Option<Stamp>) {
        let (file, key) = match &self.place {
            Place::Disk { directory, key } => (self.file(directory), key),
            Place::Memory(kept) => {
                let kept = lock(kept);
                let noted = kept.get(&self.login);
                let record = noted.and_then(|noted| noted.record.clone());
                let stamp = noted.map(|noted| Stamp::Version(noted.version));
                return (record.map_or(Kept::Nothing, Kept::Login), stamp);
            }
        };
        let read = private_files::blocking(move || (stamp_of(&file), read(&file))).await;
        let (stamp, read) = read.unwrap_or_else(|error| (None, Err(error)));
        let kept = match read {
            Ok(bytes) => self.understand(&bytes, key).await,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::Nothing,
            Err(error) => Kept::Away(format!("the stored login cannot be read: {error}")),
        };
        (kept, stamp)
    }

    async fn understand(&self, bytes: &[u8], key: &KeyPlace) -> Kept {
        let Ok(Sealed { sealed }) = serde_json::from_slice(bytes) else {
            return match serde_json::from_slice(bytes) {
                Ok(record) => Kept::Unsealed(record),
                Err(_) => Kept::Lost("the stored login is damaged".to_owned()),
            };
        };
        let key = match key.find().await {
            Ok(key) => key,
            Err(NoKey::Gone) => {
                return Kept::Lost("the key of the stored login is gone, or was damaged".to_owned());
            }
            Err(NoKey::Away(why)) => return Kept::Away(format!("the stored login cannot be opened: {why}")),
        };
        let opened = key.open(&self.login, &sealed);
        let record = opened.and_then(|opened| serde_json::from_slice(&opened).ok());
        record.map_or_else(
            || Kept::Lost("the stored login is sealed with another key, or damaged".to_owned()),
            Kept::Login,
        )
    }

    /// The look of what is kept.
    pub(crate) async fn stamp(&self) -> Option<Stamp> {
        match &self.place {
            Place::Disk { directory, .. } => {
                let file = self.file(directory);
                private_files::blocking(move || stamp_of(&file)).await.ok().flatten()
            }
            Place::Memory(kept) => lock(kept).get(&self.login).map(|noted| Stamp::Version(noted.version)),
        }
    }

    /// Makes sure that a login can be sealed, before a person is sent for one.
    pub(crate) async fn has_key(&self) -> io::Result<()> {
        match &self.place {
            Place::Disk { key, .. } => key.find_or_make().await.map(drop),
            Place::Memory(_) => Ok(()),
        }
    }

    /// Keeps this in the place of what was there. A reader sees one or the other, and nobody else sees either.
    pub(crate) async fn save(&self, record: &Record) -> io::Result<()> {
        match &self.place {
            Place::Disk { directory, key } => {
                let sealed = key.find_or_make().await?.seal(&self.login, &serde_json::to_vec(record)?)?;
                let (file, bytes) = (self.file(directory), serde_json::to_vec(&Sealed { sealed })?);
                private_files::blocking(move || private_files::replace(&file, &bytes)).await?
            }
            Place::Memory(kept) => {
                self.note(kept, Some(record.clone()));
                Ok(())
            }
        }
    }

    /// Forgets it. Says whether there was anything.
    pub(crate) async fn remove(&self) -> io::Result<bool> {
        match &self.place {
            Place::Disk { directory, .. } => {
                let file = self.file(directory);
                private_files::blocking(move || match std::fs::remove_file(&file) {
                    Ok(()) => Ok(true),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                    Err(error) => Err(error),
                })
                .await?
            }
            Place::Memory(kept) => Ok(self.note(kept, None)),
        }
    }

    /// Waits until nobody else replaces this login.
    pub(crate) async fn lease(&self, within: Duration) -> io::Result<Lease> {
        self.leases.acquire(&self.login, within).await
    }

    /// Seals a login that was not, unless somebody has done so meanwhile.
    pub(crate) async fn seal(&self, within: Duration) -> io::Result<()> {
        let _lease = self.lease(within).await?;
        match self.load().await.0 {
            Kept::Unsealed(record) => self.save(&record).await,
            Kept::Nothing | Kept::Login(_) | Kept::Lost(_) | Kept::Away(_) => Ok(()),
        }
    }

    fn file(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{}.json", self.login))
    }

    fn note(&self, kept: &Mutex<BTreeMap<String, Noted>>, record: Option<Record>) -> bool {
        let mut kept = lock(kept);
        let noted = kept.entry(self.login.clone()).or_insert(Noted { version: 0, record: None });
        noted.version += 1;
        std::mem::replace(&mut noted.record, record).is_some()
    }
}

fn lock(kept: &Mutex<BTreeMap<String, Noted>>) -> MutexGuard<'_, BTreeMap<String, Noted>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of a login, from a directory that is no symlink.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    /// Tokens are a few thousand bytes.
    const LARGEST: u64 = 4 << 20;
    file.parent().map_or(Ok(()), private_files::judge_part)?;
    private_files::read(file, LARGEST)
}

fn stamp_of(file: &Path) -> Option<Stamp> {
    let found = std::fs::symlink_metadata(file).ok()?;
    Some(Stamp::File { modified: found.modified().ok(), length: found.len() })
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
        }
    }

    fn vault_in(state_dir: &Path) -> Vault {
        let logins = Logins::of(Some(state_dir), LoginKey::File);
        Vault::of(&logins, "github", "https://example.com/mcp")
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
        vault.save(&record("secret")).await.unwrap();
        let logins = dir.path().join("logins");
        assert_eq!(std::fs::metadata(&logins).unwrap().permissions().mode() & 0o777, 0o700);
        let files = files_of(dir.path());
        assert_eq!(
            files.len(),
            4,
            "the login, its lease, the key, and whose turn it is to make one: {files:?}"
        );
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
        vault_in(theirs.path()).save(&record("theirs")).await.unwrap();
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
            let saved = vault.save(&record("mine")).await;
            assert_eq!(
                saved.is_ok(),
                part.ends_with(".json"),
                "a link in the place of the login is replaced: {part}"
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
        vault.save(&record("a-token-to-look-for")).await.unwrap();
        for file in files_of(dir.path()) {
            let bytes = std::fs::read(&file).unwrap();
            assert!(memchr::memmem::find(&bytes, b"a-token-to-look-for").is_none(), "{file:?}");
        }
        assert_eq!(token_in(&vault).await.as_deref(), Some("a-token-to-look-for"));
    }

    /// E04
    #[tokio::test]
    async fn e04_a_login_that_an_older_version_left_open_is_read_and_sealed() {
        let dir = tempfile::tempdir().unwrap();
        let vault = vault_in(dir.path());
        vault.save(&record("other")).await.unwrap();
        let login = dir.path().join("logins").join(format!("{}.json", vault.login));
        std::fs::write(&login, serde_json::to_vec(&record("plain")).unwrap()).unwrap();
        assert!(matches!(vault.load().await.0, Kept::Unsealed(_)));
        vault.seal(Duration::from_secs(1)).await.unwrap();
        assert!(matches!(vault.load().await.0, Kept::Login(_)));
        assert_eq!(token_in(&vault).await.as_deref(), Some("plain"));
        assert!(memchr::memmem::find(&std::fs::read(&login).unwrap(), b"plain").is_none());
    }

    #[tokio::test]
    async fn a_login_without_its_key_is_lost_and_the_next_one_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let vault = vault_in(dir.path());
        vault.save(&record("first")).await.unwrap();
        std::fs::remove_file(dir.path().join("logins").join("key")).unwrap();
        assert!(matches!(vault.load().await.0, Kept::Lost(why) if why.contains("is gone")));
        let another = Vault::of(&Logins::of(Some(dir.path()), LoginKey::File), "wiki", "https://example.org");
        another.save(&record("another")).await.unwrap();
        assert!(matches!(vault.load().await.0, Kept::Lost(why) if why.contains("another key")));
        vault.save(&record("second")).await.unwrap();
        assert_eq!(token_in(&vault).await.as_deref(), Some("second"));
        assert_eq!(token_in(&another).await.as_deref(), Some("another"));
    }

    #[tokio::test]
    async fn a_login_belongs_to_one_address_and_is_gone_when_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        for logins in [Logins::of(Some(dir.path()), LoginKey::File), Logins::of(None, LoginKey::File)] {
            let vault = Vault::of(&logins, "github", "https://example.com/mcp");
            let before = vault.stamp().await;
            vault.save(&record("secret")).await.unwrap();
            assert_ne!(vault.stamp().await, before, "who looks for a login notices");
            let elsewhere = Vault::of(&logins, "github", "https://example.org/mcp");
            assert!(elsewhere.load().await.0.login().is_none());
            assert_eq!(token_in(&vault).await.as_deref(), Some("secret"));
            assert!(vault.remove().await.unwrap());
            assert!(!vault.remove().await.unwrap());
            assert!(vault.load().await.0.login().is_none());
        }
    }
}

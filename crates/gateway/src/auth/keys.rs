//! API keys: created by the operator, shown once, stored as digests in the state directory. The gateway checks the file
//! with every request, so that a new key works at once and a removed key is refused at once. The replicas of a service
//! have their keys in a shared table instead.

use super::AuthError;
use crate::cluster::SharedTables;
use crate::cluster::shared_tables::TableError;
use crate::file_stamp::FileStamp;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gripfast::sync::Mutex;
use gripfast::{AuthFailure, KeyChange, Principal, private_files};
use gripfast_cluster::tables::SharedTable;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// File in the state directory with the digests.
pub const KEYS_FILE: &str = "keys.json";
/// Prefix of every key, so that a leaked key can be found by a search.
pub const PREFIX: &str = "gfk_";
const LOCK_FILE: &str = "keys.lock";
/// File with the last use of each key, by digest.
const USES_FILE: &str = "keys-used.json";
/// Interval between recorded uses of one key, in seconds.
const USE_INTERVAL_SECS: u64 = 60;
const RANDOM_BYTES: usize = 32;
/// Maximum number of keys.
const MAX_KEYS: usize = 10_000;
const MAX_FILE_BYTES: u64 = 4 << 20;
const MAX_NAME_LEN: usize = 64;

/// Stored data of a key, without the key itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Key {
    /// Name of the key, which is the principal of its bearer.
    pub name: String,
    /// Creation time, in seconds since the Unix epoch.
    pub created: u64,
    /// Expiry, in seconds since the Unix epoch; keys without it are valid until they are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Last use with a precision of one minute, in seconds since the Unix epoch.
    #[serde(skip)]
    pub last_used: Option<u64>,
    /// SHA-256 of the key. The key is random, so that no slower hash is needed.
    sha256: String,
}

#[derive(Default, Serialize, Deserialize)]
struct StoredKey {
    keys: Vec<Key>,
}

/// Reason why no key was created.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The name is not valid.
    #[error("`{0}` is not a valid key name")]
    BadName(String),
    /// There is a key with this name.
    #[error("a key named `{0}` already exists")]
    NameTaken(String),
    /// There are too many keys.
    #[error("the limit of {MAX_KEYS} keys is reached")]
    TooMany,
    /// The file cannot be read or written.
    #[error("cannot read or write the key file")]
    Io(#[from] io::Error),
    /// The table of the service cannot be changed.
    #[error("the keys of the service are not changed: {0}")]
    Shared(#[from] TableError),
}

/// Place of the keys.
pub enum KeySource {
    /// A file in this state directory.
    Directory(PathBuf),
    /// A table of the service that the gateway is a replica of. The state directory has the last uses.
    Shared(Arc<SharedTables>, Option<PathBuf>),
}

impl KeySource {
    /// Adds the keys in a state directory to a service that has none yet.
    pub(crate) fn seed(tables: &SharedTables, directory: &Path) {
        let keys = read(&directory.join(KEYS_FILE)).map(|stored| stored.keys).unwrap_or_default();
        let field = |key: Key| Some((key.name.clone(), serde_json::to_string(&key).ok()?));
        tables.seed(SharedTable::ApiKeys, keys.into_iter().filter_map(field));
    }

    fn directory(&self) -> Option<&Path> {
        match self {
            Self::Directory(directory) => Some(directory),
            Self::Shared(_, directory) => directory.as_deref(),
        }
    }

    fn read(&self) -> io::Result<StoredKey> {
        match self {
            Self::Directory(directory) => read(&directory.join(KEYS_FILE)),
            Self::Shared(tables, _) => Ok(StoredKey { keys: shared_keys(tables) }),
        }
    }

    fn stamp(&self) -> Option<KeyStamp> {
        match self {
            Self::Directory(directory) => FileStamp::of(&directory.join(KEYS_FILE)).map(KeyStamp::File),
            Self::Shared(tables, _) => Some(KeyStamp::Changes(tables.change_count(SharedTable::ApiKeys))),
        }
    }

    /// False while a service with an emptied store may not know of keys that were removed.
    fn is_usable(&self) -> bool {
        match self {
            Self::Directory(_) => true,
            Self::Shared(tables, _) => tables.admits(),
        }
    }
}

/// Tells one state of the keys from another.
#[derive(PartialEq, Eq)]
enum KeyStamp {
    File(FileStamp),
    Changes(u64),
}

/// The keys of a service, in the order of their creation.
fn shared_keys(tables: &SharedTables) -> Vec<Key> {
    let fields = tables.fields(SharedTable::ApiKeys).into_iter();
    // An entry that cannot be read is no key.
    let mut keys: Vec<Key> =
        fields.filter_map(|(_, field)| serde_json::from_str(&field.value?).ok()).collect();
    keys.sort_by_key(|key| key.created);
    keys
}

/// Creates a key of the service, and returns it.
///
/// # Errors
/// See [`KeyError`].
pub async fn add_shared(
    tables: &SharedTables,
    name: &str,
    lifetime: Option<Duration>,
) -> Result<String, KeyError> {
    if !is_valid_name(name) {
        return Err(KeyError::BadName(name.to_owned()));
    }
    let known = tables.get(SharedTable::ApiKeys, name);
    if known.value.is_some() {
        return Err(KeyError::NameTaken(name.to_owned()));
    }
    if tables.fields(SharedTable::ApiKeys).len() >= MAX_KEYS {
        return Err(KeyError::TooMany);
    }
    let (shown, key) = new_key(name, lifetime)?;
    let value = serde_json::to_string(&key).map_err(io::Error::from)?;
    match tables.set(SharedTable::ApiKeys, name, known.version, Some(value)).await {
        Ok(_) => Ok(shown),
        Err(TableError::Changed) => Err(KeyError::NameTaken(name.to_owned())),
        Err(error) => Err(error.into()),
    }
}

/// Removes a key of the service. Returns true if there was one.
///
/// # Errors
/// See [`KeyError`].
pub async fn remove_shared(tables: &SharedTables, name: &str) -> Result<bool, KeyError> {
    let known = tables.get(SharedTable::ApiKeys, name);
    if known.value.is_none() {
        return Ok(false);
    }
    tables.set(SharedTable::ApiKeys, name, known.version, None).await?;
    Ok(true)
}

/// All keys of the service, in the order of their creation, with their last uses at the replica with this state
/// directory.
#[must_use]
pub fn list_shared(tables: &SharedTables, directory: Option<&Path>) -> Vec<Key> {
    let uses = directory.map(read_uses).unwrap_or_default();
    let used = |key: Key| Key { last_used: uses.get(&key.sha256).copied(), ..key };
    shared_keys(tables).into_iter().map(used).collect()
}

/// The name of this key of the service.
#[must_use]
pub fn name_of_shared(tables: &SharedTables, key: &str) -> Option<String> {
    let sha256 = digest_of(key);
    shared_keys(tables).into_iter().find(|key| key.sha256 == sha256).map(|key| key.name)
}

/// A random key, and its stored data.
fn new_key(name: &str, lifetime: Option<Duration>) -> io::Result<(String, Key)> {
    let mut bytes = [0; RANDOM_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system random number generator failed"))?;
    let key = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let created = gripfast::unix_time().as_secs();
    let expires = lifetime.map(|lifetime| created.saturating_add(lifetime.as_secs().max(1)));
    let sha256 = digest_of(&key);
    Ok((key, Key { name: name.to_owned(), created, expires, last_used: None, sha256 }))
}

/// Creates a key for `name` and returns it. It cannot be shown again.
///
/// # Errors
/// See [`KeyError`].
pub fn add(directory: &Path, name: &str) -> Result<String, KeyError> {
    add_with_lifetime(directory, name, None)
}

/// Creates a key with this lifetime.
///
/// # Errors
/// See [`KeyError`].
pub fn add_with_lifetime(
    directory: &Path,
    name: &str,
    lifetime: Option<Duration>,
) -> Result<String, KeyError> {
    if !is_valid_name(name) {
        return Err(KeyError::BadName(name.to_owned()));
    }
    let _lock = lock(directory)?;
    let mut stored = read(&directory.join(KEYS_FILE))?;
    if stored.keys.iter().any(|key| key.name == name) {
        return Err(KeyError::NameTaken(name.to_owned()));
    }
    if stored.keys.len() >= MAX_KEYS {
        return Err(KeyError::TooMany);
    }
    let (shown, key) = new_key(name, lifetime)?;
    stored.keys.push(key);
    write(directory, &stored)?;
    Ok(shown)
}

/// All keys, in the order of their creation.
///
/// # Errors
/// The file cannot be read.
pub fn list(directory: &Path) -> io::Result<Vec<Key>> {
    let uses = read_uses(directory);
    let used = |key: Key| Key { last_used: uses.get(&key.sha256).copied(), ..key };
    Ok(read(&directory.join(KEYS_FILE))?.keys.into_iter().map(used).collect())
}

/// The name of this key, if it is stored here.
///
/// # Errors
/// The file cannot be read.
pub fn name_of(directory: &Path, key: &str) -> io::Result<Option<String>> {
    let sha256 = digest_of(key);
    let stored = read(&directory.join(KEYS_FILE))?;
    Ok(stored.keys.into_iter().find(|key| key.sha256 == sha256).map(|key| key.name))
}

impl Key {
    /// True if the key has not expired at `wall`.
    pub fn is_valid(&self, wall: Duration) -> bool {
        self.expires.is_none_or(|expires| wall.as_secs() < expires)
    }
}

/// Removes a key, which is refused from then on. Returns true if there was one.
///
/// # Errors
/// The file cannot be read or written.
pub fn remove(directory: &Path, name: &str) -> io::Result<bool> {
    let _lock = lock(directory)?;
    let mut stored = read(&directory.join(KEYS_FILE))?;
    let before = stored.keys.len();
    stored.keys.retain(|key| key.name != name);
    if stored.keys.len() == before {
        return Ok(false);
    }
    write(directory, &stored)?;
    Ok(true)
}

/// Accepts letters, digits and `._@-`. A name cannot be `local` or `admin`, and cannot look like the principal of a
/// token (`jwt:`).
fn is_valid_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    (1..=MAX_NAME_LEN).contains(&name.len())
        && name.bytes().all(fits)
        && ![Principal::LOCAL, Principal::ADMIN].contains(&name)
}

/// The keys of a gateway.
pub(super) struct Keyring {
    source: KeySource,
    known: Mutex<KnownKeys>,
}

#[derive(Default)]
struct KnownKeys {
    /// Stamp of the keys when they were read.
    stamp: Option<KeyStamp>,
    keys: HashMap<String, KnownKey>,
    /// Uses that are not saved yet.
    uses: Uses,
    /// Keys of the last successful read, by digest; `None` before the first read.
    last_read: Option<HashMap<String, LastRead>>,
    /// Changes since the last call of [`Keyring::take_changes`].
    changed: BTreeMap<KeyChange, Vec<String>>,
    /// Names with a valid key at the last call of [`Keyring::take_lost`], or with a use since.
    valid_names: HashSet<Arc<str>>,
}

/// Name and expiry of a key.
type LastRead = (Arc<str>, Option<u64>);

impl KnownKeys {
    /// Compares the file with its last successful read.
    fn record_changes(&mut self, stored: &StoredKey) {
        let now: HashMap<_, _> = stored
            .keys
            .iter()
            .map(|key| (key.sha256.clone(), (Arc::from(key.name.as_str()), key.expires)))
            .collect();
        let Some(before) = self.last_read.replace(now.clone()) else { return };
        let mut note = |change, name: &Arc<str>| {
            self.changed.entry(change).or_default().push(name.to_string());
        };
        for (digest, (name, expires)) in &now {
            match before.get(digest) {
                None => note(KeyChange::Added, name),
                Some((_, ended)) if ended != expires => note(KeyChange::ExpiryChanged, name),
                Some(_) => {}
            }
        }
        for (digest, (name, _)) in &before {
            if !now.contains_key(digest) {
                note(KeyChange::Removed, name);
            }
        }
        self.changed.values_mut().for_each(|names| names.sort_unstable());
    }
}

struct KnownKey {
    name: Arc<str>,
    expires: Option<u64>,
    /// Time of the last recorded use.
    last_recorded: u64,
}

impl KnownKey {
    fn is_valid(&self, wall: Duration) -> bool {
        self.expires.is_none_or(|expires| wall.as_secs() < expires)
    }
}

/// Last use of each key by digest, in seconds since the Unix epoch.
type Uses = HashMap<String, u64>;

impl Keyring {
    pub(super) fn new(source: KeySource) -> Self {
        // If there is no file yet, the first key counts as a change.
        let last_read = source.stamp().is_none().then(HashMap::new);
        Self { source, known: Mutex::new(KnownKeys { last_read, ..KnownKeys::default() }) }
    }

    /// The digest and the name of a key that is valid at `wall`.
    pub(super) fn authenticate(&self, shown: &str, wall: Duration) -> Result<(String, Arc<str>), AuthError> {
        let unknown = || AuthError::refused(AuthFailure::UnknownKey, "unknown key");
        let digest = shown.starts_with(PREFIX).then(|| digest_of(shown)).ok_or_else(unknown)?;
        if !self.source.is_usable() {
            return Err(AuthError::CannotCheck);
        }
        let mut known = self.refreshed();
        let KnownKeys { keys, uses, valid_names: good, .. } = &mut *known;
        let key = keys.get_mut(&digest).ok_or_else(unknown)?;
        if !key.is_valid(wall) {
            let expired = AuthError::refused(AuthFailure::Expired, "the key has expired");
            return Err(expired.with_principal(Some(key.name.to_string())));
        }
        if key.last_recorded + USE_INTERVAL_SECS <= wall.as_secs() {
            key.last_recorded = wall.as_secs();
            uses.insert(digest.clone(), key.last_recorded);
            good.insert(Arc::clone(&key.name));
        }
        Ok((digest, Arc::clone(&key.name)))
    }

    /// True if the key with this digest is valid at `wall`.
    pub(super) fn has_valid(&self, digest: &str, wall: Duration) -> bool {
        self.refreshed().keys.get(digest).is_some_and(|key| key.is_valid(wall))
    }

    /// Names that had a valid key at the last call, or used one since, and have no valid key at `wall`.
    pub(super) fn take_lost(&self, wall: Duration) -> Vec<Arc<str>> {
        let mut known = self.refreshed();
        let good: HashSet<Arc<str>> =
            known.keys.values().filter(|key| key.is_valid(wall)).map(|key| Arc::clone(&key.name)).collect();
        let before = std::mem::replace(&mut known.valid_names, good);
        before.difference(&known.valid_names).cloned().collect()
    }

    /// Names of keys that were added, removed or given another expiry since the last call. The first read of the file
    /// is no change.
    pub(super) fn take_changes(&self) -> BTreeMap<KeyChange, Vec<String>> {
        std::mem::take(&mut self.refreshed().changed)
    }

    /// Saves the last uses of keys. A failed save is repeated with the next use.
    pub(super) async fn save_uses(&self) {
        let uses = std::mem::take(&mut self.refreshed().uses);
        let Some(directory) = self.source.directory().map(Path::to_owned).filter(|_| !uses.is_empty()) else {
            return;
        };
        let Ok(stored) = self.source.read() else { return };
        let written = tokio::task::spawn_blocking(move || write_uses(&directory, &stored, uses)).await;
        if let Ok(Err(error)) = written {
            tracing::debug!(%error, "cannot save the last uses of client keys");
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.refreshed().keys.is_empty()
    }

    /// The keys in the file, read again if it changed. If the file cannot be read, no key is valid.
    fn refreshed(&self) -> std::sync::MutexGuard<'_, KnownKeys> {
        let mut known = self.known.lock();
        let stamp = self.source.stamp();
        if known.stamp != stamp {
            let stored = match self.source.read() {
                Ok(stored) => {
                    known.record_changes(&stored);
                    stored
                }
                Err(error) => {
                    let path = self.source.directory().unwrap_or(Path::new("")).join(KEYS_FILE);
                    let path = path.display();
                    tracing::warn!(%path, %error, "cannot read the client keys; all keys are refused");
                    StoredKey::default()
                }
            };
            let before = std::mem::take(&mut known.keys);
            let entry = |key: Key| {
                let noted = before.get(&key.sha256).map(|before| before.last_recorded).unwrap_or_default();
                (key.sha256, KnownKey { name: key.name.into(), expires: key.expires, last_recorded: noted })
            };
            known.keys = stored.keys.into_iter().map(entry).collect();
            known.stamp = stamp;
        }
        known
    }
}

fn digest_of(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, key.as_bytes()))
}

fn read(path: &Path) -> io::Result<StoredKey> {
    let bytes = match private_files::read(path, MAX_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(StoredKey::default()),
        Err(error) => return Err(error),
    };
    serde_json::from_slice(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Last uses of keys; empty if they cannot be read.
fn read_uses(directory: &Path) -> Uses {
    let bytes = private_files::read(&directory.join(USES_FILE), MAX_FILE_BYTES).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Merges the uses into the file, which other processes write too. Removed keys are dropped.
fn write_uses(directory: &Path, stored: &StoredKey, uses: Uses) -> io::Result<()> {
    let _lock = lock(directory)?;
    let mut known = read_uses(directory);
    for (digest, at) in uses {
        let last = known.entry(digest).or_default();
        *last = at.max(*last);
    }
    known.retain(|digest, _| stored.keys.iter().any(|key| key.sha256 == *digest));
    private_files::replace(&directory.join(USES_FILE), &serde_json::to_vec(&known)?)
}

/// Replaces the file atomically: readers see the old or the new content.
fn write(directory: &Path, stored: &StoredKey) -> io::Result<()> {
    private_files::replace(&directory.join(KEYS_FILE), &serde_json::to_vec_pretty(stored)?)
}

/// Locks the key file against other processes until the returned file is dropped.
fn lock(directory: &Path) -> io::Result<File> {
    private_files::create_directory(directory)?;
    let file = private_files::open_lock(&directory.join(LOCK_FILE))?;
    file.lock()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn g05_a_key_is_stored_as_a_digest_that_only_its_owner_can_read() {
        let directory = tempfile::tempdir().unwrap();
        let key = add(directory.path(), "laptop").unwrap();
        let text = fs::read_to_string(directory.path().join(KEYS_FILE)).unwrap();
        assert!(key.starts_with(PREFIX) && key.len() > 40);
        assert!(text.contains("laptop") && !text.contains(&key[PREFIX.len()..]), "{text}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(directory.path().join(KEYS_FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn keys_are_valid_from_their_creation_until_their_removal() {
        let directory = tempfile::tempdir().unwrap();
        let keyring = Keyring::new(KeySource::Directory(directory.path().to_owned()));
        assert!(keyring.is_empty());
        let (one, two) = (add(directory.path(), "one").unwrap(), add(directory.path(), "two").unwrap());
        let name_of_key = |key: &str| keyring.authenticate(key, Duration::ZERO).ok().map(|(_, name)| name);
        assert_eq!((name_of_key(&one).as_deref(), name_of_key(&two).as_deref()), (Some("one"), Some("two")));
        assert!(remove(directory.path(), "one").unwrap() && !remove(directory.path(), "one").unwrap());
        assert_eq!((name_of_key(&one), name_of_key(&two).as_deref()), (None, Some("two")));
        let again = add(directory.path(), "one").unwrap();
        assert_ne!(one, again);
        assert_eq!((name_of_key(&one), name_of_key(&again).as_deref()), (None, Some("one")));
        fs::write(directory.path().join(KEYS_FILE), "{").unwrap();
        assert_eq!(name_of_key(&two), None, "no key of an unreadable file is valid");
    }

    #[tokio::test]
    async fn g05_a_key_expires_and_its_last_use_is_recorded() {
        let directory = tempfile::tempdir().unwrap();
        let keyring = Keyring::new(KeySource::Directory(directory.path().to_owned()));
        let key = add_with_lifetime(directory.path(), "guest", Some(Duration::from_secs(60))).unwrap();
        let listed = || list(directory.path()).unwrap().remove(0);
        let (made, ends) =
            (Duration::from_secs(listed().created), Duration::from_secs(listed().expires.unwrap()));
        assert_eq!((ends - made, listed().last_used), (Duration::from_secs(60), None));
        let (digest, name) = keyring.authenticate(&key, made).unwrap();
        assert_eq!((&*name, keyring.has_valid(&digest, made)), ("guest", true));
        keyring.save_uses().await;
        assert_eq!(listed().last_used, Some(made.as_secs()));
        let expired = keyring.authenticate(&key, ends).unwrap_err();
        assert_eq!(expired.failure(), (AuthFailure::Expired, Some("guest".to_owned())));
        assert!(!keyring.has_valid(&digest, ends) && !listed().is_valid(ends));
        assert_eq!((keyring.take_lost(ends), keyring.take_lost(ends)), (vec!["guest".into()], Vec::new()));
        remove(directory.path(), "guest").unwrap();
        let again = add(directory.path(), "guest").unwrap();
        assert_eq!(listed().last_used, None, "the use of an earlier key is not counted");
        assert!(keyring.authenticate(&again, ends).is_ok());
        let written = fs::read_to_string(directory.path().join(USES_FILE)).unwrap();
        assert!(!written.contains(&key[PREFIX.len()..]));
    }

    #[test]
    fn reserved_long_and_special_key_names_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for bad in ["", "local", "admin", "jwt:alice", "a b", "ü", &"x".repeat(65)] {
            assert!(matches!(add(directory.path(), bad), Err(KeyError::BadName(_))), "{bad}");
        }
        add(directory.path(), "ci@build-1.example").unwrap();
        assert!(matches!(add(directory.path(), "ci@build-1.example"), Err(KeyError::NameTaken(_))));
    }

    #[test]
    fn g05_a_gateway_notices_added_removed_and_changed_keys() {
        let directory = tempfile::tempdir().unwrap();
        let without = Keyring::new(KeySource::Directory(directory.path().to_owned()));
        add(directory.path(), "one").unwrap();
        assert_eq!(without.take_changes().len(), 1, "the first key counts");
        let keyring = Keyring::new(KeySource::Directory(directory.path().to_owned()));
        assert!(keyring.take_changes().is_empty(), "existing keys are no change");
        add_with_lifetime(directory.path(), "two", Some(Duration::from_secs(60))).unwrap();
        add(directory.path(), "three").unwrap();
        remove(directory.path(), "one").unwrap();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let changed = keyring.take_changes();
        assert_eq!(
            changed.into_iter().collect::<Vec<_>>(),
            [(KeyChange::Added, names(&["three", "two"])), (KeyChange::Removed, names(&["one"]))]
        );
        let path = directory.path().join(KEYS_FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, "{").unwrap();
        assert!(keyring.take_changes().is_empty(), "an unreadable file is no change");
        let mut stored: StoredKey = serde_json::from_str(&text).unwrap();
        stored.keys.iter_mut().find(|key| key.name == "two").unwrap().expires = None;
        write(directory.path(), &stored).unwrap();
        let changed = keyring.take_changes();
        assert_eq!(changed.into_iter().collect::<Vec<_>>(), [(KeyChange::ExpiryChanged, names(&["two"]))]);
        assert!(keyring.take_changes().is_empty(), "each change is reported once");
    }

    #[test]
    fn concurrent_changes_lose_no_key() {
        let directory = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let directory = directory.path();
                scope.spawn(move || add(directory, &format!("key-{number}")).unwrap());
            }
        });
        assert_eq!(list(directory.path()).unwrap().len(), 8);
    }

    #[cfg(unix)]
    #[test]
    fn g05_symlinks_in_place_of_the_key_files_are_neither_read_nor_written() {
        let (directory, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let key = add(theirs.path(), "intruder").unwrap();
        let victim = theirs.path().join(KEYS_FILE);
        let before = fs::read(&victim).unwrap();
        std::os::unix::fs::symlink(&victim, directory.path().join(KEYS_FILE)).unwrap();
        assert!(
            Keyring::new(KeySource::Directory(directory.path().to_owned()))
                .authenticate(&key, Duration::ZERO)
                .is_err()
        );
        assert!(matches!(add(directory.path(), "laptop"), Err(KeyError::Io(_))));
        fs::remove_file(directory.path().join(KEYS_FILE)).unwrap();
        let absent = theirs.path().join("absent");
        fs::remove_file(directory.path().join(LOCK_FILE)).unwrap();
        std::os::unix::fs::symlink(&absent, directory.path().join(LOCK_FILE)).unwrap();
        assert!(matches!(add(directory.path(), "laptop"), Err(KeyError::Io(_))));
        assert!(!absent.exists() && fs::read(&victim).unwrap() == before);
    }
}

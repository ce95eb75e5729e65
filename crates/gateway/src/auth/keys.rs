//! API keys: made by an operator, shown once, kept as digests in the state directory. A gateway looks at the file
//! with every key that it is shown, so a key is good from the moment it is made until it is removed.

use super::Stranger;
use crate::file_stamp::FileStamp;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gripfast::{AuthFailure, KeyChange, Principal, private_files};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file in the state directory that holds the digests.
pub const FILE: &str = "keys.json";
/// What every key begins with, so that one that got into the wrong place can be found.
pub const PREFIX: &str = "gfk_";
const LOCK: &str = "keys.lock";
/// The file that holds when keys were last used, by their digests.
const USES: &str = "keys-used.json";
/// Uses of a key are noted this often, in seconds.
const NOTED_EVERY: u64 = 60;
const RANDOM_BYTES: usize = 32;
/// Keys at a time, and how large the file may be for them.
const MOST: usize = 10_000;
const LARGEST: u64 = 4 << 20;
const LONGEST_NAME: usize = 64;

/// A key, without the key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Key {
    /// Whose it is: the principal that its bearer acts for.
    pub name: String,
    /// When it was made, in seconds since the Unix epoch.
    pub created: u64,
    /// When it ends, in seconds since the Unix epoch; keys without it last until they are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// When it was last used, to the minute, in seconds since the Unix epoch.
    #[serde(skip)]
    pub last_used: Option<u64>,
    /// The SHA-256 of the key. The key is random, so nothing slower is needed.
    sha256: String,
}

#[derive(Default, Serialize, Deserialize)]
struct Kept {
    keys: Vec<Key>,
}

/// Why no key was made.
#[derive(Debug, thiserror::Error)]
pub enum NoKey {
    /// The name cannot be one.
    #[error("`{0}` cannot be the name of a key")]
    BadName(String),
    /// There is a key of this name.
    #[error("there is a key `{0}` already")]
    Taken(String),
    /// There are too many.
    #[error("there are {MOST} keys already")]
    TooMany,
    /// The file cannot be read or written.
    #[error("the keys cannot be kept")]
    Io(#[from] io::Error),
}

/// Makes a key for `name` and returns it. Nobody can tell it again.
///
/// # Errors
/// See [`NoKey`].
pub fn add(directory: &Path, name: &str) -> Result<String, NoKey> {
    add_for(directory, name, None)
}

/// The same, for a key that is good for this long.
///
/// # Errors
/// See [`NoKey`].
pub fn add_for(directory: &Path, name: &str, lifetime: Option<Duration>) -> Result<String, NoKey> {
    if !is_name(name) {
        return Err(NoKey::BadName(name.to_owned()));
    }
    let _turn = lock(directory)?;
    let mut kept = read(&directory.join(FILE))?;
    if kept.keys.iter().any(|key| key.name == name) {
        return Err(NoKey::Taken(name.to_owned()));
    }
    if kept.keys.len() >= MOST {
        return Err(NoKey::TooMany);
    }
    let mut bytes = [0; RANDOM_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system gave no randomness"))?;
    let key = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let expires = lifetime.map(|lifetime| created.saturating_add(lifetime.as_secs().max(1)));
    let sha256 = digest_of(&key);
    kept.keys.push(Key { name: name.to_owned(), created, expires, last_used: None, sha256 });
    write(directory, &kept)?;
    Ok(key)
}

/// All keys, in the order in which they were made.
///
/// # Errors
/// The file cannot be read.
pub fn list(directory: &Path) -> io::Result<Vec<Key>> {
    let uses = read_uses(directory);
    let used = |key: Key| Key { last_used: uses.get(&key.sha256).copied(), ..key };
    Ok(read(&directory.join(FILE))?.keys.into_iter().map(used).collect())
}

/// The name of a key that somebody has, if it is one of these.
///
/// # Errors
/// The file cannot be read.
pub fn name_of(directory: &Path, key: &str) -> io::Result<Option<String>> {
    let sha256 = digest_of(key);
    let kept = read(&directory.join(FILE))?;
    Ok(kept.keys.into_iter().find(|key| key.sha256 == sha256).map(|key| key.name))
}

impl Key {
    /// Whether it is good at this time.
    pub fn is_good(&self, wall: Duration) -> bool {
        self.expires.is_none_or(|expires| wall.as_secs() < expires)
    }
}

/// Removes a key: whoever has it is not let in any more. Whether there was one.
///
/// # Errors
/// The file cannot be read or written.
pub fn remove(directory: &Path, name: &str) -> io::Result<bool> {
    let _turn = lock(directory)?;
    let mut kept = read(&directory.join(FILE))?;
    let before = kept.keys.len();
    kept.keys.retain(|key| key.name != name);
    if kept.keys.len() == before {
        return Ok(false);
    }
    write(directory, &kept)?;
    Ok(true)
}

/// Letters, digits and a few signs. Nobody can be named like everybody on this machine, and no name can be taken
/// for one that a token says.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(fits)
        && ![Principal::LOCAL, Principal::ADMIN].contains(&name)
}

/// The keys of a gateway.
pub(super) struct Keyring {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// What the file looked like when it was read.
    stamp: Option<FileStamp>,
    keys: HashMap<String, KnownKey>,
    /// Uses that are not written down yet.
    uses: Uses,
    /// The keys as the file last had them when it could be read, by digest, with when they end; `None` before that.
    last_read: Option<HashMap<String, LastRead>>,
    /// What changed since [`Keyring::changes`] was last asked.
    changed: BTreeMap<KeyChange, Vec<String>>,
    /// The names whose keys were good when it was last asked which were lost, or were used since.
    good: HashSet<Arc<str>>,
}

/// The name of a key, and when it ends.
type LastRead = (Arc<str>, Option<u64>);

impl Known {
    /// Compares what the file says with what it said when it could last be read.
    fn note_changes(&mut self, kept: &Kept) {
        let now: HashMap<_, _> = kept
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
    /// When a use of it was last noted.
    noted: u64,
}

impl KnownKey {
    fn is_good(&self, wall: Duration) -> bool {
        self.expires.is_none_or(|expires| wall.as_secs() < expires)
    }
}

/// When keys were last used, in seconds since the Unix epoch, by their digests.
type Uses = HashMap<String, u64>;

impl Keyring {
    pub(super) fn in_directory(directory: &Path) -> Self {
        let path = directory.join(FILE);
        // Where there is no file yet, the first key is a change.
        let last_read = FileStamp::of(&path).is_none().then(HashMap::new);
        Self { path, known: Mutex::new(Known { last_read, ..Known::default() }) }
    }

    /// Whose key this is at `wall`, and its digest.
    pub(super) fn whose(&self, shown: &str, wall: Duration) -> Result<(String, Arc<str>), Stranger> {
        let unknown = || Stranger::refused(AuthFailure::UnknownKey, "this key is not known here");
        let digest = shown.starts_with(PREFIX).then(|| digest_of(shown)).ok_or_else(unknown)?;
        let mut known = self.known();
        let Known { keys, uses, good, .. } = &mut *known;
        let key = keys.get_mut(&digest).ok_or_else(unknown)?;
        if !key.is_good(wall) {
            let expired = Stranger::refused(AuthFailure::Expired, "this key has expired");
            return Err(expired.of(Some(key.name.to_string())));
        }
        if key.noted + NOTED_EVERY <= wall.as_secs() {
            key.noted = wall.as_secs();
            uses.insert(digest.clone(), key.noted);
            good.insert(Arc::clone(&key.name));
        }
        Ok((digest, Arc::clone(&key.name)))
    }

    /// Whether the key of this digest is good at `wall`.
    pub(super) fn has(&self, digest: &str, wall: Duration) -> bool {
        self.known().keys.get(digest).is_some_and(|key| key.is_good(wall))
    }

    /// The names that had a good key when this was last asked, or have used one since, and have none at `wall`.
    pub(super) fn lost(&self, wall: Duration) -> Vec<Arc<str>> {
        let mut known = self.known();
        let good: HashSet<Arc<str>> =
            known.keys.values().filter(|key| key.is_good(wall)).map(|key| Arc::clone(&key.name)).collect();
        let before = std::mem::replace(&mut known.good, good);
        before.difference(&known.good).cloned().collect()
    }

    /// The names of keys that were added, were removed or have another end since this was last asked. What the file says
    /// when it is first read is no change.
    pub(super) fn changes(&self) -> BTreeMap<KeyChange, Vec<String>> {
        std::mem::take(&mut self.known().changed)
    }

    /// Writes down when keys were last used. What cannot be written is tried again with the next use.
    pub(super) async fn note_uses(&self) {
        let uses = std::mem::take(&mut self.known().uses);
        let Some(directory) = self.path.parent().map(Path::to_owned).filter(|_| !uses.is_empty()) else {
            return;
        };
        let written = tokio::task::spawn_blocking(move || write_uses(&directory, uses)).await;
        if let Ok(Err(error)) = written {
            tracing::debug!(%error, "the last uses of keys cannot be written down");
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known().keys.is_empty()
    }

    /// What the file says now. One that cannot be read lets nobody in.
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = FileStamp::of(&self.path);
        if known.stamp != stamp {
            let kept = match read(&self.path) {
                Ok(kept) => {
                    known.note_changes(&kept);
                    kept
                }
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "keys cannot be read; nobody gets in by one");
                    Kept::default()
                }
            };
            let before = std::mem::take(&mut known.keys);
            let entry = |key: Key| {
                let noted = before.get(&key.sha256).map(|before| before.noted).unwrap_or_default();
                (key.sha256, KnownKey { name: key.name.into(), expires: key.expires, noted })
            };
            known.keys = kept.keys.into_iter().map(entry).collect();
            known.stamp = stamp;
        }
        known
    }
}

fn digest_of(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, key.as_bytes()))
}

fn read(path: &Path) -> io::Result<Kept> {
    let bytes = match private_files::read(path, LARGEST) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
        Err(error) => return Err(error),
    };
    serde_json::from_slice(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// When keys were last used. What cannot be read is not known.
fn read_uses(directory: &Path) -> Uses {
    let bytes = private_files::read(&directory.join(USES), LARGEST).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Adds to what is written, by this process and by others. Keys that were removed are forgotten.
fn write_uses(directory: &Path, uses: Uses) -> io::Result<()> {
    let _turn = lock(directory)?;
    let kept = read(&directory.join(FILE))?;
    let mut known = read_uses(directory);
    for (digest, at) in uses {
        let last = known.entry(digest).or_default();
        *last = at.max(*last);
    }
    known.retain(|digest, _| kept.keys.iter().any(|key| key.sha256 == *digest));
    private_files::replace(&directory.join(USES), &serde_json::to_vec(&known)?)
}

/// Puts a whole new file in the place of the old one: whoever reads sees one or the other.
fn write(directory: &Path, kept: &Kept) -> io::Result<()> {
    private_files::replace(&directory.join(FILE), &serde_json::to_vec_pretty(kept)?)
}

/// One at a time, also between processes. The lock is gone with the file.
fn lock(directory: &Path) -> io::Result<File> {
    private_files::make_directory(directory)?;
    let file = private_files::open_lock(&directory.join(LOCK))?;
    file.lock()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn g05_a_key_is_kept_as_a_digest_that_only_its_owner_can_read() {
        let directory = tempfile::tempdir().unwrap();
        let key = add(directory.path(), "laptop").unwrap();
        let text = fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert!(key.starts_with(PREFIX) && key.len() > 40);
        assert!(text.contains("laptop") && !text.contains(&key[PREFIX.len()..]), "{text}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(directory.path().join(FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn keys_are_good_from_when_they_are_made_until_they_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let keyring = Keyring::in_directory(directory.path());
        assert!(keyring.is_empty());
        let (one, two) = (add(directory.path(), "one").unwrap(), add(directory.path(), "two").unwrap());
        let whose = |key: &str| keyring.whose(key, Duration::ZERO).ok().map(|(_, name)| name);
        assert_eq!((whose(&one).as_deref(), whose(&two).as_deref()), (Some("one"), Some("two")));
        assert!(remove(directory.path(), "one").unwrap() && !remove(directory.path(), "one").unwrap());
        assert_eq!((whose(&one), whose(&two).as_deref()), (None, Some("two")));
        let again = add(directory.path(), "one").unwrap();
        assert_ne!(one, again);
        assert_eq!((whose(&one), whose(&again).as_deref()), (None, Some("one")));
        fs::write(directory.path().join(FILE), "{").unwrap();
        assert_eq!(whose(&two), None, "what cannot be read lets nobody in");
    }

    #[tokio::test]
    async fn g05_a_key_ends_when_it_expires_and_its_last_use_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let keyring = Keyring::in_directory(directory.path());
        let key = add_for(directory.path(), "guest", Some(Duration::from_secs(60))).unwrap();
        let listed = || list(directory.path()).unwrap().remove(0);
        let (made, ends) =
            (Duration::from_secs(listed().created), Duration::from_secs(listed().expires.unwrap()));
        assert_eq!((ends - made, listed().last_used), (Duration::from_secs(60), None));
        let (digest, name) = keyring.whose(&key, made).unwrap();
        assert_eq!((&*name, keyring.has(&digest, made)), ("guest", true));
        keyring.note_uses().await;
        assert_eq!(listed().last_used, Some(made.as_secs()));
        let expired = keyring.whose(&key, ends).unwrap_err();
        assert_eq!(expired.failure(), (AuthFailure::Expired, Some("guest".to_owned())));
        assert!(!keyring.has(&digest, ends) && !listed().is_good(ends));
        assert_eq!((keyring.lost(ends), keyring.lost(ends)), (vec!["guest".into()], Vec::new()));
        remove(directory.path(), "guest").unwrap();
        let again = add(directory.path(), "guest").unwrap();
        assert_eq!(listed().last_used, None, "the use of an earlier key is not its own");
        assert!(keyring.whose(&again, ends).is_ok());
        let written = fs::read_to_string(directory.path().join(USES)).unwrap();
        assert!(!written.contains(&key[PREFIX.len()..]));
    }

    #[test]
    fn a_name_is_short_plain_and_nobody_elses() {
        let directory = tempfile::tempdir().unwrap();
        for bad in ["", "local", "admin", "jwt:alice", "a b", "ü", &"x".repeat(65)] {
            assert!(matches!(add(directory.path(), bad), Err(NoKey::BadName(_))), "{bad}");
        }
        add(directory.path(), "ci@build-1.example").unwrap();
        assert!(matches!(add(directory.path(), "ci@build-1.example"), Err(NoKey::Taken(_))));
    }

    #[test]
    fn g05_a_gateway_notices_which_keys_were_added_removed_or_given_another_end() {
        let directory = tempfile::tempdir().unwrap();
        let without = Keyring::in_directory(directory.path());
        add(directory.path(), "one").unwrap();
        assert_eq!(without.changes().len(), 1, "the first key of all is one");
        let keyring = Keyring::in_directory(directory.path());
        assert!(keyring.changes().is_empty(), "what is there at the start is no change");
        add_for(directory.path(), "two", Some(Duration::from_secs(60))).unwrap();
        add(directory.path(), "three").unwrap();
        remove(directory.path(), "one").unwrap();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let changed = keyring.changes();
        assert_eq!(
            changed.into_iter().collect::<Vec<_>>(),
            [(KeyChange::Added, names(&["three", "two"])), (KeyChange::Removed, names(&["one"]))]
        );
        let path = directory.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, "{").unwrap();
        assert!(keyring.changes().is_empty(), "a file that cannot be read says nothing");
        let mut kept: Kept = serde_json::from_str(&text).unwrap();
        kept.keys.iter_mut().find(|key| key.name == "two").unwrap().expires = None;
        write(directory.path(), &kept).unwrap();
        let changed = keyring.changes();
        assert_eq!(changed.into_iter().collect::<Vec<_>>(), [(KeyChange::ExpiryChanged, names(&["two"]))]);
        assert!(keyring.changes().is_empty(), "each is told once");
    }

    #[test]
    fn several_operators_at_once_lose_no_key() {
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
    fn g05_symlinks_in_the_place_of_the_keys_let_nobody_in_and_are_not_written_through() {
        let (directory, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let key = add(theirs.path(), "intruder").unwrap();
        let victim = theirs.path().join(FILE);
        let before = fs::read(&victim).unwrap();
        std::os::unix::fs::symlink(&victim, directory.path().join(FILE)).unwrap();
        assert!(Keyring::in_directory(directory.path()).whose(&key, Duration::ZERO).is_err());
        assert!(matches!(add(directory.path(), "laptop"), Err(NoKey::Io(_))));
        fs::remove_file(directory.path().join(FILE)).unwrap();
        let absent = theirs.path().join("absent");
        fs::remove_file(directory.path().join(LOCK)).unwrap();
        std::os::unix::fs::symlink(&absent, directory.path().join(LOCK)).unwrap();
        assert!(matches!(add(directory.path(), "laptop"), Err(NoKey::Io(_))));
        assert!(!absent.exists() && fs::read(&victim).unwrap() == before);
    }
}

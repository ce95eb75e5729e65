//! API keys: made by an operator, shown once, kept as digests in the state directory. A gateway looks at the file
//! with every key that it is shown, so a key is good from the moment it is made until it is removed.

use crate::file_stamp::FileStamp;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gripfast::{Principal, private_files};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The file in the state directory that holds the digests.
pub const FILE: &str = "keys.json";
/// What every key begins with, so that one that got into the wrong place can be found.
pub const PREFIX: &str = "gfk_";
const LOCK: &str = "keys.lock";
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
    kept.keys.push(Key { name: name.to_owned(), created, sha256: digest_of(&key) });
    write(directory, &kept)?;
    Ok(key)
}

/// All keys, in the order in which they were made.
///
/// # Errors
/// The file cannot be read.
pub fn list(directory: &Path) -> io::Result<Vec<Key>> {
    Ok(read(&directory.join(FILE))?.keys)
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
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(fits) && name != Principal::LOCAL
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
    names: HashMap<String, Arc<str>>,
}

impl Keyring {
    pub(super) fn in_directory(directory: &Path) -> Self {
        Self { path: directory.join(FILE), known: Mutex::default() }
    }

    /// Whose key this is.
    pub(super) fn whose(&self, shown: &str) -> Option<Arc<str>> {
        let digest = shown.starts_with(PREFIX).then(|| digest_of(shown))?;
        self.known().names.get(&digest).cloned()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known().names.is_empty()
    }

    /// What the file says now. One that cannot be read lets nobody in.
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = FileStamp::of(&self.path);
        if known.stamp != stamp {
            let kept = read(&self.path).unwrap_or_else(|error| {
                tracing::warn!(path = %self.path.display(), %error, "keys cannot be read; nobody gets in by one");
                Kept::default()
            });
            known.names = kept.keys.into_iter().map(|key| (key.sha256, key.name.into())).collect();
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
        assert_eq!(
            (keyring.whose(&one).as_deref(), keyring.whose(&two).as_deref()),
            (Some("one"), Some("two"))
        );
        assert!(remove(directory.path(), "one").unwrap() && !remove(directory.path(), "one").unwrap());
        assert_eq!((keyring.whose(&one), keyring.whose(&two).as_deref()), (None, Some("two")));
        let again = add(directory.path(), "one").unwrap();
        assert_ne!(one, again);
        assert_eq!((keyring.whose(&one), keyring.whose(&again).as_deref()), (None, Some("one")));
        fs::write(directory.path().join(FILE), "{").unwrap();
        assert_eq!(keyring.whose(&two), None, "what cannot be read lets nobody in");
    }

    #[test]
    fn a_name_is_short_plain_and_nobody_elses() {
        let directory = tempfile::tempdir().unwrap();
        for bad in ["", "local", "jwt:alice", "a b", "ü", &"x".repeat(65)] {
            assert!(matches!(add(directory.path(), bad), Err(NoKey::BadName(_))), "{bad}");
        }
        add(directory.path(), "ci@build-1.example").unwrap();
        assert!(matches!(add(directory.path(), "ci@build-1.example"), Err(NoKey::Taken(_))));
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
        assert_eq!(Keyring::in_directory(directory.path()).whose(&key), None);
        assert!(matches!(add(directory.path(), "laptop"), Err(NoKey::Io(_))));
        fs::remove_file(directory.path().join(FILE)).unwrap();
        let absent = theirs.path().join("absent");
        fs::remove_file(directory.path().join(LOCK)).unwrap();
        std::os::unix::fs::symlink(&absent, directory.path().join(LOCK)).unwrap();
        assert!(matches!(add(directory.path(), "laptop"), Err(NoKey::Io(_))));
        assert!(!absent.exists() && fs::read(&victim).unwrap() == before);
    }
}

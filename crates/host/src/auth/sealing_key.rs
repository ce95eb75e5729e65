//! Key that encrypts stored logins: a file of its own in the state directory, or an entry in the system's keyring. It
//! is created when the first login is begun, once for all processes. A file that is not a key is moved aside and
//! replaced.

use super::keyring;
use crate::clock;
use crate::config::LoginKey;
use crate::private_files;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::io;
use std::path::{Path, PathBuf};

const KEY_LEN: usize = 32;
/// Maximum size of a key file; a larger one is not a key.
const MAX_FILE_BYTES: u64 = 4096;
/// Associated data of the encrypted bytes; the name of the login follows.
const PURPOSE: &str = "gripfast login 1 ";

/// Location of the key.
#[derive(Debug, Clone)]
pub(super) struct KeyLocation {
    /// Directory of the logins.
    directory: PathBuf,
    kind: LoginKey,
}

/// Reason why there is no key.
#[derive(Debug)]
pub(super) enum SealingKeyError {
    /// It was never created, or was removed.
    Missing,
    /// It cannot be read now.
    Unavailable(String),
}

/// An existing key.
pub(super) struct SealingKey([u8; KEY_LEN]);

impl KeyLocation {
    pub(super) fn new(directory: PathBuf, kind: LoginKey) -> Self {
        Self { directory, kind }
    }

    /// Returns the key, if there is one.
    pub(super) async fn find(&self) -> Result<SealingKey, SealingKeyError> {
        match self.kind {
            LoginKey::File => {
                let file = self.file();
                let find = move || match read(&file) {
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        private_files::quarantine_if_damaged(&file, read)?;
                        read(&file)
                    }
                    read => read,
                };
                let found = private_files::blocking(find).await.and_then(|found| found);
                found.map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => SealingKeyError::Missing,
                    _ => SealingKeyError::Unavailable(format!(
                        "`{}` cannot be read: {error}",
                        self.file().display()
                    )),
                })
            }
            LoginKey::Keyring => match keyring::find().await {
                Ok(Some(text)) => SealingKey::from_text(&text).ok_or_else(|| {
                    SealingKeyError::Unavailable(
                        "the keyring's entry for gripfast is not a valid key".to_owned(),
                    )
                }),
                Ok(None) => Err(SealingKeyError::Missing),
                Err(error) => Err(SealingKeyError::Unavailable(error.to_string())),
            },
        }
    }

    /// Returns the key, or creates it. Other callers wait meanwhile, and get the same.
    pub(super) async fn find_or_create(&self) -> io::Result<SealingKey> {
        let lock = self.directory.join("key.lock");
        let directory = self.directory.clone();
        let _lock = private_files::blocking(move || {
            private_files::create_subdirectory(&directory)?;
            let file = private_files::open_lock(&lock)?;
            file.lock()?;
            io::Result::Ok(file)
        })
        .await??;
        match self.find().await {
            Ok(key) => return Ok(key),
            Err(SealingKeyError::Unavailable(why)) => return Err(io::Error::other(why)),
            Err(SealingKeyError::Missing) => {}
        }
        let key = SealingKey::random()?;
        match self.kind {
            LoginKey::File => {
                let (file, bytes) = (self.file(), key.0);
                private_files::blocking(move || private_files::replace(&file, &bytes)).await??;
                Ok(key)
            }
            LoginKey::Keyring => {
                keyring::store(&key.to_text()).await?;
                // Another process with another state directory may have been as fast: the stored entry counts.
                self.find()
                    .await
                    .map_err(|_| io::Error::other("the keyring does not return the key that was stored"))
            }
        }
    }

    fn file(&self) -> PathBuf {
        self.directory.join("key")
    }
}

fn read(file: &Path) -> io::Result<SealingKey> {
    let bytes = private_files::read(file, MAX_FILE_BYTES)?;
    bytes
        .try_into()
        .map(SealingKey)
        .map_err(|_| private_files::damaged_error(format!("it is not a key of {KEY_LEN} bytes")))
}

impl SealingKey {
    fn random() -> io::Result<Self> {
        clock::secret_bytes().map(Self).ok_or_else(no_entropy)
    }

    fn from_text(text: &str) -> Option<Self> {
        STANDARD_NO_PAD.decode(text.trim()).ok()?.try_into().ok().map(Self)
    }

    fn to_text(&self) -> String {
        STANDARD_NO_PAD.encode(self.0)
    }

    /// Encrypts a login. It can be decrypted under this name only.
    pub(super) fn seal(&self, login: &str, content: &[u8]) -> io::Result<String> {
        let nonce: [u8; NONCE_LEN] = clock::secret_bytes().ok_or_else(no_entropy)?;
        let mut sealed = content.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        let cipher = self.cipher().ok_or_else(|| io::Error::other("the key cannot be used"))?;
        cipher
            .seal_in_place_append_tag(unique, purpose(login), &mut sealed)
            .map_err(|_| io::Error::other("the login cannot be encrypted"))?;
        Ok(STANDARD_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    /// Decrypts a login; `None` if the key or the name is another one, or the bytes were changed.
    pub(super) fn open(&self, login: &str, sealed: &str) -> Option<Vec<u8>> {
        let bytes = STANDARD_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let opened = self.cipher()?.open_in_place(nonce, purpose(login), &mut sealed).ok()?;
        Some(opened.to_vec())
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&CHACHA20_POLY1305, &self.0).ok().map(LessSafeKey::new)
    }
}

fn purpose(login: &str) -> Aad<Vec<u8>> {
    Aad::from(format!("{PURPOSE}{login}").into_bytes())
}

fn no_entropy() -> io::Error {
    io::Error::other("the system gave no randomness")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_decrypted_only_with_its_key_and_name() {
        let (key, other) = (SealingKey::random().unwrap(), SealingKey::random().unwrap());
        let sealed = key.seal("notes", b"secret").unwrap();
        assert_eq!(key.open("notes", &sealed).unwrap(), b"secret");
        assert_eq!(key.open("wiki", &sealed), None, "a login is bound to its name");
        assert_eq!(other.open("notes", &sealed), None);
        assert_ne!(key.seal("notes", b"secret").unwrap(), sealed);
        for at in 0..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(key.open("notes", &String::from_utf8(bytes).unwrap()), None, "byte {at}");
        }
    }

    #[tokio::test]
    async fn concurrent_callers_get_the_same_key() {
        let dir = tempfile::tempdir().unwrap();
        let places = (0..16).map(|_| KeyLocation::new(dir.path().join("logins"), LoginKey::File));
        let made =
            places.map(|location| tokio::spawn(async move { location.find_or_create().await.unwrap().0 }));
        let mut keys = Vec::new();
        for made in made.collect::<Vec<_>>() {
            keys.push(made.await.unwrap());
        }
        assert!(keys.iter().all(|key| *key == keys[0]));
    }

    #[tokio::test]
    async fn a_damaged_key_is_moved_aside_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("key"), "short").unwrap();
        let location = KeyLocation::new(dir.path().to_owned(), LoginKey::File);
        assert!(matches!(location.find().await, Err(SealingKeyError::Missing)));
        assert_eq!(std::fs::read(dir.path().join("key.corrupt")).unwrap(), b"short");
        let made = location.find_or_create().await.unwrap();
        assert_eq!(location.find().await.unwrap().0, made.0);
    }

    #[tokio::test]
    async fn an_unreadable_key_is_neither_used_nor_replaced() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("key")).unwrap();
        let location = KeyLocation::new(dir.path().to_owned(), LoginKey::File);
        assert!(matches!(location.find().await, Err(SealingKeyError::Unavailable(_))));
        assert!(location.find_or_create().await.is_err());
    }
}

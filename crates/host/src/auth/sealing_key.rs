//! The key with which logins are sealed before they are kept: a file of its own in the state directory, or an entry in
//! the system's keyring. It is made when the first login is begun, once for all processes. A file that is no key is moved aside
//! and replaced.

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
/// A larger file is read no further: it is no key.
const LARGEST: u64 = 4096;
/// What the sealed bytes are for; the name of the login follows.
const PURPOSE: &str = "gripfast login 1 ";

/// Where the key is.
#[derive(Debug, Clone)]
pub(super) struct KeyPlace {
    /// The directory of the logins.
    directory: PathBuf,
    kind: LoginKey,
}

/// Why there is no key.
#[derive(Debug)]
pub(super) enum NoKey {
    /// None was made, or it was removed.
    Gone,
    /// It cannot be had now.
    Away(String),
}

/// A key that is there.
pub(super) struct Key([u8; KEY_LEN]);

impl KeyPlace {
    pub(super) fn new(directory: PathBuf, kind: LoginKey) -> Self {
        Self { directory, kind }
    }

    /// The key, if there is one.
    pub(super) async fn find(&self) -> Result<Key, NoKey> {
        match self.kind {
            LoginKey::File => {
                let file = self.file();
                let find = move || match read(&file) {
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        private_files::set_aside_if_damaged(&file, read)?;
                        read(&file)
                    }
                    read => read,
                };
                let found = private_files::blocking(find).await.and_then(|found| found);
                found.map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => NoKey::Gone,
                    _ => NoKey::Away(format!("`{}` cannot be read: {error}", self.file().display())),
                })
            }
            LoginKey::Keyring => match keyring::find().await {
                Ok(Some(text)) => Key::from_text(&text).ok_or_else(|| {
                    NoKey::Away("the keyring's entry for gripfast is not a key of ours".to_owned())
                }),
                Ok(None) => Err(NoKey::Gone),
                Err(error) => Err(NoKey::Away(error.to_string())),
            },
        }
    }

    /// The key, made if there is none. Whoever else wants it meanwhile waits, and finds the same.
    pub(super) async fn find_or_make(&self) -> io::Result<Key> {
        let turn = self.directory.join("key.lock");
        let directory = self.directory.clone();
        let _turn = private_files::blocking(move || {
            private_files::make_part(&directory)?;
            let file = private_files::open_lock(&turn)?;
            file.lock()?;
            io::Result::Ok(file)
        })
        .await??;
        match self.find().await {
            Ok(key) => return Ok(key),
            Err(NoKey::Away(why)) => return Err(io::Error::other(why)),
            Err(NoKey::Gone) => {}
        }
        let key = Key::random()?;
        match self.kind {
            LoginKey::File => {
                let (file, bytes) = (self.file(), key.0);
                private_files::blocking(move || private_files::replace(&file, &bytes)).await??;
                Ok(key)
            }
            LoginKey::Keyring => {
                keyring::keep(&key.to_text()).await?;
                // Somebody with another state directory may have been as fast: what is there is what counts.
                self.find().await.map_err(|_| io::Error::other("the keyring does not keep what it is given"))
            }
        }
    }

    fn file(&self) -> PathBuf {
        self.directory.join("key")
    }
}

fn read(file: &Path) -> io::Result<Key> {
    let bytes = private_files::read(file, LARGEST)?;
    bytes
        .try_into()
        .map(Key)
        .map_err(|_| private_files::damaged(format!("it is not a key of {KEY_LEN} bytes")))
}

impl Key {
    fn random() -> io::Result<Self> {
        clock::secret_bytes().map(Self).ok_or_else(no_entropy)
    }

    fn from_text(text: &str) -> Option<Self> {
        STANDARD_NO_PAD.decode(text.trim()).ok()?.try_into().ok().map(Self)
    }

    fn to_text(&self) -> String {
        STANDARD_NO_PAD.encode(self.0)
    }

    /// Seals what is known of `login`. It opens under this name only.
    pub(super) fn seal(&self, login: &str, content: &[u8]) -> io::Result<String> {
        let nonce: [u8; NONCE_LEN] = clock::secret_bytes().ok_or_else(no_entropy)?;
        let mut sealed = content.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        let cipher = self.cipher().ok_or_else(|| io::Error::other("the key cannot be used"))?;
        cipher
            .seal_in_place_append_tag(unique, purpose(login), &mut sealed)
            .map_err(|_| io::Error::other("the login cannot be sealed"))?;
        Ok(STANDARD_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    /// What was sealed, if it was with this key, under this name, and nobody touched it since.
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
    fn what_was_sealed_opens_with_its_key_and_under_its_name_only() {
        let (key, other) = (Key::random().unwrap(), Key::random().unwrap());
        let sealed = key.seal("notes", b"secret").unwrap();
        assert_eq!(key.open("notes", &sealed).unwrap(), b"secret");
        assert_eq!(key.open("wiki", &sealed), None, "logins cannot be exchanged for each other");
        assert_eq!(other.open("notes", &sealed), None);
        assert_ne!(key.seal("notes", b"secret").unwrap(), sealed);
        for at in 0..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(key.open("notes", &String::from_utf8(bytes).unwrap()), None, "byte {at}");
        }
    }

    #[tokio::test]
    async fn all_who_want_a_key_at_once_get_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let places = (0..16).map(|_| KeyPlace::new(dir.path().join("logins"), LoginKey::File));
        let made = places.map(|place| tokio::spawn(async move { place.find_or_make().await.unwrap().0 }));
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
        let place = KeyPlace::new(dir.path().to_owned(), LoginKey::File);
        assert!(matches!(place.find().await, Err(NoKey::Gone)));
        assert_eq!(std::fs::read(dir.path().join("key.corrupt")).unwrap(), b"short");
        let made = place.find_or_make().await.unwrap();
        assert_eq!(place.find().await.unwrap().0, made.0);
    }

    #[tokio::test]
    async fn a_key_that_cannot_be_read_is_neither_taken_nor_replaced() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("key")).unwrap();
        let place = KeyPlace::new(dir.path().to_owned(), LoginKey::File);
        assert!(matches!(place.find().await, Err(NoKey::Away(_))));
        assert!(place.find_or_make().await.is_err());
    }
}

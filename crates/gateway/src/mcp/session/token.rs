//! Encryption of session ids (AEAD): they cannot be forged or changed, and every process with the key can read them,
//! also after a restart. The content is in `claims`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gripfast::private_files;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::path::Path;

/// Encrypts and decrypts session ids.
pub struct TokenCipher {
    key: LessSafeKey,
    random: SystemRandom,
}

const KEY_LEN: usize = 32;
/// Maximum size of the key file; a larger file is not a key.
const LARGEST: u64 = 4096;
const FILE: &str = "session.key";
/// Associated data, so that a token for another purpose is not accepted as a session id.
const PURPOSE: &[u8] = b"gripfast session 1";

impl TokenCipher {
    /// Loads the key from `directory`, or creates it; several processes may do so at once.
    ///
    /// # Errors
    /// The key can be neither read nor created.
    pub fn load_or_create(directory: &Path) -> io::Result<Self> {
        private_files::create_directory(directory)?;
        let path = directory.join(FILE);
        let found = match read_key(&path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                private_files::quarantine_if_damaged(&path, read_key)?;
                read_key(&path)
            }
            found => found,
        };
        match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::with_key(&make_key(&path)?),
            found => Self::with_key(&found?),
        }
    }

    /// Creates a cipher with a random key that exists only in this process.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn ephemeral() -> io::Result<Self> {
        let mut key = [0; KEY_LEN];
        SystemRandom::new().fill(&mut key).map_err(|_| no_entropy())?;
        Self::with_key(&key)
    }

    fn with_key(key: &[u8; KEY_LEN]) -> io::Result<Self> {
        let key =
            UnboundKey::new(&CHACHA20_POLY1305, key).map_err(|_| io::Error::other("invalid session key"))?;
        Ok(Self { key: LessSafeKey::new(key), random: SystemRandom::new() })
    }

    /// Encrypts `content` into a text that fits a header.
    pub(crate) fn seal(&self, content: &[u8]) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut sealed = content.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(unique, Aad::from(PURPOSE), &mut sealed).ok()?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    /// Decrypts a text; `None` if it was not encrypted with this key or was changed.
    pub(crate) fn open(&self, text: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let opened = self.key.open_in_place(nonce, Aad::from(PURPOSE), &mut sealed).ok()?;
        Some(opened.to_vec())
    }
}

fn no_entropy() -> io::Error {
    io::Error::other("the system provided no random numbers")
}

fn read_key(path: &Path) -> io::Result<[u8; KEY_LEN]> {
    let key = private_files::read(path, LARGEST)?;
    let damaged =
        |_| private_files::damaged_error(format!("`{}` is not a key of {KEY_LEN} bytes", path.display()));
    key.as_slice().try_into().map_err(damaged)
}

/// Creates the file atomically: another process that starts at the same time reads the same key, and a kill leaves no
/// partial file.
fn make_key(path: &Path) -> io::Result<[u8; KEY_LEN]> {
    let mut key = [0; KEY_LEN];
    SystemRandom::new().fill(&mut key).map_err(|_| no_entropy())?;
    let made = private_files::create_new(path, &key)?;
    if made { Ok(key) } else { read_key(path) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    #[test]
    fn a_token_opens_after_a_restart_and_not_with_another_key() {
        let directory = tempfile::tempdir().unwrap();
        let sealed = TokenCipher::load_or_create(directory.path()).unwrap().seal(b"content").unwrap();
        let again = TokenCipher::load_or_create(directory.path()).unwrap();
        assert_eq!(again.open(&sealed).unwrap(), b"content");
        assert_eq!(TokenCipher::ephemeral().unwrap().open(&sealed), None);
    }

    #[test]
    fn a_damaged_key_is_moved_aside_and_replaced() {
        for damage in [&b""[..], b"short", &[7; 5000]] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join(FILE), damage).unwrap();
            let sealed = TokenCipher::load_or_create(directory.path()).unwrap().seal(b"content").unwrap();
            assert_eq!(
                TokenCipher::load_or_create(directory.path()).unwrap().open(&sealed).unwrap(),
                b"content"
            );
            assert_eq!(fs::read(directory.path().join("session.key.corrupt")).unwrap(), damage);
        }
    }

    #[test]
    fn a_modified_session_id_does_not_open() {
        let seal = TokenCipher::ephemeral().unwrap();
        let sealed = seal.seal(b"content").unwrap();
        for at in 0..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(seal.open(&String::from_utf8(bytes).unwrap()), None, "byte {at}");
        }
        assert_eq!(seal.open(""), None);
        assert_eq!(seal.open("short"), None);
    }

    #[cfg(unix)]
    #[test]
    fn g05_a_symlinked_key_is_refused_and_a_new_directory_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let (home, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        TokenCipher::load_or_create(theirs.path()).unwrap();
        let directory = home.path().join("state");
        TokenCipher::load_or_create(&directory).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        fs::remove_file(directory.join(FILE)).unwrap();
        std::os::unix::fs::symlink(theirs.path().join(FILE), directory.join(FILE)).unwrap();
        let error = TokenCipher::load_or_create(&directory).err().expect("its owner knows the key");
        assert!(error.to_string().contains("is a symlink"), "{error}");
    }

    proptest! {
        #[test]
        fn a_sealed_token_opens_unchanged_and_not_after_any_modification(
            content in prop::collection::vec(any::<u8>(), 0..200),
            place in any::<prop::sample::Index>(),
        ) {
            let seal = TokenCipher::ephemeral().unwrap();
            let sealed = seal.seal(&content).unwrap();
            prop_assert_eq!(seal.open(&sealed), Some(content.clone()));
            prop_assert_ne!(seal.seal(&content).unwrap(), sealed.clone(), "no two are alike");
            let bytes = URL_SAFE_NO_PAD.decode(&sealed).unwrap();
            let bit = place.index(bytes.len() * 8);
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            let shorter = &bytes[..place.index(bytes.len())];
            let longer = [&bytes[..], &[0]].concat();
            for forged in [&other[..], shorter, &longer] {
                prop_assert_eq!(seal.open(&URL_SAFE_NO_PAD.encode(forged)), None);
            }
        }
    }
}

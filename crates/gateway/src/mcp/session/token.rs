//! Session ids that carry their session: sealed, so that nobody can make or change one, and readable by
//! every process that has the key, also after a restart.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gripfast::private_files;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::path::Path;

/// Seals and opens session ids.
pub struct Seal {
    key: LessSafeKey,
    random: SystemRandom,
}

const KEY_LEN: usize = 32;
/// A larger file is read no further: it is no key.
const LARGEST: u64 = 4096;
const FILE: &str = "session.key";
/// What the sealed bytes are for; the same key seals nothing else under this name.
const PURPOSE: &[u8] = b"gripfast session 1";

impl Seal {
    /// A seal whose key lives in `directory`, made there if need be; several processes may ask at once.
    ///
    /// # Errors
    /// The key can be neither read nor made.
    pub fn in_directory(directory: &Path) -> io::Result<Self> {
        private_files::make_directory(directory)?;
        let path = directory.join(FILE);
        let found = match read_key(&path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                private_files::set_aside_if_damaged(&path, read_key)?;
                read_key(&path)
            }
            found => found,
        };
        match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::with_key(&make_key(&path)?),
            found => Self::with_key(&found?),
        }
    }

    /// A seal that nobody else can open, and we only until we end.
    ///
    /// # Errors
    /// The system has no entropy.
    pub fn of_this_process() -> io::Result<Self> {
        let mut key = [0; KEY_LEN];
        SystemRandom::new().fill(&mut key).map_err(|_| no_entropy())?;
        Self::with_key(&key)
    }

    fn with_key(key: &[u8; KEY_LEN]) -> io::Result<Self> {
        let key =
            UnboundKey::new(&CHACHA20_POLY1305, key).map_err(|_| io::Error::other("bad session key"))?;
        Ok(Self { key: LessSafeKey::new(key), random: SystemRandom::new() })
    }

    /// Seals `content` into a text that fits a header.
    pub(crate) fn seal(&self, content: &[u8]) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut sealed = content.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(unique, Aad::from(PURPOSE), &mut sealed).ok()?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    /// What was sealed, if it was sealed with this key and nobody touched it since.
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
    io::Error::other("the system gave no randomness")
}

fn read_key(path: &Path) -> io::Result<[u8; KEY_LEN]> {
    let key = private_files::read(path, LARGEST)?;
    let damaged = |_| private_files::damaged(format!("`{}` is not a key of {KEY_LEN} bytes", path.display()));
    key.as_slice().try_into().map_err(damaged)
}

/// Makes the file whole or not at all, whenever we should be killed: whoever else starts at this moment reads the same
/// key.
fn make_key(path: &Path) -> io::Result<[u8; KEY_LEN]> {
    let mut key = [0; KEY_LEN];
    SystemRandom::new().fill(&mut key).map_err(|_| no_entropy())?;
    let made = private_files::make(path, &key)?;
    if made { Ok(key) } else { read_key(path) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    #[test]
    fn what_was_sealed_opens_after_a_restart_and_not_with_another_key() {
        let directory = tempfile::tempdir().unwrap();
        let sealed = Seal::in_directory(directory.path()).unwrap().seal(b"content").unwrap();
        let again = Seal::in_directory(directory.path()).unwrap();
        assert_eq!(again.open(&sealed).unwrap(), b"content");
        assert_eq!(Seal::of_this_process().unwrap().open(&sealed), None);
    }

    #[test]
    fn a_damaged_key_is_moved_aside_and_replaced() {
        for damage in [&b""[..], b"short", &[7; 5000]] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join(FILE), damage).unwrap();
            let sealed = Seal::in_directory(directory.path()).unwrap().seal(b"content").unwrap();
            assert_eq!(Seal::in_directory(directory.path()).unwrap().open(&sealed).unwrap(), b"content");
            assert_eq!(fs::read(directory.path().join("session.key.corrupt")).unwrap(), damage);
        }
    }

    #[test]
    fn a_session_id_that_was_tampered_with_does_not_open() {
        let seal = Seal::of_this_process().unwrap();
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
    fn g05_a_key_behind_a_symlink_is_not_taken_and_a_new_directory_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let (home, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Seal::in_directory(theirs.path()).unwrap();
        let directory = home.path().join("state");
        Seal::in_directory(&directory).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        fs::remove_file(directory.join(FILE)).unwrap();
        std::os::unix::fs::symlink(theirs.path().join(FILE), directory.join(FILE)).unwrap();
        let error = Seal::in_directory(&directory).err().expect("its owner knows the key");
        assert!(error.to_string().contains("is a symlink"), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_as_it_was_and_with_one_bit_more_less_or_other_not_at_all(
            content in prop::collection::vec(any::<u8>(), 0..200),
            place in any::<prop::sample::Index>(),
        ) {
            let seal = Seal::of_this_process().unwrap();
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

//! The keys of a service: `cluster.key`, and what is derived from it.
//!
//! The list has the newest key first. The first one seals, all of them open, so that a key can be replaced while the
//! service runs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;

/// The list of keys. Its `Debug` shows none of them.
#[derive(Clone)]
pub struct ClusterKeys {
    keys: Vec<hmac::Key>,
}

/// A list of keys cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The list is empty.
    #[error("`cluster.key` is missing")]
    Missing,
    /// A key is too short to resist guessing.
    #[error(
        "`cluster.key` number {number} has {length} characters and needs at least {}",
        ClusterKeys::MIN_LENGTH
    )]
    Short {
        /// Its place in the list, from 1.
        number: usize,
        /// Its length.
        length: usize,
    },
}

/// The use of a derived key. Each use has a key of its own, so that a MAC of one is never valid for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyUse {
    /// MAC of a replica's record in the store.
    ReplicaRecord,
    /// MAC of a forwarded request.
    Forward,
    /// MAC of the reply to a forwarded request.
    ForwardReply,
    /// The check that all replicas have the same key.
    KeyCheck,
    /// Encryption of ids that clients hold: session ids, event ids, `requestState`.
    ClientIds,
    /// Encryption of shared tables: their values in the store, and the copies of the replicas.
    Tables,
}

/// Bytes that were sealed with one of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainValue {
    /// The bytes.
    pub content: Vec<u8>,
    /// True if the first key sealed them. Others are sealed again before their key is dropped.
    pub is_current: bool,
}

impl KeyUse {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::ReplicaRecord => b"gripfast replica record",
            Self::Forward => b"gripfast forward",
            Self::ForwardReply => b"gripfast forward reply",
            Self::KeyCheck => b"gripfast key check",
            Self::ClientIds => b"gripfast client ids",
            Self::Tables => b"gripfast tables",
        }
    }
}

/// Length of a MAC in bytes: HMAC-SHA256.
pub const MAC_LENGTH: usize = 32;

impl ClusterKeys {
    /// The fewest characters of a key.
    pub const MIN_LENGTH: usize = 32;

    /// The keys of this list.
    ///
    /// # Errors
    ///
    /// If the list is empty or a key is too short.
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a str>) -> Result<Self, KeyError> {
        let mut checked = Vec::new();
        for (at, key) in keys.into_iter().enumerate() {
            let length = key.chars().count();
            if length < Self::MIN_LENGTH {
                return Err(KeyError::Short { number: at + 1, length });
            }
            checked.push(hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()));
        }
        if checked.is_empty() { Err(KeyError::Missing) } else { Ok(Self { keys: checked }) }
    }

    /// The MAC of a message under the first key.
    #[must_use]
    pub fn sign(&self, used_for: KeyUse, message: &[u8]) -> [u8; MAC_LENGTH] {
        let key = derive(&self.keys[0], used_for);
        let mut mac = [0; MAC_LENGTH];
        mac.copy_from_slice(hmac::sign(&key, message).as_ref());
        mac
    }

    /// Returns whether one of the keys made this MAC. The comparison takes the same time for every MAC.
    #[must_use]
    pub fn verify(&self, used_for: KeyUse, message: &[u8], mac: &[u8]) -> bool {
        self.keys.iter().any(|key| hmac::verify(&derive(key, used_for), message, mac).is_ok())
    }

    /// A key for this use from each key of the list, in its order.
    #[must_use]
    pub fn derive_all(&self, used_for: KeyUse) -> Vec<[u8; MAC_LENGTH]> {
        let derived = |key: &hmac::Key| {
            let mut derived = [0; MAC_LENGTH];
            derived.copy_from_slice(hmac::sign(key, used_for.label()).as_ref());
            derived
        };
        self.keys.iter().map(derived).collect()
    }

    /// Encrypts bytes of a shared table with the first key. They can be opened under this name only. `None` if the
    /// system provides no random numbers.
    #[must_use]
    pub fn seal(&self, name: &str, content: &[u8]) -> Option<String> {
        let mut sealed = vec![0; NONCE_LEN];
        SystemRandom::new().fill(&mut sealed).ok()?;
        let nonce = Nonce::try_assume_unique_for_key(&sealed).ok()?;
        let mut encrypted = content.to_vec();
        let cipher = self.ciphers().next()?;
        cipher.seal_in_place_append_tag(nonce, Aad::from(name.as_bytes()), &mut encrypted).ok()?;
        sealed.extend_from_slice(&encrypted);
        Some(STANDARD_NO_PAD.encode(sealed))
    }

    /// Opens sealed bytes; `None` if another key or another name sealed them, or they were changed.
    #[must_use]
    pub fn open(&self, name: &str, sealed: &str) -> Option<PlainValue> {
        let sealed = STANDARD_NO_PAD.decode(sealed).ok()?;
        let (nonce, encrypted) = sealed.split_at_checked(NONCE_LEN)?;
        self.ciphers().enumerate().find_map(|(number, cipher)| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut content = encrypted.to_vec();
            let length = cipher.open_in_place(nonce, Aad::from(name.as_bytes()), &mut content).ok()?.len();
            content.truncate(length);
            Some(PlainValue { content, is_current: number == 0 })
        })
    }

    fn ciphers(&self) -> impl Iterator<Item = LessSafeKey> {
        let keys = self.derive_all(KeyUse::Tables).into_iter();
        keys.filter_map(|key| Some(LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &key).ok()?)))
    }

    /// A value for the service marker that shows to the owner of a key that it is the right one, and nothing else.
    #[must_use]
    pub fn check_value(&self) -> String {
        hex(&self.sign(KeyUse::KeyCheck, b"1"))
    }

    /// The check values of all keys.
    pub(crate) fn check_values(&self) -> Vec<String> {
        let check = |key: &hmac::Key| hex(hmac::sign(&derive(key, KeyUse::KeyCheck), b"1").as_ref());
        self.keys.iter().map(check).collect()
    }

    /// Returns whether one of the keys made this check value.
    #[must_use]
    pub fn knows(&self, check_value: &str) -> bool {
        unhex(check_value).is_some_and(|mac| self.verify(KeyUse::KeyCheck, b"1", &mac))
    }
}

impl fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKeys({} [redacted])", self.keys.len())
    }
}

fn derive(key: &hmac::Key, used_for: KeyUse) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(key, used_for.label()).as_ref())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "an old key of at least 32 characters";
    const NEW: &str = "a new key of at least 32 characters!";

    #[test]
    fn sealed_bytes_open_under_their_name_with_any_key_of_the_list() {
        let [old, both, new] = [&[OLD][..], &[NEW, OLD], &[NEW]]
            .map(|keys| ClusterKeys::new(keys.iter().copied()).expect("they are long enough"));
        let sealed = old.seal("pins notes", b"text").expect("there is entropy");
        let opened = |keys: &ClusterKeys, name: &str, sealed: &str| keys.open(name, sealed);
        let content = b"text".to_vec();
        assert_eq!(
            opened(&old, "pins notes", &sealed),
            Some(PlainValue { content: content.clone(), is_current: true })
        );
        assert_eq!(opened(&both, "pins notes", &sealed), Some(PlainValue { content, is_current: false }));
        assert_eq!(opened(&new, "pins notes", &sealed), None);
        assert_eq!(opened(&old, "pins wiki", &sealed), None, "a value of another field");
        assert_ne!(Some(sealed), old.seal("pins notes", b"text"), "no two are alike");
        for malformed in ["", "x", "AAAA", "not base64!"] {
            assert_eq!(opened(&old, "pins notes", malformed), None);
        }
    }

    #[test]
    fn a_key_has_at_least_32_characters() {
        assert_eq!(ClusterKeys::new([]).unwrap_err(), KeyError::Missing);
        let short = ClusterKeys::new([NEW, "short"]).unwrap_err();
        assert_eq!(short, KeyError::Short { number: 2, length: 5 });
        assert_eq!(short.to_string(), "`cluster.key` number 2 has 5 characters and needs at least 32");
        assert!(ClusterKeys::new(["0123456789abcdef0123456789abcdef"]).is_ok());
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let old = ClusterKeys::new([OLD]).expect("keys");
        let both = ClusterKeys::new([NEW, OLD]).expect("keys");
        let new = ClusterKeys::new([NEW]).expect("keys");
        let mac = old.sign(KeyUse::Forward, b"message");
        assert!(both.verify(KeyUse::Forward, b"message", &mac));
        assert!(!new.verify(KeyUse::Forward, b"message", &mac));
        let mac = both.sign(KeyUse::Forward, b"message");
        assert!(new.verify(KeyUse::Forward, b"message", &mac));
        assert!(!old.verify(KeyUse::Forward, b"message", &mac));
    }

    #[test]
    fn a_mac_is_valid_for_its_use_only() {
        let keys = ClusterKeys::new([NEW]).expect("keys");
        let mac = keys.sign(KeyUse::ReplicaRecord, b"message");
        assert!(keys.verify(KeyUse::ReplicaRecord, b"message", &mac));
        assert!(!keys.verify(KeyUse::Forward, b"message", &mac));
        assert!(!keys.verify(KeyUse::ReplicaRecord, b"another", &mac));
        assert!(!keys.verify(KeyUse::ReplicaRecord, b"message", &mac[..31]));
    }

    #[test]
    fn the_check_value_tells_a_wrong_key() {
        let check = ClusterKeys::new([OLD]).expect("keys").check_value();
        assert!(ClusterKeys::new([NEW, OLD]).expect("keys").knows(&check));
        assert!(!ClusterKeys::new([NEW]).expect("keys").knows(&check));
        assert!(!ClusterKeys::new([NEW]).expect("keys").knows("not hex"));
    }

    #[test]
    fn derived_keys_differ_by_key_and_use() {
        let both = ClusterKeys::new([NEW, OLD]).expect("keys");
        let derived = both.derive_all(KeyUse::ClientIds);
        assert_eq!(derived[1..], ClusterKeys::new([OLD]).expect("keys").derive_all(KeyUse::ClientIds));
        assert_ne!(derived[0], derived[1]);
        assert_ne!(derived, both.derive_all(KeyUse::Forward));
    }

    #[test]
    fn debug_shows_no_key() {
        let keys = ClusterKeys::new([NEW]).expect("keys");
        assert_eq!(format!("{keys:?}"), "ClusterKeys(1 [redacted])");
    }
}

//! Encryption of ids (AEAD): they cannot be forged or changed, and every process with the key can read them, also after
//! a restart. The content is in `address`, and for session ids in `claims`.

use crate::mcp::address::{Address, AddressKind, IdOrigin, Replica, random_boot};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gripfast::private_files;
use gripfast::{BootId, ReplicaName};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::path::Path;

/// Encrypts and decrypts the ids that one gateway process issues.
pub struct TokenCipher {
    key: LessSafeKey,
    /// Further keys that open ids, but issue none.
    older_keys: Vec<LessSafeKey>,
    random: SystemRandom,
    /// Process that issues the ids.
    own: Replica,
}

const KEY_LEN: usize = 32;
/// Maximum size of the key file; a larger file is not a key.
const LARGEST: u64 = 4096;
const FILE: &str = "session.key";
/// Associated data of ids that name no process, as gripfast issued them before 0.2.
const UNADDRESSED: &[u8] = b"gripfast session 1";
/// Start of the associated data of addresses. Kind and name follow, so that no other kind or name is accepted.
const ADDRESS: &[u8] = b"gripfast address 1";

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
        let own = Replica { name: None, boot: random_boot() };
        Ok(Self { key: cipher_key(key)?, older_keys: Vec::new(), random: SystemRandom::new(), own })
    }

    /// Sets the name of this replica, which is then readable in front of every id.
    pub fn with_name(mut self, name: ReplicaName) -> Self {
        self.own.name = Some(name);
        self
    }

    /// Issues ids with the first of these keys, which all replicas of a service have. The others and the key of this
    /// cipher still open ids.
    ///
    /// # Errors
    /// The cipher refuses a key.
    pub fn with_shared_keys(mut self, keys: &[[u8; KEY_LEN]]) -> io::Result<Self> {
        let mut keys = keys.iter().map(cipher_key).collect::<io::Result<Vec<_>>>()?.into_iter();
        if let Some(first) = keys.next() {
            let own = std::mem::replace(&mut self.key, first);
            self.older_keys.extend(keys.chain([own]));
        }
        Ok(self)
    }

    /// This process.
    pub(crate) fn own(&self) -> &Replica {
        &self.own
    }

    /// Boot of this process.
    pub(crate) fn boot(&self) -> BootId {
        self.own.boot
    }

    /// Decides which process an id concerns.
    pub(crate) fn origin_of(&self, address: &Address) -> IdOrigin {
        self.own.origin_of(&address.replica)
    }

    /// Issues an id of this process: `NAME.SEALED`, or `SEALED` without a name. It fits a header and a URL.
    pub(crate) fn seal(&self, kind: AddressKind, number: u64, content: &[u8]) -> Option<String> {
        let address = Address { replica: self.own.clone(), kind, number };
        let name = self.own.name.as_ref();
        let sealed = self.encrypt(&associated_data(kind, name), address.encode(content))?;
        Some(match name {
            Some(name) => format!("{}.{sealed}", name.as_str()),
            None => sealed,
        })
    }

    /// Opens an id of this kind, of any process with the key. Returns its further content too. `None` if it was not
    /// issued with this key, or was changed.
    pub(crate) fn open(&self, kind: AddressKind, text: &str) -> Option<(Address, Vec<u8>)> {
        let (name, sealed) = match text.split_once('.') {
            Some((name, sealed)) => (Some(ReplicaName::new(name)?), sealed),
            None => (None, text),
        };
        let bytes = self.decrypt(&associated_data(kind, name.as_ref()), sealed)?;
        let (address, content) = Address::decode(kind, name, &bytes)?;
        Some((address, content.to_vec()))
    }

    /// Opens an id that names no process, as gripfast issued them before 0.2.
    pub(crate) fn open_unaddressed(&self, text: &str) -> Option<Vec<u8>> {
        self.decrypt(UNADDRESSED, text)
    }

    fn encrypt(&self, associated: &[u8], mut content: Vec<u8>) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(unique, Aad::from(associated), &mut content).ok()?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &content].concat()))
    }

    fn decrypt(&self, associated: &[u8], text: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        std::iter::once(&self.key).chain(&self.older_keys).find_map(|key| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut sealed = sealed.to_vec();
            let opened = key.open_in_place(nonce, Aad::from(associated), &mut sealed).ok()?;
            Some(opened.to_vec())
        })
    }
}

fn cipher_key(key: &[u8; KEY_LEN]) -> io::Result<LessSafeKey> {
    let key =
        UnboundKey::new(&CHACHA20_POLY1305, key).map_err(|_| io::Error::other("invalid session key"))?;
    Ok(LessSafeKey::new(key))
}

fn associated_data(kind: AddressKind, name: Option<&ReplicaName>) -> Vec<u8> {
    [ADDRESS, kind.name().as_bytes(), name.map_or("", ReplicaName::as_str).as_bytes()].join(&b' ')
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

    /// Content of a session id.
    fn opened(cipher: &TokenCipher, id: &str) -> Option<Vec<u8>> {
        cipher.open(AddressKind::Session, id).map(|(_, content)| content)
    }

    fn session_id(cipher: &TokenCipher) -> String {
        cipher.seal(AddressKind::Session, 7, b"content").unwrap()
    }

    #[test]
    fn a_token_opens_after_a_restart_and_not_with_another_key() {
        let directory = tempfile::tempdir().unwrap();
        let sealed = session_id(&TokenCipher::load_or_create(directory.path()).unwrap());
        let again = TokenCipher::load_or_create(directory.path()).unwrap();
        assert_eq!(opened(&again, &sealed).unwrap(), b"content");
        assert_eq!(opened(&TokenCipher::ephemeral().unwrap(), &sealed), None);
    }

    #[test]
    fn replicas_open_each_others_ids_and_those_from_before_they_joined() {
        let [old, new] = [[1; KEY_LEN], [2; KEY_LEN]];
        let replica = |keys: &[_]| TokenCipher::ephemeral().unwrap().with_shared_keys(keys).unwrap();
        let (before, rotating, after) = (replica(&[old]), replica(&[new, old]), replica(&[new]));
        assert!(opened(&rotating, &session_id(&before)).is_some());
        assert!(opened(&after, &session_id(&rotating)).is_some(), "the first key issues");
        assert!(opened(&before, &session_id(&rotating)).is_none());
        assert!(opened(&after, &session_id(&before)).is_none());
        let directory = tempfile::tempdir().unwrap();
        let alone = session_id(&TokenCipher::load_or_create(directory.path()).unwrap());
        let joined = TokenCipher::load_or_create(directory.path()).unwrap().with_shared_keys(&[new]).unwrap();
        assert!(opened(&joined, &alone).is_some());
        assert!(opened(&after, &alone).is_none());
    }

    #[test]
    fn a_damaged_key_is_moved_aside_and_replaced() {
        for damage in [&b""[..], b"short", &[7; 5000]] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join(FILE), damage).unwrap();
            let sealed = session_id(&TokenCipher::load_or_create(directory.path()).unwrap());
            let again = TokenCipher::load_or_create(directory.path()).unwrap();
            assert_eq!(opened(&again, &sealed).unwrap(), b"content");
            assert_eq!(fs::read(directory.path().join("session.key.corrupt")).unwrap(), damage);
        }
    }

    #[test]
    fn a_modified_session_id_does_not_open() {
        let cipher = TokenCipher::ephemeral().unwrap().with_name(ReplicaName::new("web-1").unwrap());
        let sealed = session_id(&cipher);
        assert!(sealed.starts_with("web-1."), "{sealed}");
        for at in 0..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(opened(&cipher, &String::from_utf8(bytes).unwrap()), None, "byte {at}");
        }
        for other in ["", "short", ".", &sealed["web-1.".len()..], &format!("web-1.{sealed}")] {
            assert_eq!(opened(&cipher, other), None, "{other}");
        }
    }

    #[test]
    fn an_id_issued_before_ids_named_their_process_still_opens() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE), [7; KEY_LEN]).unwrap();
        let cipher = TokenCipher::load_or_create(directory.path()).unwrap();
        // Made by another implementation of the cipher, in the form of gripfast 0.1.
        let issued = "AAECAwQFBgcICQoLTxqfVwn12-Rq87dxAvIiPY_e55ueruE";
        assert_eq!(cipher.open_unaddressed(issued).unwrap(), b"content");
        assert_eq!(cipher.open_unaddressed(&session_id(&cipher)), None);
        assert_eq!(opened(&cipher, issued), None);
    }

    #[test]
    fn a_process_tells_its_own_ids_from_those_of_other_processes_with_the_key() {
        let directory = tempfile::tempdir().unwrap();
        let process = || TokenCipher::load_or_create(directory.path()).unwrap();
        let named = |name| process().with_name(ReplicaName::new(name).unwrap());
        let all = [process(), process(), named("web-1"), named("web-1"), named("web-2")];
        for (issuer, cipher) in all.iter().enumerate() {
            let (address, _) = all[0].open(AddressKind::Session, &session_id(cipher)).unwrap();
            let here = all.iter().map(|cipher| cipher.origin_of(&address) == IdOrigin::Here);
            assert_eq!(
                here.enumerate().filter(|(_, here)| *here).map(|(at, _)| at).collect::<Vec<_>>(),
                [issuer]
            );
        }
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

    const KINDS: [AddressKind; 5] = [
        AddressKind::Session,
        AddressKind::Stream,
        AddressKind::RequestState,
        AddressKind::SseEndpoint,
        AddressKind::Task,
    ];

    proptest! {
        #[test]
        fn an_id_opens_unchanged_as_its_own_kind_only_and_not_after_any_modification(
            name in prop::option::of("[A-Za-z0-9_-]{1,63}"),
            kind in prop::sample::select(&KINDS[..]),
            number in any::<u64>(),
            content in prop::collection::vec(any::<u8>(), 0..200),
            place in any::<prop::sample::Index>(),
        ) {
            let cipher = TokenCipher::ephemeral().unwrap();
            let cipher = match name.as_deref().and_then(ReplicaName::new) {
                Some(name) => cipher.with_name(name),
                None => cipher,
            };
            let id = cipher.seal(kind, number, &content).unwrap();
            prop_assert!(http::HeaderValue::from_str(&id).is_ok());
            let address = Address { replica: cipher.own.clone(), kind, number };
            prop_assert_eq!(cipher.open(kind, &id), Some((address, content.clone())));
            prop_assert_ne!(cipher.seal(kind, number, &content).unwrap(), id.clone(), "no two are alike");
            for other in KINDS.into_iter().filter(|other| *other != kind) {
                prop_assert_eq!(cipher.open(other, &id), None);
            }
            prop_assert_eq!(TokenCipher::ephemeral().unwrap().open(kind, &id), None);
            let (prefix, sealed) = match &name {
                Some(name) => (format!("{name}."), &id[name.len() + 1..]),
                None => (String::new(), id.as_str()),
            };
            for other in [String::new(), format!("{prefix}."), "other.".to_owned()] {
                if other != prefix {
                    prop_assert_eq!(cipher.open(kind, &format!("{other}{sealed}")), None);
                }
            }
            let bytes = URL_SAFE_NO_PAD.decode(sealed).unwrap();
            let bit = place.index(bytes.len() * 8);
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            let shorter = &bytes[..place.index(bytes.len())];
            let longer = [&bytes[..], &[0]].concat();
            for forged in [&other[..], shorter, &longer] {
                let forged = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(forged));
                prop_assert_eq!(cipher.open(kind, &forged), None);
            }
        }
    }
}

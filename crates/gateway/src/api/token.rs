//! The admin token: kept in the state directory where only its owner can read it, shared by all processes that use the
//! directory. Each request is compared with what the file says at that moment, so a token that was replaced is refused
//! from then on.

use crate::downstream::clock::Clock;
use crate::file_stamp::FileStamp;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gripfast::{Mono, SecretDigest, SignIns, private_files};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The file in the state directory that holds the admin token.
pub const TOKEN_FILE: &str = "admin.token";

/// What whoever operates servers has to know.
pub(super) struct Token {
    known: Mutex<Known>,
    clock: Clock,
}

/// The token as it was last read.
struct Known {
    text: String,
    place: Place,
    /// Of the file, when it was read.
    stamp: Option<FileStamp>,
    /// Whether it was replaced since [`Token::was_replaced`] was last asked.
    replaced: bool,
    /// Browsers that signed in by a link. They have no part in the token, and end with it.
    sign_ins: SignIns,
}

/// Where whoever wants the token finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// In this file.
    Kept(PathBuf),
    /// Nowhere: this file could not be used.
    Unusable { path: PathBuf, why: String },
    /// Nowhere: there is no state directory.
    Nowhere,
}

const RANDOM_BYTES: usize = 32;
/// A person may write a token of their own; a shorter one could be guessed.
const SHORTEST: usize = 32;
/// A longer file is something else.
const LONGEST: u64 = 1024;

impl Token {
    /// The token of this directory, made there if there is none. A directory that cannot be used is said
    /// aloud and done without.
    pub(super) fn of(state_dir: Option<&Path>) -> io::Result<Self> {
        let Some(directory) = state_dir else {
            return Ok(Self::starting(random()?, Place::Nowhere, None));
        };
        let path = directory.join(TOKEN_FILE);
        let (text, place) = match kept(directory, &path) {
            Ok(text) => (text, Place::Kept(path.clone())),
            Err(error) => unusable(&path, &error)?,
        };
        let stamp = FileStamp::of(&path);
        Ok(Self::starting(text, place, stamp))
    }

    fn starting(text: String, place: Place, stamp: Option<FileStamp>) -> Self {
        let known = Known { text, place, stamp, replaced: false, sign_ins: SignIns::default() };
        Self { known: Mutex::new(known), clock: Clock::new() }
    }

    /// The place where an operator finds it.
    pub(super) fn place(&self) -> Place {
        self.known().place.clone()
    }

    /// Whether another token took its place since this was last asked.
    pub(super) fn was_replaced(&self) -> bool {
        std::mem::take(&mut self.known().replaced)
    }

    /// Whether this is the token, or the key of a browser that signed in.
    pub(super) fn admits(&self, offered: &str) -> bool {
        self.matches(offered) || self.known().sign_ins.is_session(self.now(), &digest_of(offered))
    }

    /// A code that a browser can sign in with, once and soon.
    ///
    /// # Errors
    /// The system gave no randomness.
    pub(super) fn sign_in_code(&self) -> io::Result<String> {
        let code = random()?;
        self.known().sign_ins.issue(self.now(), digest_of(&code));
        Ok(code)
    }

    /// Whether a browser can sign in with this code.
    pub(super) fn is_sign_in_code(&self, offered: &str) -> bool {
        self.known().sign_ins.is_code(self.now(), &digest_of(offered))
    }

    /// The key of a new session in exchange for a code; `None` if the code is not valid.
    ///
    /// # Errors
    /// The system gave no randomness.
    pub(super) fn sign_in(&self, code: &str) -> io::Result<Option<String>> {
        let key = random()?;
        let is_open = self.known().sign_ins.exchange(self.now(), &digest_of(code), digest_of(&key));
        Ok(is_open.then_some(key))
    }

    fn now(&self) -> Mono {
        Mono::at(self.clock.mono())
    }

    /// Whether this is the token itself. How long that takes tells nothing about it but its length.
    pub(super) fn matches(&self, offered: &str) -> bool {
        let known = self.known();
        let (ours, theirs) = (known.text.as_bytes(), offered.as_bytes());
        let differing = |bits: u8, (ours, theirs): (&u8, &u8)| std::hint::black_box(bits | (ours ^ theirs));
        ours.len() == theirs.len() && ours.iter().zip(theirs).fold(0, differing) == 0
    }

    /// The token that is in the file now. If the file is gone the last token stays valid; if it cannot be used, no token
    /// is.
    fn known(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let path = match &known.place {
            Place::Kept(path) | Place::Unusable { path, .. } => path.clone(),
            Place::Nowhere => return known,
        };
        let stamp = FileStamp::of(&path);
        if stamp.is_none() || stamp == known.stamp {
            return known;
        }
        let read = match read(&path) {
            Ok(text) => Ok((text, Place::Kept(path))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return known,
            Err(error) => unusable(&path, &error),
        };
        // Without randomness the file is looked at again with the next request.
        if let Ok((text, place)) = read {
            let is_other = text != known.text;
            let replaced = known.replaced || is_other;
            let sign_ins = if is_other { SignIns::default() } else { std::mem::take(&mut known.sign_ins) };
            *known = Known { text, place, stamp, replaced, sign_ins };
        }
        known
    }
}

/// A random token in the place of one that cannot be used, so that no request is admitted.
fn unusable(path: &Path, error: &io::Error) -> io::Result<(String, Place)> {
    tracing::warn!(path = %path.display(), %error, "the admin token cannot be used; servers cannot be operated");
    Ok((random()?, Place::Unusable { path: path.to_owned(), why: error.to_string() }))
}

/// Puts a new admin token in the place of the one in this state directory, and returns the path of its file. Gateways
/// that use the directory refuse the old one from then on.
///
/// # Errors
/// The directory cannot be written to, or the system gave no randomness.
pub fn rotate_token(state_dir: &Path) -> io::Result<PathBuf> {
    private_files::make_directory(state_dir)?;
    let path = state_dir.join(TOKEN_FILE);
    private_files::replace(&path, format!("{}\n", random()?).as_bytes())?;
    Ok(path)
}

fn kept(directory: &Path, path: &Path) -> io::Result<String> {
    private_files::make_directory(directory)?;
    let found = match read(path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            private_files::set_aside_if_damaged(path, read)?;
            read(path)
        }
        found => found,
    };
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path),
        found => found,
    }
}

/// Makes the file whole or not at all: whoever else starts at this moment reads the same token.
fn make(path: &Path) -> io::Result<String> {
    let text = random()?;
    let made = private_files::make(path, format!("{text}\n").as_bytes())?;
    if made { Ok(text) } else { read(path) }
}

fn read(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(private_files::read(path, LONGEST)?).unwrap_or_default();
    let text = text.trim();
    if text.len() < SHORTEST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let what = format!("it holds no token of {SHORTEST} letters or more");
        return Err(private_files::damaged(what));
    }
    Ok(text.to_owned())
}

fn digest_of(secret: &str) -> SecretDigest {
    let mut bytes = SecretDigest::default();
    bytes.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    bytes
}

fn random() -> io::Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system gave no randomness"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::Barrier;

    fn of(directory: &Path) -> Token {
        Token::of(Some(directory)).unwrap()
    }

    impl Token {
        fn text(&self) -> String {
            self.known().text.clone()
        }
    }

    #[test]
    fn the_token_outlives_the_process_and_differs_between_directories() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let token = of(one.path());
        assert!(token.matches(&of(one.path()).text()));
        assert!(!token.matches(&of(other.path()).text()) && !token.matches(""));
        assert_eq!(token.place(), Place::Kept(one.path().join(TOKEN_FILE)));
        assert_eq!(fs::read_dir(one.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn processes_that_start_at_once_agree() {
        let directory = tempfile::tempdir().unwrap();
        let gate = Barrier::new(8);
        let tokens: Vec<String> = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        gate.wait();
                        of(&directory.path().join("state")).text()
                    })
                })
                .collect();
            starting.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    }

    #[test]
    fn what_cannot_be_used_is_done_without() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "in the way").unwrap();
        assert!(matches!(of(&file).place(), Place::Unusable { .. }));
        fs::create_dir(directory.path().join(TOKEN_FILE)).unwrap();
        let token = of(directory.path());
        let Place::Unusable { path, why } = token.place() else { panic!("{:?}", token.place()) };
        assert!(path.ends_with(TOKEN_FILE) && why.contains("not a file"), "{why}");
        assert_eq!(Token::of(None).unwrap().place(), Place::Nowhere);
    }

    #[test]
    fn a_damaged_token_is_moved_aside_and_replaced_at_the_start() {
        for damage in ["", "short", "a line\nand another one that makes it long enough"] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join(TOKEN_FILE), damage).unwrap();
            let token = of(directory.path());
            assert_eq!(token.place(), Place::Kept(directory.path().join(TOKEN_FILE)));
            assert!(!token.matches(damage) && token.matches(&of(directory.path()).text()));
            assert_eq!(fs::read_to_string(directory.path().join("admin.token.corrupt")).unwrap(), damage);
        }
    }

    #[test]
    fn a_token_that_was_replaced_is_refused_from_then_on() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (of(directory.path()), of(directory.path()));
        let old = one.text();
        rotate_token(directory.path()).unwrap();
        let new = fs::read_to_string(directory.path().join(TOKEN_FILE)).unwrap();
        for gateway in [&one, &other] {
            assert!(gateway.matches(new.trim()) && !gateway.matches(&old));
            assert!(gateway.was_replaced() && !gateway.was_replaced(), "it is noticed once");
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no draft is left");
        // A token that a person writes counts too; with one that is too short no request is admitted.
        let path = directory.path().join(TOKEN_FILE);
        let own = "a token that a person has made up".replace(' ', "-");
        fs::write(&path, &own).unwrap();
        assert!(one.matches(&own));
        fs::write(&path, "short").unwrap();
        assert!(!one.matches("short") && !one.matches(&own));
        assert!(matches!(one.place(), Place::Unusable { .. }));
        fs::write(&path, &own).unwrap();
        assert!(one.matches(&own));
        fs::remove_file(&path).unwrap();
        assert!(one.matches(&own), "nothing has taken its place");
    }

    #[test]
    fn a_token_is_made_by_rotating_where_there_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = rotate_token(&directory.path().join("state")).unwrap();
        let made = fs::read_to_string(path).unwrap();
        assert!(of(&directory.path().join("state")).matches(made.trim()));
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_it_even_if_it_was_otherwise() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(TOKEN_FILE);
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let before = of(directory.path()).text();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(of(directory.path()).matches(&before));
        assert_eq!(mode(), 0o600);
        rotate_token(directory.path()).unwrap();
        assert_eq!(mode(), 0o600);
    }

    #[cfg(unix)]
    #[test]
    fn g05_a_symlink_in_the_place_of_the_token_is_neither_read_nor_changed() {
        use std::os::unix::fs::PermissionsExt;
        let (directory, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let victim = theirs.path().join("victim");
        let text = "a text of another user that is long enough to be a token";
        fs::write(&victim, text.replace(' ', "-")).unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&victim, directory.path().join(TOKEN_FILE)).unwrap();
        let token = of(directory.path());
        let Place::Unusable { why, .. } = token.place() else { panic!("{:?}", token.place()) };
        assert!(why.contains("is a symlink"), "{why}");
        assert!(!token.matches(&text.replace(' ', "-")));
        assert_eq!(fs::metadata(&victim).unwrap().permissions().mode() & 0o777, 0o644);
    }
}

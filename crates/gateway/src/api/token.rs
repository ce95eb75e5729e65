//! Admin token, stored in the state directory with access for its owner only and shared by all processes that use the
//! directory. Each request is compared with the current content of the file, so that a replaced token is refused at
//! once.

use crate::file_stamp::FileStamp;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gripfast::sync::Mutex;
use gripfast::{Clock, SecretDigest, SignIns, private_files};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

/// File in the state directory that contains the admin token.
pub const TOKEN_FILE: &str = "admin.token";

/// The admin token and the browsers that signed in with it.
pub(super) struct Token {
    known: Mutex<Known>,
    clock: Clock,
}

/// The token as it was last read.
struct Known {
    text: String,
    location: TokenLocation,
    /// Stamp of the file when it was read.
    stamp: Option<FileStamp>,
    /// True if it was replaced since the last call of [`Token::was_replaced`].
    replaced: bool,
    /// Sessions of browsers that signed in by a link. They end when the token is replaced.
    sign_ins: SignIns,
}

/// Location of the token, for hints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenLocation {
    /// The file that contains it.
    File(PathBuf),
    /// The file cannot be used.
    Unusable { path: PathBuf, why: String },
    /// There is no state directory.
    NoStateDirectory,
}

const RANDOM_BYTES: usize = 32;
/// Minimum length of a token, also of one that the operator wrote. A shorter one could be guessed.
const MIN_LEN: usize = 32;
/// A larger file is not a token.
const MAX_FILE_BYTES: u64 = 1024;

impl Token {
    /// Opens the token of this directory, or creates it. If the directory cannot be used, logs a warning and uses a
    /// random token.
    pub(super) fn open(state_dir: Option<&Path>) -> io::Result<Self> {
        let Some(directory) = state_dir else {
            return Ok(Self::new(random_token()?, TokenLocation::NoStateDirectory, None));
        };
        let path = directory.join(TOKEN_FILE);
        let (text, location) = match load_or_create(directory, &path) {
            Ok(text) => (text, TokenLocation::File(path.clone())),
            Err(error) => unusable(&path, &error)?,
        };
        let stamp = FileStamp::of(&path);
        Ok(Self::new(text, location, stamp))
    }

    fn new(text: String, location: TokenLocation, stamp: Option<FileStamp>) -> Self {
        let known = Known { text, location, stamp, replaced: false, sign_ins: SignIns::default() };
        Self { known: Mutex::new(known), clock: Clock::new() }
    }

    /// Location for the operator.
    pub(super) fn location(&self) -> TokenLocation {
        self.refreshed().location.clone()
    }

    /// True if the token was replaced since the last call.
    pub(super) fn was_replaced(&self) -> bool {
        std::mem::take(&mut self.refreshed().replaced)
    }

    /// True for the token or the key of a signed-in browser.
    pub(super) fn accepts(&self, offered: &str) -> bool {
        self.matches(offered) || self.refreshed().sign_ins.is_session(self.clock.mono(), &digest_of(offered))
    }

    /// Creates a short-lived one-time code for a browser.
    ///
    /// # Errors
    /// The system random number generator failed.
    pub(super) fn issue_sign_in_code(&self) -> io::Result<String> {
        let code = random_token()?;
        self.refreshed().sign_ins.issue(self.clock.mono(), digest_of(&code));
        Ok(code)
    }

    /// True if a browser can sign in with this code.
    pub(super) fn is_sign_in_code(&self, offered: &str) -> bool {
        self.refreshed().sign_ins.is_code(self.clock.mono(), &digest_of(offered))
    }

    /// Exchanges a code for the key of a new session; `None` if the code is not valid.
    ///
    /// # Errors
    /// The system random number generator failed.
    pub(super) fn sign_in(&self, code: &str) -> io::Result<Option<String>> {
        let key = random_token()?;
        let is_open =
            self.refreshed().sign_ins.exchange(self.clock.mono(), &digest_of(code), digest_of(&key));
        Ok(is_open.then_some(key))
    }

    /// True for the token itself. The comparison takes constant time for tokens of the same length.
    pub(super) fn matches(&self, offered: &str) -> bool {
        let known = self.refreshed();
        let (ours, theirs) = (known.text.as_bytes(), offered.as_bytes());
        let differing = |bits: u8, (ours, theirs): (&u8, &u8)| std::hint::black_box(bits | (ours ^ theirs));
        ours.len() == theirs.len() && ours.iter().zip(theirs).fold(0, differing) == 0
    }

    /// The token in the file, read again if the file changed. If the file was removed, the last token stays valid; if
    /// the file cannot be used, no token is valid.
    fn refreshed(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock();
        let path = match &known.location {
            TokenLocation::File(path) | TokenLocation::Unusable { path, .. } => path.clone(),
            TokenLocation::NoStateDirectory => return known,
        };
        let stamp = FileStamp::of(&path);
        if stamp.is_none() || stamp == known.stamp {
            return known;
        }
        let read = match read(&path) {
            Ok(text) => Ok((text, TokenLocation::File(path))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return known,
            Err(error) => unusable(&path, &error),
        };
        // If no random token could be made, the next request reads the file again.
        if let Ok((text, location)) = read {
            let is_other = text != known.text;
            let replaced = known.replaced || is_other;
            let sign_ins = if is_other { SignIns::default() } else { std::mem::take(&mut known.sign_ins) };
            *known = Known { text, location, stamp, replaced, sign_ins };
        }
        known
    }
}

/// A random token in place of an unusable one, so that no request is admitted.
fn unusable(path: &Path, error: &io::Error) -> io::Result<(String, TokenLocation)> {
    tracing::warn!(path = %path.display(), %error, "the admin token file cannot be used; admin actions are refused");
    Ok((random_token()?, TokenLocation::Unusable { path: path.to_owned(), why: error.to_string() }))
}

/// Replaces the admin token of this state directory and returns the path of its file. Gateways that use the directory
/// refuse the old token at once.
///
/// # Errors
/// The directory cannot be written, or the system random number generator failed.
pub fn rotate_token(state_dir: &Path) -> io::Result<PathBuf> {
    private_files::create_directory(state_dir)?;
    let path = state_dir.join(TOKEN_FILE);
    private_files::replace(&path, format!("{}\n", random_token()?).as_bytes())?;
    Ok(path)
}

fn load_or_create(directory: &Path, path: &Path) -> io::Result<String> {
    private_files::create_directory(directory)?;
    let found = match read(path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            private_files::quarantine_if_damaged(path, read)?;
            read(path)
        }
        found => found,
    };
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path),
        found => found,
    }
}

/// Creates the file atomically: another process that starts at this moment reads the same token.
fn create(path: &Path) -> io::Result<String> {
    let text = random_token()?;
    let made = private_files::create_new(path, format!("{text}\n").as_bytes())?;
    if made { Ok(text) } else { read(path) }
}

fn read(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(private_files::read(path, MAX_FILE_BYTES)?).unwrap_or_default();
    let text = text.trim();
    if text.len() < MIN_LEN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let problem = format!("it contains no token of {MIN_LEN} characters or more");
        return Err(private_files::damaged_error(problem));
    }
    Ok(text.to_owned())
}

fn digest_of(secret: &str) -> SecretDigest {
    let mut bytes = SecretDigest::default();
    bytes.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    bytes
}

fn random_token() -> io::Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system random number generator failed"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::Barrier;

    fn of(directory: &Path) -> Token {
        Token::open(Some(directory)).unwrap()
    }

    impl Token {
        fn text(&self) -> String {
            self.refreshed().text.clone()
        }
    }

    #[test]
    fn the_token_outlives_the_process_and_differs_between_directories() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let token = of(one.path());
        assert!(token.matches(&of(one.path()).text()));
        assert!(!token.matches(&of(other.path()).text()) && !token.matches(""));
        assert_eq!(token.location(), TokenLocation::File(one.path().join(TOKEN_FILE)));
        assert_eq!(fs::read_dir(one.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn processes_that_start_at_once_use_the_same_token() {
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
    fn an_unusable_token_file_is_reported_and_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "in the way").unwrap();
        assert!(matches!(of(&file).location(), TokenLocation::Unusable { .. }));
        fs::create_dir(directory.path().join(TOKEN_FILE)).unwrap();
        let token = of(directory.path());
        let TokenLocation::Unusable { path, why } = token.location() else {
            panic!("{:?}", token.location())
        };
        assert!(path.ends_with(TOKEN_FILE) && why.contains("not a file"), "{why}");
        assert_eq!(Token::open(None).unwrap().location(), TokenLocation::NoStateDirectory);
    }

    #[test]
    fn a_damaged_token_is_moved_aside_and_replaced_at_start() {
        for damage in ["", "short", "a line\nand another one that makes it long enough"] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join(TOKEN_FILE), damage).unwrap();
            let token = of(directory.path());
            assert_eq!(token.location(), TokenLocation::File(directory.path().join(TOKEN_FILE)));
            assert!(!token.matches(damage) && token.matches(&of(directory.path()).text()));
            assert_eq!(fs::read_to_string(directory.path().join("admin.token.corrupt")).unwrap(), damage);
        }
    }

    #[test]
    fn a_replaced_token_is_refused_at_once() {
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
        // A token that the operator wrote is valid too; with one that is too short no request is admitted.
        let path = directory.path().join(TOKEN_FILE);
        let own = "a token that a person has made up".replace(' ', "-");
        fs::write(&path, &own).unwrap();
        assert!(one.matches(&own));
        fs::write(&path, "short").unwrap();
        assert!(!one.matches("short") && !one.matches(&own));
        assert!(matches!(one.location(), TokenLocation::Unusable { .. }));
        fs::write(&path, &own).unwrap();
        assert!(one.matches(&own));
        fs::remove_file(&path).unwrap();
        assert!(one.matches(&own), "nothing has replaced it");
    }

    #[test]
    fn rotating_creates_a_token_if_there_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = rotate_token(&directory.path().join("state")).unwrap();
        let made = fs::read_to_string(path).unwrap();
        assert!(of(&directory.path().join("state")).matches(made.trim()));
    }

    #[cfg(unix)]
    #[test]
    fn the_token_file_is_made_readable_by_its_owner_only() {
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
    fn g05_a_symlink_in_place_of_the_token_is_neither_read_nor_changed() {
        use std::os::unix::fs::PermissionsExt;
        let (directory, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let victim = theirs.path().join("victim");
        let text = "a text of another user that is long enough to be a token";
        fs::write(&victim, text.replace(' ', "-")).unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&victim, directory.path().join(TOKEN_FILE)).unwrap();
        let token = of(directory.path());
        let TokenLocation::Unusable { why, .. } = token.location() else { panic!("{:?}", token.location()) };
        assert!(why.contains("is a symlink"), "{why}");
        assert!(!token.matches(&text.replace(' ', "-")));
        assert_eq!(fs::metadata(&victim).unwrap().permissions().mode() & 0o777, 0o644);
    }
}

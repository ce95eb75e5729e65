//! The admin token: made once, kept in the state directory where only its owner can read it, shared by all
//! processes that use the directory.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The file in the state directory that holds the admin token.
pub const TOKEN_FILE: &str = "admin.token";

/// What whoever operates servers has to know.
pub(super) struct Token {
    text: String,
    place: Place,
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
        if let Some(directory) = state_dir {
            let path = directory.join(TOKEN_FILE);
            match kept(directory, &path) {
                Ok(text) => return Ok(Self { text, place: Place::Kept(path) }),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "no admin token can be kept; servers cannot be operated in this run");
                    let place = Place::Unusable { path, why: error.to_string() };
                    return Ok(Self { text: random()?, place });
                }
            }
        }
        Ok(Self { text: random()?, place: Place::Nowhere })
    }

    /// Where it can be read. `None` if nobody can.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Whether this is the token. How long that takes tells nothing about it but its length.
    pub(super) fn matches(&self, offered: &str) -> bool {
        let (ours, theirs) = (self.text.as_bytes(), offered.as_bytes());
        let differing = |bits: u8, (ours, theirs): (&u8, &u8)| std::hint::black_box(bits | (ours ^ theirs));
        ours.len() == theirs.len() && ours.iter().zip(theirs).fold(0, differing) == 0
    }
}

fn kept(directory: &Path, path: &Path) -> io::Result<String> {
    make_private_dir(directory)?;
    match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(directory, path),
        read => read,
    }
}

/// Makes the file whole or not at all: whoever else starts at this moment reads the same token.
fn make(directory: &Path, path: &Path) -> io::Result<String> {
    let text = random()?;
    let draft = directory.join(format!("{TOKEN_FILE}.{}", &random()?[..8]));
    let mut file = create_private(&draft)?;
    let written = file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_all());
    let published = written.and_then(|()| fs::hard_link(&draft, path));
    let _ = fs::remove_file(&draft);
    match published {
        Ok(()) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(path),
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    tighten(&file, path)?;
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    let text = text.trim();
    if text.len() < SHORTEST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let what = format!("it holds no token of {SHORTEST} letters or more; remove it to have one made");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(text.to_owned())
}

fn random() -> io::Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system gave no randomness"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(unix)]
fn make_private_dir(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(not(unix))]
fn make_private_dir(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)
}

#[cfg(unix)]
fn create_private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Takes from others what was never meant for them, and says so: they may have read it already.
#[cfg(unix)]
fn tighten(file: &File, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        let (path, mode) = (path.display(), format!("{mode:o}"));
        tracing::warn!(%path, mode, "others could read the admin token; now they cannot. Remove the file to have a new one made");
    }
    Ok(())
}

#[cfg(not(unix))]
fn tighten(_file: &File, _path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn of(directory: &Path) -> Token {
        Token::of(Some(directory)).unwrap()
    }

    #[test]
    fn the_token_outlives_the_process_and_differs_between_directories() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let token = of(one.path());
        assert!(token.matches(&of(one.path()).text));
        assert!(!token.matches(&of(other.path()).text) && !token.matches(""));
        assert_eq!(*token.place(), Place::Kept(one.path().join(TOKEN_FILE)));
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
                        of(&directory.path().join("state")).text
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
        fs::write(directory.path().join(TOKEN_FILE), "short").unwrap();
        let token = of(directory.path());
        let Place::Unusable { path, why } = token.place() else { panic!("{:?}", token.place()) };
        assert!(path.ends_with(TOKEN_FILE) && why.contains("letters"), "{why}");
        assert!(!token.matches("short"));
        assert_eq!(*Token::of(None).unwrap().place(), Place::Nowhere);
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_it_even_if_it_was_otherwise() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(TOKEN_FILE);
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let before = of(directory.path());
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(of(directory.path()).matches(&before.text));
        assert_eq!(mode(), 0o600);
    }
}

//! The config files that this user trusts, each for what it said then. A `gripfast.toml` in the current directory may be
//! somebody else's, and is used only while it is listed; who asks the user, and when, is decided elsewhere.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gripfast::private_files;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The list of one user.
#[derive(Debug, Clone)]
pub struct TrustList {
    directory: PathBuf,
}

/// What the list says about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is trusted, and says what it said then.
    Trusted,
    /// It was trusted, and says something else now.
    Changed,
    /// It was never trusted.
    Unknown,
}

#[derive(Default, Serialize, Deserialize)]
struct Listed {
    files: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    /// For people; what counts is in the digest too.
    path: String,
    /// The SHA-256 of the path, a zero and the content: the same text runs other programs in another directory.
    sha256: String,
}

const FILE: &str = "trusted.json";
const LOCK: &str = "trusted.lock";
/// Tens of thousands of files.
const LARGEST: u64 = 8 << 20;

impl TrustList {
    /// The list in this directory, which no config can choose: it would choose who vouches for it.
    #[must_use]
    pub fn in_directory(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// What is listed about `file`, which holds `content`.
    ///
    /// # Errors
    /// The list cannot be read, or another user could have changed it.
    pub fn standing(&self, file: &Path, content: &[u8]) -> io::Result<Standing> {
        let file = fs::canonicalize(file)?;
        let listed = self.read()?;
        let Some(entry) = listed.files.iter().find(|entry| entry.path == shown(&file)) else {
            return Ok(Standing::Unknown);
        };
        Ok(if entry.sha256 == digest(&file, content) { Standing::Trusted } else { Standing::Changed })
    }

    /// Lists `file` for holding `content`, in the place of what it was listed for.
    ///
    /// # Errors
    /// The list cannot be written, or another user could have changed it.
    pub fn trust(&self, file: &Path, content: &[u8]) -> io::Result<()> {
        let file = fs::canonicalize(file)?;
        let entry = Entry { path: shown(&file), sha256: digest(&file, content) };
        self.change(|files| {
            files.retain(|listed| listed.path != entry.path);
            files.push(entry);
        })
    }

    /// Takes a file off the list. Says whether it was on it.
    ///
    /// # Errors
    /// The list cannot be written, or another user could have changed it.
    pub fn remove(&self, file: &Path) -> io::Result<bool> {
        // One that is gone can be named as it was listed.
        let path = shown(&fs::canonicalize(file).or_else(|_| std::path::absolute(file))?);
        let mut was_listed = false;
        self.change(|files| {
            let before = files.len();
            files.retain(|listed| listed.path != path);
            was_listed = files.len() < before;
        })?;
        Ok(was_listed)
    }

    /// The files on the list, in the order in which they were trusted.
    ///
    /// # Errors
    /// The list cannot be read, or another user could have changed it.
    pub fn files(&self) -> io::Result<Vec<PathBuf>> {
        Ok(self.read()?.files.into_iter().map(|entry| PathBuf::from(entry.path)).collect())
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Entry>)) -> io::Result<()> {
        private_files::make_directory(&self.directory)?;
        let _turn = self.lock()?;
        let mut listed = self.read()?;
        change(&mut listed.files);
        private_files::replace(&self.directory.join(FILE), &serde_json::to_vec_pretty(&listed)?)
    }

    fn read(&self) -> io::Result<Listed> {
        private_files::judge_state_directory(&self.directory)
            .map_err(|found| io::Error::other(format!("{found}; {}", found.remedy())))?;
        let path = self.directory.join(FILE);
        match private_files::read(&path, LARGEST) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let text =
                    format!("`{}` is damaged ({error}); remove it to begin another list", path.display());
                io::Error::new(io::ErrorKind::InvalidData, text)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Listed::default()),
            Err(error) => Err(error),
        }
    }

    /// One change at a time, also between processes. The lock is gone with the file.
    fn lock(&self) -> io::Result<File> {
        let file = private_files::open_lock(&self.directory.join(LOCK))?;
        file.lock()?;
        Ok(file)
    }
}

fn shown(file: &Path) -> String {
    file.to_string_lossy().into_owned()
}

fn digest(file: &Path, content: &[u8]) -> String {
    let mut digest = Context::new(&SHA256);
    digest.update(file.as_os_str().as_encoded_bytes());
    digest.update(&[0]);
    digest.update(content);
    URL_SAFE_NO_PAD.encode(digest.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> (tempfile::TempDir, TrustList, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("gripfast.toml");
        fs::write(&file, "one").unwrap();
        let list = TrustList::in_directory(home.path().join("state"));
        (home, list, file)
    }

    #[test]
    fn g05_a_file_is_trusted_for_what_it_says_where_it_is() {
        let (home, list, file) = scene();
        assert_eq!(list.standing(&file, b"one").unwrap(), Standing::Unknown);
        list.trust(&file, b"one").unwrap();
        assert_eq!(list.standing(&file, b"one").unwrap(), Standing::Trusted);
        assert_eq!(list.standing(&file, b"two").unwrap(), Standing::Changed);
        let copy = home.path().join("copy.toml");
        fs::copy(&file, &copy).unwrap();
        assert_eq!(list.standing(&copy, b"one").unwrap(), Standing::Unknown, "it runs in another place");
        list.trust(&file, b"two").unwrap();
        assert_eq!(list.standing(&file, b"one").unwrap(), Standing::Changed);
        assert_eq!(list.files().unwrap().len(), 1);
        assert!(list.remove(&file).unwrap() && !list.remove(&file).unwrap());
        assert_eq!(list.standing(&file, b"two").unwrap(), Standing::Unknown);
    }

    #[test]
    fn a_file_that_is_gone_can_be_taken_off_the_list() {
        let (_home, list, file) = scene();
        list.trust(&file, b"one").unwrap();
        let listed = list.files().unwrap().remove(0);
        fs::remove_file(&file).unwrap();
        assert!(list.remove(&listed).unwrap());
        assert!(list.files().unwrap().is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn g05_a_link_is_trusted_for_where_it_leads() {
        let (home, list, file) = scene();
        let link = home.path().join("link.toml");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        list.trust(&link, b"one").unwrap();
        assert_eq!(list.standing(&file, b"one").unwrap(), Standing::Trusted);
        let other = home.path().join("other.toml");
        fs::write(&other, "one").unwrap();
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert_eq!(list.standing(&link, b"one").unwrap(), Standing::Unknown);
    }

    #[cfg(unix)]
    #[test]
    fn g05_a_list_that_another_user_could_have_changed_vouches_for_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let (_home, list, file) = scene();
        list.trust(&file, b"one").unwrap();
        for loose in [list.directory.clone(), list.directory.join(FILE)] {
            let before = fs::metadata(&loose).unwrap().permissions();
            fs::set_permissions(&loose, fs::Permissions::from_mode(0o777)).unwrap();
            let error = list.standing(&file, b"one").unwrap_err().to_string();
            assert!(error.contains("is not safe to use"), "{error}");
            assert!(list.trust(&file, b"two").is_err());
            fs::set_permissions(&loose, before).unwrap();
        }
        fs::write(list.directory.join(FILE), "{").unwrap();
        assert!(list.standing(&file, b"one").unwrap_err().to_string().contains("is damaged"));
    }

    #[test]
    fn files_that_are_trusted_at_once_are_all_listed() {
        let (home, list, _) = scene();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (list, file) = (&list, home.path().join(format!("{number}.toml")));
                scope.spawn(move || {
                    fs::write(&file, "").unwrap();
                    list.trust(&file, b"").unwrap();
                });
            }
        });
        assert_eq!(list.files().unwrap().len(), 8);
    }
}

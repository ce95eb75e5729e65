//! List of the config files that this user trusts, each with the digest of its content. A `gripfast.toml` in the
//! current directory may come from another user and is used only while it is listed. The command line asks the user.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gripfast::private_files;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Trust list of one user.
#[derive(Debug, Clone)]
pub struct TrustList {
    directory: PathBuf,
}

/// Trust in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustState {
    /// Trusted with its current content.
    Trusted,
    /// Trusted with another content.
    Changed,
    /// Not on the list.
    Unknown,
}

#[derive(Default, Serialize, Deserialize)]
struct Listed {
    files: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    /// Path for display and lookup. The digest covers it too.
    path: String,
    /// SHA-256 of the path, a zero byte and the content: the same text may run other programs in another directory.
    sha256: String,
}

const LIST_FILE: &str = "trusted.json";
const LOCK_FILE: &str = "trusted.lock";
/// Enough for tens of thousands of files.
const MAX_FILE_BYTES: u64 = 8 << 20;

impl TrustList {
    /// The list in this directory. A config must not choose the directory, because it could then declare itself
    /// trusted.
    #[must_use]
    pub fn in_directory(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Trust in `file` with this `content`.
    ///
    /// # Errors
    /// The list cannot be read, or another user could have changed it.
    pub fn state_of(&self, file: &Path, content: &[u8]) -> io::Result<TrustState> {
        let file = fs::canonicalize(file)?;
        let listed = self.read()?;
        let Some(entry) = listed.files.iter().find(|entry| entry.path == path_text(&file)) else {
            return Ok(TrustState::Unknown);
        };
        Ok(if entry.sha256 == digest(&file, content) { TrustState::Trusted } else { TrustState::Changed })
    }

    /// Adds `file` with this `content`, or replaces its entry.
    ///
    /// # Errors
    /// The list cannot be written, or another user could have changed it.
    pub fn trust(&self, file: &Path, content: &[u8]) -> io::Result<()> {
        let file = fs::canonicalize(file)?;
        let entry = Entry { path: path_text(&file), sha256: digest(&file, content) };
        self.change(|files| {
            files.retain(|listed| listed.path != entry.path);
            files.push(entry);
        })
    }

    /// Removes a file from the list. Returns true if it was listed.
    ///
    /// # Errors
    /// The list cannot be written, or another user could have changed it.
    pub fn remove(&self, file: &Path) -> io::Result<bool> {
        // A deleted file can be named by its listed path.
        let path = path_text(&fs::canonicalize(file).or_else(|_| std::path::absolute(file))?);
        let mut was_listed = false;
        self.change(|files| {
            let before = files.len();
            files.retain(|listed| listed.path != path);
            was_listed = files.len() < before;
        })?;
        Ok(was_listed)
    }

    /// Listed files, in the order in which they were trusted.
    ///
    /// # Errors
    /// The list cannot be read, or another user could have changed it.
    pub fn files(&self) -> io::Result<Vec<PathBuf>> {
        Ok(self.read()?.files.into_iter().map(|entry| PathBuf::from(entry.path)).collect())
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Entry>)) -> io::Result<()> {
        private_files::create_directory(&self.directory)?;
        let _lock = self.lock()?;
        let mut listed = self.read()?;
        change(&mut listed.files);
        private_files::replace(&self.directory.join(LIST_FILE), &serde_json::to_vec_pretty(&listed)?)
    }

    fn read(&self) -> io::Result<Listed> {
        private_files::check_state_directory(&self.directory)
            .map_err(|found| io::Error::other(format!("{found}; {}", found.remedy())))?;
        let path = self.directory.join(LIST_FILE);
        match private_files::read(&path, MAX_FILE_BYTES) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let text =
                    format!("`{}` is damaged ({error}); remove it to start a new list", path.display());
                io::Error::new(io::ErrorKind::InvalidData, text)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Listed::default()),
            Err(error) => Err(error),
        }
    }

    /// Locks the list against other processes until the returned file is dropped.
    fn lock(&self) -> io::Result<File> {
        let file = private_files::open_lock(&self.directory.join(LOCK_FILE))?;
        file.lock()?;
        Ok(file)
    }
}

fn path_text(file: &Path) -> String {
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
    fn g05_a_file_is_trusted_for_its_content_and_its_path() {
        let (home, list, file) = scene();
        assert_eq!(list.state_of(&file, b"one").unwrap(), TrustState::Unknown);
        list.trust(&file, b"one").unwrap();
        assert_eq!(list.state_of(&file, b"one").unwrap(), TrustState::Trusted);
        assert_eq!(list.state_of(&file, b"two").unwrap(), TrustState::Changed);
        let copy = home.path().join("copy.toml");
        fs::copy(&file, &copy).unwrap();
        assert_eq!(list.state_of(&copy, b"one").unwrap(), TrustState::Unknown, "it is in another place");
        list.trust(&file, b"two").unwrap();
        assert_eq!(list.state_of(&file, b"one").unwrap(), TrustState::Changed);
        assert_eq!(list.files().unwrap().len(), 1);
        assert!(list.remove(&file).unwrap() && !list.remove(&file).unwrap());
        assert_eq!(list.state_of(&file, b"two").unwrap(), TrustState::Unknown);
    }

    #[test]
    fn a_deleted_file_can_be_removed_from_the_list() {
        let (_home, list, file) = scene();
        list.trust(&file, b"one").unwrap();
        let listed = list.files().unwrap().remove(0);
        fs::remove_file(&file).unwrap();
        assert!(list.remove(&listed).unwrap());
        assert!(list.files().unwrap().is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn g05_a_symlink_is_trusted_for_its_target() {
        let (home, list, file) = scene();
        let link = home.path().join("link.toml");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        list.trust(&link, b"one").unwrap();
        assert_eq!(list.state_of(&file, b"one").unwrap(), TrustState::Trusted);
        let other = home.path().join("other.toml");
        fs::write(&other, "one").unwrap();
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert_eq!(list.state_of(&link, b"one").unwrap(), TrustState::Unknown);
    }

    #[cfg(unix)]
    #[test]
    fn g05_a_list_that_another_user_could_change_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let (_home, list, file) = scene();
        list.trust(&file, b"one").unwrap();
        for loose in [list.directory.clone(), list.directory.join(LIST_FILE)] {
            let before = fs::metadata(&loose).unwrap().permissions();
            fs::set_permissions(&loose, fs::Permissions::from_mode(0o777)).unwrap();
            let error = list.state_of(&file, b"one").unwrap_err().to_string();
            assert!(error.contains("is not safe to use"), "{error}");
            assert!(list.trust(&file, b"two").is_err());
            fs::set_permissions(&loose, before).unwrap();
        }
        fs::write(list.directory.join(LIST_FILE), "{").unwrap();
        assert!(list.state_of(&file, b"one").unwrap_err().to_string().contains("is damaged"));
    }

    #[test]
    fn files_trusted_concurrently_are_all_listed() {
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

//! Second record of approvals: the number of approved tools of a server, in a small file of its own beside the store.
//! If the store has fewer pins than that, it was damaged, replaced or cannot be used, and first use is not trusted.
//! `core` decides which tools wait then.

use crate::private_files;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Counts in `STATE_DIR/approvals`, one file per server. Several processes share them; each file is replaced whole.
#[derive(Clone)]
pub(crate) struct ApprovalCounts {
    /// `None` without a state directory: nothing outlives the process then, approvals included.
    directory: Option<Arc<Path>>,
}

#[derive(Serialize, Deserialize)]
struct Count {
    tools: usize,
}

impl ApprovalCounts {
    const MAX_FILE_BYTES: u64 = 4096;

    pub(crate) fn new(state_dir: Option<&Path>) -> Self {
        Self { directory: state_dir.map(|state_dir| state_dir.join("approvals").into()) }
    }

    /// Returns the number of approved tools under this key. A file that cannot be read counts as more than any store
    /// has.
    pub(crate) fn approved_tools(&self, key: &str) -> usize {
        let Some((directory, file)) = self.file(key) else { return 0 };
        // Without the directory, or one above it, nothing was ever counted.
        let read = match private_files::check_subdirectory(directory) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return 0;
            }
            judged => judged.and_then(|()| private_files::read(&file, Self::MAX_FILE_BYTES)),
        };
        match read {
            Ok(bytes) => serde_json::from_slice(&bytes).map_or(usize::MAX, |Count { tools }| tools),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => {
                tracing::warn!(path = %file.display(), %error, "the count of approved tools cannot be read");
                usize::MAX
            }
        }
    }

    /// Saves the count.
    pub(crate) fn save(&self, key: &str, tools: usize) {
        let Some((directory, file)) = self.file(key) else { return };
        let written = private_files::create_subdirectory(directory)
            .and_then(|()| Ok(serde_json::to_vec(&Count { tools })?))
            .and_then(|bytes| private_files::replace(&file, &bytes));
        if let Err(error) = written {
            tracing::warn!(path = %file.display(), %error, "the count of approved tools cannot be written");
        }
    }

    fn file(&self, key: &str) -> Option<(&Path, PathBuf)> {
        let directory = self.directory.as_deref()?;
        // Server names may hold characters that file names may not.
        let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.@".contains(c) { c } else { '_' };
        let name: String = key.chars().map(safe).collect();
        Some((directory, directory.join(format!("{name}.json"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g02_a_count_outlives_the_process_and_a_damaged_one_exceeds_any() {
        let state = tempfile::tempdir().unwrap();
        let witness = ApprovalCounts::new(Some(state.path()));
        assert_eq!(witness.approved_tools("it@1"), 0);
        witness.save("it@1", 3);
        witness.save("../it", 4);
        assert_eq!(ApprovalCounts::new(Some(state.path())).approved_tools("it@1"), 3);
        let files = std::fs::read_dir(state.path().join("approvals")).unwrap().count();
        assert_eq!((files, std::fs::read_dir(state.path()).unwrap().count()), (2, 1), "all in one directory");
        std::fs::write(state.path().join("approvals/it@1.json"), "").unwrap();
        assert_eq!(witness.approved_tools("it@1"), usize::MAX);
        witness.save("it@1", 2);
        assert_eq!(witness.approved_tools("it@1"), 2);
        assert_eq!(ApprovalCounts::new(None).approved_tools("it@1"), 0);
        std::fs::remove_dir_all(state.path().join("approvals")).unwrap();
        assert_eq!(witness.approved_tools("it@1"), 0);
        std::fs::write(state.path().join("approvals"), "").unwrap();
        assert_eq!(witness.approved_tools("it@1"), usize::MAX, "another kind of file is in its place");
    }
}

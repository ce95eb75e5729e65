//! A second witness of approvals: how many tools of a server are approved, in a small file of its own beside the store.
//! If the store has fewer pins than that, it was damaged, replaced or cannot be used, and first use is not trusted.
//! Which tools wait then is decided in `core`.

use crate::private_files;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The counts in `STATE_DIR/approvals`, one file per server. Several processes share them; each file is replaced whole.
#[derive(Clone)]
pub(crate) struct ApprovalWitness {
    /// `None` without a state directory: nothing outlives the process then, approvals included.
    directory: Option<Arc<Path>>,
}

#[derive(Serialize, Deserialize)]
struct Count {
    tools: usize,
}

impl ApprovalWitness {
    const LARGEST: u64 = 4096;

    pub(crate) fn of(state_dir: Option<&Path>) -> Self {
        Self { directory: state_dir.map(|state_dir| state_dir.join("approvals").into()) }
    }

    /// How many tools are approved under this key. A file that cannot be read stands for more than any store has.
    pub(crate) fn tools(&self, key: &str) -> usize {
        let Some((directory, file)) = self.file(key) else { return 0 };
        // Without a directory for it, or above it, nothing was ever counted.
        let read = match private_files::judge_part(directory) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return 0;
            }
            judged => judged.and_then(|()| private_files::read(&file, Self::LARGEST)),
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

    /// Writes the count down.
    pub(crate) fn note(&self, key: &str, tools: usize) {
        let Some((directory, file)) = self.file(key) else { return };
        let written = private_files::make_part(directory)
            .and_then(|()| Ok(serde_json::to_vec(&Count { tools })?))
            .and_then(|bytes| private_files::replace(&file, &bytes));
        if let Err(error) = written {
            tracing::warn!(path = %file.display(), %error, "the count of approved tools cannot be written");
        }
    }

    fn file(&self, key: &str) -> Option<(&Path, PathBuf)> {
        let directory = self.directory.as_deref()?;
        // Names of servers may hold characters that file names may not.
        let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.@".contains(c) { c } else { '_' };
        let name: String = key.chars().map(safe).collect();
        Some((directory, directory.join(format!("{name}.json"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g02_a_count_outlives_the_process_and_a_damaged_one_counts_as_more_than_any() {
        let state = tempfile::tempdir().unwrap();
        let witness = ApprovalWitness::of(Some(state.path()));
        assert_eq!(witness.tools("it@1"), 0);
        witness.note("it@1", 3);
        witness.note("../it", 4);
        assert_eq!(ApprovalWitness::of(Some(state.path())).tools("it@1"), 3);
        let files = std::fs::read_dir(state.path().join("approvals")).unwrap().count();
        assert_eq!((files, std::fs::read_dir(state.path()).unwrap().count()), (2, 1), "all in one directory");
        std::fs::write(state.path().join("approvals/it@1.json"), "").unwrap();
        assert_eq!(witness.tools("it@1"), usize::MAX);
        witness.note("it@1", 2);
        assert_eq!(witness.tools("it@1"), 2);
        assert_eq!(ApprovalWitness::of(None).tools("it@1"), 0);
        std::fs::remove_dir_all(state.path().join("approvals")).unwrap();
        assert_eq!(witness.tools("it@1"), 0);
        std::fs::write(state.path().join("approvals"), "").unwrap();
        assert_eq!(witness.tools("it@1"), usize::MAX, "something else is in its place");
    }
}

//! File metadata that shows if a file was replaced or edited since it was last read.

use std::fs::{self, Metadata};
use std::path::Path;
use std::time::SystemTime;

/// Metadata that changes when a file changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileStamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl FileStamp {
    /// `None` if there is no such file. A symlink is not followed.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path).ok().map(|metadata| Self::from(&metadata))
    }
}

impl From<&Metadata> for FileStamp {
    fn from(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(metadata);
        #[cfg(not(unix))]
        let inode = 0;
        Self { modified: metadata.modified().ok(), length: metadata.len(), inode }
    }
}

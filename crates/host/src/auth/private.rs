//! Files that only their owner may read.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Puts these bytes in the place of what was there. A reader sees one or the other.
pub(super) fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = file.with_extension(format!("{}.new", std::process::id()));
    let mut writing = open(&beside)?;
    writing.set_len(0)?;
    writing.write_all(bytes)?;
    writing.sync_all()?;
    std::fs::rename(&beside, file)
}

/// Opens or makes a file, and its directory, that only their owner may use.
pub(super) fn open(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    let mut directory = std::fs::DirBuilder::new();
    directory.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        options.mode(0o600);
        directory.mode(0o700);
    }
    if let Some(parent) = file.parent() {
        directory.create(parent)?;
    }
    options.open(file)
}

/// Does something that waits for the disk where nobody else waits.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}

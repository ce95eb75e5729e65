//! Writes files of the user atomically, so that a reader never sees half of a file, and keeps their permissions.

use super::error::FailureReport;
use super::exit::Exit;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes `text` to the file, and creates it if it does not exist.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), FailureReport> {
    replace_file(path, text).map_err(|error| {
        FailureReport::new(Exit::General, format!("cannot write `{}`: {error}", path.display()))
    })
}

/// Reads the text of a file; `None` if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>, FailureReport> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(FailureReport::new(Exit::General, format!("cannot read `{}`: {error}", path.display())))
        }
    }
}

fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    // A symlink, as dotfile managers create them, stays one: its target is written.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory)?;
    }
    // A unique file beside it, readable only by its owner, because it may contain tokens.
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let mut draft =
        tempfile::Builder::new().prefix(".gripfast-").tempfile_in(directory.unwrap_or(Path::new(".")))?;
    draft.write_all(text.as_bytes())?;
    if let Ok(meta) = fs::metadata(&path) {
        draft.as_file().set_permissions(meta.permissions())?;
    }
    draft.as_file().sync_all()?;
    draft.persist(&path).map(drop).map_err(|error| error.error)
}

/// The path with an extension added.
pub(crate) fn with_suffix(path: &Path, ending: &str) -> PathBuf {
    path.with_added_extension(ending)
}

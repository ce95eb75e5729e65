//! Writing files that belong to people: in one step, so that whoever reads meanwhile sees the old or the new
//! text and never half of one, with the rights that the file had.

use super::exit::Exit;
use super::stop::Failure;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Puts `text` into the file, which need not exist.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    replaced(path, text)
        .map_err(|error| Failure::new(Exit::General, format!("cannot write `{}`: {error}", path.display())))
}

/// The text of a file; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(Exit::General, format!("cannot read `{}`: {error}", path.display()))),
    }
}

fn replaced(path: &Path, text: &str) -> io::Result<()> {
    // A link, as dotfile managers make them, stays one: what it leads to is written.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory)?;
    }
    // Beside it, under a name that nobody can have taken, and for its owner alone: it may hold tokens.
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

/// The same path with another ending added.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    path.with_added_extension(ending)
}

//! Writing files that belong to people: in one step, so that whoever reads meanwhile sees the old or the new
//! text and never half of one, with the rights that the file had.

use super::exit::Exit;
use super::stop::Failure;
use std::fs::{self, OpenOptions};
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
    let draft = beside(&path, &format!("gripfast-{}", std::process::id()));
    let written = write_draft(&draft, &path, text).and_then(|()| fs::rename(&draft, &path));
    if written.is_err() {
        // There may be none.
        let _ = fs::remove_file(&draft);
    }
    written
}

fn write_draft(draft: &Path, path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // Until it has the rights of the file that it replaces, and for good if there was none: it may hold
        // tokens.
        options.mode(0o600);
    }
    let mut file = options.open(draft)?;
    file.write_all(text.as_bytes())?;
    if let Ok(meta) = fs::metadata(path) {
        file.set_permissions(meta.permissions())?;
    }
    file.sync_all()
}

/// The same path with another ending added.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    path.with_added_extension(ending)
}

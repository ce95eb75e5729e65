//! Private files: the state directory and its content. They are created for their owner only, symlinks inside the
//! state directory are not followed, and files that another user could have changed are refused.

pub use gripfast_core::file_modes::{ChangeableBy, StrictModes};

use crate::clock;
use gripfast_core::file_modes::FileModes;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A file or directory that another user could have changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not safe to use: {by}", path.display())]
pub struct UnsafeFile {
    /// The file or directory.
    pub path: PathBuf,
    /// The reason why it is unsafe.
    pub by: ChangeableBy,
}

impl UnsafeFile {
    /// The command that makes it safe.
    #[must_use]
    pub fn remedy(&self) -> String {
        let path = self.path.display();
        match self.by {
            ChangeableBy::Owner { user, .. } => format!("`chown {user} {path}`, if you trust its content"),
            ChangeableBy::Writers { .. } => format!("`chmod go-w {path}`, if you trust its content"),
        }
    }
}

/// Checks that no other user could have changed the file that `metadata` describes.
///
/// # Errors
/// Another user could have changed it.
pub fn check(path: &Path, metadata: &Metadata) -> Result<(), UnsafeFile> {
    match modes(metadata).changeable_by(user()) {
        Some(by) => Err(UnsafeFile { path: path.to_owned(), by }),
        None => Ok(()),
    }
}

/// Like [`check`], but only warns if strict modes are off.
///
/// # Errors
/// Another user could have changed it, and strict modes are on.
pub fn check_with(strict: StrictModes, path: &Path, metadata: &Metadata) -> Result<(), UnsafeFile> {
    match (check(path, metadata), strict) {
        (Err(found), StrictModes::Off) => {
            tracing::warn!("{found}; it is used because `gateway.strict_modes` is off");
            Ok(())
        }
        (judged, StrictModes::On | StrictModes::Off) => judged,
    }
}

/// Returns true if every user of the machine may read it.
#[must_use]
pub fn is_world_readable(metadata: &Metadata) -> bool {
    modes(metadata).is_world_readable()
}

/// Returns true if anyone but the owner has any access. Always true for a symlink.
pub(crate) fn is_shared(metadata: &Metadata) -> bool {
    modes(metadata).is_shared()
}

/// Files of a state directory that decide about access and trust. If another user could write one of them, the whole
/// directory is unsafe.
const CHECKED_PARTS: &[&str] = &[
    "admin.token",
    "session.key",
    "keys.json",
    "trusted.json",
    "state.db",
    "state.db-wal",
    "approvals",
    "logins",
    "logins/key",
    "ledger",
    "audit",
];

/// Checks a state directory, through symlinks, and its security-relevant files. A missing directory is fine.
///
/// # Errors
/// Another user could have changed it.
pub fn check_state_directory(directory: &Path) -> Result<(), UnsafeFile> {
    let Ok(metadata) = fs::metadata(directory) else { return Ok(()) };
    check(directory, &metadata)?;
    for part in CHECKED_PARTS {
        let path = directory.join(part);
        match fs::symlink_metadata(&path) {
            // [`open`] refuses a symlink; its own owner and mode mean nothing.
            Ok(metadata) if !metadata.is_symlink() => check(&path, &metadata)?,
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// Creates a directory for its owner only, with its parents, if it does not exist. It may be a symlink.
///
/// # Errors
/// File system errors.
pub fn create_directory(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Creates a directory inside the state directory. It may not be a symlink.
///
/// # Errors
/// File system errors; the path is a symlink.
pub fn create_subdirectory(directory: &Path) -> io::Result<()> {
    create_directory(directory)?;
    check_subdirectory(directory)
}

/// Refuses a directory inside the state directory that is a symlink.
pub(crate) fn check_subdirectory(directory: &Path) -> io::Result<()> {
    if fs::symlink_metadata(directory)?.is_symlink() {
        return Err(symlink(directory));
    }
    Ok(())
}

/// Opens a file with the options of `how`. Does not follow symlinks, and creates files for their owner only.
///
/// # Errors
/// File system errors; the path is a symlink or not a regular file.
pub fn open(
    path: &Path,
    how: impl for<'o> FnOnce(&'o mut OpenOptions) -> &'o mut OpenOptions,
) -> io::Result<File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600).custom_flags(NOT_THROUGH_SYMLINKS);
    }
    let file = how(&mut options).open(path).map_err(|error| match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => symlink(path),
        Ok(_) | Err(_) => error,
    })?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("`{}` is not a file", path.display())));
    }
    Ok(file)
}

#[cfg(unix)]
const NOT_THROUGH_SYMLINKS: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// Opens a lock file and creates it if it does not exist.
///
/// # Errors
/// As for [`open`].
pub fn open_lock(path: &Path) -> io::Result<File> {
    open(path, |how| how.create(true).truncate(false).write(true))
}

/// Reads a secret file and removes the access of other users.
///
/// # Errors
/// As for [`open`]; the file has more than `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path, |how| how.read(true))?;
    restrict_to_owner(&file, path);
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(damaged_error(format!("`{}` is larger than {most} bytes", path.display())));
    }
    Ok(bytes)
}

/// An error for a file with damaged content, in contrast to one that cannot be read.
pub fn damaged_error(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Renames a file that `read` finds damaged to `NAME.corrupt`, so that a new one can be created. Processes take turns
/// and check again, so that none moves the new file of another.
///
/// # Errors
/// File system errors.
pub fn quarantine_if_damaged<T>(path: &Path, read: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<()> {
    let turn = open_lock(&path.with_added_extension("turn"))?;
    turn.lock()?;
    match read(path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let backup = path.with_added_extension(CORRUPT);
            fs::rename(path, &backup)?;
            tracing::warn!(moved_to = %backup.display(), %error, "damaged file moved aside; a new one is created");
            Ok(())
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Extension of damaged files that were moved aside.
const CORRUPT: &str = "corrupt";

/// The damaged files of a state directory that were moved aside and not deleted yet.
#[must_use]
pub fn quarantined_files(state_dir: &Path) -> Vec<PathBuf> {
    let is_aside = |file: &PathBuf| {
        let end = file.extension().and_then(std::ffi::OsStr::to_str);
        end.is_some_and(|end| end == CORRUPT || end.starts_with("corrupt-"))
    };
    let listed = [state_dir.to_owned(), state_dir.join("logins")]
        .into_iter()
        .filter_map(|part| fs::read_dir(part).ok());
    let mut files: Vec<PathBuf> =
        listed.flatten().flatten().map(|file| file.path()).filter(is_aside).collect();
    files.sort();
    files
}

/// Replaces a file atomically: readers see the old or the new content.
///
/// # Errors
/// File system errors.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    with_draft(path, bytes, |draft| fs::rename(draft, path))
}

/// Creates a file atomically, unless it exists. Returns true if it was created.
///
/// # Errors
/// File system errors.
pub fn create_new(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let linked = with_draft(path, bytes, |draft| fs::hard_link(draft, path));
    let made = linked.or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Err(error),
        // Without hard links a kill during the write may leave a partial file, which is the lesser evil.
        _ => open(path, |how| how.write(true).create_new(true))?.write_all(bytes),
    });
    match made {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes a draft under an unpredictable name and lets `publish` give it its final name.
fn with_draft(path: &Path, bytes: &[u8], publish: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let random: [u8; 8] =
        clock::secret_bytes().ok_or_else(|| io::Error::other("the system's random generator failed"))?;
    let draft = path.with_added_extension(format!("{:016x}", u64::from_ne_bytes(random)));
    let mut file = open(&draft, |how| how.write(true).create_new(true))?;
    let published = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| publish(&draft));
    // After a rename the draft no longer exists.
    let _ = fs::remove_file(&draft);
    published
}

/// Removes the access of other users, who may have read the file already.
pub(crate) fn restrict_to_owner(file: &File, path: &Path) {
    let Ok(metadata) = file.metadata() else { return };
    let modes = modes(&metadata);
    if !modes.is_shared() {
        return;
    }
    let (path, mode) = (path.display(), format!("{:04o}", modes.mode & 0o777));
    match make_private(file) {
        Ok(()) => {
            tracing::warn!(%path, mode, "other users could read this file; access is now limited to its owner")
        }
        // The file belongs to root, or its volume has no modes.
        Err(error) => {
            tracing::warn!(%path, mode, %error, "other users can read this file, and its mode cannot be changed")
        }
    }
}

fn symlink(path: &Path) -> io::Error {
    let path = path.display();
    io::Error::other(format!("`{path}` is a symlink, and gripfast follows none in its state directory"))
}

#[cfg(unix)]
fn make_private(file: &File) -> io::Result<()> {
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
}

#[cfg(not(unix))]
fn make_private(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn modes(metadata: &Metadata) -> FileModes {
    use std::os::unix::fs::MetadataExt;
    FileModes { owner: metadata.uid(), mode: metadata.mode() }
}

/// Without file modes, files in the user's directories count as private.
#[cfg(not(unix))]
fn modes(_: &Metadata) -> FileModes {
    FileModes { owner: 0, mode: 0o600 }
}

#[cfg(unix)]
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn user() -> u32 {
    0
}

/// Runs blocking disk work on the blocking thread pool.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A directory with a file of another user, and a symlink `link` to it.
    fn scene() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let (victim, link) = (directory.path().join("victim"), directory.path().join("link"));
        fs::write(&victim, "theirs").unwrap();
        set_mode(&victim, 0o644);
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        (directory, victim, link)
    }

    #[test]
    fn g05_nothing_is_read_written_or_made_private_through_a_symlink() {
        let (_directory, victim, link) = scene();
        let attempts: [(&str, io::Result<()>); 5] = [
            ("open to append", open(&link, |how| how.append(true)).map(drop)),
            ("open or make", open(&link, |how| how.create(true).truncate(false).write(true)).map(drop)),
            ("lock", open_lock(&link).map(drop)),
            ("read", read(&link, 100).map(drop)),
            ("make", create_new(&link, b"mine").map(drop)),
        ];
        for (what, attempt) in attempts {
            match attempt {
                Ok(()) => assert_eq!(what, "make", "there is something of the name"),
                Err(error) => assert!(error.to_string().contains("is a symlink"), "{what}: {error}"),
            }
            assert_eq!((fs::read(&victim).unwrap(), mode(&victim)), (b"theirs".to_vec(), 0o644), "{what}");
        }
        replace(&link, b"mine").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"theirs", "the link is replaced, and not what it leads to");
        assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!((fs::read(&link).unwrap(), mode(&link)), (b"mine".to_vec(), 0o600));
    }

    #[test]
    fn g05_the_state_directory_may_be_a_symlink_and_its_parts_may_not() {
        let home = tempfile::tempdir().unwrap();
        let (real, link) = (home.path().join("real"), home.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        create_directory(&link).unwrap();
        assert!(create_subdirectory(&link).unwrap_err().to_string().contains("is a symlink"));
        create_subdirectory(&link.join("logins")).unwrap();
        assert_eq!(mode(&real.join("logins")), 0o700);
    }

    #[test]
    fn a_file_is_created_once_for_its_owner_only_and_leaves_no_draft() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert!(create_new(&path, b"one").unwrap());
        assert!(!create_new(&path, b"two").unwrap());
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"one".to_vec(), 0o600));
        replace(&path, b"three").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"three".to_vec(), 0o600));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_a_damaged_file_is_moved_aside_and_only_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let read = |path: &Path| match fs::read(path)?.as_slice() {
            b"good" => Ok(()),
            _ => Err(damaged_error("it is not good".to_owned())),
        };
        quarantine_if_damaged(&path, read).unwrap();
        fs::write(&path, "good").unwrap();
        quarantine_if_damaged(&path, read).unwrap();
        assert_eq!(quarantined_files(directory.path()), [] as [PathBuf; 0]);
        fs::write(&path, "bad").unwrap();
        quarantine_if_damaged(&path, read).unwrap();
        assert_eq!(quarantined_files(directory.path()), [directory.path().join("key.corrupt")]);
        assert!(!path.exists());
        fs::write(&path, "good").unwrap();
        quarantine_if_damaged(&path, read).unwrap();
        assert!(path.exists(), "another process has made a new one meanwhile");
        fs::write(directory.path().join("state.db.corrupt-1f"), "").unwrap();
        assert_eq!(quarantined_files(directory.path()).len(), 2);
    }

    #[test]
    fn a_secret_that_others_could_read_is_restricted_to_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "secret").unwrap();
        set_mode(&path, 0o644);
        assert_eq!(read(&path, 6).unwrap(), b"secret");
        assert_eq!(mode(&path), 0o600);
        assert!(read(&path, 5).unwrap_err().to_string().contains("larger than 5 bytes"));
        assert!(read(directory.path(), 5).unwrap_err().to_string().contains("is not a file"));
    }

    #[test]
    fn g05_a_state_directory_with_parts_that_others_can_write_is_unsafe() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("state");
        assert_eq!(check_state_directory(&directory), Ok(()), "it will be made");
        fs::create_dir_all(directory.join("logins")).unwrap();
        fs::write(directory.join("notes"), "").unwrap();
        set_mode(&directory.join("notes"), 0o666);
        for loose in ["", "logins"] {
            let path = directory.join(loose);
            for (bits, expected) in [(0o755, true), (0o775, false), (0o757, false), (0o700, true)] {
                set_mode(&path, bits);
                assert_eq!(check_state_directory(&directory).is_ok(), expected, "{loose} {bits:o}");
            }
        }
        for part in ["admin.token", "session.key", "keys.json", "trusted.json", "state.db", "logins/key"] {
            let path = directory.join(part);
            fs::write(&path, "").unwrap();
            set_mode(&path, 0o660);
            let found = check_state_directory(&directory).unwrap_err();
            assert!(found.path.ends_with(part), "{found}");
            assert!(found.remedy().contains("chmod go-w"), "{found:?}");
            set_mode(&path, 0o600);
        }
        std::os::unix::fs::symlink(&directory, home.path().join("link")).unwrap();
        assert_eq!(check_state_directory(&home.path().join("link")), Ok(()));
        set_mode(&directory, 0o777);
        assert!(check_state_directory(&home.path().join("link")).is_err(), "what it leads to counts");
    }

    #[test]
    fn g05_a_file_of_another_user_is_unsafe() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        fs::write(&path, "").unwrap();
        if let Err(error) = std::os::unix::fs::chown(&path, Some(12_345), None) {
            // Only root gives files away. The decision itself has a test in core.
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
            return;
        }
        let found = check_state_directory(directory.path()).unwrap_err();
        assert!(matches!(found.by, ChangeableBy::Owner { owner: 12_345, .. }), "{found}");
        assert!(found.remedy().contains("chown"), "{found:?}");
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        assert_eq!(check_state_directory(directory.path()), Ok(()), "root's are fine");
    }
}

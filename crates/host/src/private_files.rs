//! Files and directories that one user has for itself: the state directory and what is in it. They are made for their owner
//! alone, no symlink in the state directory is followed, and what another user could have changed is refused.

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
    /// Who could have changed it.
    pub by: ChangeableBy,
}

impl UnsafeFile {
    /// What makes it safe.
    #[must_use]
    pub fn remedy(&self) -> String {
        let path = self.path.display();
        match self.by {
            ChangeableBy::Owner { user, .. } => format!("`chown {user} {path}`, if you know what is in it"),
            ChangeableBy::Writers { .. } => format!("`chmod go-w {path}`, if you know what is in it"),
        }
    }
}

/// Judges an opened file, or whatever else `metadata` is about.
///
/// # Errors
/// Another user could have changed it.
pub fn judge(path: &Path, metadata: &Metadata) -> Result<(), UnsafeFile> {
    match modes(metadata).changeable_by(user()) {
        Some(by) => Err(UnsafeFile { path: path.to_owned(), by }),
        None => Ok(()),
    }
}

/// The same where the config may say that such a file is used nevertheless; then it is said in the log.
///
/// # Errors
/// Another user could have changed it, and that is not accepted.
pub fn judge_by(strict: StrictModes, path: &Path, metadata: &Metadata) -> Result<(), UnsafeFile> {
    match (judge(path, metadata), strict) {
        (Err(found), StrictModes::Off) => {
            tracing::warn!("{found}; it is used because `gateway.strict_modes` is off");
            Ok(())
        }
        (judged, StrictModes::On | StrictModes::Off) => judged,
    }
}

/// Whether every user of the machine may read it.
#[must_use]
pub fn everybody_reads(metadata: &Metadata) -> bool {
    modes(metadata).everybody_reads()
}

/// Whether anybody but its owner may use it in any way. A symlink is shared by all.
pub(crate) fn is_shared(metadata: &Metadata) -> bool {
    modes(metadata).is_shared()
}

/// Parts of a state directory that decide who gets in and what is believed. One that another user made or could write
/// makes the directory as unsafe as if that user could write the directory itself.
const PARTS: &[&str] = &[
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

/// Judges a state directory: itself, through symlinks, and the parts of it that matter. One that does not exist is fine.
///
/// # Errors
/// Another user could have changed it.
pub fn judge_state_directory(directory: &Path) -> Result<(), UnsafeFile> {
    let Ok(metadata) = fs::metadata(directory) else { return Ok(()) };
    judge(directory, &metadata)?;
    for part in PARTS {
        let path = directory.join(part);
        match fs::symlink_metadata(&path) {
            // Whoever opens it refuses a symlink, whose own owner and mode mean nothing.
            Ok(metadata) if !metadata.is_symlink() => judge(&path, &metadata)?,
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// Makes a directory for its owner alone, with those above it, if it is not there. It may be a symlink to one.
///
/// # Errors
/// Those of the file system.
pub fn make_directory(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// The same for a directory inside the state directory, where no symlink is followed.
///
/// # Errors
/// Those of the file system; it is a symlink.
pub fn make_part(directory: &Path) -> io::Result<()> {
    make_directory(directory)?;
    judge_part(directory)
}

/// Refuses a directory inside the state directory that is a symlink.
pub(crate) fn judge_part(directory: &Path) -> io::Result<()> {
    if fs::symlink_metadata(directory)?.is_symlink() {
        return Err(symlink(directory));
    }
    Ok(())
}

/// Opens a file as `how` says. A symlink is not followed, and what is made is for its owner alone.
///
/// # Errors
/// Those of the file system; it is a symlink, or something else that is no file.
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

/// Opens a file to be locked, and makes it if it is not there.
///
/// # Errors
/// As for [`open`].
pub fn open_lock(path: &Path) -> io::Result<File> {
    open(path, |how| how.create(true).truncate(false).write(true))
}

/// Reads a secret, and takes it from others who could read it so far.
///
/// # Errors
/// As for [`open`]; there are more than `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path, |how| how.read(true))?;
    keep_to_owner(&file, path);
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(damaged(format!("`{}` is larger than {most} bytes", path.display())));
    }
    Ok(bytes)
}

/// What a file holds that cannot be what it should: it is damaged, and not only out of reach.
pub fn damaged(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Moves a file that `read` finds damaged aside, as `NAME.corrupt`, so that a new one can take its place. Processes take
/// turns and look again: none moves what another has just made.
///
/// # Errors
/// Those of the file system.
pub fn set_aside_if_damaged<T>(path: &Path, read: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<()> {
    let turn = open_lock(&path.with_added_extension("turn"))?;
    turn.lock()?;
    match read(path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let aside = path.with_added_extension(CORRUPT);
            fs::rename(path, &aside)?;
            tracing::warn!(moved_to = %aside.display(), %error, "a damaged file was moved aside; a new one is made");
            Ok(())
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The end of the names of files that were moved aside.
const CORRUPT: &str = "corrupt";

/// The files of a state directory that were found damaged and moved aside, until a person removes them.
#[must_use]
pub fn set_aside(state_dir: &Path) -> Vec<PathBuf> {
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

/// Puts these bytes in the place of what was there: a new file, which takes the name of the old one. A reader sees one
/// or the other.
///
/// # Errors
/// Those of the file system.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    with_draft(path, bytes, |draft| fs::rename(draft, path))
}

/// Makes a file whole or not at all, unless there is one. Says whether it did.
///
/// # Errors
/// Those of the file system.
pub fn make(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let linked = with_draft(path, bytes, |draft| fs::hard_link(draft, path));
    let made = linked.or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Err(error),
        // A file system without links: a kill in mid-write is the lesser evil.
        _ => open(path, |how| how.write(true).create_new(true))?.write_all(bytes),
    });
    match made {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Has `publish` give a file with these bytes its name. Nobody can know the name that it has until then.
fn with_draft(path: &Path, bytes: &[u8], publish: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let random: [u8; 8] =
        clock::secret_bytes().ok_or_else(|| io::Error::other("the system gave no randomness"))?;
    let draft = path.with_added_extension(format!("{:016x}", u64::from_ne_bytes(random)));
    let mut file = open(&draft, |how| how.write(true).create_new(true))?;
    let published = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| publish(&draft));
    // Renamed, it is not there any more.
    let _ = fs::remove_file(&draft);
    published
}

/// Takes a file from others, who may have read it already.
pub(crate) fn keep_to_owner(file: &File, path: &Path) {
    let Ok(metadata) = file.metadata() else { return };
    let modes = modes(&metadata);
    if !modes.is_shared() {
        return;
    }
    let (path, mode) = (path.display(), format!("{:04o}", modes.mode & 0o777));
    match make_private(file) {
        Ok(()) => tracing::warn!(%path, mode, "others could read this file; now only its owner can"),
        // It is root's, or on a volume that knows no modes.
        Err(error) => tracing::warn!(%path, mode, %error, "others can read this file"),
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

/// Where files have no modes, what is in the user's own directories is the user's own.
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

/// Does something that waits for the disk where nobody else waits.
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

    /// A directory with a file of somebody else in it, and a symlink `link` to that.
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
            ("make", make(&link, b"mine").map(drop)),
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
    fn g05_a_part_of_the_state_directory_is_no_symlink_and_the_directory_may_be_one() {
        let home = tempfile::tempdir().unwrap();
        let (real, link) = (home.path().join("real"), home.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        make_directory(&link).unwrap();
        assert!(make_part(&link).unwrap_err().to_string().contains("is a symlink"));
        make_part(&link.join("logins")).unwrap();
        assert_eq!(mode(&real.join("logins")), 0o700);
    }

    #[test]
    fn a_file_is_made_once_and_for_its_owner_alone_and_no_draft_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert!(make(&path, b"one").unwrap());
        assert!(!make(&path, b"two").unwrap());
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"one".to_vec(), 0o600));
        replace(&path, b"three").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"three".to_vec(), 0o600));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_file_is_moved_aside_once_and_one_that_is_good_or_out_of_reach_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let read = |path: &Path| match fs::read(path)?.as_slice() {
            b"good" => Ok(()),
            _ => Err(damaged("it is not good".to_owned())),
        };
        set_aside_if_damaged(&path, read).unwrap();
        fs::write(&path, "good").unwrap();
        set_aside_if_damaged(&path, read).unwrap();
        assert_eq!(set_aside(directory.path()), [] as [PathBuf; 0]);
        fs::write(&path, "bad").unwrap();
        set_aside_if_damaged(&path, read).unwrap();
        assert_eq!(set_aside(directory.path()), [directory.path().join("key.corrupt")]);
        assert!(!path.exists());
        fs::write(&path, "good").unwrap();
        set_aside_if_damaged(&path, read).unwrap();
        assert!(path.exists(), "another process has made a new one meanwhile");
        fs::write(directory.path().join("state.db.corrupt-1f"), "").unwrap();
        assert_eq!(set_aside(directory.path()).len(), 2);
    }

    #[test]
    fn a_secret_that_others_could_read_is_taken_from_them() {
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
    fn g05_a_state_directory_that_others_can_write_is_unsafe_and_so_are_its_parts() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("state");
        assert_eq!(judge_state_directory(&directory), Ok(()), "it will be made");
        fs::create_dir_all(directory.join("logins")).unwrap();
        fs::write(directory.join("notes"), "").unwrap();
        set_mode(&directory.join("notes"), 0o666);
        for loose in ["", "logins"] {
            let path = directory.join(loose);
            for (bits, expected) in [(0o755, true), (0o775, false), (0o757, false), (0o700, true)] {
                set_mode(&path, bits);
                assert_eq!(judge_state_directory(&directory).is_ok(), expected, "{loose} {bits:o}");
            }
        }
        for part in ["admin.token", "session.key", "keys.json", "trusted.json", "state.db", "logins/key"] {
            let path = directory.join(part);
            fs::write(&path, "").unwrap();
            set_mode(&path, 0o660);
            let found = judge_state_directory(&directory).unwrap_err();
            assert!(found.path.ends_with(part), "{found}");
            assert!(found.remedy().contains("chmod go-w"), "{found:?}");
            set_mode(&path, 0o600);
        }
        std::os::unix::fs::symlink(&directory, home.path().join("link")).unwrap();
        assert_eq!(judge_state_directory(&home.path().join("link")), Ok(()));
        set_mode(&directory, 0o777);
        assert!(judge_state_directory(&home.path().join("link")).is_err(), "what it leads to counts");
    }

    #[test]
    fn g05_what_belongs_to_another_user_is_unsafe() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        fs::write(&path, "").unwrap();
        if let Err(error) = std::os::unix::fs::chown(&path, Some(12_345), None) {
            // Only root gives files away. The decision itself has a test in core.
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
            return;
        }
        let found = judge_state_directory(directory.path()).unwrap_err();
        assert!(matches!(found.by, ChangeableBy::Owner { owner: 12_345, .. }), "{found}");
        assert!(found.remedy().contains("chown"), "{found:?}");
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        assert_eq!(judge_state_directory(directory.path()), Ok(()), "root's are fine");
    }
}

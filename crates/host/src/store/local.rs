//! Store in a directory: one SQLite file in WAL mode, which several processes may use at a time. One thread writes, so
//! that callers do not wait for a disk.

use super::queue::{Queue, Task};
use super::{RetainFn, Store, StoreWork};
use crate::private_files;
use crate::sync::Mutex;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// Store in a directory.
pub struct LocalStore {
    reader: Mutex<Connection>,
    queue: Arc<Queue>,
}

impl std::fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalStore").finish_non_exhaustive()
    }
}

/// Error of opening a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be created.
    #[error("cannot create the state directory `{}`", path.display())]
    Directory {
        /// Path of the directory.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The file in it cannot be used.
    #[error("cannot use the state file `{}`", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The file in it cannot be opened or written, not even after a corrupt one was moved aside.
    #[error("cannot use the state file `{}`", path.display())]
    Database {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: rusqlite::Error,
    },
}

impl LocalStore {
    const FILE: &'static str = "state.db";
    /// Time limit for the write of another process, which is never long.
    const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

    /// Opens or creates the store in `directory`. A corrupt file is moved aside, and its new path is returned.
    ///
    /// # Errors
    /// The directory cannot be created or written.
    pub fn open(directory: &Path) -> Result<(Self, Option<PathBuf>), StoreError> {
        let no_directory = |source| StoreError::Directory { path: directory.to_owned(), source };
        private_files::create_directory(directory).map_err(no_directory)?;
        // SQLite follows no symlink anywhere in the path of its file; the directory may be reached by one.
        let directory = &directory.canonicalize().map_err(no_directory)?;
        let path = directory.join(Self::FILE);
        restrict_permissions(&path).map_err(|source| StoreError::File { path: path.clone(), source })?;
        let (reader, moved) = match connect_checked(&path) {
            Ok(connection) => (connection, None),
            Err(error) if is_corrupt(&error) => recreate(directory, &path)
                .map_err(|source| StoreError::Database { path: path.clone(), source })?,
            Err(source) => return Err(StoreError::Database { path, source }),
        };
        let writing = connect(&path).map_err(|source| StoreError::Database { path, source })?;
        let queue = Arc::new(Queue::default());
        let tasks = Arc::clone(&queue);
        std::thread::Builder::new()
            .name("gripfast-store".to_owned())
            .spawn(move || write(&writing, &tasks))
            .map_err(|source| StoreError::Directory { path: directory.to_owned(), source })?;
        Ok((Self { reader: Mutex::new(reader), queue }, moved))
    }
}

impl Store for LocalStore {
    fn get(&self, space: &str, key: &str) -> Option<Vec<u8>> {
        // First: a write that ends meanwhile is in the database.
        if let Some(value) = self.queue.unwritten(space, key) {
            return Some(value);
        }
        let reader = self.reader.lock();
        let found = reader
            .query_row("SELECT value FROM entry WHERE space = ?1 AND key = ?2", params![space, key], |row| {
                row.get(0)
            })
            .optional();
        match found {
            Ok(value) => value,
            Err(error) => {
                tracing::warn!(%error, space, "the state directory could not be read");
                None
            }
        }
    }

    fn put(&self, space: &str, key: &str, value: Vec<u8>) {
        self.queue.push(Task::Put { space: space.to_owned(), key: key.to_owned(), value });
    }

    fn keys(&self, space: &str) -> Vec<String> {
        let unwritten = self.queue.unwritten_keys(space);
        let reader = self.reader.lock();
        let found = reader.prepare_cached("SELECT key FROM entry WHERE space = ?1").and_then(|mut keys| {
            keys.query_map(params![space], |row| row.get(0))?.collect::<Result<BTreeSet<String>, _>>()
        });
        let mut keys = found.unwrap_or_else(|error| {
            tracing::warn!(%error, space, "the state directory could not be read");
            BTreeSet::new()
        });
        keys.extend(unwritten);
        keys.into_iter().collect()
    }

    fn retain(&self, space: &str, keep: RetainFn) {
        self.queue.push(Task::Retain { space: space.to_owned(), keep });
    }

    fn run_after_writes(&self, work: StoreWork) {
        self.queue.push(Task::Run(work));
    }

    fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.queue.push(Task::Flush(done)) {
            let _ = wait.recv_timeout(Self::BUSY_TIMEOUT);
        }
    }
}

/// Ends the writer thread.
impl Drop for LocalStore {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn write(connection: &Connection, tasks: &Queue) {
    while let Some(task) = tasks.pop() {
        match task {
            Task::Put { space, key, value } => {
                let put = connection.execute(
                    "INSERT INTO entry (space, key, value) VALUES (?1, ?2, ?3)
                     ON CONFLICT (space, key) DO UPDATE SET value = excluded.value",
                    params![space, key, value],
                );
                if let Err(error) = put {
                    tracing::warn!(%error, space, "the state directory could not be written");
                }
            }
            Task::Retain { space, keep } => {
                if let Err(error) = retain(connection, &space, &keep) {
                    tracing::warn!(%error, space, "old entries could not be removed from the state directory");
                }
            }
            Task::Run(work) => work(),
            Task::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

/// Walks through a space in the order of its keys, a part at a time: it may be large, and other processes write too.
fn retain(connection: &Connection, space: &str, keep: &RetainFn) -> Result<(), rusqlite::Error> {
    const PART: u32 = 1000;
    let mut page = connection
        .prepare("SELECT key, value FROM entry WHERE space = ?1 AND key > ?2 ORDER BY key LIMIT ?3")?;
    let mut after = String::new();
    loop {
        let entries = page.query_map(params![space, after, PART], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let entries: Vec<(String, Vec<u8>)> = entries.collect::<Result<_, _>>()?;
        let part = connection.unchecked_transaction()?;
        for (key, _) in entries.iter().filter(|(key, value)| !keep(key, value)) {
            part.execute("DELETE FROM entry WHERE space = ?1 AND key = ?2", params![space, key])?;
        }
        part.commit()?;
        match entries.into_iter().next_back() {
            Some((last, _)) => after = last,
            None => return Ok(()),
        }
    }
}

fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    // Private from the beginning. If this fails, the file exists already, or SQLite cannot create it either.
    let _ = private_files::open(path, |how| how.create_new(true).append(true));
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(LocalStore::BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS entry (
            space TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (space, key)
         ) WITHOUT ROWID",
    )?;
    Ok(connection)
}

/// Connects to a file and checks all its pages: a damaged one may have an intact header.
fn connect_checked(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = connect(path)?;
    let found: String = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0))?;
    if found == "ok" {
        return Ok(connection);
    }
    let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(rusqlite::Error::SqliteFailure(corrupt, Some(found)))
}

/// Moves a corrupt file aside. Another process may have found the same, and use a new file already: they take turns,
/// and check again.
fn recreate(directory: &Path, path: &Path) -> Result<(Connection, Option<PathBuf>), rusqlite::Error> {
    let turn = private_files::open_lock(&directory.join("state.db.turn"));
    let _turn = turn.and_then(|turn| turn.lock().map(|()| turn));
    match connect_checked(path) {
        Err(error) if is_corrupt(&error) => {}
        looked_at => return looked_at.map(|connection| (connection, None)),
    }
    let backup = directory.join(format!("{}.corrupt-{:x}", LocalStore::FILE, crate::clock::unique_number()));
    let moved = std::fs::rename(path, &backup).is_ok().then_some(backup);
    for leftover in ["state.db-wal", "state.db-shm"] {
        let _ = std::fs::remove_file(directory.join(leftover));
    }
    Ok((connect(path)?, moved))
}

fn is_corrupt(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
}

/// Restricts a file that other users could read, before this process has a lock on it: closing it would release those
/// too. The files beside it get the same mode.
fn restrict_permissions(path: &Path) -> std::io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if private_files::is_shared(&metadata) => {
            let file = private_files::open(path, |how| how.read(true))?;
            private_files::restrict_to_owner(&file, path);
            Ok(())
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b06_stored_values_survive_a_restart_and_are_shared_by_processes() {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = LocalStore::open(directory.path()).unwrap();
        store.put("catalog", "a", b"one".to_vec());
        store.put("catalog", "a", b"two".to_vec());
        store.flush();
        let (another, moved) = LocalStore::open(directory.path()).unwrap();
        assert_eq!((another.get("catalog", "a"), moved), (Some(b"two".to_vec()), None));
        assert_eq!(another.get("verdict", "a"), None);
    }

    /// A session that was restored a moment ago must be found.
    #[test]
    fn values_are_read_before_they_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = LocalStore::open(directory.path()).unwrap();
        store.put("a", "old", b"1".to_vec());
        store.flush();
        let (go_on, waits) = sync_channel::<()>(0);
        store.run_after_writes(Box::new(move || {
            let _ = waits.recv();
        }));
        for value in ["2", "3"] {
            store.put("a", "old", value.into());
            store.put("a", "new", value.into());
        }
        store.put("b", "new", b"4".to_vec());
        let read = || {
            (
                store.get("a", "old").unwrap(),
                store.get("a", "new").unwrap(),
                store.get("b", "old"),
                store.keys("a"),
            )
        };
        let expected = (b"3".to_vec(), b"3".to_vec(), None, vec!["new".to_owned(), "old".to_owned()]);
        assert_eq!(read(), expected);
        go_on.send(()).unwrap();
        store.flush();
        assert_eq!(read(), expected);
        assert_eq!(store.queue.unwritten("a", "new"), None);
    }

    #[test]
    fn retain_removes_entries_of_its_space_only() {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = LocalStore::open(directory.path()).unwrap();
        let stores: [&dyn Store; 2] = [&store, &crate::store::MemoryStore::default()];
        for store in stores {
            for number in 0..2500 {
                store.put("numbers", &format!("{number:04}"), number.to_string().into_bytes());
            }
            store.put("others", "0001", b"1".to_vec());
            store.retain("numbers", Box::new(|key, value| key == "0007" || value.ends_with(b"00")));
            store.flush();
            let left = (0..2500).filter(|number| store.get("numbers", &format!("{number:04}")).is_some());
            assert_eq!(left.count(), 1 + 24, "seven, and the hundreds");
            assert_eq!(store.get("others", "0001"), Some(b"1".to_vec()));
        }
    }

    #[cfg(unix)]
    #[test]
    fn other_users_cannot_read_the_store() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let (store, _) = LocalStore::open(directory.path()).unwrap();
        store.put("a", "b", b"c".to_vec());
        store.flush();
        for file in std::fs::read_dir(directory.path()).unwrap() {
            let file = file.unwrap();
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{:?}", file.file_name());
        }
    }

    #[test]
    fn a_corrupt_store_is_moved_aside_and_reported() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(LocalStore::FILE), vec![b'x'; 8192]).unwrap();
        let (store, moved) = LocalStore::open(directory.path()).unwrap();
        assert!(moved.is_some_and(|backup| backup.exists()));
        store.put("a", "b", b"c".to_vec());
        store.flush();
        assert_eq!(store.get("a", "b"), Some(b"c".to_vec()));
    }

    #[test]
    fn a_store_with_damaged_pages_is_moved_aside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(LocalStore::FILE);
        let connection = connect(&path).unwrap();
        let big = vec![b'x'; 1 << 20];
        connection.execute("INSERT INTO entry VALUES ('a', 'b', ?1)", params![big]).unwrap();
        drop(connection);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[4096..].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
        let (store, moved) = LocalStore::open(directory.path()).unwrap();
        assert!(moved.is_some_and(|backup| backup.exists()));
        store.put("a", "b", b"c".to_vec());
        store.flush();
        assert_eq!(store.get("a", "b"), Some(b"c".to_vec()));
    }

    #[test]
    fn a_corrupt_store_that_another_process_has_replaced_meanwhile_is_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(LocalStore::FILE);
        std::fs::write(&path, vec![b'x'; 8192]).unwrap();
        let (store, _) = LocalStore::open(directory.path()).unwrap();
        store.put("a", "b", b"c".to_vec());
        store.flush();
        let (late, moved) = recreate(directory.path(), &path).unwrap();
        assert_eq!(moved, None);
        let kept: Vec<u8> = late.query_row("SELECT value FROM entry", [], |row| row.get(0)).unwrap();
        assert_eq!(kept, b"c");
    }

    #[test]
    fn a_path_that_is_no_directory_is_an_error_with_its_cause() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = LocalStore::open(file.path()).unwrap_err();
        assert!(error.to_string().contains("cannot create the state directory"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn g05_no_file_of_the_store_is_created_or_changed_through_a_symlink() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let theirs = tempfile::tempdir().unwrap();
        for (name, text) in
            [("state.db", ""), ("state.db", "precious"), ("state.db-wal", ""), ("state.db-shm", "")]
        {
            let directory = tempfile::tempdir().unwrap();
            let victim = theirs.path().join(format!("victim of {name} {text}"));
            std::fs::write(&victim, text).unwrap();
            std::fs::set_permissions(&victim, std::fs::Permissions::from_mode(0o644)).unwrap();
            symlink(&victim, directory.path().join(name)).unwrap();
            if let Ok((store, _)) = LocalStore::open(directory.path()) {
                store.put("a", "b", b"c".to_vec());
                store.flush();
            }
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), text, "{name}");
            let mode = std::fs::metadata(&victim).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o644, "{name}");
            let absent = theirs.path().join(format!("absent {name}"));
            let directory = tempfile::tempdir().unwrap();
            symlink(&absent, directory.path().join(name)).unwrap();
            drop(LocalStore::open(directory.path()));
            assert!(!absent.exists(), "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_state_directory_that_is_reached_by_a_symlink_is_used() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("real")).unwrap();
        std::os::unix::fs::symlink(home.path().join("real"), home.path().join("link")).unwrap();
        let (store, _) = LocalStore::open(&home.path().join("link")).unwrap();
        store.put("a", "b", b"c".to_vec());
        store.flush();
        assert_eq!(store.get("a", "b"), Some(b"c".to_vec()));
    }
}

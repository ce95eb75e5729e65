//! The thread that writes, and the files it writes: several parts, of which the oldest is thrown away, also if
//! another process left it there.

use super::{AuditKeeps, AuditStatus};
use crate::private;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The way to the thread that writes; the thread ends with it.
pub(super) struct Writer {
    way: SyncSender<Task>,
    shared: Arc<Shared>,
}

enum Task {
    Line {
        at_ms: u64,
        bytes: Vec<u8>,
    },
    /// Find out whether lines could be written now.
    Try {
        at_ms: u64,
    },
    Flush(SyncSender<()>),
}

#[derive(Default)]
struct Shared {
    written: AtomicU64,
    lost: AtomicU64,
    /// Why the last line was not written, if it was not.
    trouble: Mutex<Option<String>>,
}

impl Writer {
    /// Lines that may wait for a slow disk. Beyond it they are lost, and counted.
    const WAITING: usize = 8192;
    /// A shutdown does not wait longer for a disk.
    const FLUSH_WITHIN: Duration = Duration::from_secs(2);

    pub(super) fn start(directory: PathBuf, size: u64) -> Option<Self> {
        let (way, tasks) = sync_channel(Self::WAITING);
        let shared = Arc::new(Shared::default());
        let files = Files { directory, size, current: None };
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("gripfast-audit".to_owned());
        match thread.spawn(move || write(files, &tasks, &seen)) {
            Ok(_) => Some(Self { way, shared }),
            Err(error) => {
                tracing::warn!(%error, "there is no audit log: its thread cannot be started");
                None
            }
        }
    }

    pub(super) fn put(&self, at_ms: u64, bytes: Vec<u8>) {
        if self.way.try_send(Task::Line { at_ms, bytes }).is_err() {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            self.shared.fails("more lines wait than may");
        }
    }

    /// Whether the last line was written. If not, it is found out whether the next one would be.
    pub(super) fn is_well(&self, at_ms: u64) -> bool {
        let well = self.shared.trouble().is_none();
        if !well {
            let _ = self.way.try_send(Task::Try { at_ms });
        }
        well
    }

    pub(super) fn status(&self, keeps: AuditKeeps) -> AuditStatus {
        AuditStatus {
            keeps,
            lines: self.shared.written.load(Ordering::Relaxed),
            lost: self.shared.lost.load(Ordering::Relaxed),
            cause: self.shared.trouble().clone(),
        }
    }

    pub(super) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.way.try_send(Task::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(Self::FLUSH_WITHIN);
        }
    }
}

impl Shared {
    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says aloud that it cannot be written, once until it can.
    fn fails(&self, cause: &str) {
        let before = self.trouble().replace(cause.to_owned());
        if before.is_none() {
            tracing::warn!(cause, "the audit log cannot be written: lines are lost, and counted");
        }
    }

    fn is_mended(&self) {
        if self.trouble().take().is_some() {
            let lost = self.lost.load(Ordering::Relaxed);
            tracing::info!(lost, "the audit log is written again");
        }
    }
}

fn write(mut files: Files, tasks: &Receiver<Task>, shared: &Shared) {
    // Whoever wants nothing done that cannot be written down learns before the first request whether it can.
    if let Err(error) = files.probe() {
        shared.fails(&error.to_string());
    }
    while let Ok(first) = tasks.recv() {
        std::thread::sleep(GATHER);
        let mut lines = Lines::default();
        for task in std::iter::once(first).chain(tasks.try_iter()) {
            match task {
                Task::Line { at_ms, bytes } => {
                    lines.add(at_ms, &bytes);
                    if lines.bytes.len() >= MOST_GATHERED {
                        lines.write(&mut files, shared);
                    }
                }
                Task::Try { at_ms } => match files.append(at_ms, &[]) {
                    Ok(()) => shared.is_mended(),
                    Err(error) => shared.fails(&error.to_string()),
                },
                Task::Flush(done) => {
                    lines.write(&mut files, shared);
                    let _ = done.send(());
                }
            }
        }
        lines.write(&mut files, shared);
    }
}

/// Lines of one moment are written together: to wake this thread for each of them would cost more than to write it.
const GATHER: Duration = Duration::from_millis(5);
/// Beyond this they are written at once.
const MOST_GATHERED: usize = 256 << 10;

/// Lines that are written together.
#[derive(Default)]
struct Lines {
    /// When the first of them came.
    at_ms: u64,
    count: u64,
    bytes: Vec<u8>,
}

impl Lines {
    fn add(&mut self, at_ms: u64, line: &[u8]) {
        if self.count == 0 {
            self.at_ms = at_ms;
        }
        self.count += 1;
        self.bytes.extend_from_slice(line);
    }

    fn write(&mut self, files: &mut Files, shared: &Shared) {
        let Self { at_ms, count, bytes } = std::mem::take(self);
        if count == 0 {
            return;
        }
        match files.append(at_ms, &bytes) {
            Ok(()) => {
                shared.written.fetch_add(count, Ordering::Relaxed);
                shared.is_mended();
            }
            Err(error) => {
                shared.lost.fetch_add(count, Ordering::Relaxed);
                shared.fails(&error.to_string());
            }
        }
    }
}

struct Files {
    directory: PathBuf,
    size: u64,
    current: Option<(PathBuf, File, u64)>,
}

impl Files {
    /// The parts of a log.
    const PARTS: u64 = 8;

    fn probe(&self) -> io::Result<()> {
        private::make_directory(&self.directory)
    }

    fn append(&mut self, at_ms: u64, bytes: &[u8]) -> io::Result<()> {
        if self.current.as_ref().is_some_and(|(_, _, filled)| *filled >= self.size / Self::PARTS) {
            self.current = None;
        }
        if self.current.is_none() {
            self.current = Some(self.begin(at_ms)?);
        }
        let Some((_, file, filled)) = &mut self.current else { return Ok(()) };
        if let Err(error) = file.write_all(bytes) {
            // What is there of the line is cut off where the next file begins.
            self.current = None;
            return Err(error);
        }
        *filled += bytes.len() as u64;
        Ok(())
    }

    fn begin(&self, at_ms: u64) -> io::Result<(PathBuf, File, u64)> {
        private::make_directory(&self.directory)?;
        let name = format!(
            "{at_ms:013}-{}-{:04x}.jsonl",
            std::process::id(),
            crate::clock::unique_number() & 0xffff
        );
        let path = self.directory.join(name);
        let file = private::options().create_new(true).append(true).open(&path)?;
        self.make_room(&path)?;
        Ok((path, file, 0))
    }

    /// Throws the oldest files away until there is room for one more part.
    fn make_room(&self, current: &Path) -> io::Result<()> {
        let mut files: Vec<(PathBuf, u64)> = Vec::new();
        for file in fs::read_dir(&self.directory)? {
            let file = file?;
            let path = file.path();
            if path.extension().is_some_and(|ending| ending == "jsonl") && path != current {
                files.push((path, file.metadata().map_or(0, |facts| facts.len())));
            }
        }
        files.sort_unstable();
        let mut total: u64 = files.iter().map(|(_, size)| size).sum();
        let room = self.size - self.size / Self::PARTS;
        for (path, size) in files {
            if total <= room {
                break;
            }
            // Another process may have been faster.
            let _ = fs::remove_file(path);
            total -= size;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path, size: u64) -> Files {
        Files { directory: directory.to_owned(), size, current: None }
    }

    fn kept(directory: &Path) -> u64 {
        fs::read_dir(directory).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }

    #[test]
    fn g05_the_log_is_rotated_and_stays_within_its_size_also_with_what_others_left() {
        let directory = tempfile::tempdir().unwrap();
        let line = [b'x'; 100];
        for writer in 0..2 {
            let mut files = files(directory.path(), 8_000);
            for number in 0..400 {
                files.append(1_000_000 * writer + number, &line).unwrap();
                assert!(kept(directory.path()) <= 8_000 + 1_100, "{}", kept(directory.path()));
            }
        }
        assert!(fs::read_dir(directory.path()).unwrap().count() > 4);
    }

    #[test]
    fn g05_what_cannot_be_written_is_counted_and_writing_goes_on_when_it_can() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("audit");
        fs::write(&place, "in the way").unwrap();
        let writer = Writer::start(place.clone(), 80_000).unwrap();
        writer.put(1, b"{}\n".to_vec());
        writer.flush();
        let status = writer.status(AuditKeeps::Digest);
        assert_eq!((status.lines, status.lost), (0, 1));
        assert!(status.cause.is_some() && !writer.is_well(2));
        writer.flush();
        fs::remove_file(&place).unwrap();
        writer.put(2, b"{}\n".to_vec());
        writer.flush();
        let status = writer.status(AuditKeeps::Digest);
        assert_eq!((status.lines, status.lost, status.cause), (1, 1, None));
    }
}

//! Writer thread of the audit log, and its files: several parts, of which the oldest is deleted, also if another
//! process left it there.
//!
//! Lines are collected in one buffer, which the thread takes every few milliseconds: waking it, or handing over memory,
//! for each line would cost more than writing it.

use super::AuditStatus;
use crate::private_files;
use crate::records::journal::{self, RecordDetail, WriteFailures};
use crate::sync::{Condvar, Mutex};
use gripfast_core::hash_chain::HashChain;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// Handle of the writer thread; the thread ends with it.
pub(super) struct AuditWriter(Arc<Shared>);

#[derive(Default)]
struct Shared {
    buffer: Mutex<WriteBuffer>,
    signal: Condvar,
    written: AtomicU64,
    /// Lines that were not written.
    failures: Mutex<WriteFailures>,
}

/// Work for the writer thread.
#[derive(Default)]
struct WriteBuffer {
    /// Complete lines.
    lines: Vec<u8>,
    /// Time of the first line.
    at_ms: u64,
    /// Request to check whether lines can be written now.
    probe: bool,
    /// Callers that wait until everything is written.
    flushes: Vec<SyncSender<()>>,
    /// The handle was dropped.
    closed: bool,
    /// The thread waits, and has to be woken.
    asleep: bool,
}

impl AuditWriter {
    /// Maximum number of bytes that may wait for a slow disk. Further lines are lost, and counted.
    const MAX_QUEUED_BYTES: usize = 16 << 20;
    /// Maximum number of callers that wait for a flush.
    const MAX_FLUSHES: usize = 64;
    /// Time limit of a flush; a shutdown does not wait longer for a disk.
    const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

    pub(super) fn start(directory: PathBuf, size: u64) -> Option<Self> {
        Self::with_files(Files::new(directory, size))
    }

    fn with_files(files: Files) -> Option<Self> {
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("gripfast-audit".to_owned());
        match thread.spawn(move || write(files, &seen)) {
            Ok(_) => Some(Self(shared)),
            Err(error) => {
                tracing::warn!(%error, "no audit log is written: its thread cannot be started");
                None
            }
        }
    }

    /// Queues a line, with its line break.
    pub(super) fn append(&self, at_ms: u64, line: &[u8]) {
        let mut buffer = self.0.buffer.lock();
        if buffer.lines.len() + line.len() > Self::MAX_QUEUED_BYTES {
            drop(buffer);
            self.0.note_failure("too many lines wait to be written".to_owned(), 1);
            return;
        }
        if buffer.lines.is_empty() {
            buffer.at_ms = at_ms;
        }
        buffer.lines.extend_from_slice(line);
        self.0.wake(buffer);
    }

    /// Returns whether the last line was written. If not, has the thread check whether the next one can be.
    pub(super) fn is_writable(&self) -> bool {
        let writable = self.0.failures.lock().cause().is_none();
        if !writable {
            let mut buffer = self.0.buffer.lock();
            buffer.probe = true;
            self.0.wake(buffer);
        }
        writable
    }

    pub(super) fn status(&self, detail: RecordDetail) -> AuditStatus {
        let lines = self.0.written.load(Ordering::Relaxed);
        let failures = self.0.failures.lock();
        AuditStatus { detail, lines, lost: failures.total(), cause: failures.cause().map(str::to_owned) }
    }

    pub(super) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        let mut buffer = self.0.buffer.lock();
        if buffer.flushes.len() < Self::MAX_FLUSHES {
            buffer.flushes.push(done);
            drop(buffer);
            self.0.signal.notify_one();
            let _ = wait.recv_timeout(Self::FLUSH_TIMEOUT);
        }
    }
}

impl Drop for AuditWriter {
    fn drop(&mut self) {
        self.0.buffer.lock().closed = true;
        self.0.signal.notify_one();
    }
}

impl WriteBuffer {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && !self.probe && self.flushes.is_empty()
    }
}

impl Shared {
    /// Wakes the thread, unless it is at work or about to be.
    fn wake(&self, mut buffer: MutexGuard<'_, WriteBuffer>) {
        if std::mem::take(&mut buffer.asleep) {
            drop(buffer);
            self.signal.notify_one();
        }
    }

    /// Waits for work, and a moment longer for more of it. Takes the buffer, and leaves `spare` for further lines;
    /// `None` if there is no work and the handle was dropped.
    fn take(&self, spare: Vec<u8>) -> Option<WriteBuffer> {
        let nothing = |buffer: &mut WriteBuffer| {
            buffer.asleep = buffer.is_empty() && !buffer.closed;
            buffer.asleep
        };
        let buffer = self.signal.wait_while(self.buffer.lock(), nothing);
        let may_wait = |buffer: &mut WriteBuffer| buffer.flushes.is_empty() && !buffer.closed;
        let mut buffer = self.signal.wait_timeout_while(buffer, BATCH_DELAY, may_wait);
        let closed = buffer.closed;
        let taken =
            std::mem::replace(&mut *buffer, WriteBuffer { lines: spare, closed, ..WriteBuffer::default() });
        (!taken.is_empty() || !closed).then_some(taken)
    }

    /// Records a failure that lost some lines. The first one is logged, until writing works again.
    fn note_failure(&self, cause: String, lost: u64) {
        if self.failures.lock().add(cause.clone(), lost) {
            tracing::warn!(cause, "cannot write the audit log: lines are lost and counted");
        }
    }

    fn note_recovery(&self) {
        let mut failures = self.failures.lock();
        if failures.clear().is_some() {
            let lost = failures.total();
            tracing::info!(lost, "the audit log can be written again");
        }
    }
}

/// Time for which lines are collected before they are written together.
const BATCH_DELAY: Duration = Duration::from_millis(5);
/// Bytes that are written at a time, and capacity that is kept for further lines.
const MAX_BATCH_BYTES: usize = 256 << 10;

fn write(mut files: Files, shared: &Shared) {
    // With `fail_closed`, it has to be known before the first request whether lines can be written.
    if let Err(error) = files.probe() {
        shared.note_failure(error.to_string(), 0);
    }
    let mut spare = Vec::new();
    while let Some(WriteBuffer { mut lines, at_ms, probe, flushes, .. }) = shared.take(spare) {
        if probe {
            match files.probe() {
                Ok(()) => shared.note_recovery(),
                Err(error) => shared.note_failure(error.to_string(), 0),
            }
        }
        for chunk in chunks(&lines) {
            write_lines(&mut files, shared, at_ms, chunk);
        }
        for done in flushes {
            // The caller may have stopped waiting.
            let _ = done.try_send(());
        }
        lines.clear();
        lines.shrink_to(MAX_BATCH_BYTES);
        spare = lines;
    }
}

/// Splits lines into chunks of about the size that is written at a time.
fn chunks(mut lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let least = lines.len().min(MAX_BATCH_BYTES);
        let end =
            lines[least..].iter().position(|byte| *byte == b'\n').map_or(lines.len(), |at| least + at + 1);
        let (chunk, rest) = lines.split_at(end);
        lines = rest;
        (!chunk.is_empty()).then_some(chunk)
    })
}

fn write_lines(files: &mut Files, shared: &Shared, at_ms: u64, lines: &[u8]) {
    let count = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
    match files.append(at_ms, lines) {
        Ok(()) => {
            shared.written.fetch_add(count, Ordering::Relaxed);
            shared.note_recovery();
        }
        Err(error) => shared.note_failure(error.to_string(), count),
    }
}

struct Files {
    directory: PathBuf,
    size: u64,
    current: Option<(PathBuf, File, u64)>,
    /// The disk is full.
    #[cfg(test)]
    is_full: Arc<std::sync::atomic::AtomicBool>,
    /// Continues from file to file.
    chain: HashChain,
}

impl Files {
    /// Number of parts of a log.
    const PARTS: u64 = 8;

    /// Bytes that have to fit on the disk before requests are allowed again: more than the line of any request takes.
    const PROBE_BYTES: usize = 64 << 10;

    fn new(directory: PathBuf, size: u64) -> Self {
        Self {
            directory,
            size,
            current: None,
            chain: HashChain::default(),
            #[cfg(test)]
            is_full: Arc::default(),
        }
    }

    /// Checks whether lines can be written, by writing as much as several take and deleting it. Creating a file proves
    /// nothing: a full disk allows any number of empty ones.
    fn probe(&self) -> io::Result<()> {
        private_files::create_subdirectory(&self.directory)?;
        let path = self.directory.join(format!("{}.room", std::process::id()));
        let _ = fs::remove_file(&path);
        let mut file = private_files::open(&path, |how| how.create_new(true).write(true))?;
        let written = self.write(&mut file, &[b' '; Self::PROBE_BYTES]);
        let removed = fs::remove_file(&path);
        written.and(removed)
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if !bytes.is_empty() && self.is_full.load(Ordering::Relaxed) {
            let _ = file.write(&bytes[..bytes.len().min(10)]);
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.write_all(bytes)
    }

    fn append(&mut self, at_ms: u64, bytes: &[u8]) -> io::Result<()> {
        if self.current.as_ref().is_some_and(|(_, _, filled)| *filled >= self.size / Self::PARTS) {
            self.current = None;
        }
        if self.current.is_none() {
            self.current = Some(self.create_file(at_ms)?);
        }
        let Some((path, mut file, filled)) = self.current.take() else { return Ok(()) };
        // Lines that are not written are in no chain.
        let (mut chain, mut linked) = (self.chain.clone(), Vec::with_capacity(bytes.len() * 2));
        for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            chain.append(line, number == 0 && filled == 0, &mut linked);
        }
        let written = self.write(&mut file, &linked);
        match &written {
            Ok(()) => {
                self.chain = chain;
                self.current = Some((path, file, filled + linked.len() as u64));
            }
            // A partial line is cut off, and the file is used again. An empty file is removed.
            Err(_) if filled == 0 => drop(fs::remove_file(path)),
            Err(_) if file.set_len(filled).is_ok() => self.current = Some((path, file, filled)),
            Err(_) => {}
        }
        written
    }

    fn create_file(&self, at_ms: u64) -> io::Result<(PathBuf, File, u64)> {
        private_files::create_subdirectory(&self.directory)?;
        let process = std::process::id();
        let name = format!("{at_ms:013}-{process}-{:04x}.jsonl", journal::unique_suffix());
        let path = self.directory.join(name);
        let file = private_files::open(&path, |how| how.create_new(true).append(true))?;
        // Tells other processes that it is written to. Without support for locks it is written all the same.
        let _ = file.try_lock();
        if let Err(error) = self.make_room(&path) {
            let _ = fs::remove_file(path);
            return Err(error);
        }
        Ok((path, file, 0))
    }

    /// Deletes the oldest files until there is room for one more part. Those that another process writes to stay,
    /// however old: a quiet process keeps its file for long.
    fn make_room(&self, current: &Path) -> io::Result<()> {
        let mut paths = journal::segments(&self.directory)?;
        // A file that another process writes to counts for that process.
        paths.retain(|path| path != current && !journal::is_locked(path));
        let sizes: Vec<u64> =
            paths.iter().map(|path| fs::symlink_metadata(path).map_or(0, |file| file.len())).collect();
        let mut total: u64 = sizes.iter().sum();
        let room = self.size - self.size / Self::PARTS;
        for (path, size) in paths.into_iter().zip(sizes) {
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
        Files::new(directory.to_owned(), size)
    }

    fn kept(directory: &Path) -> u64 {
        fs::read_dir(directory).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }

    /// G05: a full disk, on which files can be created and nothing can be written.
    #[test]
    fn g05_a_full_disk_refuses_every_request_and_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let part = directory.path().join("audit");
        let files = files(&part, 1 << 20);
        let is_full = Arc::clone(&files.is_full);
        let writer = AuditWriter::with_files(files).unwrap();
        let put = || {
            writer.append(1, b"{\"a\":1}\n");
            writer.flush();
        };
        put();
        assert!(writer.is_writable());
        is_full.store(true, Ordering::Relaxed);
        put();
        for _ in 0..20 {
            assert!(!writer.is_writable(), "every request is refused, not every second one");
            writer.flush();
        }
        assert_eq!(fs::read_dir(&part).unwrap().count(), 1);
        is_full.store(false, Ordering::Relaxed);
        assert!(!writer.is_writable(), "it is checked first");
        writer.flush();
        assert!(writer.is_writable());
        put();
        let files: Vec<_> = fs::read_dir(&part).unwrap().map(|file| file.unwrap().path()).collect();
        let kept = fs::read_to_string(&files[0]).unwrap();
        let lines: Vec<&str> = kept.split_inclusive('\n').collect();
        assert_eq!((files.len(), lines.len()), (1, 2), "no partial line is left: {kept}");
        assert!(lines.iter().all(|line| line.starts_with("{\"a\":1,") && line.ends_with("\"}\n")), "{kept}");
    }

    #[test]
    fn g05_a_disk_that_is_full_at_the_start_refuses_requests() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(&directory.path().join("audit"), 1 << 20);
        files.is_full.store(true, Ordering::Relaxed);
        let writer = AuditWriter::with_files(files).unwrap();
        writer.flush();
        assert!(!writer.is_writable());
        assert_eq!(fs::read_dir(directory.path().join("audit")).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn g05_no_line_is_written_through_a_symlink() {
        let (state, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(theirs.path(), state.path().join("audit")).unwrap();
        let mut files = files(&state.path().join("audit"), 8_000);
        assert!(files.probe().is_err() && files.append(1, b"line\n").is_err());
        assert_eq!(fs::read_dir(theirs.path()).unwrap().count(), 0);
    }

    #[test]
    fn g05_a_busy_process_keeps_the_open_file_of_a_quiet_one() {
        let directory = tempfile::tempdir().unwrap();
        let [mut quiet, mut busy] = [(); 2].map(|()| files(directory.path(), 8_000));
        quiet.append(0, b"first\n").unwrap();
        for number in 1..400 {
            busy.append(number, &[b'x'; 100]).unwrap();
        }
        quiet.append(400, b"second\n").unwrap();
        let (path, ..) = quiet.current.as_ref().unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "first\nsecond\n");
        drop(quiet);
        for number in 400..800 {
            busy.append(number, &[b'x'; 100]).unwrap();
        }
        let oldest = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name()).min();
        assert!(oldest.unwrap().to_str().unwrap() > "0000000000399", "a file without a writer makes room");
    }

    #[test]
    fn g05_the_log_rotates_within_its_size_including_files_of_other_processes() {
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
    fn lines_are_written_in_chunks_and_none_is_cut() {
        let line = [[b'x'; 999].as_slice(), b"\n"].concat();
        for count in [0, 1, 262, 263, 1000] {
            let lines = line.repeat(count);
            let chunk: Vec<&[u8]> = chunks(&lines).collect();
            assert_eq!(chunk.concat(), lines);
            assert!(
                chunk.iter().all(|chunk| chunk.ends_with(b"\n") && chunk.len() <= MAX_BATCH_BYTES + 1000)
            );
            assert_eq!(chunk.len(), count.div_ceil(263));
        }
    }

    #[test]
    fn g05_lines_of_many_threads_are_all_written_before_the_writer_ends() {
        let directory = tempfile::tempdir().unwrap();
        let writer = AuditWriter::start(directory.path().to_owned(), 64 << 20).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let writer = &writer;
                scope.spawn(move || {
                    for number in 0..500 {
                        writer.append(1, format!("{thread} {number}\n").as_bytes());
                    }
                });
            }
        });
        let shared = Arc::clone(&writer.0);
        drop(writer);
        // The thread holds the other reference until it has written everything.
        while Arc::strong_count(&shared) > 1 {
            std::thread::yield_now();
        }
        assert_eq!((shared.written.load(Ordering::Relaxed), shared.failures.lock().total()), (2000, 0));
        let files = fs::read_dir(directory.path()).unwrap();
        let text: String = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
        for thread in 0..4 {
            let mine = text.lines().filter_map(|line| line.strip_prefix(&format!("{thread} ")));
            assert!(mine.map(|number| number.parse::<u64>().unwrap()).eq(0..500), "each, once, in order");
        }
    }

    #[test]
    fn g05_lost_lines_are_counted_and_writing_resumes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit");
        fs::write(&path, "in the way").unwrap();
        let writer = AuditWriter::start(path.clone(), 80_000).unwrap();
        writer.append(1, b"{}\n");
        writer.flush();
        let status = writer.status(RecordDetail::Digest);
        assert_eq!((status.lines, status.lost), (0, 1));
        assert!(status.cause.is_some() && !writer.is_writable());
        writer.flush();
        fs::remove_file(&path).unwrap();
        writer.append(2, b"{}\n");
        writer.flush();
        let status = writer.status(RecordDetail::Digest);
        assert_eq!((status.lines, status.lost, status.cause), (1, 1, None));
    }
}

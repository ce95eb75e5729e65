//! The thread that writes, and the files it writes: several parts, of which the oldest is thrown away, also if
//! another process left it there.
//!
//! Lines are laid on a desk, one after the other in one buffer, which the thread takes away every few milliseconds:
//! to wake it for each of them, or to hand over memory for each, would cost more than to write it.

use super::{AuditKeeps, AuditStatus};
use crate::private_files;
use gripfast_core::chain::Chain;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The way to the thread that writes; the thread ends with it.
pub(super) struct Writer(Arc<Shared>);

#[derive(Default)]
struct Shared {
    desk: Mutex<Desk>,
    bell: Condvar,
    written: AtomicU64,
    lost: AtomicU64,
    /// Why the last line was not written, if it was not.
    trouble: Mutex<Option<String>>,
}

/// What is left for the thread to do.
#[derive(Default)]
struct Desk {
    /// Whole lines.
    lines: Vec<u8>,
    /// When the first of them came.
    at_ms: u64,
    /// Find out whether lines could be written now.
    is_tried: bool,
    /// Those who wait until everything is written.
    flushes: Vec<SyncSender<()>>,
    /// Nobody will come any more.
    closed: bool,
    /// The thread has nothing to do, and has to be woken.
    asleep: bool,
}

impl Writer {
    /// Bytes of lines that may wait for a slow disk. Beyond it they are lost, and counted.
    const WAITING: usize = 16 << 20;
    /// Those who may wait for a flush at a time.
    const FLUSHES: usize = 64;
    /// A shutdown does not wait longer for a disk.
    const FLUSH_WITHIN: Duration = Duration::from_secs(2);

    pub(super) fn start(directory: PathBuf, size: u64) -> Option<Self> {
        Self::over(Files::new(directory, size))
    }

    fn over(files: Files) -> Option<Self> {
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("gripfast-audit".to_owned());
        match thread.spawn(move || write(files, &seen)) {
            Ok(_) => Some(Self(shared)),
            Err(error) => {
                tracing::warn!(%error, "there is no audit log: its thread cannot be started");
                None
            }
        }
    }

    /// Leaves a line, with its end.
    pub(super) fn put(&self, at_ms: u64, line: &[u8]) {
        let mut desk = self.0.desk();
        if desk.lines.len() + line.len() > Self::WAITING {
            drop(desk);
            self.0.lost.fetch_add(1, Ordering::Relaxed);
            self.0.fails("more lines wait than may");
            return;
        }
        if desk.lines.is_empty() {
            desk.at_ms = at_ms;
        }
        desk.lines.extend_from_slice(line);
        self.0.wake(desk);
    }

    /// Whether the last line was written. If not, it is found out whether the next one would be.
    pub(super) fn is_well(&self) -> bool {
        let well = self.0.trouble().is_none();
        if !well {
            let mut desk = self.0.desk();
            desk.is_tried = true;
            self.0.wake(desk);
        }
        well
    }

    pub(super) fn status(&self, keeps: AuditKeeps) -> AuditStatus {
        AuditStatus {
            keeps,
            lines: self.0.written.load(Ordering::Relaxed),
            lost: self.0.lost.load(Ordering::Relaxed),
            cause: self.0.trouble().clone(),
        }
    }

    pub(super) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        let mut desk = self.0.desk();
        if desk.flushes.len() < Self::FLUSHES {
            desk.flushes.push(done);
            drop(desk);
            self.0.bell.notify_one();
            let _ = wait.recv_timeout(Self::FLUSH_WITHIN);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.desk().closed = true;
        self.0.bell.notify_one();
    }
}

impl Desk {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && !self.is_tried && self.flushes.is_empty()
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread, unless it is at work or about to be.
    fn wake(&self, mut desk: MutexGuard<'_, Desk>) {
        if std::mem::take(&mut desk.asleep) {
            drop(desk);
            self.bell.notify_one();
        }
    }

    /// Waits until there is something to do, and a moment longer, for what comes with it. Takes what is on the desk,
    /// and leaves `spare` for the lines to come; `None` if there is nothing, and nobody will come.
    fn take(&self, spare: Vec<u8>) -> Option<Desk> {
        let nothing = |desk: &mut Desk| {
            desk.asleep = desk.is_empty() && !desk.closed;
            desk.asleep
        };
        let desk = self.bell.wait_while(self.desk(), nothing).unwrap_or_else(PoisonError::into_inner);
        let may_wait = |desk: &mut Desk| desk.flushes.is_empty() && !desk.closed;
        let gathered = self.bell.wait_timeout_while(desk, GATHER, may_wait);
        let (mut desk, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        let closed = desk.closed;
        let taken = std::mem::replace(&mut *desk, Desk { lines: spare, closed, ..Desk::default() });
        (!taken.is_empty() || !closed).then_some(taken)
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

/// Lines of one moment are written together.
const GATHER: Duration = Duration::from_millis(5);
/// Bytes that are written at a time, and that are kept ready for lines to come.
const MOST_GATHERED: usize = 256 << 10;

fn write(mut files: Files, shared: &Shared) {
    // Whoever wants nothing done that cannot be written down learns before the first request whether it can.
    if let Err(error) = files.probe() {
        shared.fails(&error.to_string());
    }
    let mut spare = Vec::new();
    while let Some(Desk { mut lines, at_ms, is_tried, flushes, .. }) = shared.take(spare) {
        if is_tried {
            match files.probe() {
                Ok(()) => shared.is_mended(),
                Err(error) => shared.fails(&error.to_string()),
            }
        }
        for some in portions(&lines) {
            write_lines(&mut files, shared, at_ms, some);
        }
        for done in flushes {
            // Whoever waits may have gone.
            let _ = done.try_send(());
        }
        lines.clear();
        lines.shrink_to(MOST_GATHERED);
        spare = lines;
    }
}

/// Whole lines, about as many as are written at a time.
fn portions(mut lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let least = lines.len().min(MOST_GATHERED);
        let end =
            lines[least..].iter().position(|byte| *byte == b'\n').map_or(lines.len(), |at| least + at + 1);
        let (some, rest) = lines.split_at(end);
        lines = rest;
        (!some.is_empty()).then_some(some)
    })
}

fn write_lines(files: &mut Files, shared: &Shared, at_ms: u64, lines: &[u8]) {
    let count = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
    match files.append(at_ms, lines) {
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

struct Files {
    directory: PathBuf,
    size: u64,
    current: Option<(PathBuf, File, u64)>,
    /// The disk is full.
    #[cfg(test)]
    is_full: Arc<std::sync::atomic::AtomicBool>,
    /// Goes on from file to file.
    chain: Chain,
}

impl Files {
    /// The parts of a log.
    const PARTS: u64 = 8;

    /// What has to fit on the disk before requests are let through again: more than the line of any request takes.
    const ROOM: usize = 64 << 10;

    fn new(directory: PathBuf, size: u64) -> Self {
        Self {
            directory,
            size,
            current: None,
            chain: Chain::default(),
            #[cfg(test)]
            is_full: Arc::default(),
        }
    }

    /// Finds out whether lines could be written, by writing as much as several take and throwing it away. That a file can
    /// be made says nothing: a full disk lets one make any number of empty ones.
    fn probe(&self) -> io::Result<()> {
        private_files::make_part(&self.directory)?;
        let path = self.directory.join(format!("{}.room", std::process::id()));
        let _ = fs::remove_file(&path);
        let mut file = private_files::open(&path, |how| how.create_new(true).write(true))?;
        let written = self.write(&mut file, &[b' '; Self::ROOM]);
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
            self.current = Some(self.begin(at_ms)?);
        }
        let Some((path, mut file, filled)) = self.current.take() else { return Ok(()) };
        // What is not written is in no chain.
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
            // What is there of the line is cut off, and the file is used again. One with nothing in it is not left behind.
            Err(_) if filled == 0 => drop(fs::remove_file(path)),
            Err(_) if file.set_len(filled).is_ok() => self.current = Some((path, file, filled)),
            Err(_) => {}
        }
        written
    }

    fn begin(&self, at_ms: u64) -> io::Result<(PathBuf, File, u64)> {
        private_files::make_part(&self.directory)?;
        let name = format!(
            "{at_ms:013}-{}-{:04x}.jsonl",
            std::process::id(),
            crate::clock::unique_number() & 0xffff
        );
        let path = self.directory.join(name);
        let file = private_files::open(&path, |how| how.create_new(true).append(true))?;
        // Tells other processes that it is written to. Where there are no locks it goes without.
        let _ = file.try_lock();
        if let Err(error) = self.make_room(&path) {
            let _ = fs::remove_file(path);
            return Err(error);
        }
        Ok((path, file, 0))
    }

    /// Throws the oldest files away until there is room for one more part. Those that another process writes to stay,
    /// however old: one that has little to say keeps its file for long.
    fn make_room(&self, current: &Path) -> io::Result<()> {
        let mut files: Vec<(PathBuf, u64)> = Vec::new();
        for file in fs::read_dir(&self.directory)? {
            let file = file?;
            let path = file.path();
            if path.extension().is_some_and(|ending| ending == "jsonl") && path != current {
                files.push((path, file.metadata().map_or(0, |facts| facts.len())));
            }
        }
        // What another process writes to is in its account.
        files.retain(|(path, _)| !is_written_to(path));
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

fn is_written_to(path: &Path) -> bool {
    let locked = private_files::open(path, |how| how.read(true)).map(|file| file.try_lock());
    matches!(locked, Ok(Err(TryLockError::WouldBlock)))
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

    /// G05: a full disk, on which files can be made and nothing can be written.
    #[test]
    fn g05_on_a_full_disk_no_request_is_let_through_and_no_file_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let part = directory.path().join("audit");
        let files = files(&part, 1 << 20);
        let is_full = Arc::clone(&files.is_full);
        let writer = Writer::over(files).unwrap();
        let put = || {
            writer.put(1, b"{\"a\":1}\n");
            writer.flush();
        };
        put();
        assert!(writer.is_well());
        is_full.store(true, Ordering::Relaxed);
        put();
        for _ in 0..20 {
            assert!(!writer.is_well(), "every request is refused, not every second one");
            writer.flush();
        }
        assert_eq!(fs::read_dir(&part).unwrap().count(), 1);
        is_full.store(false, Ordering::Relaxed);
        assert!(!writer.is_well(), "it is found out first");
        writer.flush();
        assert!(writer.is_well());
        put();
        let files: Vec<_> = fs::read_dir(&part).unwrap().map(|file| file.unwrap().path()).collect();
        let kept = fs::read_to_string(&files[0]).unwrap();
        let lines: Vec<&str> = kept.split_inclusive('\n').collect();
        assert_eq!((files.len(), lines.len()), (1, 2), "no half line is left: {kept}");
        assert!(lines.iter().all(|line| line.starts_with("{\"a\":1,") && line.ends_with("\"}\n")), "{kept}");
    }

    #[test]
    fn g05_a_disk_that_is_full_at_the_start_lets_no_request_through() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(&directory.path().join("audit"), 1 << 20);
        files.is_full.store(true, Ordering::Relaxed);
        let writer = Writer::over(files).unwrap();
        writer.flush();
        assert!(!writer.is_well());
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
    fn g05_a_busy_process_does_not_throw_away_what_a_quiet_one_is_writing_to() {
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
        assert!(oldest.unwrap().to_str().unwrap() > "0000000000399", "what nobody writes to makes room");
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
    fn lines_are_written_in_portions_and_none_is_cut() {
        let line = [[b'x'; 999].as_slice(), b"\n"].concat();
        for count in [0, 1, 262, 263, 1000] {
            let lines = line.repeat(count);
            let some: Vec<&[u8]> = portions(&lines).collect();
            assert_eq!(some.concat(), lines);
            assert!(some.iter().all(|some| some.ends_with(b"\n") && some.len() <= MOST_GATHERED + 1000));
            assert_eq!(some.len(), count.div_ceil(263));
        }
    }

    #[test]
    fn g05_lines_of_many_threads_are_all_written_also_by_a_writer_that_ends() {
        let directory = tempfile::tempdir().unwrap();
        let writer = Writer::start(directory.path().to_owned(), 64 << 20).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let writer = &writer;
                scope.spawn(move || {
                    for number in 0..500 {
                        writer.put(1, format!("{thread} {number}\n").as_bytes());
                    }
                });
            }
        });
        let shared = Arc::clone(&writer.0);
        drop(writer);
        // The thread has the other one until it has written everything.
        while Arc::strong_count(&shared) > 1 {
            std::thread::yield_now();
        }
        assert_eq!((shared.written.load(Ordering::Relaxed), shared.lost.load(Ordering::Relaxed)), (2000, 0));
        let files = fs::read_dir(directory.path()).unwrap();
        let text: String = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
        for thread in 0..4 {
            let mine = text.lines().filter_map(|line| line.strip_prefix(&format!("{thread} ")));
            assert!(mine.map(|number| number.parse::<u64>().unwrap()).eq(0..500), "each, once, in order");
        }
    }

    #[test]
    fn g05_what_cannot_be_written_is_counted_and_writing_goes_on_when_it_can() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("audit");
        fs::write(&place, "in the way").unwrap();
        let writer = Writer::start(place.clone(), 80_000).unwrap();
        writer.put(1, b"{}\n");
        writer.flush();
        let status = writer.status(AuditKeeps::Digest);
        assert_eq!((status.lines, status.lost), (0, 1));
        assert!(status.cause.is_some() && !writer.is_well());
        writer.flush();
        fs::remove_file(&place).unwrap();
        writer.put(2, b"{}\n");
        writer.flush();
        let status = writer.status(AuditKeeps::Digest);
        assert_eq!((status.lines, status.lost, status.cause), (1, 1, None));
    }
}

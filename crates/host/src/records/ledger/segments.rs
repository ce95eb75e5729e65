//! Segments of the ledger: a series of files that one process at a time appends to, namely the one that holds the lock
//! beside them. The lock is released when the process ends, however it ends.
//!
//! Threads of that process append at the same time. Each line reserves its place at the end before it is written there,
//! so that a partial or missing line damages no other.

use crate::private_files;
use crate::records::journal;
use gripfast_core::ledger::fold::Fold;
use gripfast_core::ledger::ledger_entry;
use gripfast_core::time::Wall;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Segments of this process.
#[derive(Debug)]
pub(super) struct Segments {
    dir: SegmentDir,
    /// Name of this run.
    run: String,
    _lock: File,
    segment: File,
    number: u32,
    /// Offset of the next line in the current segment, and the length of its head, which does not count towards the
    /// size.
    end: AtomicU64,
    head: u64,
    /// Size at which a segment is full.
    size: u64,
}

/// Location of the segments of one writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentDir {
    directory: PathBuf,
    slot: u32,
}

/// Segments that were acquired, and the number of calls that their last writer left in flight.
pub(super) struct AcquiredSegments {
    pub(super) segments: Segments,
    pub(super) orphans: usize,
}

impl SegmentDir {
    /// Maximum number of processes that keep a ledger in one directory at a time. Only a file system with broken locks
    /// has more.
    const MAX_WRITERS: u32 = 1000;

    fn new(directory: &Path, slot: u32) -> Self {
        Self { directory: directory.to_owned(), slot }
    }

    /// Returns the locations of all writers that have written to `directory`.
    pub(super) fn all(directory: &Path) -> io::Result<Vec<Self>> {
        let mut slots: Vec<u32> = segment_numbers(directory)?.into_iter().map(|(slot, _)| slot).collect();
        slots.dedup();
        Ok(slots.into_iter().map(|slot| Self::new(directory, slot)).collect())
    }

    fn lock_file(&self) -> PathBuf {
        self.directory.join(format!("{}.lock", self.slot))
    }

    fn segment_file(&self, number: u32) -> PathBuf {
        self.directory.join(format!("{}.{number:06}.jsonl", self.slot))
    }

    /// Returns the numbers of the segments, oldest first.
    pub(super) fn segments(&self) -> io::Result<Vec<u32>> {
        let mut numbers = segment_numbers(&self.directory)?;
        numbers.retain(|(slot, _)| *slot == self.slot);
        Ok(numbers.into_iter().map(|(_, number)| number).collect())
    }

    /// Reads the lines of one segment. A segment that was deleted meanwhile has none.
    pub(super) fn for_each_line(&self, segment: u32, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        /// No segment of ours is larger; a larger file is not ours.
        const LARGEST: u64 = 1 << 30;
        let file = match private_files::open(&self.segment_file(segment), |how| how.read(true)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut reader = BufReader::with_capacity(64 << 10, file.take(LARGEST));
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            take(line.strip_suffix(b"\n").unwrap_or(&line));
            line.clear();
        }
        Ok(())
    }

    /// Returns whether a process holds the lock.
    pub(super) fn is_locked(&self) -> bool {
        journal::is_locked(&self.lock_file())
    }

    /// Acquires the segments, unless another process holds them.
    fn acquire(self, now: Wall, size: u64) -> io::Result<Option<AcquiredSegments>> {
        let lock = private_files::open_lock(&self.lock_file())?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let numbers = self.segments()?;
        let orphans = self.count_open_calls(&numbers)?;
        let number = numbers.last().copied().unwrap_or(1);
        let path = self.segment_file(number);
        let mut segment =
            private_files::open(&path, |how| how.create(true).truncate(false).write(true).read(true))?;
        let length = segment.metadata()?.len();
        let run = format!("{:x}.{:04x}", now.since_epoch().as_millis(), journal::unique_suffix());
        let mut head = if ends_in_mid_line(&mut segment, length)? { vec![b'\n'] } else { Vec::new() };
        ledger_entry::write_run_line(&run, now, &mut head);
        segment.seek(SeekFrom::Start(length))?;
        segment.write_all(&head)?;
        let head = head.len() as u64;
        let end = AtomicU64::new(length + head);
        let segments = Segments { dir: self, run, _lock: lock, segment, number, end, head, size };
        Ok(Some(AcquiredSegments { segments, orphans }))
    }

    /// Settles calls that were left in flight here, unless another process holds the segments. Acquiring them is
    /// enough: open calls belong to a process that is gone.
    fn settle_orphans(self, now: Wall) -> io::Result<usize> {
        let idle = self.is_locked() || self.count_open_calls(&self.segments()?)? == 0;
        let taken = if idle { None } else { self.acquire(now, 0)? };
        Ok(taken.map_or(0, |taken| taken.orphans))
    }

    /// Counts the calls that are open at the end. The newest segment has them, unless its writer was killed while it
    /// wrote the head; the one before has the same then.
    fn count_open_calls(&self, numbers: &[u32]) -> io::Result<usize> {
        let mut fold = Fold::default();
        for number in &numbers[numbers.len().saturating_sub(2)..] {
            self.for_each_line(*number, |line| fold.push_line(line, drop))?;
        }
        Ok(fold.open())
    }
}

/// Returns the slot and the number of each segment in a directory, sorted.
fn segment_numbers(directory: &Path) -> io::Result<Vec<(u32, u32)>> {
    let parse = |path: &PathBuf| -> Option<(u32, u32)> {
        let (slot, number) = path.file_stem()?.to_str()?.split_once('.')?;
        let (slot, number) = (slot.parse().ok()?, number.parse().ok()?);
        (SegmentDir::new(directory, slot).segment_file(number) == *path).then_some((slot, number))
    };
    let mut numbers: Vec<_> = journal::segments(directory)?.iter().filter_map(parse).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Acquires the first free segments of `directory`, and settles calls that were left in flight in the others. Each
/// segment has about `size` bytes.
pub(super) fn acquire_any(directory: &Path, now: Wall, size: u64) -> io::Result<AcquiredSegments> {
    private_files::create_subdirectory(directory)?;
    let Some(taken) = acquire_first(directory, 0..SegmentDir::MAX_WRITERS, now, size)? else {
        let error = format!("{} processes already keep a ledger there", SegmentDir::MAX_WRITERS);
        return Err(io::Error::other(error));
    };
    let mut orphans = taken.orphans;
    for other in SegmentDir::all(directory)?.into_iter().filter(|dir| *dir != taken.segments.dir) {
        // Another process will, if this one cannot.
        orphans += other.settle_orphans(now).unwrap_or(0);
    }
    Ok(AcquiredSegments { orphans, ..taken })
}

/// Acquires the segments of the first free slot; `None` if other processes hold all of them.
fn acquire_first(
    directory: &Path,
    mut slots: Range<u32>,
    now: Wall,
    size: u64,
) -> io::Result<Option<AcquiredSegments>> {
    slots.find_map(|slot| SegmentDir::new(directory, slot).acquire(now, size).transpose()).transpose()
}

impl Segments {
    /// Name of this run.
    pub(super) fn run(&self) -> &str {
        &self.run
    }

    /// Appends a line with one `write`, while other threads may do the same.
    pub(super) fn append(&self, line: &[u8]) -> io::Result<()> {
        self.check_room()?;
        let at = self.end.fetch_add(line.len() as u64, Ordering::Relaxed);
        let taken = write_at(&self.segment, line, at)?;
        // A line that lacks only its line break is followed by a zero, which ends it too.
        if taken + 1 >= line.len() { Ok(()) } else { Err(short_write_error()) }
    }

    /// Appends with one `write` while no other thread does. Returns the number of bytes written.
    pub(super) fn append_exclusive(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check_room()?;
        let end = self.end.get_mut();
        let taken = write_at(&self.segment, bytes, *end)?;
        *end += taken as u64;
        Ok(taken)
    }

    /// Returns whether a new segment is due.
    pub(super) fn is_full(&self) -> bool {
        self.filled() >= self.size
    }

    fn filled(&self) -> u64 {
        self.end.load(Ordering::Relaxed) - self.head
    }

    fn check_room(&self) -> io::Result<()> {
        if self.filled() >= self.size.saturating_mul(2) {
            return Err(io::Error::other("the segment is full, and a new one could not be created"));
        }
        Ok(())
    }

    /// Begins a new segment with the lines `in_flight`, and deletes the oldest ones.
    pub(super) fn rotate(&mut self, now: Wall, in_flight: &[u8], kept: usize) -> io::Result<()> {
        let number = self.number.checked_add(1).ok_or_else(|| io::Error::other("no more segment numbers"))?;
        let path = self.dir.segment_file(number);
        let mut segment = private_files::open(&path, |how| how.create_new(true).write(true))?;
        let mut head = Vec::with_capacity(in_flight.len() + 64);
        ledger_entry::write_run_line(&self.run, now, &mut head);
        head.extend_from_slice(in_flight);
        if let Err(error) = segment.write_all(&head) {
            // A partial head is useless; the current segment has everything.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        (self.segment, self.number) = (segment, number);
        self.head = head.len() as u64;
        *self.end.get_mut() = self.head;
        let numbers = self.dir.segments()?;
        for old in &numbers[..numbers.len().saturating_sub(kept)] {
            fs::remove_file(self.dir.segment_file(*old))?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl Segments {
    /// Makes all writes fail, or work again.
    pub(super) fn set_writable(&mut self, may: bool) -> io::Result<()> {
        let path = self.dir.segment_file(self.number);
        self.segment = private_files::open(&path, |how| how.read(true).write(may))?;
        Ok(())
    }
}

/// Error for a disk that has room for a part of a line only.
pub(super) fn short_write_error() -> io::Error {
    io::Error::other("the disk had no room for a whole line")
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, bytes, at)
}

#[cfg(windows)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, bytes, at)
}

fn ends_in_mid_line(segment: &mut File, length: u64) -> io::Result<bool> {
    if length == 0 {
        return Ok(false);
    }
    let mut last = [0];
    segment.seek(SeekFrom::Start(length - 1))?;
    segment.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_of_forty_processes_has_segments_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let take = |_| acquire_any(directory.path(), Wall::default(), 1 << 16).unwrap().segments;
        let taken: Vec<Segments> = (0..40).map(take).collect();
        assert!(taken.iter().map(|segments| segments.dir.slot).eq(0..40));
        let all = SegmentDir::all(directory.path()).unwrap();
        assert_eq!((all.len(), all.iter().filter(|dir| dir.is_locked()).count()), (40, 40));
        let first = |slots| acquire_first(directory.path(), slots, Wall::default(), 1 << 16).unwrap();
        assert!(first(0..40).is_none(), "all are taken");
        drop(taken);
        assert_eq!(first(0..40).unwrap().segments.dir.slot, 0, "a free slot is used again");
    }

    #[cfg(unix)]
    #[test]
    fn g05_no_part_of_a_ledger_is_created_or_written_through_a_symlink() {
        use std::os::unix::fs::symlink;
        let now = Wall::from_unix_epoch(Duration::from_secs(1));
        let theirs = tempfile::tempdir().unwrap();
        for part in ["", "0.lock", "0.000001.jsonl"] {
            let state = tempfile::tempdir().unwrap();
            let directory = state.path().join("ledger");
            let victim = theirs.path().join(format!("victim {part}"));
            if part.is_empty() {
                fs::create_dir(&victim).unwrap();
                symlink(&victim, &directory).unwrap();
            } else {
                fs::create_dir(&directory).unwrap();
                symlink(&victim, directory.join(part)).unwrap();
            }
            assert!(acquire_any(&directory, now, 1 << 16).is_err(), "{part}");
            let is_untouched =
                if part.is_empty() { fs::read_dir(&victim).unwrap().count() == 0 } else { !victim.exists() };
            assert!(is_untouched, "{part}");
        }
    }
}

//! One book: a series of segments that one process at a time appends to. Who holds the lock beside them is
//! the one; a lock falls when its process ends, however it ends.
//!
//! Threads of that process append at the same time. Each line takes its place at the end first and is written
//! there, so that one which is cut off or missing spoils no other.

use crate::private_files;
use gripfast_core::ledger::entry;
use gripfast_core::ledger::fold::Fold;
use gripfast_core::time::Wall;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The book of this process.
#[derive(Debug)]
pub(super) struct Book {
    place: Place,
    /// The name of this run.
    run: String,
    _lock: File,
    segment: File,
    number: u32,
    /// Where the next line belongs in the present segment, and how many of the bytes before it are its head, which
    /// does not count.
    end: AtomicU64,
    head: u64,
    /// How many bytes are enough.
    size: u64,
}

/// Where a book lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    directory: PathBuf,
    book: u32,
}

/// A book that was taken, and the calls that its last owner left in flight.
pub(super) struct Taken {
    pub(super) book: Book,
    pub(super) orphans: usize,
}

impl Place {
    /// Processes that may keep a ledger in one directory at a time.
    pub(super) const MOST: u32 = 16;

    pub(super) fn all(directory: &Path) -> impl Iterator<Item = Self> {
        (0..Self::MOST).map(|book| Self { directory: directory.to_owned(), book })
    }

    fn lock_file(&self) -> PathBuf {
        self.directory.join(format!("{}.lock", self.book))
    }

    fn segment_file(&self, number: u32) -> PathBuf {
        self.directory.join(format!("{}.{number:06}.jsonl", self.book))
    }

    /// The numbers of its segments, oldest first.
    pub(super) fn segments(&self) -> io::Result<Vec<u32>> {
        let number = |name: &str| -> Option<u32> {
            let (book, rest) = name.split_once('.')?;
            let number = rest.strip_suffix(".jsonl")?.parse().ok()?;
            (book.parse() == Ok(self.book) && self.segment_file(number).ends_with(name)).then_some(number)
        };
        let mut numbers = Vec::new();
        for file in fs::read_dir(&self.directory)? {
            numbers.extend(file?.file_name().to_str().and_then(number));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Hands over the lines of one segment. One that is gone was thrown away meanwhile, and has none.
    pub(super) fn lines(&self, segment: u32, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        /// No segment of ours is larger; a file that is has been made by somebody else.
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

    /// Whether somebody has the book open.
    pub(super) fn is_held(&self) -> bool {
        // A lock that cannot be asked for is nobody's: locks are how it is known that somebody lives.
        let lock = private_files::open(&self.lock_file(), |how| how.read(true));
        let asked = lock.map(|lock| lock.try_lock_shared());
        matches!(asked, Ok(Err(TryLockError::WouldBlock)))
    }

    /// Takes the book, unless somebody has it.
    fn take(self, now: Wall, size: u64) -> io::Result<Option<Taken>> {
        let lock = private_files::open_lock(&self.lock_file())?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let numbers = self.segments()?;
        let orphans = self.open_calls(&numbers)?;
        let number = numbers.last().copied().unwrap_or(1);
        let path = self.segment_file(number);
        let mut segment =
            private_files::open(&path, |how| how.create(true).truncate(false).write(true).read(true))?;
        let length = segment.metadata()?.len();
        let run =
            format!("{:x}.{:04x}", now.since_epoch().as_millis(), crate::clock::unique_number() & 0xffff);
        let mut head = if ends_in_mid_line(&mut segment, length)? { vec![b'\n'] } else { Vec::new() };
        entry::taken(&run, now, &mut head);
        segment.seek(SeekFrom::Start(length))?;
        segment.write_all(&head)?;
        let head = head.len() as u64;
        let end = AtomicU64::new(length + head);
        let book = Book { place: self, run, _lock: lock, segment, number, end, head, size };
        Ok(Some(Taken { book, orphans }))
    }

    /// Settles what was left in flight here, unless somebody has the book: taking it is enough, for whatever
    /// was open belongs to a process that is gone.
    fn settle(self, now: Wall) -> io::Result<usize> {
        let idle = self.is_held() || self.open_calls(&self.segments()?)? == 0;
        let taken = if idle { None } else { self.take(now, 0)? };
        Ok(taken.map_or(0, |taken| taken.orphans))
    }

    /// How many calls are open at the end. The newest segment tells, unless its owner was killed while it
    /// wrote the head of it; the one before it has the same then.
    fn open_calls(&self, numbers: &[u32]) -> io::Result<usize> {
        let mut fold = Fold::default();
        for number in &numbers[numbers.len().saturating_sub(2)..] {
            self.lines(*number, |line| fold.line(line, drop))?;
        }
        Ok(fold.open())
    }
}

/// Takes the first book of `directory` that is free, and settles what was left in flight in the others. Its
/// segments have about `size` bytes.
pub(super) fn take_any(directory: &Path, now: Wall, size: u64) -> io::Result<Taken> {
    private_files::make_part(directory)?;
    let mut mine: Option<Taken> = None;
    let mut left_behind = 0;
    for place in Place::all(directory) {
        match &mine {
            None => mine = place.take(now, size)?,
            // Somebody else will, if we cannot.
            Some(_) => left_behind += place.settle(now).unwrap_or(0),
        }
    }
    let Some(taken) = mine else {
        return Err(io::Error::other(format!("{} processes keep a ledger there already", Place::MOST)));
    };
    Ok(Taken { orphans: taken.orphans + left_behind, ..taken })
}

impl Book {
    /// Appends a line with one `write`, while others may do the same.
    pub(super) fn append(&self, line: &[u8]) -> io::Result<()> {
        self.has_room()?;
        let at = self.end.fetch_add(line.len() as u64, Ordering::Relaxed);
        let taken = write_at(&self.segment, line, at)?;
        // What follows a line that lacks its end only is a zero, which ends it too.
        if taken + 1 >= line.len() { Ok(()) } else { Err(cut_off()) }
    }

    /// Appends with one `write` while nobody else does; answers with how much was taken.
    pub(super) fn append_alone(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.has_room()?;
        let end = self.end.get_mut();
        let taken = write_at(&self.segment, bytes, *end)?;
        *end += taken as u64;
        Ok(taken)
    }

    /// Whether it is time for a new segment.
    pub(super) fn is_full(&self) -> bool {
        self.filled() >= self.size
    }

    fn filled(&self) -> u64 {
        self.end.load(Ordering::Relaxed) - self.head
    }

    fn has_room(&self) -> io::Result<()> {
        if self.filled() >= self.size.saturating_mul(2) {
            return Err(io::Error::other("the segment is full, and no other one could be begun"));
        }
        Ok(())
    }

    /// Goes on in a new segment that begins with `in_flight`, and throws the oldest ones away.
    pub(super) fn turn(&mut self, now: Wall, in_flight: &[u8], kept: usize) -> io::Result<()> {
        let number = self.number.checked_add(1).ok_or_else(|| io::Error::other("no more segment numbers"))?;
        let path = self.place.segment_file(number);
        let mut segment = private_files::open(&path, |how| how.create_new(true).write(true))?;
        let mut head = Vec::with_capacity(in_flight.len() + 64);
        entry::taken(&self.run, now, &mut head);
        head.extend_from_slice(in_flight);
        if let Err(error) = segment.write_all(&head) {
            // Half a head is none; the present segment has everything.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        (self.segment, self.number) = (segment, number);
        self.head = head.len() as u64;
        *self.end.get_mut() = self.head;
        let numbers = self.place.segments()?;
        for old in &numbers[..numbers.len().saturating_sub(kept)] {
            fs::remove_file(self.place.segment_file(*old))?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl Book {
    /// Makes all writing fail from now on, or work again.
    pub(super) fn may_be_written(&mut self, may: bool) -> io::Result<()> {
        let path = self.place.segment_file(self.number);
        self.segment = private_files::open(&path, |how| how.read(true).write(may))?;
        Ok(())
    }
}

/// A disk that has room for a part of a line only.
pub(super) fn cut_off() -> io::Error {
    io::Error::other("there was no room for a whole line")
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
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    #[test]
    fn g05_no_part_of_a_ledger_is_made_or_written_through_a_symlink() {
        let now = Wall::at(Duration::from_secs(1));
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
            assert!(take_any(&directory, now, 1 << 16).is_err(), "{part}");
            let is_untouched =
                if part.is_empty() { fs::read_dir(&victim).unwrap().count() == 0 } else { !victim.exists() };
            assert!(is_untouched, "{part}");
        }
    }
}

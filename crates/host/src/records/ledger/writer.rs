//! What this process writes down, and what it does when it cannot: calls go on, lines that must not be
//! missing are owed, and the next write that works brings them along.
//!
//! As long as all is well, lines are written side by side, and no thread waits for one that holds the pen and is not
//! given a processor. Whatever else there is to do, such as a new segment or paying debts, is done alone.

use super::book::{self, Book};
use super::in_flight::{InFlight, Seat};
use super::{Keeps, LedgerOptions, LedgerStatus};
use crate::clock::Clock;
use gripfast_core::failure::Outcome as Fate;
use gripfast_core::ledger::Settled;
use gripfast_core::ledger::entry::Entry;
use gripfast_core::text::times;
use gripfast_core::time::{Mono, Now};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// The ledger of this process.
pub(super) struct Writer {
    directory: PathBuf,
    options: LedgerOptions,
    clock: Clock,
    next_call: AtomicU64,
    pen: RwLock<Pen>,
}

#[derive(Default)]
struct Pen {
    book: Option<Book>,
    /// Changed together with the book while nobody turns to a new segment. Held for no longer than a line is copied.
    in_flight: Mutex<InFlight>,
    owed: Owed,
    /// When a book or a segment that could not be opened is tried again.
    not_before: Mono,
    /// Why the last write failed, if it did, and how many did in a row.
    trouble: Option<(String, u64)>,
    failed_writes: u64,
    buffer: Vec<u8>,
}

/// What is to be said aloud once the pen is free.
enum News {
    Failing(String),
    Mended { failed: u64 },
    Orphans(usize),
}

impl Writer {
    /// The parts of a ledger, of which the oldest is thrown away when they are full.
    const SEGMENTS: usize = 8;
    /// What could not be opened is tried again after this.
    const RETRY: Duration = Duration::from_secs(30);

    /// Takes a book. If there is none to be had, that is said aloud, and tried again later.
    pub(super) fn open(directory: PathBuf, options: LedgerOptions, clock: Clock) -> Self {
        let writer = Self { directory, options, clock, next_call: AtomicU64::new(1), pen: RwLock::default() };
        writer.alone(|_| Ok(()));
        writer
    }

    pub(super) fn keeps(&self) -> Keeps {
        self.options.keeps
    }

    pub(super) fn now(&self) -> Now {
        self.clock.now()
    }

    pub(super) fn next_call(&self) -> u64 {
        self.next_call.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes down what would be known of the call if nothing more were heard of it.
    pub(super) fn note(&self, entry: &mut Entry, seat: &mut Option<Seat>, fate: Fate) {
        if self.note_beside_others(entry, seat, fate) {
            return;
        }
        self.alone(|pen| {
            let line = entry.begun(fate);
            if pen.in_flight_alone().keep(seat, line) {
                return pen.put(entry.changed(fate), Line::Lasting);
            }
            let went = pen.put(line, Line::Passing);
            if went.is_err() {
                pen.in_flight_alone().is_not_on_paper(*seat);
            }
            went
        });
    }

    fn note_beside_others(&self, entry: &mut Entry, seat: &mut Option<Seat>, fate: Fate) -> bool {
        let pen = self.look();
        let Some(book) = pen.book_at_ease() else { return false };
        let line = entry.begun(fate);
        let was_on_paper = pen.in_flight().keep(seat, line);
        let went = book.append(if was_on_paper { entry.changed(fate) } else { line });
        if went.is_ok() {
            self.turn_if_full_now(pen);
        } else if !was_on_paper {
            pen.in_flight().is_not_on_paper(*seat);
        }
        went.is_ok()
    }

    /// Writes down how the call ended.
    pub(super) fn end(&self, entry: &mut Entry, seat: Option<Seat>, settled: &Settled) {
        fn last<'e>(entry: &'e mut Entry, was_begun: bool, settled: &Settled) -> &'e [u8] {
            if was_begun { entry.ended(settled) } else { entry.ended_at_once(settled) }
        }
        let mut left = None;
        let pen = self.look();
        if let Some(book) = pen.book_at_ease() {
            let was_begun = *left.insert(pen.in_flight().leave(seat));
            if book.append(last(entry, was_begun, settled)).is_ok() {
                return self.turn_if_full_now(pen);
            }
        }
        drop(pen);
        self.alone(|pen| {
            let was_begun = left.unwrap_or_else(|| pen.in_flight_alone().leave(seat));
            pen.put(last(entry, was_begun, settled), Line::Lasting)
        });
    }

    pub(super) fn status(&self) -> LedgerStatus {
        let pen = self.look();
        LedgerStatus {
            keeps: self.options.keeps,
            calls: self.next_call.load(Ordering::Relaxed) - 1,
            failed_writes: pen.failed_writes,
            cause: pen.trouble.as_ref().map(|(cause, _)| cause.clone()),
        }
    }

    /// The pen, beside others who look.
    fn look(&self) -> RwLockReadGuard<'_, Pen> {
        self.pen.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever filled the segment begins the next one.
    fn turn_if_full_now(&self, pen: RwLockReadGuard<'_, Pen>) {
        let full = pen.book.as_ref().is_some_and(Book::is_full);
        drop(pen);
        if full {
            self.alone(|_| Ok(()));
        }
    }

    /// Does what cannot be done beside others, and before it what makes sense then.
    fn alone(&self, act: impl FnOnce(&mut Pen) -> io::Result<()>) {
        let now = self.clock.now();
        let (found, done) = {
            let mut pen = self.pen.write().unwrap_or_else(PoisonError::into_inner);
            let (found, opened) = match self.open_book(&mut pen, now) {
                Ok(orphans) => (orphans, Ok(())),
                Err(error) => (0, Err(error)),
            };
            // Also without a book: what is owed is remembered.
            let acted = act(&mut pen).and_then(|()| self.turn_if_full(&mut pen, now));
            (found, pen.take_note(opened.and(acted)))
        };
        // Not while others wait for the pen.
        let orphans = (found > 0).then_some(News::Orphans(found));
        orphans.into_iter().chain(done).for_each(|news| self.say(&news));
    }

    /// Makes sure that there is a book, if one can be had; answers with the calls that were found in flight.
    fn open_book(&self, pen: &mut Pen, now: Now) -> io::Result<usize> {
        if pen.book.is_some() {
            return Ok(0);
        }
        if now.mono < pen.not_before {
            return Err(io::Error::other("there is no book to write in"));
        }
        pen.not_before = now.mono + Self::RETRY;
        let taken = book::take_any(&self.directory, now.wall, self.options.size / Self::SEGMENTS as u64)?;
        pen.book = Some(taken.book);
        pen.not_before = now.mono;
        let mut in_flight = std::mem::take(pen.in_flight_alone());
        let begun = in_flight.write_missing(|line| pen.put(line, Line::Passing));
        *pen.in_flight_alone() = in_flight;
        begun.map(|()| taken.orphans)
    }

    fn turn_if_full(&self, pen: &mut Pen, now: Now) -> io::Result<()> {
        let Pen { book: Some(book), in_flight, .. } = pen else { return Ok(()) };
        if !book.is_full() || now.mono < pen.not_before {
            return Ok(());
        }
        pen.not_before = now.mono + Self::RETRY;
        let in_flight = in_flight.get_mut().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&[u8]> = in_flight.lines().collect();
        book.turn(now.wall, &lines.concat(), Self::SEGMENTS)?;
        in_flight.are_on_paper();
        pen.not_before = now.mono;
        Ok(())
    }

    fn say(&self, news: &News) {
        let directory = self.directory.display();
        match news {
            News::Failing(cause) => tracing::warn!(
                %directory,
                cause,
                "the ledger cannot be written: calls go on, and what becomes of them may not be found there"
            ),
            News::Mended { failed } => tracing::info!(
                %directory,
                failed,
                "the ledger is written again; writing had failed {}",
                times(*failed)
            ),
            News::Orphans(1) => tracing::warn!(
                "a call was under way when an earlier gripfast ended; `gripfast calls --unknown` tells more"
            ),
            News::Orphans(count) => tracing::warn!(
                count,
                "{count} calls were under way when an earlier gripfast ended; \
                 `gripfast calls --unknown` tells more"
            ),
        }
    }
}

impl Pen {
    /// The book, if a line can be written there beside others: nothing is owed, and it is not full.
    fn book_at_ease(&self) -> Option<&Book> {
        let well = self.trouble.is_none() && self.owed.is_nothing();
        self.book.as_ref().filter(|book| well && !book.is_full())
    }

    fn in_flight(&self) -> MutexGuard<'_, InFlight> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_flight_alone(&mut self) -> &mut InFlight {
        self.in_flight.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&mut self, text: &[u8], line: Line) -> io::Result<()> {
        let Self { book, owed, buffer, .. } = self;
        buffer.clear();
        owed.write(buffer);
        let start = buffer.len();
        buffer.extend_from_slice(text);
        let (taken, error) = match book.as_mut().map(|book| book.append_alone(buffer)) {
            Some(Ok(taken)) if taken == buffer.len() => {
                owed.clear();
                return Ok(());
            }
            Some(Ok(taken)) => (taken, book::cut_off()),
            Some(Err(error)) => (0, error),
            None => (0, io::Error::other("there is no book to write in")),
        };
        let end = match line {
            Line::Passing => start,
            Line::Lasting => buffer.len(),
        };
        owed.keep(buffer, taken, start, end);
        Err(error)
    }

    /// Takes note of how a write went; answers with what is new about that.
    fn take_note(&mut self, went: io::Result<()>) -> Option<News> {
        match (went, &mut self.trouble) {
            (Ok(()), None) => None,
            (Ok(()), Some((_, failed))) => {
                let failed = *failed;
                self.trouble = None;
                Some(News::Mended { failed })
            }
            (Err(_), Some((_, failed))) => {
                *failed += 1;
                self.failed_writes += 1;
                None
            }
            (Err(error), None) => {
                let cause = error.to_string();
                self.trouble = Some((cause.clone(), 1));
                self.failed_writes += 1;
                Some(News::Failing(cause))
            }
        }
    }
}

/// Whether a line that could not be written is written later.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    /// Its call says the same again when it ends.
    Passing,
    /// Without it the book would be wrong.
    Lasting,
}

/// What the book should say and does not yet.
#[derive(Default)]
struct Owed {
    /// Its last line was cut off, and has to be ended first.
    torn: bool,
    lines: Vec<u8>,
}

impl Owed {
    /// Beyond this the newest lines are let go of: a disk that stays full is somebody's business by then.
    const MOST: usize = 256 << 10;

    fn is_nothing(&self) -> bool {
        !self.torn && self.lines.is_empty()
    }

    fn write(&self, buffer: &mut Vec<u8>) {
        if self.torn {
            buffer.push(b'\n');
        }
        buffer.extend_from_slice(&self.lines);
    }

    fn clear(&mut self) {
        self.torn = false;
        self.lines.clear();
    }

    /// Of `buffer` only so many bytes were taken. What was not is owed up to `end`; up to `start`, if that
    /// would be too much.
    fn keep(&mut self, buffer: &[u8], taken: usize, start: usize, end: usize) {
        let whole = buffer[..taken].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // Of a line that lacks nothing but its end, the end is all that is owed.
        let from = if buffer.get(taken) == Some(&b'\n') { taken + 1 } else { whole };
        self.torn = taken > whole || from > taken;
        let end = if end.saturating_sub(from) > Self::MOST { start } else { end };
        self.lines = buffer.get(from..end).unwrap_or_default().to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;
    use gripfast_core::ledger::entry::LedgerCaller;
    use gripfast_core::ledger::{Query, Row};
    use gripfast_core::time::Wall;
    use proptest::prelude::*;
    use std::path::Path;

    fn writer(directory: &Path, size: u64) -> Writer {
        let options = LedgerOptions { size, ..LedgerOptions::default() };
        Writer::open(directory.to_owned(), options, Clock::new())
    }

    fn entry(writer: &Writer) -> Entry {
        Entry::of(writer.next_call(), Wall::default(), &LedgerCaller::default(), "s", "t")
    }

    fn done() -> Settled {
        let (ended, took) = (Wall::default(), Duration::ZERO);
        Settled { ended, took, outcome: Fate::Done, code: None, attempts: 1, replays: 0 }
    }

    /// Numbers and outcomes of calls, in order; of those that are under way there is none.
    fn rows(directory: &Path) -> Vec<(u64, Option<Fate>)> {
        found(directory, false)
    }

    fn found(directory: &Path, unknown: bool) -> Vec<(u64, Option<Fate>)> {
        let query = Query { unknown, limit: Query::MOST, ..Query::default() };
        let rows = read::read(directory, query).unwrap().rows;
        let mut rows: Vec<_> = rows.iter().map(|row: &Row| (row.id.call, row.outcome())).collect();
        rows.sort_unstable_by_key(|(call, _)| *call);
        rows
    }

    /// Calls of several threads, of which every tenth stays open.
    fn write_at_once(writer: &Writer, threads: usize, calls: u64) -> Vec<u64> {
        let open = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for number in 0..calls {
                        let call = writer.next_call();
                        let (mut entry, mut seat) =
                            (Entry::of(call, Wall::default(), &LedgerCaller::default(), "s", "t"), None);
                        if number % 2 == 0 {
                            writer.note(&mut entry, &mut seat, Fate::NotSent);
                        }
                        writer.note(&mut entry, &mut seat, Fate::Unknown);
                        if number % 10 == 0 {
                            open.lock().unwrap().push(call);
                        } else {
                            writer.end(&mut entry, seat, &done());
                        }
                    }
                });
            }
        });
        let mut open = open.into_inner().unwrap();
        open.sort_unstable();
        open
    }

    #[test]
    fn lines_that_are_written_at_the_same_time_are_all_there() {
        let directory = tempfile::tempdir().unwrap();
        let writer = writer(directory.path(), 16 << 20);
        let open = write_at_once(&writer, 4, 200);
        let expected: Vec<_> =
            (1..=800).map(|call| (call, (!open.contains(&call)).then_some(Fate::Done))).collect();
        assert_eq!(rows(directory.path()), expected);
        drop(writer);
        let orphaned = |(call, fate): (u64, Option<Fate>)| (call, fate.or(Some(Fate::Unknown)));
        assert_eq!(rows(directory.path()), expected.into_iter().map(orphaned).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_under_way_stays_known_while_several_threads_fill_segment_after_segment() {
        let directory = tempfile::tempdir().unwrap();
        let writer = writer(directory.path(), 256 << 10);
        let open = write_at_once(&writer, 4, 1500);
        assert_eq!(writer.status().failed_writes, 0);
        drop(writer);
        let unknown: Vec<_> = open.into_iter().map(|call| (call, Some(Fate::Unknown))).collect();
        assert_eq!(found(directory.path(), true), unknown);
        assert!(!directory.path().join("0.000001.jsonl").exists(), "the oldest went");
    }

    #[test]
    fn a_disk_that_takes_nothing_for_a_while_costs_no_end_of_a_call() {
        let directory = tempfile::tempdir().unwrap();
        let writer = writer(directory.path(), 16 << 20);
        let may_be_written = |may| {
            writer.pen.write().unwrap().book.as_mut().unwrap().may_be_written(may).unwrap();
        };
        // Begun before, and ended while nothing can be written.
        let (mut first, mut first_seat) = (entry(&writer), None);
        writer.note(&mut first, &mut first_seat, Fate::NotSent);
        may_be_written(false);
        writer.note(&mut first, &mut first_seat, Fate::Unknown);
        writer.end(&mut first, first_seat, &done());
        // Begun and ended meanwhile; begun meanwhile and ended later; never ended.
        let mut others = [(); 3].map(|()| (entry(&writer), None));
        for (entry, seat) in &mut others {
            writer.note(entry, seat, Fate::Unknown);
        }
        let [second, third, _under_way] = &mut others;
        writer.end(&mut second.0, second.1, &done());
        assert_eq!(writer.status().failed_writes, 6);
        assert!(writer.status().cause.is_some());
        assert_eq!(rows(directory.path()), [(1, None)], "as far as is known on paper");

        may_be_written(true);
        writer.end(&mut third.0, third.1, &done());
        assert_eq!(writer.status().cause, None);
        let ended = [1, 2, 3].map(|call| (call, Some(Fate::Done)));
        assert_eq!(rows(directory.path()), ended);
    }

    proptest! {
        /// A disk that takes any part of what it is given: in the end each lasting line is there once and
        /// whole, in order, and nothing that was cut off runs into it.
        #[test]
        fn what_is_owed_is_paid(
            writes in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..40)
        ) {
            let (mut owed, mut paper, mut lasting) = (Owed::default(), Vec::new(), Vec::new());
            for (number, (lasts, taken)) in writes.iter().enumerate() {
                let mut buffer = Vec::new();
                owed.write(&mut buffer);
                let start = buffer.len();
                let line = format!("{}{number}.", if *lasts { "lasting" } else { "passing" });
                buffer.extend_from_slice(line.as_bytes());
                buffer.push(b'\n');
                if *lasts {
                    lasting.push(line);
                }
                let taken = taken.index(buffer.len() + 1);
                paper.extend_from_slice(&buffer[..taken]);
                if taken == buffer.len() {
                    owed.clear();
                } else {
                    owed.keep(&buffer, taken, start, if *lasts { buffer.len() } else { start });
                }
            }
            owed.write(&mut paper);
            let paper = String::from_utf8(paper).unwrap();
            let is_lasting = |line: &&str| lasting.iter().any(|whole| whole == line);
            let whole: Vec<&str> = paper.lines().filter(is_lasting).collect();
            prop_assert_eq!(&whole, &lasting, "{}", paper);
            let words = ["lasting", "passing"].map(|word| paper.matches(word).count());
            prop_assert!(words.iter().sum::<usize>() <= paper.lines().count(), "{}", paper);
        }
    }

    #[test]
    fn debts_are_bounded() {
        let mut owed = Owed::default();
        for _ in 0..10 {
            let mut buffer = Vec::new();
            owed.write(&mut buffer);
            let start = buffer.len();
            buffer.resize(start + Owed::MOST / 3, b'x');
            buffer.push(b'\n');
            owed.keep(&buffer, 0, start, buffer.len());
            assert!(owed.lines.len() <= Owed::MOST && owed.lines.len() >= Owed::MOST / 3);
        }
    }
}

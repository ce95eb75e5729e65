//! What this process writes down, and what it does when it cannot: calls go on, lines that must not be
//! missing are owed, and the next write that works brings them along.

use super::book::{self, Book};
use super::row::Open;
use super::{Keeps, LedgerOptions, LedgerStatus};
use crate::clock::Clock;
use gripfast_core::failure::Outcome as Fate;
use gripfast_core::ledger::Settled;
use gripfast_core::ledger::record::Record;
use gripfast_core::text::times;
use gripfast_core::time::{Mono, Now};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The ledger of this process.
pub(super) struct Writer {
    directory: PathBuf,
    options: LedgerOptions,
    clock: Clock,
    next_call: AtomicU64,
    pen: Mutex<Pen>,
}

/// Held for as long as one `write` takes, which the file would make everybody wait for anyway.
#[derive(Default)]
struct Pen {
    book: Option<Book>,
    /// The calls that were begun and have not ended: what a new segment begins with. As many as the servers
    /// have in flight and waiting.
    open: BTreeMap<u64, Arc<Open>>,
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
        let writer = Self { directory, options, clock, next_call: AtomicU64::new(1), pen: Mutex::default() };
        writer.with_pen(|_| Ok(()));
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
    pub(super) fn note(&self, open: &Arc<Open>, fate: Fate) {
        let first = (!open.is_on_paper()).then(|| line(&open.record()));
        self.with_pen(|pen| {
            pen.open.entry(open.call).or_insert_with(|| Arc::clone(open));
            // Another one may have turned to a new segment meanwhile, which begins with all that are open.
            match first.filter(|_| !open.is_on_paper()) {
                Some(first) => pen.put(&first, Line::Passing).inspect(|()| open.set_on_paper()),
                None => {
                    pen.put(&line(&Record::Changed { call: open.call, if_orphaned: fate }), Line::Lasting)
                }
            }
        });
    }

    /// Writes down how the call ended.
    pub(super) fn end(&self, open: &Open, settled: Settled) {
        let end = |whole: bool| {
            let begun = whole.then_some((open.begun.wall, Cow::Borrowed(&open.subject)));
            line(&Record::Ended { call: open.call, begun, settled })
        };
        let was_begun = open.is_on_paper();
        let last = end(!was_begun);
        self.with_pen(|pen| {
            pen.open.remove(&open.call);
            // It may have been put on paper meanwhile, with all that are open.
            let last = if open.is_on_paper() == was_begun { last } else { end(was_begun) };
            pen.put(&last, Line::Lasting)
        });
    }

    pub(super) fn status(&self) -> LedgerStatus {
        let pen = self.lock();
        LedgerStatus {
            keeps: self.options.keeps,
            calls: self.next_call.load(Ordering::Relaxed) - 1,
            failed_writes: pen.failed_writes,
            cause: pen.trouble.as_ref().map(|(cause, _)| cause.clone()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pen> {
        self.pen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_pen(&self, act: impl FnOnce(&mut Pen) -> io::Result<()>) {
        let now = self.clock.now();
        let (found, done) = {
            let mut pen = self.lock();
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
        for open in pen.open.values().cloned().collect::<Vec<_>>() {
            pen.begin(&open)?;
        }
        Ok(taken.orphans)
    }

    fn turn_if_full(&self, pen: &mut Pen, now: Now) -> io::Result<()> {
        let Pen { book: Some(book), open, .. } = pen else { return Ok(()) };
        if !book.is_full() || now.mono < pen.not_before {
            return Ok(());
        }
        pen.not_before = now.mono + Self::RETRY;
        let mut in_flight = Vec::new();
        for open in open.values() {
            open.record().write(&mut in_flight);
        }
        book.turn(now.wall, &in_flight, Self::SEGMENTS)?;
        open.values().for_each(|open| open.set_on_paper());
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
    /// Writes down that a call was begun, when a book was opened at last. One that ends before is written as a whole.
    fn begin(&mut self, open: &Open) -> io::Result<()> {
        self.put(&line(&open.record()), Line::Passing).inspect(|()| open.set_on_paper())
    }

    fn put(&mut self, text: &[u8], line: Line) -> io::Result<()> {
        let Self { book, owed, buffer, .. } = self;
        buffer.clear();
        owed.write(buffer);
        let start = buffer.len();
        buffer.extend_from_slice(text);
        let (taken, error) = match book.as_ref().map(|book| book.append(buffer)) {
            Some(Ok(taken)) if taken == buffer.len() => {
                owed.clear();
                return Ok(());
            }
            Some(Ok(taken)) => (taken, io::Error::other("there was no room for a whole line")),
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

/// A record as it is written. It is made before the pen is taken, so that nobody waits for that.
fn line(record: &Record<'_>) -> Vec<u8> {
    let mut line = Vec::with_capacity(256);
    record.write(&mut line);
    line
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
    use super::*;
    use proptest::prelude::*;

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

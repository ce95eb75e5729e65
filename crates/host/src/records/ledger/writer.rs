//! Writer of the ledger of this process. If writing fails, calls continue, required lines are kept, and the next
//! successful write includes them.
//!
//! Normally lines are written in parallel under a read lock, and no thread waits for one that holds the lock and is not
//! scheduled. Everything else, such as a new segment or kept lines, is done under the write lock.

use super::in_flight::{InFlight, LineSlot};
use super::segments;
use super::segments::Segments;
use super::{LedgerOptions, LedgerStatus};
use crate::clock::Clock;
use crate::records::journal::{RecordDetail, WriteFailures};
use crate::sync::{Mutex, RwLock};
use gripfast_core::failure::CallOutcome;
use gripfast_core::ledger::Settled;
use gripfast_core::ledger::ledger_entry::{LedgerEntry, LineStart};
use gripfast_core::text::times;
use gripfast_core::time::{Mono, Now};
use std::io;
use std::path::PathBuf;
use std::sync::RwLockReadGuard;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Ledger of this process.
pub(super) struct LedgerWriter {
    directory: PathBuf,
    options: LedgerOptions,
    clock: Clock,
    next_call: AtomicU64,
    state: RwLock<WriterState>,
}

#[derive(Default)]
struct WriterState {
    segments: Option<Segments>,
    /// Changed together with the segments, except during a rotation. Held for no longer than a line is copied.
    in_flight: Mutex<InFlight>,
    unwritten: UnwrittenLines,
    /// Time of the next attempt to open segments or begin a new one.
    retry_at: Mono,
    failures: WriteFailures,
    buffer: Vec<u8>,
}

/// Message to log once the lock is free.
enum WriteNotices {
    Failing(String),
    Recovered { failed: u64 },
    Orphans(usize),
}

impl LedgerWriter {
    /// Number of segments of a ledger; the oldest is deleted when they are full.
    const SEGMENTS: usize = 8;
    /// Interval between attempts to open segments.
    const RETRY_INTERVAL: Duration = Duration::from_secs(30);

    /// Acquires segments. If there are none to be had, that is logged, and tried again later.
    pub(super) fn open(directory: PathBuf, options: LedgerOptions, clock: Clock) -> Self {
        let writer =
            Self { directory, options, clock, next_call: AtomicU64::new(1), state: RwLock::default() };
        writer.with_exclusive(|_| Ok(()));
        writer
    }

    pub(super) fn detail(&self) -> RecordDetail {
        self.options.detail
    }

    pub(super) fn now(&self) -> Now {
        self.clock.now()
    }

    pub(super) fn next_call(&self) -> u64 {
        self.next_call.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes the outcome that the call has if the process ends now.
    pub(super) fn write_pending(
        &self,
        entry: &mut LedgerEntry,
        slot: &mut Option<LineSlot>,
        outcome: CallOutcome,
    ) {
        if self.try_write_shared(entry, slot, outcome) {
            return;
        }
        self.with_exclusive(|state| {
            let line = entry.start_line(outcome);
            if state.in_flight.get_mut().set(slot, line) {
                return state.write_line(entry.update_line(outcome), LineFate::Required);
            }
            let result = state.write_line(line, LineFate::Optional);
            if result.is_err() {
                state.in_flight.get_mut().mark_unwritten(*slot);
            }
            result
        });
    }

    fn try_write_shared(
        &self,
        entry: &mut LedgerEntry,
        slot: &mut Option<LineSlot>,
        outcome: CallOutcome,
    ) -> bool {
        let state = self.state.read();
        let Some(segments) = state.writable_segments() else { return false };
        let line = entry.start_line(outcome);
        let was_written = state.in_flight.lock().set(slot, line);
        let result = segments.append(if was_written { entry.update_line(outcome) } else { line });
        if result.is_ok() {
            self.release_and_rotate(state);
        } else if !was_written {
            state.in_flight.lock().mark_unwritten(*slot);
        }
        result.is_ok()
    }

    /// The name of this run, and the start lines of calls in flight that were sent, are older than `age` and are
    /// `wanted`. That gets the number of each call in flight.
    pub(super) fn lines_in_flight(
        &self,
        age: Duration,
        mut wanted: impl FnMut(u64) -> bool,
    ) -> (String, Vec<Vec<u8>>) {
        let before = self.clock.now().wall.since_epoch().saturating_sub(age);
        let state = self.state.read();
        let run = state.segments.as_ref().map(|segments| segments.run().to_owned()).unwrap_or_default();
        let in_flight = state.in_flight.lock();
        let lines = in_flight.lines().filter(|line| {
            let Some(start) = LineStart::read(line) else { return false };
            wanted(start.call) && start.is_sent && start.at.since_epoch() <= before
        });
        (run, lines.map(<[u8]>::to_vec).collect())
    }

    /// Writes how the call ended.
    pub(super) fn write_end(&self, entry: &mut LedgerEntry, slot: Option<LineSlot>, settled: &Settled) {
        fn last<'e>(entry: &'e mut LedgerEntry, was_begun: bool, settled: &Settled) -> &'e [u8] {
            if was_begun { entry.end_line(settled) } else { entry.single_line(settled) }
        }
        let mut left = None;
        let state = self.state.read();
        if let Some(segments) = state.writable_segments() {
            let was_begun = *left.insert(state.in_flight.lock().remove(slot));
            if segments.append(last(entry, was_begun, settled)).is_ok() {
                return self.release_and_rotate(state);
            }
        }
        drop(state);
        self.with_exclusive(|state| {
            let was_begun = left.unwrap_or_else(|| state.in_flight.get_mut().remove(slot));
            state.write_line(last(entry, was_begun, settled), LineFate::Required)
        });
    }

    pub(super) fn status(&self) -> LedgerStatus {
        let state = self.state.read();
        LedgerStatus {
            detail: self.options.detail,
            calls: self.next_call.load(Ordering::Relaxed) - 1,
            failed_writes: state.failures.total(),
            cause: state.failures.cause().map(str::to_owned),
        }
    }

    /// Releases the lock. The thread that filled the segment begins the next one.
    fn release_and_rotate(&self, state: RwLockReadGuard<'_, WriterState>) {
        let full = state.segments.as_ref().is_some_and(Segments::is_full);
        drop(state);
        if full {
            self.with_exclusive(|_| Ok(()));
        }
    }

    /// Acts with exclusive access. Opens segments before, and begins a new one after, if needed.
    fn with_exclusive(&self, act: impl FnOnce(&mut WriterState) -> io::Result<()>) {
        let now = self.clock.now();
        let (found, done) = {
            let mut state = self.state.write();
            let (found, opened) = match self.open_segments(&mut state, now) {
                Ok(orphans) => (orphans, Ok(())),
                Err(error) => (0, Err(error)),
            };
            // Also without segments: required lines are kept.
            let acted = act(&mut state).and_then(|()| self.rotate_if_full(&mut state, now));
            (found, state.note_result(opened.and(acted)))
        };
        // Logged after the lock was released.
        let orphans = (found > 0).then_some(WriteNotices::Orphans(found));
        orphans.into_iter().chain(done).for_each(|notice| self.log(&notice));
    }

    /// Ensures that there are segments, if possible. Returns the number of calls that were found in flight.
    fn open_segments(&self, state: &mut WriterState, now: Now) -> io::Result<usize> {
        if state.segments.is_some() {
            return Ok(0);
        }
        if now.mono < state.retry_at {
            return Err(io::Error::other("no ledger segment is open"));
        }
        state.retry_at = now.mono + Self::RETRY_INTERVAL;
        let taken =
            segments::acquire_any(&self.directory, now.wall, self.options.size / Self::SEGMENTS as u64)?;
        state.segments = Some(taken.segments);
        state.retry_at = now.mono;
        let mut in_flight = std::mem::take(state.in_flight.get_mut());
        let begun = in_flight.write_missing(|line| state.write_line(line, LineFate::Optional));
        *state.in_flight.get_mut() = in_flight;
        begun.map(|()| taken.orphans)
    }

    fn rotate_if_full(&self, state: &mut WriterState, now: Now) -> io::Result<()> {
        let WriterState { segments: Some(segments), in_flight, .. } = state else { return Ok(()) };
        if !segments.is_full() || now.mono < state.retry_at {
            return Ok(());
        }
        state.retry_at = now.mono + Self::RETRY_INTERVAL;
        let in_flight = in_flight.get_mut();
        let lines: Vec<&[u8]> = in_flight.lines().collect();
        segments.rotate(now.wall, &lines.concat(), Self::SEGMENTS)?;
        in_flight.mark_all_written();
        state.retry_at = now.mono;
        Ok(())
    }

    fn log(&self, notice: &WriteNotices) {
        let directory = self.directory.display();
        match notice {
            WriteNotices::Failing(cause) => tracing::warn!(
                %directory,
                cause,
                "cannot write the ledger: calls continue, but their outcomes may be missing from it"
            ),
            WriteNotices::Recovered { failed } => tracing::info!(
                %directory,
                failed,
                "the ledger can be written again; writing had failed {}",
                times(*failed)
            ),
            WriteNotices::Orphans(1) => tracing::warn!(
                "a call was in flight when an earlier gripfast ended; `gripfast calls --unknown` shows it"
            ),
            WriteNotices::Orphans(count) => tracing::warn!(
                count,
                "{count} calls were in flight when an earlier gripfast ended; \
                 `gripfast calls --unknown` shows them"
            ),
        }
    }
}

impl WriterState {
    /// Returns the segments, if a line can be written in parallel: nothing is kept back, and they are not full.
    fn writable_segments(&self) -> Option<&Segments> {
        let well = self.failures.cause().is_none() && self.unwritten.is_empty();
        self.segments.as_ref().filter(|segments| well && !segments.is_full())
    }

    fn write_line(&mut self, text: &[u8], line: LineFate) -> io::Result<()> {
        let Self { segments, unwritten, buffer, .. } = self;
        buffer.clear();
        unwritten.write_to(buffer);
        let start = buffer.len();
        buffer.extend_from_slice(text);
        let (taken, error) = match segments.as_mut().map(|segments| segments.append_exclusive(buffer)) {
            Some(Ok(taken)) if taken == buffer.len() => {
                unwritten.clear();
                return Ok(());
            }
            Some(Ok(taken)) => (taken, segments::short_write_error()),
            Some(Err(error)) => (0, error),
            None => (0, io::Error::other("no ledger segment is open")),
        };
        let end = match line {
            LineFate::Optional => start,
            LineFate::Required => buffer.len(),
        };
        unwritten.keep(buffer, taken, start, end);
        Err(error)
    }

    /// Records the result of a write. Returns a message if the state has changed.
    fn note_result(&mut self, result: io::Result<()>) -> Option<WriteNotices> {
        match result {
            Ok(()) => self.failures.clear().map(|failed| WriteNotices::Recovered { failed }),
            Err(error) => {
                let cause = error.to_string();
                self.failures.add(cause.clone(), 1).then_some(WriteNotices::Failing(cause))
            }
        }
    }
}

/// Importance of a line that could not be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineFate {
    /// The end line of the call repeats its content.
    Optional,
    /// Without it the ledger would be wrong.
    Required,
}

/// Lines that could not be written yet.
#[derive(Default)]
struct UnwrittenLines {
    /// The last written line was cut off, and has to be ended first.
    torn: bool,
    lines: Vec<u8>,
}

impl UnwrittenLines {
    /// Maximum number of kept bytes; beyond it the newest lines are dropped. A disk that stays full needs an operator
    /// by then.
    const MAX_BYTES: usize = 256 << 10;

    fn is_empty(&self) -> bool {
        !self.torn && self.lines.is_empty()
    }

    fn write_to(&self, buffer: &mut Vec<u8>) {
        if self.torn {
            buffer.push(b'\n');
        }
        buffer.extend_from_slice(&self.lines);
    }

    fn clear(&mut self) {
        self.torn = false;
        self.lines.clear();
    }

    /// Keeps what was not written of `buffer`, of which `taken` bytes were: up to `end`, or up to `start` if that would
    /// be too much.
    fn keep(&mut self, buffer: &[u8], taken: usize, start: usize, end: usize) {
        let whole = buffer[..taken].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // Of a line that lacks only its line break, only the line break is kept.
        let from = if buffer.get(taken) == Some(&b'\n') { taken + 1 } else { whole };
        self.torn = taken > whole || from > taken;
        let end = if end.saturating_sub(from) > Self::MAX_BYTES { start } else { end };
        self.lines = buffer.get(from..end).unwrap_or_default().to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::ledger::read;
    use gripfast_core::ledger::ledger_entry::LedgerCaller;
    use gripfast_core::ledger::{Query, Row};
    use gripfast_core::time::Wall;
    use proptest::prelude::*;
    use std::path::Path;

    fn writer(directory: &Path, size: u64) -> LedgerWriter {
        let options = LedgerOptions { size, ..LedgerOptions::default() };
        LedgerWriter::open(directory.to_owned(), options, Clock::new())
    }

    fn entry(writer: &LedgerWriter) -> LedgerEntry {
        LedgerEntry::new(writer.next_call(), Wall::default(), &LedgerCaller::default(), "s", "t")
    }

    fn done() -> Settled {
        let (ended, took) = (Wall::default(), Duration::ZERO);
        Settled { ended, took, outcome: CallOutcome::Done, code: None, attempts: 1, replays: 0 }
    }

    /// Numbers and outcomes of calls, in order; those in flight have no outcome.
    fn rows(directory: &Path) -> Vec<(u64, Option<CallOutcome>)> {
        found(directory, false)
    }

    fn found(directory: &Path, unknown: bool) -> Vec<(u64, Option<CallOutcome>)> {
        let query = Query { unknown, limit: Query::MAX_LIMIT, ..Query::default() };
        let rows = read::read(directory, query).unwrap().rows;
        let mut rows: Vec<_> = rows.iter().map(|row: &Row| (row.id.call, row.outcome())).collect();
        rows.sort_unstable_by_key(|(call, _)| *call);
        rows
    }

    /// Calls of several threads, of which every tenth stays open.
    fn write_at_once(writer: &LedgerWriter, threads: usize, calls: u64) -> Vec<u64> {
        let open = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for number in 0..calls {
                        let call = writer.next_call();
                        let (mut entry, mut slot) = (
                            LedgerEntry::new(call, Wall::default(), &LedgerCaller::default(), "s", "t"),
                            None,
                        );
                        if number % 2 == 0 {
                            writer.write_pending(&mut entry, &mut slot, CallOutcome::NotSent);
                        }
                        writer.write_pending(&mut entry, &mut slot, CallOutcome::Unknown);
                        if number % 10 == 0 {
                            open.lock().push(call);
                        } else {
                            writer.write_end(&mut entry, slot, &done());
                        }
                    }
                });
            }
        });
        let mut open = open.into_inner();
        open.sort_unstable();
        open
    }

    #[test]
    fn lines_written_concurrently_are_all_there() {
        let directory = tempfile::tempdir().unwrap();
        let writer = writer(directory.path(), 16 << 20);
        let open = write_at_once(&writer, 4, 200);
        let expected: Vec<_> =
            (1..=800).map(|call| (call, (!open.contains(&call)).then_some(CallOutcome::Done))).collect();
        assert_eq!(rows(directory.path()), expected);
        drop(writer);
        let orphaned =
            |(call, outcome): (u64, Option<CallOutcome>)| (call, outcome.or(Some(CallOutcome::Unknown)));
        assert_eq!(rows(directory.path()), expected.into_iter().map(orphaned).collect::<Vec<_>>());
    }

    #[test]
    fn calls_in_flight_survive_rotations_by_several_threads() {
        let directory = tempfile::tempdir().unwrap();
        let writer = writer(directory.path(), 256 << 10);
        let open = write_at_once(&writer, 4, 1500);
        assert_eq!(writer.status().failed_writes, 0);
        drop(writer);
        let unknown: Vec<_> = open.into_iter().map(|call| (call, Some(CallOutcome::Unknown))).collect();
        assert_eq!(found(directory.path(), true), unknown);
        assert!(!directory.path().join("0.000001.jsonl").exists(), "the oldest was deleted");
    }

    #[test]
    fn a_temporarily_full_disk_loses_no_end_of_a_call() {
        let directory = tempfile::tempdir().unwrap();
        let writer = writer(directory.path(), 16 << 20);
        let set_writable = |writable| {
            writer.state.write().segments.as_mut().unwrap().set_writable(writable).unwrap();
        };
        // Begun before, and ended while nothing can be written.
        let (mut first, mut first_slot) = (entry(&writer), None);
        writer.write_pending(&mut first, &mut first_slot, CallOutcome::NotSent);
        set_writable(false);
        writer.write_pending(&mut first, &mut first_slot, CallOutcome::Unknown);
        writer.write_end(&mut first, first_slot, &done());
        // Begun and ended meanwhile; begun meanwhile and ended later; never ended.
        let mut others = [(); 3].map(|()| (entry(&writer), None));
        for (entry, slot) in &mut others {
            writer.write_pending(entry, slot, CallOutcome::Unknown);
        }
        let [second, third, _in_flight] = &mut others;
        writer.write_end(&mut second.0, second.1, &done());
        assert_eq!(writer.status().failed_writes, 6);
        assert!(writer.status().cause.is_some());
        assert_eq!(rows(directory.path()), [(1, None)], "as far as it is written");

        set_writable(true);
        writer.write_end(&mut third.0, third.1, &done());
        assert_eq!(writer.status().cause, None);
        let ended = [1, 2, 3].map(|call| (call, Some(CallOutcome::Done)));
        assert_eq!(rows(directory.path()), ended);
    }

    proptest! {
        /// A disk that takes any part of each write: in the end each required line is there once and complete, in
        /// order, and no partial line runs into it.
        #[test]
        fn required_lines_are_written_once_and_complete(
            writes in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..40)
        ) {
            let (mut unwritten, mut file, mut required) = (UnwrittenLines::default(), Vec::new(), Vec::new());
            for (number, (is_required, taken)) in writes.iter().enumerate() {
                let mut buffer = Vec::new();
                unwritten.write_to(&mut buffer);
                let start = buffer.len();
                let line = format!("{}{number}.", if *is_required { "required" } else { "optional" });
                buffer.extend_from_slice(line.as_bytes());
                buffer.push(b'\n');
                if *is_required {
                    required.push(line);
                }
                let taken = taken.index(buffer.len() + 1);
                file.extend_from_slice(&buffer[..taken]);
                if taken == buffer.len() {
                    unwritten.clear();
                } else {
                    unwritten.keep(&buffer, taken, start, if *is_required { buffer.len() } else { start });
                }
            }
            unwritten.write_to(&mut file);
            let file = String::from_utf8(file).unwrap();
            let is_known = |line: &&str| required.iter().any(|whole| whole == line);
            let whole: Vec<&str> = file.lines().filter(is_known).collect();
            prop_assert_eq!(&whole, &required, "{}", file);
            let words = ["required", "optional"].map(|word| file.matches(word).count());
            prop_assert!(words.iter().sum::<usize>() <= file.lines().count(), "{}", file);
        }
    }

    #[test]
    fn kept_lines_are_bounded() {
        let mut unwritten = UnwrittenLines::default();
        for _ in 0..10 {
            let mut buffer = Vec::new();
            unwritten.write_to(&mut buffer);
            let start = buffer.len();
            buffer.resize(start + UnwrittenLines::MAX_BYTES / 3, b'x');
            buffer.push(b'\n');
            unwritten.keep(&buffer, 0, start, buffer.len());
            assert!(
                unwritten.lines.len() <= UnwrittenLines::MAX_BYTES
                    && unwritten.lines.len() >= UnwrittenLines::MAX_BYTES / 3
            );
        }
    }
}

//! Reads the segments of all processes in a directory, without getting in their way.

use super::Calls;
use super::segments::SegmentDir;
use gripfast_core::ledger::fold::{Fold, WriterState};
use gripfast_core::ledger::{Query, Selection};
use std::io;
use std::path::Path;

pub(super) fn read(directory: &Path, query: Query) -> io::Result<Calls> {
    let mut selection = Selection::new(query);
    for dir in SegmentDir::all(directory)? {
        let was_locked = dir.is_locked();
        let mut fold = Fold::default();
        for number in dir.segments()? {
            dir.for_each_line(number, |line| fold.push_line(line, |row| selection.push(row)))?;
        }
        // A process may have started or ended meanwhile. Open calls count as in flight, unless the lock was free before
        // and after.
        let writer = if was_locked || dir.is_locked() { WriterState::Alive } else { WriterState::Gone };
        fold.finish(writer, |row| selection.push(row));
    }
    let (rows, left_out) = selection.finish();
    Ok(Calls { rows, left_out })
}

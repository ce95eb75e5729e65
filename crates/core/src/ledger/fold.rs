//! Fold of ledger lines into rows, tolerant of a crashed writer.
//!
//! Each segment starts with the name of the run and all calls in flight, so the newest segment alone shows what was in
//! flight, and older ones can be deleted.

use super::record::Record;
use super::{Row, RowEnd, RowId};
use crate::failure::CallOutcome;
use std::collections::BTreeMap;

/// Reads a ledger line by line.
#[derive(Debug, Default)]
pub struct Fold {
    run: String,
    /// The calls of this run that have not ended, with their outcome if they never do. Bounded by the calls in flight;
    /// in a corrupted ledger, by the number of lines.
    open: BTreeMap<u64, (Row, CallOutcome)>,
    skipped: u64,
}

/// State of the process that writes a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterState {
    /// Open calls may still end.
    Alive,
    /// Open calls will never end.
    Gone,
}

impl Fold {
    /// Reads the next line and passes on the rows that it completes.
    ///
    /// The position of each line in the file is reserved before it is written, and several threads write side by side.
    /// A missing or torn line leaves zero bytes, which no line contains: they separate lines too.
    pub fn push_line(&mut self, line: &[u8], mut complete: impl FnMut(Row)) {
        for line in line.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            self.push_record(line, &mut complete);
        }
    }

    fn push_record(&mut self, line: &[u8], mut complete: impl FnMut(Row)) {
        match Record::parse(line) {
            None if line.trim_ascii().is_empty() => {}
            None => self.skipped += 1,
            // The next segment of the same run.
            Some(Record::RunStarted { run, at: _ }) if run == self.run => {}
            Some(Record::RunStarted { run, at: _ }) => {
                self.close_orphaned(&mut complete);
                self.run = run.into_owned();
            }
            Some(Record::CallStarted { call, at, subject, if_orphaned }) => {
                let row = Row {
                    id: RowId { run: self.run.clone(), call },
                    subject,
                    started: at,
                    end: RowEnd::InFlight,
                };
                self.open.insert(call, (row, if_orphaned));
            }
            Some(Record::CallUpdated { call, if_orphaned }) => match self.open.get_mut(&call) {
                Some((_, outcome)) => *outcome = if_orphaned,
                None => self.skipped += 1,
            },
            Some(Record::CallEnded { call, started: begun, settled }) => {
                let known = self.open.remove(&call).map(|(row, _)| (row.started, row.subject));
                match known.or(begun) {
                    Some((started, subject)) => complete(Row {
                        id: RowId { run: self.run.clone(), call },
                        subject,
                        started,
                        end: RowEnd::Settled(settled),
                    }),
                    None => self.skipped += 1,
                }
            }
        }
    }

    /// Number of calls that have not ended.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Number of lines that could not be read: torn, or not written by gripfast.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Ends the ledger and passes on the open calls.
    pub fn finish(mut self, writer: WriterState, mut complete: impl FnMut(Row)) {
        match writer {
            WriterState::Alive => self.open.into_values().for_each(|(row, _)| complete(row)),
            WriterState::Gone => self.close_orphaned(&mut complete),
        }
    }

    /// Passes on the open calls as orphaned: the process that would have ended them is gone.
    fn close_orphaned(&mut self, complete: &mut impl FnMut(Row)) {
        for (row, outcome) in std::mem::take(&mut self.open).into_values() {
            complete(Row { end: RowEnd::Orphaned(outcome), ..row });
        }
    }
}

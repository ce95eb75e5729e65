//! From lines to rows: what a book says, whatever happened to the one who wrote it.
//!
//! Each segment of a book begins with the name of the run and with everything that is in flight, so the
//! newest one alone tells what was in flight, and older ones can be thrown away.

use super::record::Record;
use super::{End, Row, RowId};
use crate::failure::Outcome;
use std::collections::BTreeMap;

/// Reads a book line by line.
#[derive(Debug, Default)]
pub struct Fold {
    run: String,
    /// The calls of this run that have not ended, with their fate if they never do. As many as were in flight
    /// at a time; in a book that somebody else scribbled in, at most one a line.
    open: BTreeMap<u64, (Row, Outcome)>,
    skipped: u64,
}

/// Whether somebody still writes in a book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// What is open may end yet.
    Lives,
    /// What is open will stay so.
    IsGone,
}

impl Fold {
    /// Takes the next line; hands over the rows that are complete with it.
    ///
    /// Each line has its place in the file before it is written, and those of several threads are written side by
    /// side. Where one is missing or was cut off there are zeros, which no line has: they separate lines too.
    pub fn line(&mut self, line: &[u8], mut complete: impl FnMut(Row)) {
        for line in line.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            self.whole_line(line, &mut complete);
        }
    }

    fn whole_line(&mut self, line: &[u8], mut complete: impl FnMut(Row)) {
        match Record::read(line) {
            None if line.trim_ascii().is_empty() => {}
            None => self.skipped += 1,
            // The next segment of the same run.
            Some(Record::Taken { run, at: _ }) if run == self.run => {}
            Some(Record::Taken { run, at: _ }) => {
                self.orphan(&mut complete);
                self.run = run.into_owned();
            }
            Some(Record::Begun { call, at, subject, if_orphaned }) => {
                let row = Row {
                    id: RowId { run: self.run.clone(), call },
                    subject,
                    started: at,
                    end: End::InFlight,
                };
                self.open.insert(call, (row, if_orphaned));
            }
            Some(Record::Changed { call, if_orphaned }) => match self.open.get_mut(&call) {
                Some((_, fate)) => *fate = if_orphaned,
                None => self.skipped += 1,
            },
            Some(Record::Ended { call, begun, settled }) => {
                let known = self.open.remove(&call).map(|(row, _)| (row.started, row.subject));
                match known.or(begun) {
                    Some((started, subject)) => complete(Row {
                        id: RowId { run: self.run.clone(), call },
                        subject,
                        started,
                        end: End::Settled(settled),
                    }),
                    None => self.skipped += 1,
                }
            }
        }
    }

    /// How many calls have not ended.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Lines that said nothing: torn, or not ours.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The book ends here: hands over what is open.
    pub fn finish(mut self, owner: Owner, mut complete: impl FnMut(Row)) {
        match owner {
            Owner::Lives => self.open.into_values().for_each(|(row, _)| complete(row)),
            Owner::IsGone => self.orphan(&mut complete),
        }
    }

    /// Whoever was to end the open calls is gone.
    fn orphan(&mut self, complete: &mut impl FnMut(Row)) {
        for (row, fate) in std::mem::take(&mut self.open).into_values() {
            complete(Row { end: End::Orphaned(fate), ..row });
        }
    }
}

//! One call's row, from its first line to its last. It is settled on whatever way the call ends, also when
//! its future is dropped.

use super::Keeps;
use super::in_flight::Seat;
use super::writer::Writer;
use crate::said::Said;
use gripfast_core::failure::{Code, Outcome as Fate};
use gripfast_core::ledger::Settled;
use gripfast_core::ledger::entry::Entry;
use gripfast_core::ledger::entry::LedgerCaller;
use gripfast_core::time::Now;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The row of a call that has not ended.
pub(crate) struct OpenRow<'w>(Option<(&'w Writer, Mutex<Open>)>);

/// What is known about it so far.
struct Open {
    entry: Entry,
    begun: Now,
    /// Its fate if nothing more is heard of it; `None` while nothing was written.
    fate: Option<Fate>,
    /// Where its line is kept while it is in flight.
    seat: Option<Seat>,
    attempts: u32,
    replays: u32,
}

impl<'w> OpenRow<'w> {
    /// A row of a ledger that is not kept.
    pub(crate) fn nowhere() -> Self {
        Self(None)
    }

    pub(super) fn of(
        writer: &'w Writer,
        caller: &LedgerCaller<'_>,
        server: &str,
        tool: &str,
        said: &Said<'_>,
    ) -> Self {
        let begun = writer.now();
        let mut entry = Entry::of(writer.next_call(), begun.wall, caller, server, tool);
        if let Some(digest) = said.digest() {
            entry.digest(digest);
        }
        let arguments = match writer.keeps() {
            Keeps::Arguments => said.redacted_arguments(),
            Keeps::Nothing | Keeps::Digest => None,
        };
        if let Some(arguments) = arguments {
            entry.arguments(&arguments);
        }
        let open = Open { entry, begun, fate: None, seat: None, attempts: 0, replays: 0 };
        Self(Some((writer, Mutex::new(open))))
    }

    /// It has to wait; this is what is known of earlier attempts, if they left us at all.
    pub(crate) fn waits(&self, attempted: Option<Fate>) {
        if let Some((writer, mut open)) = self.open() {
            open.would_be(writer, attempted.unwrap_or(Fate::NotSent));
        }
    }

    /// It is handed to a link. From now on nobody knows whether it was carried out, until the answer comes.
    pub(crate) fn goes(&self) {
        if let Some((writer, mut open)) = self.open() {
            open.attempts += 1;
            open.would_be(writer, Fate::Unknown);
        }
    }

    /// It was sent again so many times.
    pub(crate) fn replayed(&self, replays: u32) {
        if let Some((_, mut open)) = self.open() {
            open.replays = replays;
        }
    }

    /// It ended.
    pub(crate) fn settle(mut self, outcome: Fate, code: Option<Code>) {
        if let Some((writer, open)) = self.take() {
            open.settle(writer, outcome, code);
        }
    }

    fn open(&self) -> Option<(&'w Writer, MutexGuard<'_, Open>)> {
        let (writer, open) = self.0.as_ref()?;
        Some((writer, open.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn take(&mut self) -> Option<(&'w Writer, Open)> {
        let (writer, open) = self.0.take()?;
        Some((writer, open.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Drop for OpenRow<'_> {
    /// Its caller gave it up.
    fn drop(&mut self) {
        if let Some((writer, open)) = self.take() {
            let fate = open.fate.unwrap_or(Fate::NotSent);
            open.settle(writer, fate, Some(Code::Cancelled));
        }
    }
}

impl Open {
    fn would_be(&mut self, writer: &Writer, fate: Fate) {
        if self.fate.replace(fate) != Some(fate) {
            writer.note(&mut self.entry, &mut self.seat, fate);
        }
    }

    fn settle(mut self, writer: &Writer, outcome: Fate, code: Option<Code>) {
        let now = writer.now();
        let settled = Settled {
            ended: now.wall,
            took: now.mono - self.begun.mono,
            outcome,
            code,
            attempts: self.attempts,
            replays: self.replays,
        };
        writer.end(&mut self.entry, self.seat, &settled);
    }
}

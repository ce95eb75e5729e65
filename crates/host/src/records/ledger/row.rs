//! Row of one call, from its first line to its last. It is settled however the call ends, also when its future is
//! dropped.

use super::in_flight::LineSlot;
use super::writer::LedgerWriter;
use crate::records::journal::RecordDetail;
use crate::records::request_summary::RequestSummary;
use crate::sync::Mutex;
use gripfast_core::failure::{CallOutcome, Code};
use gripfast_core::ledger::Settled;
use gripfast_core::ledger::ledger_entry::LedgerCaller;
use gripfast_core::ledger::ledger_entry::LedgerEntry;
use gripfast_core::time::Now;
use std::sync::MutexGuard;

/// Row of a call that has not ended.
pub(crate) struct OpenRow<'w>(Option<(&'w LedgerWriter, Mutex<Open>)>);

/// State of the row.
struct Open {
    entry: LedgerEntry,
    started: Now,
    /// Outcome of the call if the process ended now; `None` while nothing was written.
    outcome_if_lost: Option<CallOutcome>,
    /// Slot of its line while it is in flight.
    slot: Option<LineSlot>,
    attempts: u32,
    replays: u32,
}

impl<'w> OpenRow<'w> {
    /// Creates a row without a ledger.
    pub(crate) fn disabled() -> Self {
        Self(None)
    }

    pub(super) fn new(
        writer: &'w LedgerWriter,
        caller: &LedgerCaller<'_>,
        server: &str,
        tool: &str,
        summary: &RequestSummary<'_>,
    ) -> Self {
        let started = writer.now();
        let mut entry = LedgerEntry::new(writer.next_call(), started.wall, caller, server, tool);
        if let Some(digest) = summary.digest() {
            entry.set_digest(digest);
        }
        let arguments = match writer.detail() {
            RecordDetail::Arguments => summary.redacted_arguments(),
            RecordDetail::Nothing | RecordDetail::Digest => None,
        };
        if let Some(arguments) = arguments {
            entry.set_arguments(&arguments);
        }
        let open = Open { entry, started, outcome_if_lost: None, slot: None, attempts: 0, replays: 0 };
        Self(Some((writer, Mutex::new(open))))
    }

    /// Records that the call waits, with the outcome of earlier attempts if they were sent.
    pub(crate) fn record_waiting(&self, attempted: Option<CallOutcome>) {
        if let Some((writer, mut open)) = self.open() {
            open.note_outcome_if_lost(writer, attempted.unwrap_or(CallOutcome::NotSent));
        }
    }

    /// Records that the call is handed to a link. From now on its outcome is unknown until the response arrives.
    pub(crate) fn record_sent(&self) {
        if let Some((writer, mut open)) = self.open() {
            open.attempts += 1;
            open.note_outcome_if_lost(writer, CallOutcome::Unknown);
        }
    }

    /// Records the number of replays.
    pub(crate) fn record_replays(&self, replays: u32) {
        if let Some((_, mut open)) = self.open() {
            open.replays = replays;
        }
    }

    /// Records the end of the call.
    pub(crate) fn settle(mut self, outcome: CallOutcome, code: Option<Code>) {
        if let Some((writer, open)) = self.take() {
            open.settle(writer, outcome, code);
        }
    }

    fn open(&self) -> Option<(&'w LedgerWriter, MutexGuard<'_, Open>)> {
        let (writer, open) = self.0.as_ref()?;
        Some((writer, open.lock()))
    }

    fn take(&mut self) -> Option<(&'w LedgerWriter, Open)> {
        let (writer, open) = self.0.take()?;
        Some((writer, open.into_inner()))
    }
}

impl Drop for OpenRow<'_> {
    /// Records that the caller has dropped the call.
    fn drop(&mut self) {
        if let Some((writer, open)) = self.take() {
            let outcome = open.outcome_if_lost.unwrap_or(CallOutcome::NotSent);
            open.settle(writer, outcome, Some(Code::Cancelled));
        }
    }
}

impl Open {
    fn note_outcome_if_lost(&mut self, writer: &LedgerWriter, outcome: CallOutcome) {
        if self.outcome_if_lost.replace(outcome) != Some(outcome) {
            writer.write_pending(&mut self.entry, &mut self.slot, outcome);
        }
    }

    fn settle(mut self, writer: &LedgerWriter, outcome: CallOutcome, code: Option<Code>) {
        let now = writer.now();
        let settled = Settled {
            ended: now.wall,
            took: now.mono - self.started.mono,
            outcome,
            code,
            attempts: self.attempts,
            replays: self.replays,
        };
        writer.write_end(&mut self.entry, self.slot, &settled);
    }
}

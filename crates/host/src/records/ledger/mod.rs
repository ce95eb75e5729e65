//! Ledger on disk: a row for every tool call, written so that a process that is killed during a call leaves a record of
//! it.
//!
//! A row is begun before its request is sent and ended when the call is settled, each with one `write` that takes no
//! longer than a copy into the page cache, which outlives a killed process. Nothing here fails or delays a call: failed
//! writes are counted and logged once. `segments` has the files, `writer` the state of this process, `in_flight` the
//! lines that a new segment repeats, `row` the view of one call, and `read` the queries.

pub(crate) mod in_flight;
pub(crate) mod read;
pub(crate) mod row;
pub(crate) mod segments;
pub(crate) mod writer;

pub(crate) use super::ledger::row::OpenRow;
use gripfast_core::failure::CallOutcome;
use gripfast_core::ledger::ledger_entry::LedgerCaller;
use gripfast_core::ledger::record::Record;
pub use gripfast_core::ledger::{CallSubject, Query, Row, RowEnd, RowId, Settled};

use super::journal::RecordDetail;
use super::ledger::writer::LedgerWriter;
use super::request_summary::RequestSummary;
use crate::clock::Clock;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of the ledger of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerOptions {
    /// Detail recorded of a call.
    pub detail: RecordDetail,
    /// Maximum number of bytes of the ledger of one process, calls in flight aside. When it is full, the oldest eighth
    /// is deleted.
    pub size: u64,
}

impl Default for LedgerOptions {
    fn default() -> Self {
        Self { detail: RecordDetail::Digest, size: Self::DEFAULT_SIZE }
    }
}

impl LedgerOptions {
    /// Room for about thirty thousand calls.
    pub const DEFAULT_SIZE: u64 = 16 << 20;
}

/// Status of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerStatus {
    /// Detail recorded of a call.
    pub detail: RecordDetail,
    /// Calls of this process that the ledger has seen.
    pub calls: u64,
    /// Failed writes since the start.
    pub failed_writes: u64,
    /// Reason why it cannot be written at present.
    pub cause: Option<String>,
}

/// Result of a ledger query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calls {
    /// Matching rows, newest first.
    pub rows: Vec<Row>,
    /// Number of older rows that were left out.
    pub left_out: u64,
}

impl Calls {
    /// Reads the calls of all processes that use, or have used, this state directory. Blocks while it reads, at most
    /// what the ledgers may hold.
    ///
    /// # Errors
    /// There is a ledger, and it cannot be read.
    pub fn in_directory(state_dir: &Path, query: Query) -> std::io::Result<Self> {
        read::read(&ledger_dir(state_dir), query)
    }
}

fn ledger_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("ledger")
}

/// Ledger of one host.
pub(crate) struct Ledger {
    directory: Option<PathBuf>,
    writer: Option<LedgerWriter>,
    /// Allows one reader at a time: a ledger is some megabytes.
    reading: tokio::sync::Mutex<()>,
}

impl Ledger {
    /// Opens the ledger in `state_dir`, and finds the calls that earlier processes left in flight there.
    pub(crate) fn open(state_dir: Option<&Path>, options: LedgerOptions, clock: Clock) -> Self {
        let directory = state_dir.map(ledger_dir);
        let writer = match (&directory, options.detail) {
            (None, _) | (_, RecordDetail::Nothing) => None,
            (Some(directory), RecordDetail::Digest | RecordDetail::Arguments) => {
                Some(LedgerWriter::open(directory.clone(), options, clock))
            }
        };
        Self { directory, writer, reading: tokio::sync::Mutex::default() }
    }

    /// Begins a row. Nothing is written before the call waits, is sent or ends.
    pub(crate) fn row(
        &self,
        caller: &LedgerCaller<'_>,
        server: &str,
        tool: &str,
        summary: &RequestSummary<'_>,
    ) -> OpenRow<'_> {
        self.writer
            .as_ref()
            .map_or_else(OpenRow::disabled, |writer| OpenRow::new(writer, caller, server, tool, summary))
    }

    pub(crate) fn status(&self) -> LedgerStatus {
        let none = LedgerStatus { detail: RecordDetail::Nothing, calls: 0, failed_writes: 0, cause: None };
        self.writer.as_ref().map_or(none, LedgerWriter::status)
    }

    /// See [`crate::Host::calls_in_flight`].
    pub(crate) fn calls_in_flight(&self, age: Duration, wanted: impl FnMut(u64) -> bool) -> Vec<Row> {
        let Some(writer) = &self.writer else { return Vec::new() };
        let (run, lines) = writer.lines_in_flight(age, wanted);
        let row = |line: &Vec<u8>| match Record::parse(line)? {
            Record::CallStarted { call, at, subject, if_orphaned: CallOutcome::Unknown } => Some(Row {
                id: RowId { run: run.clone(), call },
                subject,
                started: at,
                end: RowEnd::InFlight,
            }),
            Record::CallStarted { .. }
            | Record::RunStarted { .. }
            | Record::CallUpdated { .. }
            | Record::CallEnded { .. } => None,
        };
        lines.iter().filter_map(row).collect()
    }

    pub(crate) async fn calls(&self, query: Query) -> std::io::Result<Calls> {
        let Some(directory) = self.directory.clone() else { return Ok(Calls::default()) };
        let _alone = self.reading.lock().await;
        let read = tokio::task::spawn_blocking(move || read::read(&directory, query)).await;
        read.unwrap_or_else(|error| Err(std::io::Error::other(error)))
    }
}

//! The ledger on disk: a row for every tool call, written so that a process which is killed in mid-call
//! leaves behind what it was at.
//!
//! A row is begun before its request goes out and ended when the call is settled, each with one `write` that
//! nobody waits longer for than for a copy into the page cache, which outlives a killed process. Nothing
//! here fails or holds up a call: what cannot be written is counted and said aloud once. `book` has the
//! files, `writer` what the process knows of them, `in_flight` what has to be said again in a new one, `row` one
//! call's view of it, `read` everybody else's.

mod book;
mod in_flight;
mod read;
mod row;
mod writer;

use gripfast_core::ledger::entry::LedgerCaller;
pub use gripfast_core::ledger::{End, Query, Row, RowId, Settled, Subject};
pub(crate) use row::OpenRow;

use crate::clock::Clock;
use crate::said::Said;
use std::path::{Path, PathBuf};
use writer::Writer;

/// What the ledger keeps of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keeps {
    /// There is no ledger.
    Nothing,
    /// Everything but the arguments, of which there is a digest.
    #[default]
    Digest,
    /// The arguments too, up to 16 KiB of them.
    Arguments,
}

impl Keeps {
    /// The word in the config and in status.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "off",
            Self::Digest => "digest",
            Self::Arguments => "arguments",
        }
    }
}

/// How a host keeps its ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerOptions {
    /// What is kept of a call.
    pub keeps: Keeps,
    /// Bytes that the ledger of one process takes at the most, calls in flight aside. The oldest eighth is
    /// thrown away when it is full.
    pub size: u64,
}

impl Default for LedgerOptions {
    fn default() -> Self {
        Self { keeps: Keeps::Digest, size: Self::USUAL_SIZE }
    }
}

impl LedgerOptions {
    /// About thirty thousand calls.
    pub const USUAL_SIZE: u64 = 16 << 20;
}

/// How the ledger does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerStatus {
    /// What is kept of a call.
    pub keeps: Keeps,
    /// Calls of this process that the ledger was told of.
    pub calls: u64,
    /// Writes that failed since the start.
    pub failed_writes: u64,
    /// Why it cannot be written at present.
    pub cause: Option<String>,
}

/// Calls out of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calls {
    /// The rows that were asked for, newest first.
    pub rows: Vec<Row>,
    /// How many older ones were left out.
    pub left_out: u64,
}

impl Calls {
    /// The calls that the processes which use this state directory have noted down, whether or not they still
    /// live. Blocks while it reads, at most what the ledgers may hold.
    ///
    /// # Errors
    /// There is a ledger, and it cannot be read.
    pub fn in_directory(state_dir: &Path, query: Query) -> std::io::Result<Self> {
        read::read(&place(state_dir), query)
    }
}

fn place(state_dir: &Path) -> PathBuf {
    state_dir.join("ledger")
}

/// The ledger of one host.
pub(crate) struct Ledger {
    directory: Option<PathBuf>,
    writer: Option<Writer>,
    /// One reader at a time: a ledger is some megabytes.
    reading: tokio::sync::Mutex<()>,
}

impl Ledger {
    /// Opens the ledger in `state_dir`, and finds out what earlier processes left in flight there.
    pub(crate) fn open(state_dir: Option<&Path>, options: LedgerOptions, clock: Clock) -> Self {
        let directory = state_dir.map(place);
        let writer = match (&directory, options.keeps) {
            (None, _) | (_, Keeps::Nothing) => None,
            (Some(directory), Keeps::Digest | Keeps::Arguments) => {
                Some(Writer::open(directory.clone(), options, clock))
            }
        };
        Self { directory, writer, reading: tokio::sync::Mutex::default() }
    }

    /// Begins a row. Nothing is written before the call waits, goes or ends.
    pub(crate) fn row(
        &self,
        caller: &LedgerCaller<'_>,
        server: &str,
        tool: &str,
        said: &Said<'_>,
    ) -> OpenRow<'_> {
        self.writer
            .as_ref()
            .map_or_else(OpenRow::nowhere, |writer| OpenRow::of(writer, caller, server, tool, said))
    }

    pub(crate) fn status(&self) -> LedgerStatus {
        let none = LedgerStatus { keeps: Keeps::Nothing, calls: 0, failed_writes: 0, cause: None };
        self.writer.as_ref().map_or(none, Writer::status)
    }

    pub(crate) async fn calls(&self, query: Query) -> std::io::Result<Calls> {
        let Some(directory) = self.directory.clone() else { return Ok(Calls::default()) };
        let _alone = self.reading.lock().await;
        let read = tokio::task::spawn_blocking(move || read::read(&directory, query)).await;
        read.unwrap_or_else(|error| Err(std::io::Error::other(error)))
    }
}

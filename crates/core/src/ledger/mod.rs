//! The ledger: the outcome of every tool call, including calls that were in flight when the process died.
//!
//! A ledger is a series of files that one process at a time appends to. Each line is about one call ([`ledger_entry`] writes
//! it, [`record`] reads it), and [`fold`] turns lines into rows. Torn and foreign lines are skipped. The host opens the
//! files and finds out which process owns them and whether it still runs.

pub mod fold;
pub mod ledger_entry;
mod query;
pub mod record;

pub use crate::ledger::query::{Query, Selection};

use crate::failure::{CallOutcome, Code};
use crate::time::Wall;
use std::fmt;
use std::time::Duration;

/// One tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its id.
    pub id: RowId,
    /// Caller, server, tool and arguments.
    pub subject: CallSubject,
    /// Start time.
    pub started: Wall,
    /// Its end.
    pub end: RowEnd,
}

/// The unique id of a row: `19a8c3d2e1f.3fa2-17`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    /// The run of the process.
    pub run: String,
    /// The number of the call in the run.
    pub call: u64,
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.run, self.call)
    }
}

/// Caller, server, tool and arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallSubject {
    /// The principal; empty if unknown.
    pub principal: String,
    /// The client's own name; empty if unknown.
    pub client: String,
    /// The server; empty if none could be determined.
    pub server: String,
    /// The server's own name of the tool.
    pub tool: String,
    /// SHA-256 of the arguments as the client wrote them, in hex. `None` if there were none.
    pub digest: Option<String>,
    /// The arguments as JSON, if the operator wants them kept.
    pub arguments: Option<String>,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowEnd {
    /// It is in flight.
    InFlight,
    /// It ended while its process ran.
    Settled(Settled),
    /// Its process ended first. The outcome is `unknown` if it had been sent.
    Orphaned(CallOutcome),
}

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// End time.
    pub ended: Wall,
    /// Duration.
    pub took: Duration,
    /// The known outcome.
    pub outcome: CallOutcome,
    /// The error code, if it was not served.
    pub code: Option<Code>,
    /// Number of times that it was handed to a link.
    pub attempts: u32,
    /// Number of times that it was sent again after it had been sent.
    pub replays: u32,
}

impl Row {
    /// The known outcome; `None` while it is in flight.
    pub fn outcome(&self) -> Option<CallOutcome> {
        match &self.end {
            RowEnd::InFlight => None,
            RowEnd::Settled(settled) => Some(settled.outcome),
            RowEnd::Orphaned(outcome) => Some(*outcome),
        }
    }

    /// The error code, if it was not served.
    pub fn code(&self) -> Option<Code> {
        match &self.end {
            RowEnd::InFlight => None,
            RowEnd::Settled(settled) => settled.code,
            RowEnd::Orphaned(CallOutcome::Unknown) => Some(Code::OutcomeUnknown),
            RowEnd::Orphaned(_) => Some(Code::Stopped),
        }
    }

    /// A summary for people.
    pub fn summary(&self) -> &'static str {
        match (&self.end, self.outcome(), self.code()) {
            (RowEnd::InFlight, _, _) | (_, None, _) => "in flight",
            (RowEnd::Orphaned(_), Some(CallOutcome::Unknown), _) => "gripfast ended before the answer came",
            (RowEnd::Orphaned(_), Some(CallOutcome::Refused), _) => {
                "the server refused it, and gripfast ended before the retry"
            }
            (
                RowEnd::Orphaned(_),
                Some(CallOutcome::NotSent | CallOutcome::Failed | CallOutcome::Done),
                _,
            ) => "gripfast ended before it was sent",
            (RowEnd::Settled(_), Some(CallOutcome::Done), _) => "answered",
            (RowEnd::Settled(_), Some(CallOutcome::Failed), _) => "the server answered that it failed",
            (RowEnd::Settled(_), Some(CallOutcome::Refused), _) => "the server refused it before acting",
            (RowEnd::Settled(_), Some(CallOutcome::NotSent), Some(Code::Cancelled)) => {
                "cancelled before it was sent"
            }
            (RowEnd::Settled(_), Some(CallOutcome::NotSent), _) => "not sent",
            (RowEnd::Settled(_), Some(CallOutcome::Unknown), Some(Code::Cancelled)) => {
                "cancelled after it was sent"
            }
            (RowEnd::Settled(_), Some(CallOutcome::Unknown), Some(Code::Timeout)) => {
                "sent, but not answered in time"
            }
            (RowEnd::Settled(_), Some(CallOutcome::Unknown), _) => {
                "sent, but the connection was lost before the answer"
            }
        }
    }

    /// A hint for people, if there is something left to do.
    pub fn hint(&self) -> Option<String> {
        let CallSubject { server, tool, .. } = &self.subject;
        match self.outcome()? {
            CallOutcome::Unknown => {
                Some(format!("check whether `{tool}` of `{server}` took effect before you call it again"))
            }
            CallOutcome::NotSent | CallOutcome::Refused | CallOutcome::Failed | CallOutcome::Done => None,
        }
    }
}

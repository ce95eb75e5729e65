//! The ledger: what became of every tool call, also of those that were in flight when the process died.
//!
//! A book is a file series that one process at a time appends to. Each line says something about one call
//! ([`entry`] writes it, [`record`] reads it), and the fold over the lines gives the rows ([`fold`]). A line that
//! was torn, or that somebody else wrote, is skipped. Nothing here opens a file: where books lie, who owns one and
//! whether its owner still lives is for the host to find out.

pub mod entry;
pub mod fold;
pub mod record;
mod select;

pub use select::{Query, Selection};

use crate::failure::{Code, Outcome};
use crate::time::Wall;
use std::fmt;
use std::time::Duration;

/// What is known about one tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its name in the ledger.
    pub id: RowId,
    /// What it is about.
    pub subject: Subject,
    /// When it came.
    pub started: Wall,
    /// What became of it.
    pub end: End,
}

/// The name of a row, different from all others: `19a8c3d2e1f.3fa2-17`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    /// The run of a process that it belongs to.
    pub run: String,
    /// Its number there.
    pub call: u64,
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.run, self.call)
    }
}

/// Who called what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// On whose behalf it was called; empty if that is not known.
    pub principal: String,
    /// The caller, as it calls itself; empty if it did not say.
    pub client: String,
    /// The server; empty if none could be determined.
    pub server: String,
    /// The tool, by the server's own name for it.
    pub tool: String,
    /// SHA-256 of the arguments as the caller wrote them, in hex. `None` if there were none.
    pub digest: Option<String>,
    /// The arguments themselves, as JSON, if the operator wants them kept.
    pub arguments: Option<String>,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It is under way.
    InFlight,
    /// It ended, and its process was there to see it.
    Settled(Settled),
    /// Its process ended first. The outcome is `unknown` if it had been sent by then.
    Orphaned(Outcome),
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// When.
    pub ended: Wall,
    /// How long it took.
    pub took: Duration,
    /// What is known about its fate.
    pub outcome: Outcome,
    /// Why it was not served, if it was not.
    pub code: Option<Code>,
    /// How often it was handed to a link.
    pub attempts: u32,
    /// How often it was sent again after it had left.
    pub replays: u32,
}

impl Row {
    /// What is known about its fate; `None` while it is under way.
    pub fn outcome(&self) -> Option<Outcome> {
        match &self.end {
            End::InFlight => None,
            End::Settled(settled) => Some(settled.outcome),
            End::Orphaned(outcome) => Some(*outcome),
        }
    }

    /// Why it was not served, if it was not.
    pub fn code(&self) -> Option<Code> {
        match &self.end {
            End::InFlight => None,
            End::Settled(settled) => settled.code,
            End::Orphaned(Outcome::Unknown) => Some(Code::OutcomeUnknown),
            End::Orphaned(_) => Some(Code::Stopped),
        }
    }

    /// What happened, for a person.
    pub fn what_happened(&self) -> &'static str {
        match (&self.end, self.outcome(), self.code()) {
            (End::InFlight, _, _) | (_, None, _) => "is under way",
            (End::Orphaned(_), Some(Outcome::Unknown), _) => "gripfast ended before the answer came",
            (End::Orphaned(_), Some(Outcome::Refused), _) => {
                "was turned away, and gripfast ended before it went again"
            }
            (End::Orphaned(_), Some(Outcome::NotSent | Outcome::Failed | Outcome::Done), _) => {
                "gripfast ended before it was sent"
            }
            (End::Settled(_), Some(Outcome::Done), _) => "answered",
            (End::Settled(_), Some(Outcome::Failed), _) => "the server answered that it failed",
            (End::Settled(_), Some(Outcome::Refused), _) => "the server turned it away before acting",
            (End::Settled(_), Some(Outcome::NotSent), Some(Code::Cancelled)) => {
                "was given up before it was sent"
            }
            (End::Settled(_), Some(Outcome::NotSent), _) => "was not sent",
            (End::Settled(_), Some(Outcome::Unknown), Some(Code::Cancelled)) => {
                "was given up after it was sent"
            }
            (End::Settled(_), Some(Outcome::Unknown), Some(Code::Timeout)) => {
                "was sent and not answered in time"
            }
            (End::Settled(_), Some(Outcome::Unknown), _) => {
                "was sent, and its link was lost before the answer"
            }
        }
    }

    /// What a person can do about it, if anything is left to do.
    pub fn what_to_do(&self) -> Option<String> {
        let Subject { server, tool, .. } = &self.subject;
        match self.outcome()? {
            Outcome::Unknown => {
                Some(format!("look whether `{tool}` of `{server}` took effect before calling it again"))
            }
            Outcome::NotSent | Outcome::Refused | Outcome::Failed | Outcome::Done => None,
        }
    }
}

//! Parser of ledger lines. [`super::ledger_entry`] writes them.
//!
//! A call has a line when it is sent or has to wait, one for every change of its outcome in case the process dies, and
//! one when it ends. A call that ends before anything was written has one complete line.

use super::{CallSubject, Settled};
use crate::failure::{CallOutcome, Code};
use crate::json_text::Json;
use crate::time::Wall;
use serde::Deserialize;
use std::borrow::Cow;
use std::time::Duration;

/// One parsed line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    /// A process took over the ledger: calls that were in flight before belong to a process that has ended.
    RunStarted {
        /// The unique name of the run.
        run: Cow<'a, str>,
        /// The time.
        at: Wall,
    },
    /// A call started.
    CallStarted {
        /// Its number in this run.
        call: u64,
        /// The time.
        at: Wall,
        /// Caller, server, tool and arguments.
        subject: CallSubject,
        /// The outcome if the process ends now.
        if_orphaned: CallOutcome,
    },
    /// The outcome in case the process dies changed: the call was sent, or waits to be sent again.
    CallUpdated {
        /// Its number in this run.
        call: u64,
        /// The outcome if the process ends now.
        if_orphaned: CallOutcome,
    },
    /// A call ended.
    CallEnded {
        /// Its number in this run.
        call: u64,
        /// Start time and subject, if there is no start line.
        started: Option<(Wall, CallSubject)>,
        /// The result.
        settled: Settled,
    },
}

/// The members of a line. Which members are present determines the kind of line.
#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow)]
    run: Option<Cow<'a, str>>,
    call: Option<u64>,
    at_ms: Option<u64>,
    #[serde(borrow)]
    principal: Option<Cow<'a, str>>,
    #[serde(borrow)]
    client: Option<Cow<'a, str>>,
    #[serde(borrow)]
    server: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tool: Option<Cow<'a, str>>,
    #[serde(borrow)]
    sha256: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<&'a Json>,
    #[serde(borrow)]
    if_orphaned: Option<Cow<'a, str>>,
    ended_ms: Option<u64>,
    took_us: Option<u64>,
    #[serde(borrow)]
    outcome: Option<Cow<'a, str>>,
    #[serde(borrow)]
    code: Option<Cow<'a, str>>,
    attempts: Option<u32>,
    replays: Option<u32>,
}

impl<'a> Record<'a> {
    /// Parses a line; `None` if it is torn or not written by gripfast.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut shape: Shape<'a> = serde_json::from_slice(line).ok()?;
        if let Some(run) = shape.run {
            return Some(Record::RunStarted { run, at: wall(shape.at_ms?) });
        }
        let call = shape.call?;
        let begun = match (shape.at_ms, shape.server.take()) {
            (Some(at), Some(server)) => {
                let subject = CallSubject {
                    principal: shape.principal.map(Cow::into_owned).unwrap_or_default(),
                    client: shape.client.map(Cow::into_owned).unwrap_or_default(),
                    server: server.into_owned(),
                    tool: shape.tool.map(Cow::into_owned).unwrap_or_default(),
                    digest: shape.sha256.map(Cow::into_owned),
                    arguments: shape.arguments.map(|arguments| arguments.get().to_owned()),
                };
                Some((wall(at), subject))
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return None,
        };
        if let Some(outcome) = shape.outcome {
            let settled = Settled {
                ended: wall(shape.ended_ms?),
                took: Duration::from_micros(shape.took_us?),
                outcome: CallOutcome::parse(&outcome)?,
                // An unknown code of another version of gripfast is no reason to lose the row.
                code: shape.code.and_then(|code| Code::parse(&code)),
                attempts: shape.attempts?,
                replays: shape.replays.unwrap_or_default(),
            };
            return Some(Record::CallEnded { call, started: begun, settled });
        }
        let if_orphaned = CallOutcome::parse(&shape.if_orphaned?)?;
        Some(match begun {
            Some((at, subject)) => Record::CallStarted { call, at, subject, if_orphaned },
            None => Record::CallUpdated { call, if_orphaned },
        })
    }
}

fn wall(millis: u64) -> Wall {
    Wall::from_unix_epoch(Duration::from_millis(millis))
}

//! What one line of a book says. [`super::entry`] writes them.
//!
//! A call has a line when it goes out or has to wait, one for every change of what would be known about it
//! if nothing more were heard, and one when it ends; a call that ends before anything was written has one
//! line with everything.

use super::{Settled, Subject};
use crate::failure::{Code, Outcome};
use crate::time::Wall;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::time::Duration;

/// Something that a book says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    /// A process took the book: whatever was in flight before belongs to one that is gone.
    Taken {
        /// The name of this run, different from all others.
        run: Cow<'a, str>,
        /// When.
        at: Wall,
    },
    /// A call came, and this is its fate if nothing more is heard of it.
    Begun {
        /// Its number in this run.
        call: u64,
        /// When.
        at: Wall,
        /// What it is about.
        subject: Subject,
        /// Its fate if its process ends now.
        if_orphaned: Outcome,
    },
    /// Its fate would be another one now: it was sent, or has to wait to be sent again.
    Changed {
        /// Its number in this run.
        call: u64,
        /// Its fate if its process ends now.
        if_orphaned: Outcome,
    },
    /// A call ended.
    Ended {
        /// Its number in this run.
        call: u64,
        /// What it was about and when it came, if there is no other line about it.
        begun: Option<(Wall, Subject)>,
        /// How it ended.
        settled: Settled,
    },
}

/// A line as it is read. Which members are there tells what it says.
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
    arguments: Option<&'a RawValue>,
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
    /// What a line says; `None` if it is not one of ours, or not whole.
    pub fn read(line: &'a [u8]) -> Option<Self> {
        let mut shape: Shape<'a> = serde_json::from_slice(line).ok()?;
        if let Some(run) = shape.run {
            return Some(Record::Taken { run, at: wall(shape.at_ms?) });
        }
        let call = shape.call?;
        let begun = match (shape.at_ms, shape.server.take()) {
            (Some(at), Some(server)) => {
                let subject = Subject {
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
                outcome: Outcome::named(&outcome)?,
                // A code of another version of gripfast is no reason to lose the row.
                code: shape.code.and_then(|code| Code::named(&code)),
                attempts: shape.attempts?,
                replays: shape.replays.unwrap_or_default(),
            };
            return Some(Record::Ended { call, begun, settled });
        }
        let if_orphaned = Outcome::named(&shape.if_orphaned?)?;
        Some(match begun {
            Some((at, subject)) => Record::Begun { call, at, subject, if_orphaned },
            None => Record::Changed { call, if_orphaned },
        })
    }
}

fn wall(millis: u64) -> Wall {
    Wall::at(Duration::from_millis(millis))
}

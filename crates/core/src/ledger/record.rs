//! One line of a book, to and from JSON.
//!
//! A call has a line when it goes out or has to wait, one for every change of what would be known about it
//! if nothing more were heard, and one when it ends; a call that ends before anything was written has one
//! line with everything.

use super::{Settled, Subject};
use crate::failure::{Code, Outcome};
use crate::time::Wall;
use serde::{Deserialize, Serialize};
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
        subject: Cow<'a, Subject>,
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
        begun: Option<(Wall, Cow<'a, Subject>)>,
        /// How it ended.
        settled: Settled,
    },
}

/// A line as it is written. Which members are there tells what it says.
#[derive(Serialize, Deserialize, Default)]
struct Shape<'a> {
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    run: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    client: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    server: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    tool: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    sha256: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    if_orphaned: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    outcome: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    code: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replays: Option<u32>,
}

impl Record<'_> {
    /// Writes the line, with its end.
    pub fn write(&self, out: &mut Vec<u8>) {
        let shape = match self {
            Self::Taken { run, at } => {
                Shape { run: Some(Cow::Borrowed(run)), at_ms: Some(millis(*at)), ..Shape::default() }
            }
            Self::Begun { call, at, subject, if_orphaned } => Shape {
                call: Some(*call),
                if_orphaned: Some(Cow::Borrowed(if_orphaned.word())),
                ..Shape::about(*at, subject)
            },
            Self::Changed { call, if_orphaned } => Shape {
                call: Some(*call),
                if_orphaned: Some(Cow::Borrowed(if_orphaned.word())),
                ..Shape::default()
            },
            Self::Ended { call, begun, settled } => Shape {
                call: Some(*call),
                ended_ms: Some(millis(settled.ended)),
                took_us: Some(u64::try_from(settled.took.as_micros()).unwrap_or(u64::MAX)),
                outcome: Some(Cow::Borrowed(settled.outcome.word())),
                code: settled.code.map(|code| Cow::Borrowed(code.word())),
                attempts: Some(settled.attempts),
                replays: (settled.replays > 0).then_some(settled.replays),
                ..begun.as_ref().map(|(at, subject)| Shape::about(*at, subject)).unwrap_or_default()
            },
        };
        serde_json::to_writer(&mut *out, &shape)
            .expect("a shape has text for keys and no values that can fail");
        out.push(b'\n');
    }
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
                    client: shape.client.map(Cow::into_owned).unwrap_or_default(),
                    server: server.into_owned(),
                    tool: shape.tool.map(Cow::into_owned).unwrap_or_default(),
                    digest: shape.sha256.map(Cow::into_owned),
                    arguments: shape.arguments.map(|arguments| arguments.get().to_owned()),
                };
                Some((wall(at), Cow::Owned(subject)))
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

impl<'a> Shape<'a> {
    fn about(at: Wall, subject: &'a Subject) -> Self {
        Self {
            at_ms: Some(millis(at)),
            client: (!subject.client.is_empty()).then_some(Cow::Borrowed(&*subject.client)),
            server: Some(Cow::Borrowed(&subject.server)),
            tool: Some(Cow::Borrowed(&subject.tool)),
            sha256: subject.digest.as_deref().map(Cow::Borrowed),
            // Read as JSON when it was taken over; what is not would tear the line.
            arguments: subject.arguments.as_deref().and_then(|text| serde_json::from_str(text).ok()),
            ..Self::default()
        }
    }
}

fn millis(at: Wall) -> u64 {
    u64::try_from(at.since_epoch().as_millis()).unwrap_or(u64::MAX)
}

fn wall(millis: u64) -> Wall {
    Wall::at(Duration::from_millis(millis))
}

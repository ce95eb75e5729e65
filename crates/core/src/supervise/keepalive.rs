//! When silence on a link is worth a question, which question, and how long the answer may take.

use super::spec::KeepaliveSpec;
use crate::time::Mono;
use std::time::Duration;

/// The question that finds out whether a server still listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// `ping`, in the legacy era.
    Ping,
    /// `server/discover`, in the modern era, which has no ping.
    Discover,
    /// `tools/list`, for a server that knows neither.
    ListTools,
}

impl Probe {
    /// The question to fall back to when the server does not know this one.
    pub const fn instead(self) -> Self {
        match self {
            Self::Ping | Self::Discover | Self::ListTools => Self::ListTools,
        }
    }
}

/// The keepalive schedule of one link.
#[derive(Debug, Clone)]
pub(super) struct Keepalive {
    spec: KeepaliveSpec,
    heard_at: Mono,
    /// The question that fits the server's era.
    first: Probe,
    probe: Probe,
    open: Option<Question>,
}

/// A question that was not answered yet.
#[derive(Debug, Clone, Copy)]
struct Question {
    asked_at: Mono,
    due: Mono,
    calls: CallsBefore,
    /// It is overdue, and calls that were sent before it are still under way.
    late: bool,
}

/// The calls that were under way on a link when a question was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CallsBefore {
    /// How many have not ended yet.
    pub(super) open: u32,
    /// The number of the next call that will be sent.
    pub(super) next: u64,
}

impl Keepalive {
    pub(super) fn new(spec: KeepaliveSpec, probe: Probe, now: Mono) -> Self {
        Self { spec, heard_at: now, first: probe, probe, open: None }
    }

    /// Asks by these rules from now on.
    pub(super) fn revise(&mut self, spec: KeepaliveSpec) {
        self.spec = spec;
    }

    /// The question that fits the server's era, whether or not the server answers it.
    pub(super) fn first(&self) -> Probe {
        self.first
    }

    /// When the server was last heard.
    pub(super) fn heard_at(&self) -> Mono {
        self.heard_at
    }

    /// The server was heard, in whatever way.
    pub(super) fn heard(&mut self, now: Mono) {
        self.heard_at = now;
    }

    /// The next time this schedule wants attention. A question that is late waits for calls to end, not for a time.
    pub(super) fn wake_at(&self) -> Option<Mono> {
        match self.open {
            Some(Question { late: true, .. }) => None,
            Some(question) => Some(question.due),
            None => self.spec.interval.map(|interval| self.heard_at + interval),
        }
    }

    /// Whether the link has been silent for long enough to be asked, calls under way or not.
    pub(super) fn is_due(&self, now: Mono) -> bool {
        self.open.is_none() && self.wake_at().is_some_and(|at| at <= now)
    }

    /// For how long the server has not answered, once that is too long.
    pub(super) fn overdue(&self, now: Mono) -> Option<Duration> {
        self.open.filter(|question| question.due <= now).map(|question| now - question.asked_at)
    }

    /// How many calls that were sent before the open question are still under way. A server that is busy with one of
    /// them may answer nothing else, so its link is not given up before they have ended.
    pub(super) fn calls_before(&self) -> u32 {
        self.open.map_or(0, |question| question.calls.open)
    }

    /// The question is overdue, and calls are under way that were sent before it.
    pub(super) fn wait_for_calls(&mut self) {
        if let Some(question) = &mut self.open {
            question.late = true;
        }
    }

    /// Whether a question is open.
    pub(super) fn is_asking(&self) -> bool {
        self.open.is_some()
    }

    /// Whether a question is overdue and only calls that were sent before it keep the link.
    pub(super) fn is_late(&self) -> bool {
        self.open.is_some_and(|question| question.late)
    }

    /// A call on this link has ended. Answers with how long a late question has been open, if this was the last call
    /// that kept the link; the question is closed then.
    pub(super) fn call_ended(&mut self, now: Mono, call: u64) -> Option<Duration> {
        let question = self.open.as_mut().filter(|question| call < question.calls.next)?;
        question.calls.open = question.calls.open.saturating_sub(1);
        let closed = self.open.take_if(|question| question.late && question.calls.open == 0)?;
        Some(now - closed.asked_at)
    }

    /// Asks, unless a question is open already: a caller who waits for the answer may have only `limit`. Answers with
    /// what to ask.
    pub(super) fn ask_within(&mut self, now: Mono, limit: Duration, calls: CallsBefore) -> Option<Probe> {
        let due = now + limit.min(self.spec.timeout);
        match &mut self.open {
            Some(question) => {
                question.due = question.due.min(due);
                None
            }
            None => {
                self.open = Some(Question { asked_at: now, due, calls, late: false });
                Some(self.probe)
            }
        }
    }

    /// The server refuses the question; remembered for this session. Answers with the other one to ask, if there is one
    /// left.
    pub(super) fn unsupported(&mut self, now: Mono) -> Option<Probe> {
        let calls = self.open.take().map(|question| question.calls).unwrap_or_default();
        let instead = self.probe.instead();
        if instead == self.probe {
            // It answered, if only to say no: it lives.
            self.heard(now);
            return None;
        }
        self.probe = instead;
        self.ask_within(now, self.spec.timeout, calls)
    }

    /// The question was answered.
    pub(super) fn answered(&mut self, now: Mono) {
        self.open = None;
        self.heard(now);
    }
}

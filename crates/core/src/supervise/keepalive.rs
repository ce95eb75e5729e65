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
    probe: Probe,
    open: Option<Question>,
}

/// A question that was not answered yet.
#[derive(Debug, Clone, Copy)]
struct Question {
    asked_at: Mono,
    due: Mono,
}

impl Keepalive {
    pub(super) fn new(spec: KeepaliveSpec, probe: Probe, now: Mono) -> Self {
        Self { spec, heard_at: now, probe, open: None }
    }

    /// Asks by these rules from now on.
    pub(super) fn revise(&mut self, spec: KeepaliveSpec) {
        self.spec = spec;
    }

    /// The question that this link's server answers.
    pub(super) fn probe(&self) -> Probe {
        self.probe
    }

    /// The server was heard, in whatever way.
    pub(super) fn heard(&mut self, now: Mono) {
        self.heard_at = now;
    }

    /// The next time this schedule wants attention. Calls in flight are proof enough that somebody will
    /// notice, and a busy server may answer late: no question is asked then.
    pub(super) fn wake_at(&self, in_flight: u32) -> Option<Mono> {
        match self.open {
            Some(question) => Some(question.due),
            None if in_flight > 0 => None,
            None => self.spec.interval.map(|interval| self.heard_at + interval),
        }
    }

    /// Whether an idle link has been silent for long enough to be asked.
    pub(super) fn is_due(&self, now: Mono, in_flight: u32) -> bool {
        self.open.is_none() && self.wake_at(in_flight).is_some_and(|at| at <= now)
    }

    /// For how long the server has not answered, once that is too long.
    pub(super) fn overdue(&self, now: Mono) -> Option<Duration> {
        self.open.filter(|question| question.due <= now).map(|question| now - question.asked_at)
    }

    /// Asks, unless a question is open already. Answers with what to ask.
    pub(super) fn ask(&mut self, now: Mono) -> Option<Probe> {
        self.ask_within(now, self.spec.timeout)
    }

    /// The same for somebody who waits for the answer and has only so much time. An open question has it too.
    pub(super) fn ask_within(&mut self, now: Mono, limit: Duration) -> Option<Probe> {
        let due = now + limit.min(self.spec.timeout);
        match &mut self.open {
            Some(question) => {
                question.due = question.due.min(due);
                None
            }
            None => {
                self.open = Some(Question { asked_at: now, due });
                Some(self.probe)
            }
        }
    }

    /// The server does not know the question; remembered for this link. Answers with the other one to
    /// ask, if there is one left.
    pub(super) fn unsupported(&mut self, now: Mono) -> Option<Probe> {
        self.open = None;
        let instead = self.probe.instead();
        if instead == self.probe {
            // It answered, if only to say no: it lives.
            self.heard(now);
            return None;
        }
        self.probe = instead;
        self.ask(now)
    }

    /// The question was answered.
    pub(super) fn answered(&mut self, now: Mono) {
        self.open = None;
        self.heard(now);
    }
}

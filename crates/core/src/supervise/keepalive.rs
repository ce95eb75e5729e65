//! Keepalive: the time to probe a silent link, the probe request and its deadline.

use super::spec::KeepaliveSpec;
use crate::time::Mono;
use std::time::Duration;

/// Probe request that checks whether a server still answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// `ping`, in the legacy era.
    Ping,
    /// `server/discover`, in the modern era, which has no ping.
    Discover,
    /// `tools/list`, for servers that support neither.
    ListTools,
}

impl Probe {
    /// The probe to use when the server does not support this one.
    pub const fn fallback(self) -> Self {
        match self {
            Self::Ping | Self::Discover | Self::ListTools => Self::ListTools,
        }
    }
}

/// The keepalive schedule of one link.
#[derive(Debug, Clone)]
pub(super) struct Keepalive {
    spec: KeepaliveSpec,
    last_received: Mono,
    /// The probe for the server's era.
    era_probe: Probe,
    probe: Probe,
    pending: Option<PendingProbe>,
}

/// A probe without an answer so far.
#[derive(Debug, Clone, Copy)]
struct PendingProbe {
    sent_at: Mono,
    due: Mono,
    calls: CallsBefore,
    /// It is overdue, and calls that were sent before it are still in flight.
    late: bool,
}

/// The calls in flight on a link when a probe was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CallsBefore {
    /// Number of calls that have not ended yet.
    pub(super) in_flight: u32,
    /// The number of the next call.
    pub(super) next: u64,
}

impl Keepalive {
    pub(super) fn new(spec: KeepaliveSpec, probe: Probe, now: Mono) -> Self {
        Self { spec, last_received: now, era_probe: probe, probe, pending: None }
    }

    /// Applies a changed config.
    pub(super) fn reconfigure(&mut self, spec: KeepaliveSpec) {
        self.spec = spec;
    }

    /// The probe for the server's era, whether or not the server supports it.
    pub(super) fn era_probe(&self) -> Probe {
        self.era_probe
    }

    /// The time of the last message from the server.
    pub(super) fn last_received(&self) -> Mono {
        self.last_received
    }

    /// Records a message from the server.
    pub(super) fn received(&mut self, now: Mono) {
        self.last_received = now;
    }

    /// The time of the next timeout. A late probe waits for calls to end, not for a time.
    pub(super) fn wake_at(&self) -> Option<Mono> {
        match self.pending {
            Some(PendingProbe { late: true, .. }) => None,
            Some(pending) => Some(pending.due),
            None => self.spec.interval.map(|interval| self.last_received + interval),
        }
    }

    /// Returns whether the link was silent for long enough to be probed, with or without calls in flight.
    pub(super) fn is_due(&self, now: Mono) -> bool {
        self.pending.is_none() && self.wake_at().is_some_and(|at| at <= now)
    }

    /// The time since the pending probe was sent, if it is overdue.
    pub(super) fn overdue(&self, now: Mono) -> Option<Duration> {
        self.pending.filter(|pending| pending.due <= now).map(|pending| now - pending.sent_at)
    }

    /// The number of calls that were sent before the pending probe and are still in flight. A server that is busy with
    /// one of them may answer nothing else, so its link is kept until they have ended.
    pub(super) fn calls_before(&self) -> u32 {
        self.pending.map_or(0, |pending| pending.calls.in_flight)
    }

    /// Marks the probe as late: it is overdue, and calls that were sent before it are in flight.
    pub(super) fn wait_for_calls(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.late = true;
        }
    }

    /// Returns whether a probe is pending.
    pub(super) fn is_probing(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns whether a probe is overdue and the link is kept only because of calls that were sent before it.
    pub(super) fn is_late(&self) -> bool {
        self.pending.is_some_and(|pending| pending.late)
    }

    /// Records the end of a call on this link. If it was the last call that kept the link of a late probe, the probe is
    /// dropped, and its age is returned.
    pub(super) fn call_ended(&mut self, now: Mono, call: u64) -> Option<Duration> {
        let pending = self.pending.as_mut().filter(|pending| call < pending.calls.next)?;
        pending.calls.in_flight = pending.calls.in_flight.saturating_sub(1);
        let closed = self.pending.take_if(|pending| pending.late && pending.calls.in_flight == 0)?;
        Some(now - closed.sent_at)
    }

    /// Starts a probe, unless one is pending. `limit` shortens the deadline of either. Returns the probe to send.
    pub(super) fn start_probe(&mut self, now: Mono, limit: Duration, calls: CallsBefore) -> Option<Probe> {
        let due = now + limit.min(self.spec.timeout);
        match &mut self.pending {
            Some(pending) => {
                pending.due = pending.due.min(due);
                None
            }
            None => {
                self.pending = Some(PendingProbe { sent_at: now, due, calls, late: false });
                Some(self.probe)
            }
        }
    }

    /// The server does not support the probe, which is remembered for this session. Returns the fallback to send, if
    /// there is another one.
    pub(super) fn use_fallback(&mut self, now: Mono) -> Option<Probe> {
        let calls = self.pending.take().map(|pending| pending.calls).unwrap_or_default();
        let instead = self.probe.fallback();
        if instead == self.probe {
            // It answered, even if with a refusal: it is alive.
            self.received(now);
            return None;
        }
        self.probe = instead;
        self.start_probe(now, self.spec.timeout, calls)
    }

    /// Records the answer to the probe.
    pub(super) fn answered(&mut self, now: Mono) {
        self.pending = None;
        self.received(now);
    }
}

//! Standby links: a spare that takes over when the present link is lost, or a replacement for a working one. Replaced
//! links stay open until their last call has ended.

use super::{Action, BusyPrincipals, LinkKind, UpstreamMachine};
use crate::event::{Event, ReplaceCause};
use crate::failure::Failure;
use crate::ids::{Epoch, StandbyId};
use crate::supervise::keepalive::Probe;
use crate::supervise::link::{CatalogState, Link};
use crate::supervise::status::SpareState;
use crate::time::{Mono, Now};
use std::time::Duration;

/// Role of a standby link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandbyRole {
    /// Takes over when the present link is lost.
    Spare,
    /// Takes over as soon as it is listed.
    Replacement,
}

/// The standby link, if there is one, and the history of earlier ones.
#[derive(Debug)]
pub(super) struct StandbyLinks {
    state: StandbyLink,
    last_id: StandbyId,
    /// Consecutive spares that did not last.
    failed_spares: u32,
    /// Earliest time for the next spare.
    spare_not_before: Mono,
    /// Earliest time for a replacement because of age or memory.
    recycle_not_before: Mono,
    /// Set if the present link was made with an older config: the time to try its replacement.
    pub(super) outdated: Option<Mono>,
    /// The longest duration of a call on the present link, by any config since it was made.
    pub(super) longest_call: Duration,
}

#[derive(Debug)]
enum StandbyLink {
    None,
    Making { id: StandbyId, role: StandbyRole, give_up_at: Mono },
    Spare { id: StandbyId, since: Mono },
}

impl StandbyLinks {
    pub(super) fn new(now: Mono) -> Self {
        Self {
            state: StandbyLink::None,
            last_id: StandbyId::default(),
            failed_spares: 0,
            spare_not_before: now,
            recycle_not_before: now,
            outdated: None,
            longest_call: Duration::ZERO,
        }
    }
}

/// A replaced link that is still used by calls that started on it.
#[derive(Debug)]
pub(super) struct RetiredLink {
    link_number: u64,
    epoch: Epoch,
    calls: u32,
    until: Mono,
}

impl UpstreamMachine {
    /// Lifetime after which a spare counts as stable.
    const SPARE_LASTED: Duration = Duration::from_secs(60);
    /// The longest pause between two attempts to make a spare.
    const SPARE_PAUSE_MAX: Duration = Duration::from_secs(60);
    /// Pause after a failed replacement, unless an operator requests one.
    const RECYCLE_AGAIN_AFTER: Duration = Duration::from_secs(60);
    /// Interval of memory measurements.
    const MEASURE_EVERY: Duration = Duration::from_secs(10);
    /// Maximum number of replaced links in use. Beyond it the oldest is closed with its calls.
    const MAX_RETIRED: usize = 4;

    /// Returns whether the link is usable without doubts or failures.
    pub(super) fn is_healthy(&self) -> bool {
        let trusted = matches!(&self.link, Link::Ready(ready) if ready.suspect.is_none());
        trusted && self.circuit.consecutive_failures() == 0
    }

    /// Replaces the present link by a new one, which is made first.
    pub(super) fn replace(&mut self, now: Mono, why: ReplaceCause) {
        self.drop_standby();
        self.events.push_back(Event::Replacing { cause: why });
        self.make_standby(now, StandbyRole::Replacement);
    }

    /// Makes the replacement with this number, connected and listed, the present link. Returns its epoch, or `None` if
    /// it is not wanted any more and has to be dropped.
    pub fn take_over(&mut self, now: Now, id: StandbyId, probe: Probe) -> Option<Epoch> {
        let made = matches!(
            self.standby.state,
            StandbyLink::Making { id: made, role: StandbyRole::Replacement, .. } if made == id
        );
        let old = match &self.link {
            Link::Ready(ready) => ready.epoch,
            // Its session is being renewed, which is not needed any more.
            Link::Renewing { of, .. } => *of,
            Link::Dormant
            | Link::Connecting { .. }
            | Link::Waiting { .. }
            | Link::Parked { .. }
            | Link::Blocked { .. }
            | Link::Draining { .. }
            | Link::Stopped => return None,
        };
        if !made {
            return None;
        }
        self.standby.state = StandbyLink::None;
        self.retire(now.mono, old);
        self.epoch = self.epoch.next();
        self.events.push_back(Event::Replaced);
        // It was listed a moment ago; later changes are unknown.
        self.become_ready(now.mono, self.epoch, probe, CatalogState::Listing { again: false });
        self.report_state(now.mono);
        Some(self.epoch)
    }

    pub(super) fn on_spare_up(&mut self, now: Mono, id: StandbyId) {
        let StandbyLink::Making { id: made, role: StandbyRole::Spare, .. } = self.standby.state else {
            return;
        };
        if made == id {
            self.standby.state = StandbyLink::Spare { id, since: now };
            self.events.push_back(Event::SpareReady);
        }
    }

    pub(super) fn on_standby_down(&mut self, now: Mono, id: StandbyId, failure: &Failure) {
        match self.standby.state {
            StandbyLink::Making { id: made, role, .. } if made == id => {
                self.standby_failed(now, role, failure)
            }
            StandbyLink::Spare { id: spare, since } if spare == id => {
                if now - since >= Self::SPARE_LASTED {
                    self.standby.failed_spares = 0;
                }
                self.standby_failed(now, StandbyRole::Spare, failure);
            }
            StandbyLink::None | StandbyLink::Making { .. } | StandbyLink::Spare { .. } => {}
        }
        self.maintain_standby(now);
    }

    pub(super) fn on_measured(&mut self, now: Mono, epoch: Epoch, resident: u64) {
        let limit = self.spec.recycle.max_rss;
        if limit.is_none_or(|limit| resident <= limit) || self.ready_for_mut(epoch).is_none() {
            return;
        }
        if self.may_recycle(now) {
            self.replace(now, ReplaceCause::Memory { resident });
        }
    }

    /// Handles the timers of a standby link, also after the present link became healthy.
    pub(super) fn maintain_standby(&mut self, now: Mono) {
        if let StandbyLink::Making { role, give_up_at, .. } = self.standby.state
            && give_up_at <= now
        {
            self.actions.push_back(Action::DropStandby);
            let limit = self.connect_limit.next(&self.spec.timeouts);
            self.standby_failed(now, role, &Failure::TimedOut(limit));
        }
        let none_there = matches!(self.standby.state, StandbyLink::None);
        if none_there && self.outdated_due().is_some_and(|at| at <= now) {
            self.replace(now, ReplaceCause::ConfigChanged);
        } else if none_there && self.wants_spare() && self.standby.spare_not_before <= now {
            self.make_standby(now, StandbyRole::Spare);
        }
    }

    /// Replaces a link that has reached its lifetime, and measures the memory of its process.
    pub(super) fn maintain_age(&mut self, now: Mono) {
        let may_recycle = self.may_recycle(now);
        let Link::Ready(ready) = &mut self.link else { return };
        if ready.measure_at.is_some_and(|at| at <= now) {
            ready.measure_at = Some(now + Self::MEASURE_EVERY);
            self.actions.push_back(Action::MeasureMemory { epoch: ready.epoch });
        }
        if ready.recycle_at.is_some_and(|at| at <= now) {
            ready.recycle_at = Some(now + Self::RECYCLE_AGAIN_AFTER);
            if may_recycle {
                self.replace(now, ReplaceCause::Age);
            }
        }
    }

    pub(super) fn close_finished_retired(&mut self, now: Mono) {
        let over = |retired: &RetiredLink| retired.calls == 0 || retired.until <= now;
        for retired in self.retired.extract_if(.., |retired| over(retired)) {
            self.actions.push_back(Action::CloseRetired { epoch: retired.epoch });
        }
    }

    pub(super) fn standby_due(&self) -> Option<Mono> {
        match self.standby.state {
            StandbyLink::Making { give_up_at, .. } => Some(give_up_at),
            StandbyLink::None if self.wants_spare() => Some(self.standby.spare_not_before),
            StandbyLink::None => self.outdated_due(),
            StandbyLink::Spare { .. } => None,
        }
    }

    pub(super) fn retired_due(&self) -> Option<Mono> {
        self.retired.iter().map(|retired| retired.until).min()
    }

    pub(super) fn is_replacing(&self) -> bool {
        matches!(self.standby.state, StandbyLink::Making { role: StandbyRole::Replacement, .. })
    }

    /// The time at which a link of an older config is replaced.
    fn outdated_due(&self) -> Option<Mono> {
        self.standby.outdated.filter(|_| matches!(self.link, Link::Ready(_)))
    }

    pub(super) fn is_outdated(&self) -> bool {
        self.standby.outdated.is_some()
    }

    pub(super) fn spare_state(&self) -> Option<SpareState> {
        let wanted = self.spec.spare && self.kind == LinkKind::Process;
        wanted.then_some(match self.standby.state {
            StandbyLink::Spare { .. } => SpareState::Ready,
            StandbyLink::Making { role: StandbyRole::Spare, .. } => SpareState::Starting,
            StandbyLink::Making { role: StandbyRole::Replacement, .. } | StandbyLink::None => {
                SpareState::Missing
            }
        })
    }

    /// Takes the spare for the next link. A replacement in progress is dropped, because there is nothing left to
    /// replace.
    pub(super) fn take_spare(&mut self) -> Option<StandbyId> {
        match self.standby.state {
            StandbyLink::Spare { id, .. } => {
                self.standby.state = StandbyLink::None;
                self.standby.failed_spares = 0;
                self.events.push_back(Event::SpareUsed);
                Some(id)
            }
            StandbyLink::Making { role: StandbyRole::Replacement, .. } => {
                self.drop_standby();
                None
            }
            StandbyLink::Making { role: StandbyRole::Spare, .. } | StandbyLink::None => None,
        }
    }

    pub(super) fn drop_standby(&mut self) {
        match self.standby.state {
            StandbyLink::Making { .. } | StandbyLink::Spare { .. } => {
                self.standby.state = StandbyLink::None;
                self.actions.push_back(Action::DropStandby);
            }
            StandbyLink::None => {}
        }
    }

    /// The time at which a link that starts now reaches its lifetime. With jitter, so that many links do not recycle
    /// together.
    pub(super) fn recycle_at(&mut self, now: Mono) -> Option<Mono> {
        let lifetime = self.spec.recycle.max_lifetime?;
        Some(now + self.jitter.spread_below(lifetime))
    }

    pub(super) fn measure_at(&self, now: Mono) -> Option<Mono> {
        let measured = self.kind == LinkKind::Process && self.spec.recycle.max_rss.is_some();
        measured.then_some(now + Self::MEASURE_EVERY)
    }

    /// Starts counting calls for a new link.
    pub(super) fn begin_link(&mut self) {
        self.link_number += 1;
        self.calls_on_link = 0;
        self.paused = 0;
        self.principals.begin_link();
        self.given_up = BusyPrincipals::None;
        self.standby.outdated = None;
        self.standby.longest_call = self.spec.timeouts.call;
    }

    pub(super) fn join_link(&mut self) -> u64 {
        self.calls_on_link += 1;
        self.link_number
    }

    pub(super) fn leave_link(&mut self, link_number: u64) {
        if link_number == self.link_number {
            self.calls_on_link -= 1;
            return;
        }
        // Neither, if its link was lost: its calls are not counted any more.
        if let Some(at) = self.retired.iter().position(|retired| retired.link_number == link_number) {
            self.retired[at].calls -= 1;
            if self.retired[at].calls == 0 {
                let RetiredLink { epoch, .. } = self.retired.remove(at);
                self.actions.push_back(Action::CloseRetired { epoch });
            }
        }
    }

    pub(super) fn close_retired(&mut self) {
        for RetiredLink { epoch, .. } in self.retired.drain(..) {
            self.actions.push_back(Action::CloseRetired { epoch });
        }
    }

    fn retire(&mut self, now: Mono, epoch: Epoch) {
        let retired = RetiredLink {
            link_number: self.link_number,
            epoch,
            calls: self.calls_on_link,
            // No call lasts longer.
            until: now + self.standby.longest_call,
        };
        self.retired.push(retired);
        if self.retired.len() > Self::MAX_RETIRED {
            let RetiredLink { epoch, .. } = self.retired.remove(0);
            self.actions.push_back(Action::CloseRetired { epoch });
        }
        self.close_finished_retired(now);
        self.begin_link();
    }

    fn wants_spare(&self) -> bool {
        let listed = matches!(&self.link, Link::Ready(ready) if ready.catalog == CatalogState::Fresh);
        self.spec.spare && self.kind == LinkKind::Process && listed && !self.is_outdated()
    }

    /// Returns whether a link may be recycled: it is not in doubt, and no other replacement is in progress.
    fn may_recycle(&self, now: Mono) -> bool {
        !self.is_replacing() && self.standby.recycle_not_before <= now && self.is_healthy()
    }

    fn make_standby(&mut self, now: Mono, role: StandbyRole) {
        let id = self.standby.last_id.next();
        self.standby.last_id = id;
        // A replacement is listed too, with the same limit again.
        let limit = self.connect_limit.next(&self.spec.timeouts);
        let give_up_at = now
            + match role {
                StandbyRole::Spare => limit,
                StandbyRole::Replacement => limit * 2,
            };
        self.standby.state = StandbyLink::Making { id, role, give_up_at };
        self.actions.push_back(Action::ConnectStandby { id, role });
    }

    fn standby_failed(&mut self, now: Mono, role: StandbyRole, failure: &Failure) {
        let cause = failure.to_string();
        self.standby.state = StandbyLink::None;
        match role {
            StandbyRole::Spare => {
                let pause =
                    Duration::from_secs(1u64 << self.standby.failed_spares.min(6)).min(Self::SPARE_PAUSE_MAX);
                self.standby.failed_spares = self.standby.failed_spares.saturating_add(1);
                self.standby.spare_not_before = now + self.jitter.spread(pause);
                self.events.push_back(Event::SpareLost { cause });
            }
            StandbyRole::Replacement => {
                let again_at = now + Self::RECYCLE_AGAIN_AFTER;
                self.standby.recycle_not_before = again_at;
                self.standby.outdated = self.standby.outdated.map(|_| again_at);
                self.events.push_back(Event::ReplacementFailed { cause });
            }
        }
    }
}

//! A second link beside the present one: a spare that takes over when the first is lost, or a replacement
//! for one that still works. Links that were replaced live on until their last call has ended.

use super::{Action, AtWorkFor, LinkKind, Upstream};
use crate::event::{Event, ReplaceCause};
use crate::failure::Failure;
use crate::ids::{Epoch, SecondId};
use crate::supervise::keepalive::Probe;
use crate::supervise::link::{CatalogState, Link};
use crate::supervise::status::SpareState;
use crate::time::{Mono, Now};
use std::time::Duration;

/// What a second link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// To take over when the present link is lost.
    Spare,
    /// To take over as soon as it is listed.
    Replacement,
}

/// The second link, if there is one, and what is remembered of those before.
#[derive(Debug)]
pub(super) struct SecondLink {
    state: Second,
    last_id: SecondId,
    /// Spares in a row that did not last.
    misses: u32,
    /// A spare is not made before this time.
    spare_not_before: Mono,
    /// A link is not replaced for age or size before this time.
    recycle_not_before: Mono,
    /// The present link is one of an older config; when its replacement is to be tried.
    pub(super) outdated: Option<Mono>,
    /// The longest that a call on the present link may last, by whichever config it began.
    pub(super) longest_call: Duration,
}

#[derive(Debug)]
enum Second {
    None,
    Making { id: SecondId, role: Role, give_up_at: Mono },
    Spare { id: SecondId, since: Mono },
}

impl SecondLink {
    pub(super) fn new(now: Mono) -> Self {
        Self {
            state: Second::None,
            last_id: SecondId::default(),
            misses: 0,
            spare_not_before: now,
            recycle_not_before: now,
            outdated: None,
            longest_call: Duration::ZERO,
        }
    }
}

/// A link that was replaced and is still in use by the calls that began on it.
#[derive(Debug)]
pub(super) struct Retired {
    link_number: u64,
    epoch: Epoch,
    calls: u32,
    until: Mono,
}

impl Upstream {
    /// A spare that lived this long was a good one.
    const SPARE_LASTED: Duration = Duration::from_secs(60);
    /// The longest pause between two attempts to have a spare.
    const SPARE_PAUSE_MAX: Duration = Duration::from_secs(60);
    /// After a replacement failed, the next one waits this long unless somebody asks for it.
    const RECYCLE_AGAIN_AFTER: Duration = Duration::from_secs(60);
    /// How often the memory of a child is looked at.
    const MEASURE_EVERY: Duration = Duration::from_secs(10);
    /// Links that may be in use after they were replaced. Beyond it the oldest is dropped with its calls.
    const MOST_RETIRED: usize = 4;

    /// Whether the link is in use and nothing speaks against it.
    pub(super) fn works(&self) -> bool {
        let trusted = matches!(&self.link, Link::Ready(ready) if ready.suspect.is_none());
        trusted && self.circuit.consecutive_failures() == 0
    }

    /// Has the present link replaced by a new one, which is made first.
    pub(super) fn replace(&mut self, now: Mono, why: ReplaceCause) {
        self.drop_second();
        self.events.push_back(Event::Replacing { why });
        self.make_second(now, Role::Replacement);
    }

    /// The replacement of this number is connected and listed. Answers with its epoch if it is wanted: it
    /// is the present link from this moment on. Otherwise it is to be dropped.
    pub fn take_over(&mut self, now: Now, id: SecondId, probe: Probe) -> Option<Epoch> {
        let made = matches!(
            self.second.state,
            Second::Making { id: made, role: Role::Replacement, .. } if made == id
        );
        let old = match &self.link {
            Link::Ready(ready) => ready.epoch,
            // Its session is being renewed meanwhile, for which nobody has to wait any more.
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
        self.second.state = Second::None;
        self.retire(now.mono, old);
        self.epoch = self.epoch.next();
        self.events.push_back(Event::Replaced);
        // It was listed a moment ago; what it said since then is not known.
        self.become_ready(now.mono, self.epoch, probe, CatalogState::Listing { again: false });
        self.show(now.mono);
        Some(self.epoch)
    }

    pub(super) fn on_spare_up(&mut self, now: Mono, id: SecondId) {
        let Second::Making { id: made, role: Role::Spare, .. } = self.second.state else { return };
        if made == id {
            self.second.state = Second::Spare { id, since: now };
            self.events.push_back(Event::SpareReady);
        }
    }

    pub(super) fn on_second_down(&mut self, now: Mono, id: SecondId, failure: &Failure) {
        match self.second.state {
            Second::Making { id: made, role, .. } if made == id => self.second_failed(now, role, failure),
            Second::Spare { id: spare, since } if spare == id => {
                if now - since >= Self::SPARE_LASTED {
                    self.second.misses = 0;
                }
                self.second_failed(now, Role::Spare, failure);
            }
            Second::None | Second::Making { .. } | Second::Spare { .. } => {}
        }
        self.tend_second(now);
    }

    pub(super) fn on_measured(&mut self, now: Mono, epoch: Epoch, resident: u64) {
        let limit = self.spec.recycle.max_rss;
        if limit.is_none_or(|limit| resident <= limit) || self.ready_at(epoch).is_none() {
            return;
        }
        if self.may_recycle(now) {
            self.replace(now, ReplaceCause::Memory { resident });
        }
    }

    /// What a second link may need when time has passed, or when the present one has become healthy.
    pub(super) fn tend_second(&mut self, now: Mono) {
        if let Second::Making { role, give_up_at, .. } = self.second.state
            && give_up_at <= now
        {
            self.actions.push_back(Action::DropSecond);
            let limit = self.connect_limit.next(&self.spec.timeouts);
            self.second_failed(now, role, &Failure::TimedOut(limit));
        }
        let none_there = matches!(self.second.state, Second::None);
        if none_there && self.outdated_due().is_some_and(|at| at <= now) {
            self.replace(now, ReplaceCause::Changed);
        } else if none_there && self.wants_spare() && self.second.spare_not_before <= now {
            self.make_second(now, Role::Spare);
        }
    }

    /// Replaces a link that has lived long enough, and looks at the memory of its child.
    pub(super) fn tend_age(&mut self, now: Mono) {
        let may_recycle = self.may_recycle(now);
        let Link::Ready(ready) = &mut self.link else { return };
        if ready.measure_at.is_some_and(|at| at <= now) {
            ready.measure_at = Some(now + Self::MEASURE_EVERY);
            self.actions.push_back(Action::Measure { epoch: ready.epoch });
        }
        if ready.recycle_at.is_some_and(|at| at <= now) {
            ready.recycle_at = Some(now + Self::RECYCLE_AGAIN_AFTER);
            if may_recycle {
                self.replace(now, ReplaceCause::Age);
            }
        }
    }

    pub(super) fn tend_retired(&mut self, now: Mono) {
        let over = |retired: &Retired| retired.calls == 0 || retired.until <= now;
        for retired in self.retired.extract_if(.., |retired| over(retired)) {
            self.actions.push_back(Action::HangUpRetired { epoch: retired.epoch });
        }
    }

    pub(super) fn second_due(&self) -> Option<Mono> {
        match self.second.state {
            Second::Making { give_up_at, .. } => Some(give_up_at),
            Second::None if self.wants_spare() => Some(self.second.spare_not_before),
            Second::None => self.outdated_due(),
            Second::Spare { .. } => None,
        }
    }

    pub(super) fn retired_due(&self) -> Option<Mono> {
        self.retired.iter().map(|retired| retired.until).min()
    }

    pub(super) fn is_replacing(&self) -> bool {
        matches!(self.second.state, Second::Making { role: Role::Replacement, .. })
    }

    /// When a link of an older config is to be replaced.
    fn outdated_due(&self) -> Option<Mono> {
        self.second.outdated.filter(|_| matches!(self.link, Link::Ready(_)))
    }

    pub(super) fn is_outdated(&self) -> bool {
        self.second.outdated.is_some()
    }

    pub(super) fn spare_state(&self) -> Option<SpareState> {
        let wanted = self.spec.spare && self.kind == LinkKind::Process;
        wanted.then_some(match self.second.state {
            Second::Spare { .. } => SpareState::Ready,
            Second::Making { role: Role::Spare, .. } => SpareState::Starting,
            Second::Making { role: Role::Replacement, .. } | Second::None => SpareState::Missing,
        })
    }

    /// The spare, for whoever needs a link now. A replacement under way has nothing to replace any more.
    pub(super) fn take_spare(&mut self) -> Option<SecondId> {
        match self.second.state {
            Second::Spare { id, .. } => {
                self.second.state = Second::None;
                self.second.misses = 0;
                self.events.push_back(Event::SpareUsed);
                Some(id)
            }
            Second::Making { role: Role::Replacement, .. } => {
                self.drop_second();
                None
            }
            Second::Making { role: Role::Spare, .. } | Second::None => None,
        }
    }

    pub(super) fn drop_second(&mut self) {
        match self.second.state {
            Second::Making { .. } | Second::Spare { .. } => {
                self.second.state = Second::None;
                self.actions.push_back(Action::DropSecond);
            }
            Second::None => {}
        }
    }

    /// When a link that begins now has lived long enough. A fleet that was started together does not
    /// recycle together.
    pub(super) fn recycle_at(&mut self, now: Mono) -> Option<Mono> {
        let lifetime = self.spec.recycle.max_lifetime?;
        Some(now + self.jitter.at_most(lifetime))
    }

    pub(super) fn measure_at(&self, now: Mono) -> Option<Mono> {
        let measured = self.kind == LinkKind::Process && self.spec.recycle.max_rss.is_some();
        measured.then_some(now + Self::MEASURE_EVERY)
    }

    /// A new link is in use; calls are counted for it from now on.
    pub(super) fn begin_link(&mut self) {
        self.link_number += 1;
        self.on_link = 0;
        self.paused = 0;
        self.principals.begin_link();
        self.given_up = AtWorkFor::Nobody;
        self.second.outdated = None;
        self.second.longest_call = self.spec.timeouts.call;
    }

    pub(super) fn join_link(&mut self) -> u64 {
        self.on_link += 1;
        self.link_number
    }

    pub(super) fn leave_link(&mut self, link_number: u64) {
        if link_number == self.link_number {
            self.on_link -= 1;
            return;
        }
        // Neither, if its link was lost: nobody waits for its calls.
        if let Some(at) = self.retired.iter().position(|retired| retired.link_number == link_number) {
            self.retired[at].calls -= 1;
            if self.retired[at].calls == 0 {
                let Retired { epoch, .. } = self.retired.remove(at);
                self.actions.push_back(Action::HangUpRetired { epoch });
            }
        }
    }

    pub(super) fn hang_up_retired(&mut self) {
        for Retired { epoch, .. } in self.retired.drain(..) {
            self.actions.push_back(Action::HangUpRetired { epoch });
        }
    }

    fn retire(&mut self, now: Mono, epoch: Epoch) {
        let retired = Retired {
            link_number: self.link_number,
            epoch,
            calls: self.on_link,
            // No call lasts longer.
            until: now + self.second.longest_call,
        };
        self.retired.push(retired);
        if self.retired.len() > Self::MOST_RETIRED {
            let Retired { epoch, .. } = self.retired.remove(0);
            self.actions.push_back(Action::HangUpRetired { epoch });
        }
        self.tend_retired(now);
        self.begin_link();
    }

    fn wants_spare(&self) -> bool {
        let listed = matches!(&self.link, Link::Ready(ready) if ready.catalog == CatalogState::Fresh);
        self.spec.spare && self.kind == LinkKind::Process && listed && !self.is_outdated()
    }

    /// A link that is in doubt has other troubles than its age, and one replacement at a time is enough.
    fn may_recycle(&self, now: Mono) -> bool {
        !self.is_replacing() && self.second.recycle_not_before <= now && self.works()
    }

    fn make_second(&mut self, now: Mono, role: Role) {
        let id = self.second.last_id.next();
        self.second.last_id = id;
        // A replacement is listed too, for which the same limit holds once more.
        let limit = self.connect_limit.next(&self.spec.timeouts);
        let give_up_at = now
            + match role {
                Role::Spare => limit,
                Role::Replacement => limit * 2,
            };
        self.second.state = Second::Making { id, role, give_up_at };
        self.actions.push_back(Action::DialSecond { id, role });
    }

    fn second_failed(&mut self, now: Mono, role: Role, failure: &Failure) {
        let cause = failure.to_string();
        self.second.state = Second::None;
        match role {
            Role::Spare => {
                let pause = Duration::from_secs(1u64 << self.second.misses.min(6)).min(Self::SPARE_PAUSE_MAX);
                self.second.misses = self.second.misses.saturating_add(1);
                self.second.spare_not_before = now + self.jitter.around(pause);
                self.events.push_back(Event::SpareLost { cause });
            }
            Role::Replacement => {
                let again_at = now + Self::RECYCLE_AGAIN_AFTER;
                self.second.recycle_not_before = again_at;
                self.second.outdated = self.second.outdated.map(|_| again_at);
                self.events.push_back(Event::ReplacementFailed { cause });
            }
        }
    }
}

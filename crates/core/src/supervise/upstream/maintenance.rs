//! A link that works: looked after while time passes, asked when it has been silent, left when nobody uses it.

use super::{Action, CallsBefore, LinkKind, Manner, ProbeAnswer, Upstream};
use crate::event::Event;
use crate::failure::Failure;
use crate::ids::Epoch;
use crate::supervise::link::{CatalogState, Link};
use crate::time::{Mono, Now};
use std::time::Duration;

impl Upstream {
    /// Looks at both clocks: after a sleep, a link is checked before it is trusted.
    pub(super) fn look(&mut self, now: Now) {
        if !self.sleep.slept(now) {
            return;
        }
        if let Link::Ready(ready) = &mut self.link {
            ready.suspect = Some(now.mono + self.jitter.within(Self::STAGGER));
            self.events.push_back(Event::Slept);
        }
    }

    /// Everything that a usable link may need when time has passed.
    pub(super) fn tend(&mut self, now: Mono) {
        if self.glance_at <= now {
            self.glance_at = now + Self::GLANCE_EVERY;
        }
        if self.idle_stop_at().is_some_and(|at| at <= now) {
            self.actions.push_back(Action::HangUp(Manner::Politely));
            self.link = Link::Dormant;
            self.drop_second();
            return;
        }
        self.tend_age(now);
        let Link::Ready(ready) = &mut self.link else { return };
        if !ready.keepalive.is_late()
            && let Some(waited) = ready.keepalive.overdue(now)
        {
            self.probe_unanswered(now, waited);
        }
        let Link::Ready(ready) = &mut self.link else { return };
        if ready.proven_at.is_some_and(|at| at <= now) {
            ready.proven_at = None;
            self.budget.forgive();
        }
        let listing = match ready.catalog {
            // The count of attempts lives on in the retry time of the next failure.
            CatalogState::Stale { retry_at, attempts } if retry_at <= now => {
                Some(CatalogState::Stale { retry_at: now + Self::RELIST_PAUSE_MAX, attempts })
            }
            CatalogState::Changed { list_at } if list_at <= now => {
                Some(CatalogState::Listing { again: false })
            }
            CatalogState::FirstListing { .. }
            | CatalogState::Listing { .. }
            | CatalogState::Changed { .. }
            | CatalogState::Fresh
            | CatalogState::Stale { .. } => None,
        };
        if let Some(listing) = listing {
            ready.begin_listing(now, listing);
            self.actions.push_back(Action::ListCatalog { epoch: ready.epoch });
        }
        let suspicion_due = ready.suspect.is_some_and(|at| at <= now);
        if suspicion_due {
            // Asked, or being asked: the answer's own deadline takes over.
            ready.suspect = Some(now + self.spec.keepalive.timeout);
        }
        if suspicion_due || ready.keepalive.is_due(now) {
            self.probe(now);
        }
    }

    pub(super) fn probe(&mut self, now: Mono) {
        self.probe_within(now, self.spec.keepalive.timeout);
    }

    /// Nobody is told of the death of an idle server elsewhere. Whoever reads its status has it probed, and is told the
    /// next time. A child's death is noticed at once.
    pub(super) fn on_status_read(&mut self, now: Mono) {
        let silent = self.ready().is_some_and(|ready| {
            now - ready.keepalive.heard_at() >= Self::STATUS_TRUE_FOR && !ready.keepalive.is_asking()
        });
        if silent && self.kind == LinkKind::Remote {
            self.probe(now);
        }
    }

    /// The session may be gone: asks, without holding anybody up, and not too often.
    pub(super) fn on_session_doubted(&mut self, now: Mono, epoch: Epoch) {
        let rested = self.session_doubted_at.is_none_or(|at| now - at >= Self::WAKE_EVERY);
        if rested && self.ready_at(epoch).is_some() {
            self.session_doubted_at = Some(now);
            self.probe(now);
        }
    }

    /// A probe was not answered in time. The link is given up, unless calls are under way that were sent before it.
    fn probe_unanswered(&mut self, now: Mono, waited: Duration) {
        let Link::Ready(ready) = &mut self.link else { return };
        let silent = Failure::TimedOut(waited);
        self.events.push_back(Event::ProbeFailed { cause: silent.to_string() });
        let calls = ready.keepalive.calls_before();
        if calls == 0 {
            return self.lose_link(now, silent);
        }
        ready.keepalive.wait_for_calls();
        ready.suspect = Some(now + self.spec.keepalive.timeout);
        self.cause = Some(format!("a probe got {silent}; {calls} earlier calls are still under way"));
    }

    /// A call on the present link has ended. If it was the last one that kept a link whose probe was not answered, the
    /// link is given up; or asked once more, if the call was answered.
    pub(super) fn call_left(&mut self, now: Mono, call: u64, link_number: u64) {
        if link_number != self.link_number {
            return;
        }
        let Link::Ready(ready) = &mut self.link else { return };
        let Some(waited) = ready.keepalive.call_ended(now, call) else { return };
        if ready.keepalive.heard_at() == now {
            self.cause = None;
            self.settle_doubt(now);
        } else {
            self.lose_link(now, Failure::TimedOut(waited));
        }
    }

    pub(super) fn probe_within(&mut self, now: Mono, limit: Duration) {
        let calls = CallsBefore { open: self.on_link, next: self.next_call };
        if let Link::Ready(ready) = &mut self.link
            && let Some(probe) = ready.keepalive.ask_within(now, limit, calls)
        {
            self.actions.push_back(Action::Probe { epoch: ready.epoch, probe });
        }
    }

    /// When a lazy link that nobody uses is to be stopped.
    pub(super) fn idle_stop_at(&self) -> Option<Mono> {
        let unused = self.spec.lazy && self.in_flight == 0 && self.waiting == 0 && self.holders == 0;
        unused.then(|| self.used_at + self.spec.idle_timeout)
    }

    pub(super) fn on_probe_ended(&mut self, now: Mono, epoch: Epoch, answer: ProbeAnswer) {
        let next_call = self.next_call;
        let Some(ready) = self.ready_at(epoch) else { return };
        match answer {
            ProbeAnswer::Alive
            | ProbeAnswer::Failed(
                Failure::Declined(_)
                | Failure::Outdated(_)
                | Failure::BeyondScope(_)
                | Failure::Busy { .. }
                // It was not sent, which says nothing against the server. The next one will be.
                | Failure::LacksResources(_),
            ) => {
                let was_late = ready.keepalive.is_late();
                ready.keepalive.answered(now);
                ready.answered = true;
                ready.trust(next_call);
                if was_late {
                    self.cause = None;
                }
            }
            ProbeAnswer::Unsupported => match ready.keepalive.unsupported(now) {
                Some(probe) => self.actions.push_back(Action::Probe { epoch, probe }),
                None => ready.trust(next_call),
            },
            // Whoever asked for us has given up before the machine did, or after it: the calls before it count.
            ProbeAnswer::Failed(Failure::TimedOut(_)) if ready.keepalive.is_late() => {}
            ProbeAnswer::Failed(Failure::TimedOut(waited)) => self.probe_unanswered(now, waited),
            ProbeAnswer::Failed(failure) => {
                self.events.push_back(Event::ProbeFailed { cause: failure.to_string() });
                match failure {
                    Failure::SessionExpired(_) => self.renew_session(now, failure),
                    Failure::CredentialRefused(text) => self.renew_credential(now, text),
                    Failure::Unreachable(_)
                    | Failure::LacksResources(_)
                    | Failure::Lost(_)
                    | Failure::TimedOut(_)
                    | Failure::ServerFault(_)
                    | Failure::Nonsense(_)
                    | Failure::Blocked(_)
                    | Failure::Outdated(_)
                    | Failure::BeyondScope(_)
                    | Failure::Declined(_)
                    | Failure::Busy { .. } => self.lose_link(now, failure),
                }
            }
        }
    }
}

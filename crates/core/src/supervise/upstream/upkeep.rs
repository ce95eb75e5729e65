//! A link that works: looked after while time passes, asked when it has been silent, left when nobody uses it.

use super::{Action, Manner, ProbeAnswer, Upstream};
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
        if let Some(waited) = ready.keepalive.overdue(now) {
            let silent = Failure::TimedOut(waited);
            self.events.push_back(Event::ProbeFailed { cause: silent.to_string() });
            self.lose_link(now, silent);
            return;
        }
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
        if suspicion_due || ready.keepalive.is_due(now, self.on_link) {
            self.probe(now);
        }
    }

    pub(super) fn probe(&mut self, now: Mono) {
        self.probe_within(now, self.spec.keepalive.timeout);
    }

    pub(super) fn probe_within(&mut self, now: Mono, limit: Duration) {
        if let Link::Ready(ready) = &mut self.link
            && let Some(probe) = ready.keepalive.ask_within(now, limit)
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
                Failure::Declined(_) | Failure::Outdated(_) | Failure::BeyondScope(_) | Failure::Busy { .. },
            ) => {
                ready.keepalive.answered(now);
                ready.answered = true;
                ready.trust(next_call);
            }
            ProbeAnswer::Unsupported => match ready.keepalive.unsupported(now) {
                Some(probe) => self.actions.push_back(Action::Probe { epoch, probe }),
                None => ready.trust(next_call),
            },
            ProbeAnswer::Failed(failure) => {
                self.events.push_back(Event::ProbeFailed { cause: failure.to_string() });
                match failure {
                    Failure::SessionExpired(_) => self.renew_session(now, failure),
                    Failure::CredentialRefused(text) => self.renew_credential(now, text),
                    Failure::Unreachable(_)
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

//! Maintenance of a working link: keepalive probes, listings, recycling and the idle stop.

use super::{Action, CallsBefore, CloseMode, LinkKind, ProbeAnswer, UpstreamMachine};
use crate::event::Event;
use crate::failure::Failure;
use crate::ids::Epoch;
use crate::supervise::link::{CatalogState, Link};
use crate::time::{Mono, Now};
use std::time::Duration;

impl UpstreamMachine {
    /// Compares both clocks: after a sleep of the machine, a link is checked before it is used.
    pub(super) fn check_sleep(&mut self, now: Now) {
        if !self.sleep.slept(now) {
            return;
        }
        if let Link::Ready(ready) = &mut self.link {
            ready.suspect = Some(now.mono + self.jitter.up_to(Self::STAGGER));
            self.events.push_back(Event::MachineSlept);
        }
    }

    /// Handles the timers of a usable link.
    pub(super) fn maintain(&mut self, now: Mono) {
        if self.sleep_check_at <= now {
            self.sleep_check_at = now + Self::SLEEP_CHECK_INTERVAL;
        }
        if self.idle_stop_at().is_some_and(|at| at <= now) {
            self.actions.push_back(Action::Close(CloseMode::Graceful));
            self.link = Link::Dormant;
            self.drop_standby();
            return;
        }
        self.maintain_age(now);
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
            // The number of attempts is kept for the next failure.
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
            // A probe was sent or is pending: its own deadline counts from here on.
            ready.suspect = Some(now + self.spec.keepalive.timeout);
        }
        if suspicion_due || ready.keepalive.is_due(now) {
            self.probe(now);
        }
    }

    pub(super) fn probe(&mut self, now: Mono) {
        self.probe_within(now, self.spec.keepalive.timeout);
    }

    /// Reading the status of an idle remote server probes it, because its death is not noticed otherwise; the next
    /// reading shows the result. The death of a child process is noticed at once.
    pub(super) fn on_status_read(&mut self, now: Mono) {
        let silent = self.ready().is_some_and(|ready| {
            now - ready.keepalive.last_received() >= Self::STATUS_FRESH_FOR && !ready.keepalive.is_probing()
        });
        if silent && self.kind == LinkKind::Remote {
            self.probe(now);
        }
    }

    /// Probes a session that may be gone, without holding up calls, and not too often.
    pub(super) fn on_session_doubted(&mut self, now: Mono, epoch: Epoch) {
        let rested = self.session_doubted_at.is_none_or(|at| now - at >= Self::WAKE_EVERY);
        if rested && self.ready_for_mut(epoch).is_some() {
            self.session_doubted_at = Some(now);
            self.probe(now);
        }
    }

    /// Handles a probe that was not answered in time. The link is given up, unless calls that were sent before the
    /// probe are in flight.
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
        self.cause = Some(format!("a probe got {silent}; {calls} earlier calls are still in flight"));
    }

    /// Handles the end of a call on the present link. If it was the last call that kept a link with an unanswered
    /// probe, the link is given up; or probed again, if the call was answered.
    pub(super) fn call_left(&mut self, now: Mono, call: u64, link_number: u64) {
        if link_number != self.link_number {
            return;
        }
        let Link::Ready(ready) = &mut self.link else { return };
        let Some(waited) = ready.keepalive.call_ended(now, call) else { return };
        if ready.keepalive.last_received() == now {
            self.cause = None;
            self.settle_doubt(now);
        } else {
            self.lose_link(now, Failure::TimedOut(waited));
        }
    }

    pub(super) fn probe_within(&mut self, now: Mono, limit: Duration) {
        let calls = CallsBefore { in_flight: self.calls_on_link, next: self.next_call };
        if let Link::Ready(ready) = &mut self.link
            && let Some(probe) = ready.keepalive.start_probe(now, limit, calls)
        {
            self.actions.push_back(Action::Probe { epoch: ready.epoch, probe });
        }
    }

    /// The time at which an unused lazy link is stopped.
    pub(super) fn idle_stop_at(&self) -> Option<Mono> {
        let unused = self.spec.lazy && self.in_flight == 0 && self.waiting == 0 && self.hold_count == 0;
        unused.then(|| self.used_at + self.spec.idle_timeout)
    }

    pub(super) fn on_probe_ended(&mut self, now: Mono, epoch: Epoch, answer: ProbeAnswer) {
        let next_call = self.next_call;
        let Some(ready) = self.ready_for_mut(epoch) else { return };
        match answer {
            ProbeAnswer::Alive
            | ProbeAnswer::Failed(
                Failure::Declined(_)
                | Failure::HeaderMismatch(_)
                | Failure::InsufficientScope(_)
                | Failure::Busy { .. }
                // It was not sent, which says nothing about the server. The next one will be.
                | Failure::OutOfResources(_),
            ) => {
                let was_late = ready.keepalive.is_late();
                ready.keepalive.answered(now);
                ready.answered = true;
                ready.trust(next_call);
                if was_late {
                    self.cause = None;
                }
            }
            ProbeAnswer::Unsupported => match ready.keepalive.use_fallback(now) {
                Some(probe) => self.actions.push_back(Action::Probe { epoch, probe }),
                None => ready.trust(next_call),
            },
            // The host timed out before or after the machine did: the calls before the probe decide.
            ProbeAnswer::Failed(Failure::TimedOut(_)) if ready.keepalive.is_late() => {}
            ProbeAnswer::Failed(Failure::TimedOut(waited)) => self.probe_unanswered(now, waited),
            ProbeAnswer::Failed(failure) => {
                self.events.push_back(Event::ProbeFailed { cause: failure.to_string() });
                match failure {
                    Failure::SessionExpired(_) => self.renew_session(now, failure),
                    Failure::CredentialRefused(text) => self.renew_credential(now, text),
                    Failure::Unreachable(_)
                    | Failure::OutOfResources(_)
                    | Failure::Lost(_)
                    | Failure::TimedOut(_)
                    | Failure::ServerFault(_)
                    | Failure::InvalidResponse(_)
                    | Failure::Blocked(_)
                    | Failure::HeaderMismatch(_)
                    | Failure::InsufficientScope(_)
                    | Failure::Declined(_)
                    | Failure::Busy { .. } => self.lose_link(now, failure),
                }
            }
        }
    }
}

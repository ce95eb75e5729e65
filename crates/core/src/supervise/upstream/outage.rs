//! Outages: their start, retries, parking and blocking.

use super::{Action, BusyPrincipals, CloseMode, LinkKind, RestartCause, UpstreamMachine};
use crate::event::Event;
use crate::failure::crashes::PrincipalCrashes;
use crate::failure::recovery::RESOURCE_RETRY_PAUSE;
use crate::failure::{BlockCause, Failure};
use crate::ids::Epoch;
use crate::supervise::backoff::Backoff;
use crate::supervise::link::Link;
use crate::supervise::spec::RestartSpec;
use crate::time::Mono;
use std::time::Duration;

/// The present outage: from the first failure until a link is up.
#[derive(Debug, Clone)]
pub(super) struct Outage {
    pub(super) since: Mono,
    backoff: Backoff,
    /// True once it was parked. It stays parked until a link is up.
    parked: bool,
    /// True if the last attempt was not made for lack of file descriptors, memory or processes.
    lacks_resources: bool,
}

/// The way in which an attempt was counted, to undo that if it was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountedAs {
    /// Not as a restart: the first attempt, or one that an operator or a call caused.
    Nothing,
    /// As a restart outside the budget.
    Restart,
    /// As a restart in the budget.
    RestartOnBudget,
}

impl Outage {
    fn new(now: Mono, spec: &RestartSpec) -> Self {
        Self { since: now, backoff: Backoff::new(spec), parked: false, lacks_resources: false }
    }
}

impl UpstreamMachine {
    /// Minimum time for a probe in doubt: a healthy server over a slow network must be able to answer.
    const MIN_DOUBT_PROBE: Duration = Duration::from_secs(2);
    /// Time for which the refused credential of a server that has worked may be an error of a proxy. One second less
    /// than 15, so that the last attempt has ended by then.
    const CREDENTIAL_GRACE: Duration = Duration::from_secs(14);
    /// Interval of looking up a missing executable, which takes no process.
    const LOOKUP_INTERVAL: Duration = Duration::from_secs(2);
    /// Time for which a server is assumed to work on a call that was cancelled or timed out.
    const WORKING_AFTER_CANCEL: Duration = Duration::from_secs(10);
    /// Upper bound of a server's `Retry-After`.
    const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

    pub(super) fn on_link_down(&mut self, now: Mono, epoch: Epoch, failure: Failure) {
        match &self.link {
            Link::Connecting { epoch: dialed, .. } if *dialed == epoch => self.enter_outage(now, failure),
            Link::Ready(ready) if ready.epoch == epoch => self.lose_link(now, failure),
            Link::Renewing { of, .. } if *of == epoch => self.lose_link(now, failure),
            Link::Draining { .. } if epoch == self.epoch => self.finish_drain(),
            // A report about a link that is not the present one.
            Link::Dormant
            | Link::Connecting { .. }
            | Link::Ready(_)
            | Link::Renewing { .. }
            | Link::Waiting { .. }
            | Link::Parked { .. }
            | Link::Blocked { .. }
            | Link::Draining { .. }
            | Link::Stopped => {}
        }
    }

    /// Handles a failure on the present, usable link, which may or may not lose it.
    pub(super) fn on_link_failure(&mut self, now: Mono, failure: Failure) {
        match failure {
            Failure::SessionExpired(_) => self.renew_session(now, failure),
            Failure::CredentialRefused(text) => self.credential_refused_to_call(now, text),
            Failure::Unreachable(_) => self.lose_link(now, failure),
            Failure::Lost(_) => match self.kind {
                // A pipe breaks as a whole.
                LinkKind::Process => self.lose_link(now, failure),
                // One connection of a pool broke: the server is probed before the replay of this call, or another call,
                // is sent.
                LinkKind::Remote => self.suspect_link(now),
            },
            // A reverse proxy answers so while the server behind it restarts.
            Failure::ServerFault(_) => self.suspect_link(now),
            // Calls sent now would end with an unknown outcome; waiting calls are served by the next link.
            Failure::TimedOut(_) => self.suspect_link(now),
            Failure::InvalidResponse(_) | Failure::Blocked(_) => self.probe(now),
            Failure::OutOfResources(_)
            | Failure::InsufficientScope(_)
            | Failure::Busy { .. }
            | Failure::HeaderMismatch(_)
            | Failure::Declined(_) => {}
        }
    }

    /// Marks the link as suspect: calls wait until a probe was answered.
    fn suspect_link(&mut self, now: Mono) {
        if let Link::Ready(ready) = &mut self.link {
            ready.suspect = Some(now + self.spec.keepalive.timeout);
        }
        self.settle_doubt(now);
    }

    /// Probes with a deadline that leaves waiting calls enough time for the next link.
    pub(super) fn settle_doubt(&mut self, now: Mono) {
        let limit = self.spec.timeouts.reconnect_wait * 2 / 3;
        self.probe_within(now, limit.max(Self::MIN_DOUBT_PROBE));
    }

    /// Gives up an established link.
    pub(super) fn lose_link(&mut self, now: Mono, failure: Failure) {
        self.actions.push_back(Action::Close(CloseMode::Immediate));
        self.blame(now, &failure);
        let spent = self.budget.is_spent(now);
        if self.kind == LinkKind::Remote && !matches!(failure, Failure::OutOfResources(_)) {
            self.count_restart(now);
            if spent {
                self.cause = Some(failure.to_string());
                return self.park(now);
            }
        }
        self.enter_outage(now, failure);
    }

    /// Attributes the death of a process: if it can only have worked for one of several principals, the death is
    /// recorded for that principal (C05).
    fn blame(&mut self, now: Mono, failure: &Failure) {
        if self.kind != LinkKind::Process {
            return;
        }
        let in_flight = self.principals.in_flight();
        let has_hung = matches!(failure, Failure::TimedOut(_));
        // A client that cancels the call which kills the server is still its cause.
        let was_at_work = now - self.given_up_at <= Self::WORKING_AFTER_CANCEL;
        let principal = match (&in_flight, &self.given_up) {
            (BusyPrincipals::Only(one), BusyPrincipals::None) => one,
            (BusyPrincipals::Only(one), BusyPrincipals::Only(other)) if one == other => one,
            (BusyPrincipals::None, BusyPrincipals::Only(one)) if has_hung || was_at_work => one,
            (BusyPrincipals::None | BusyPrincipals::Only(_) | BusyPrincipals::Several, _) => return,
        };
        if !self.callers.has_other(now, principal, PrincipalCrashes::WINDOW) {
            return;
        }
        let Some(verdict) = self.crashes.record_crash(now, principal) else {
            self.restart_cause = RestartCause::Principal(principal.clone());
            return;
        };
        self.events.push_back(Event::PrincipalRefused {
            principal: principal.as_str().to_owned(),
            deaths: PrincipalCrashes::REFUSED_AT,
            wait: verdict.wait,
        });
        self.restart_cause = match verdict.forgiven {
            true => {
                self.budget.forgive_principal(principal);
                RestartCause::Forgiven
            }
            false => RestartCause::Principal(principal.clone()),
        };
    }

    /// Handles an attempt that was not made for lack of resources on this machine. That says nothing about the server:
    /// it counts neither as a restart nor as downtime, and is repeated until there are resources.
    fn lack_resources(&mut self, now: Mono, cause: String) {
        self.cause = Some(cause);
        let outage = self.outage.get_or_insert_with(|| Outage::new(now, &self.spec.restart));
        // The reported duration of the outage includes this time.
        self.away_since.get_or_insert(outage.since);
        outage.since = now;
        outage.lacks_resources = true;
        let again_at = now + RESOURCE_RETRY_PAUSE;
        self.link = match outage.parked {
            true => Link::Parked { probe_at: again_at },
            false => Link::Waiting { until: again_at },
        };
    }

    /// Enters or continues an outage and decides the time of the next attempt.
    pub(super) fn enter_outage(&mut self, now: Mono, failure: Failure) {
        if let Failure::OutOfResources(cause) = failure {
            return self.lack_resources(now, cause);
        }
        if let Some(outage) = &mut self.outage {
            outage.lacks_resources = false;
        }
        let age = self.outage.as_ref().map_or(Duration::ZERO, |outage| now - outage.since);
        let grace = self.grace_for(&failure);
        if grace.is_none_or(|grace| age >= grace) {
            match failure {
                Failure::Blocked(cause) => return self.block(now, cause),
                Failure::CredentialRefused(text) => return self.block(now, BlockCause::NeedsLogin(text)),
                Failure::Unreachable(_)
                | Failure::OutOfResources(_)
                | Failure::Lost(_)
                | Failure::TimedOut(_)
                | Failure::SessionExpired(_)
                | Failure::ServerFault(_)
                | Failure::InvalidResponse(_)
                | Failure::HeaderMismatch(_)
                | Failure::InsufficientScope(_)
                | Failure::Declined(_)
                | Failure::Busy { .. } => {}
            }
        }
        let mut patience = Duration::ZERO;
        if let Failure::Busy { retry_after: Some(named), .. } = failure {
            patience = named.min(Self::MAX_RETRY_AFTER);
        }
        self.cause = Some(failure.to_string());
        let was_looked_up = matches!(failure, Failure::Blocked(BlockCause::MissingExecutable(_)));
        if was_looked_up {
            // No process was spawned.
            let counted = std::mem::replace(&mut self.counted, CountedAs::Nothing);
            self.restarts -= u64::from(counted != CountedAs::Nothing);
            if counted == CountedAs::RestartOnBudget {
                self.budget.undo_record();
            }
        }
        let spec = &self.spec.restart;
        let outage = self.outage.get_or_insert_with(|| Outage::new(now, spec));
        let budget_spent = self.kind == LinkKind::Process && self.budget.is_spent(now);
        if outage.parked || age >= spec.window || budget_spent {
            return self.park(now);
        }
        let mut pause = outage.backoff.next(age, &mut self.jitter).max(patience);
        if was_looked_up {
            pause = pause.min(Self::LOOKUP_INTERVAL);
        }
        if self.waiting > 0 && patience.is_zero() && pause > Self::WAKE_EVERY {
            // Waiting calls do not wait longer for a server that may be back: this is the attempt that they start
            // early.
            pause = Self::WAKE_EVERY;
            self.woken_by_call = Some(now + pause);
        }
        if let Some(grace) = grace {
            // The last attempt is made when the grace ends, so that the verdict is known then.
            pause = pause.min(grace - age);
        }
        if pause.is_zero() {
            self.restart(now);
        } else {
            self.link = Link::Waiting { until: now + pause };
        }
    }

    /// Time for which a server that has worked may fail in this way before it is blocked. An ingress answers 404, 401
    /// or with a web page while the server behind it restarts, and an upgrade removes an executable for a moment.
    fn grace_for(&self, failure: &Failure) -> Option<Duration> {
        match failure {
            Failure::Blocked(BlockCause::NotMcp(_) | BlockCause::MissingExecutable(_)) => {
                self.ever_up.then_some(self.spec.restart.window)
            }
            Failure::CredentialRefused(_) => self.ever_up.then_some(Self::CREDENTIAL_GRACE),
            Failure::Blocked(
                BlockCause::UnsetVariable(_) | BlockCause::BadConfig(_) | BlockCause::NeedsLogin(_),
            )
            | Failure::Unreachable(_)
            | Failure::OutOfResources(_)
            | Failure::Lost(_)
            | Failure::TimedOut(_)
            | Failure::SessionExpired(_)
            | Failure::InsufficientScope(_)
            | Failure::Busy { .. }
            | Failure::ServerFault(_)
            | Failure::InvalidResponse(_)
            | Failure::HeaderMismatch(_)
            | Failure::Declined(_) => None,
        }
    }

    pub(super) fn park(&mut self, now: Mono) {
        self.drop_standby();
        self.outage.get_or_insert_with(|| Outage::new(now, &self.spec.restart)).parked = true;
        let pause = self.jitter.spread(self.spec.restart.parked_probe);
        self.link = Link::Parked { probe_at: now + pause };
    }

    pub(super) fn block(&mut self, now: Mono, cause: BlockCause) {
        self.drop_standby();
        self.cause = Some(cause.text().to_owned());
        self.outage = None;
        let pause = self.jitter.spread(self.spec.restart.parked_probe);
        self.link = Link::Blocked { cause, recheck_at: now + pause };
    }

    /// Makes another attempt of the present outage.
    pub(super) fn restart(&mut self, now: Mono) {
        // An attempt that was not made is not a second restart.
        let was_counted = self.outage.as_ref().is_some_and(|outage| outage.lacks_resources);
        let counted = match self.kind {
            LinkKind::Process if was_counted => self.counted,
            LinkKind::Process => self.count_restart(now),
            LinkKind::Remote => CountedAs::Nothing,
        };
        self.connect(now);
        self.counted = counted;
    }

    /// Makes an attempt while parked. Calls do not wait for it, and the tools do not return before it succeeded.
    pub(super) fn try_parked(&mut self, now: Mono) {
        self.restart(now);
        if let Link::Connecting { parked, .. } = &mut self.link {
            *parked = true;
        }
    }

    pub(super) fn connect(&mut self, now: Mono) {
        self.counted = CountedAs::Nothing;
        self.epoch = self.epoch.next();
        let give_up_at = now + self.connect_limit.next(&self.spec.timeouts);
        self.link =
            Link::Connecting { epoch: self.epoch, since: now, give_up_at, blocked: None, parked: false };
        let action = match self.take_spare() {
            Some(id) => Action::UseSpare { id, epoch: self.epoch },
            None => Action::Connect { epoch: self.epoch },
        };
        self.actions.push_back(action);
    }

    /// Rechecks the cause of a block.
    pub(super) fn recheck(&mut self, now: Mono) {
        let mut still = None;
        if let Link::Blocked { cause, .. } = &self.link {
            still = Some(cause.clone());
        }
        self.rechecked_at = Some(now);
        self.connect(now);
        if let Link::Connecting { blocked, .. } = &mut self.link {
            *blocked = still;
        }
    }

    fn count_restart(&mut self, now: Mono) -> CountedAs {
        self.restarts += 1;
        let cause = std::mem::take(&mut self.restart_cause);
        let counted = match cause {
            RestartCause::Forgiven => CountedAs::Restart,
            RestartCause::Server | RestartCause::Principal(_) => CountedAs::RestartOnBudget,
        };
        self.budget.record_for(now, cause);
        self.events.push_back(Event::Restarting { in_window: self.budget.in_window(now) });
        counted
    }
}

//! Being away: how an outage begins, is retried, is parked, and what blocks it.

use super::{Action, AtWorkFor, LinkKind, Manner, RestartCause, Upstream};
use crate::event::Event;
use crate::failure::crashes::PrincipalCrashes;
use crate::failure::recovery::RESOURCES_AGAIN_AFTER;
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
    /// It was parked. Whoever has it tried, it stays so until a link is up.
    parked: bool,
    /// The last attempt was not made, for lack of file descriptors, memory or processes.
    lacks_resources: bool,
}

/// How an attempt was counted, so that it can be taken back if it was not made after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountedAs {
    /// Not as a restart: the first attempt, or one that a person or a call asked for.
    Nothing,
    /// As a restart that is not on the budget.
    Restart,
    /// As a restart, on the budget too.
    RestartOnBudget,
}

impl Outage {
    fn new(now: Mono, spec: &RestartSpec) -> Self {
        Self { since: now, backoff: Backoff::new(spec), parked: false, lacks_resources: false }
    }
}

impl Upstream {
    /// However little time callers have, a healthy server on a long line must be able to answer in it.
    const SHORTEST_DOUBT: Duration = Duration::from_secs(2);
    /// For how long a refused credential of a server that has worked may be a mistake of something in between. A second
    /// less than 15, so that the last attempt has ended by then.
    const CREDENTIAL_GRACE: Duration = Duration::from_secs(14);
    /// How often an executable that is missing is looked up. That takes no process.
    const LOOKED_UP_EVERY: Duration = Duration::from_secs(2);
    /// For how long a server is taken to be at work on a call that was given up.
    const STILL_AT_WORK: Duration = Duration::from_secs(10);
    /// A server may ask for patience, but not for more than this.
    const LONGEST_PATIENCE: Duration = Duration::from_secs(300);

    pub(super) fn on_link_down(&mut self, now: Mono, epoch: Epoch, failure: Failure) {
        match &self.link {
            Link::Connecting { epoch: dialed, .. } if *dialed == epoch => self.away(now, failure),
            Link::Ready(ready) if ready.epoch == epoch => self.lose_link(now, failure),
            Link::Renewing { of, .. } if *of == epoch => self.lose_link(now, failure),
            Link::Draining { .. } if epoch == self.epoch => self.finish_drain(),
            // News of a link that is not the present one.
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

    /// A failure on the present, usable link that may or may not cost it.
    pub(super) fn trouble(&mut self, now: Mono, failure: Failure) {
        match failure {
            Failure::SessionExpired(_) => self.renew_session(now, failure),
            Failure::CredentialRefused(text) => self.credential_refused_to_call(now, text),
            Failure::Unreachable(_) => self.lose_link(now, failure),
            Failure::Lost(_) => match self.kind {
                // A pipe does not break in part.
                LinkKind::Process => self.lose_link(now, failure),
                // One connection of a pool broke: ask whether the server is still there, before the replay
                // of this call, or anybody else's call, goes the same way.
                LinkKind::Remote => self.doubt(now),
            },
            // A reverse proxy says so while the server behind it restarts.
            Failure::ServerFault(_) => self.doubt(now),
            // What is sent into silence ends with an unknown outcome; what waits is served by the next link.
            Failure::TimedOut(_) => self.doubt(now),
            Failure::Nonsense(_) | Failure::Blocked(_) => self.probe(now),
            Failure::LacksResources(_)
            | Failure::BeyondScope(_)
            | Failure::Busy { .. }
            | Failure::Outdated(_)
            | Failure::Declined(_) => {}
        }
    }

    /// The link may be dead: callers wait until a probe has been answered.
    fn doubt(&mut self, now: Mono) {
        if let Link::Ready(ready) = &mut self.link {
            ready.suspect = Some(now + self.spec.keepalive.timeout);
        }
        self.settle_doubt(now);
    }

    /// Asks, and waits for the answer only so long that those who are held meanwhile can still be served by the
    /// next link.
    pub(super) fn settle_doubt(&mut self, now: Mono) {
        let limit = self.spec.timeouts.reconnect_wait * 2 / 3;
        self.probe_within(now, limit.max(Self::SHORTEST_DOUBT));
    }

    /// An established link is given up.
    pub(super) fn lose_link(&mut self, now: Mono, failure: Failure) {
        self.actions.push_back(Action::HangUp(Manner::AtOnce));
        self.blame(now, &failure);
        let spent = self.budget.is_spent(now);
        if self.kind == LinkKind::Remote && !matches!(failure, Failure::LacksResources(_)) {
            self.count_restart(now);
            if spent {
                self.cause = Some(failure.to_string());
                return self.park(now);
            }
        }
        self.away(now, failure);
    }

    /// A process died or was given up: if it can only have been at work for one of several principals, its death is on
    /// the record of that principal (C05).
    fn blame(&mut self, now: Mono, failure: &Failure) {
        if self.kind != LinkKind::Process {
            return;
        }
        let in_flight = self.principals.in_flight();
        let has_hung = matches!(failure, Failure::TimedOut(_));
        // A client that gives up the call which kills the server is not innocent.
        let was_at_work = now - self.given_up_at <= Self::STILL_AT_WORK;
        let principal = match (&in_flight, &self.given_up) {
            (AtWorkFor::Only(one), AtWorkFor::Nobody) => one,
            (AtWorkFor::Only(one), AtWorkFor::Only(other)) if one == other => one,
            (AtWorkFor::Nobody, AtWorkFor::Only(one)) if has_hung || was_at_work => one,
            (AtWorkFor::Nobody | AtWorkFor::Only(_) | AtWorkFor::Several, _) => return,
        };
        if !self.callers.has_other(now, principal, PrincipalCrashes::WINDOW) {
            return;
        }
        let Some(verdict) = self.crashes.died(now, principal) else {
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

    /// An attempt was not made because this machine had nothing left for it. That says nothing about the server: it
    /// counts neither as a restart nor as time in which the server was away, and is repeated until there is room.
    fn lack_resources(&mut self, now: Mono, cause: String) {
        self.cause = Some(cause);
        let outage = self.outage.get_or_insert_with(|| Outage::new(now, &self.spec.restart));
        // Callers are told how long it was away in all.
        self.away_since.get_or_insert(outage.since);
        outage.since = now;
        outage.lacks_resources = true;
        let again_at = now + RESOURCES_AGAIN_AFTER;
        self.link = match outage.parked {
            true => Link::Parked { probe_at: again_at },
            false => Link::Waiting { until: again_at },
        };
    }

    /// There is no link, for this reason: decide when to try again.
    pub(super) fn away(&mut self, now: Mono, failure: Failure) {
        if let Failure::LacksResources(cause) = failure {
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
                | Failure::LacksResources(_)
                | Failure::Lost(_)
                | Failure::TimedOut(_)
                | Failure::SessionExpired(_)
                | Failure::ServerFault(_)
                | Failure::Nonsense(_)
                | Failure::Outdated(_)
                | Failure::BeyondScope(_)
                | Failure::Declined(_)
                | Failure::Busy { .. } => {}
            }
        }
        let patience = match failure {
            Failure::Busy { retry_after, .. } => retry_after.unwrap_or_default().min(Self::LONGEST_PATIENCE),
            Failure::Unreachable(_)
            | Failure::LacksResources(_)
            | Failure::Lost(_)
            | Failure::TimedOut(_)
            | Failure::SessionExpired(_)
            | Failure::ServerFault(_)
            | Failure::Nonsense(_)
            | Failure::Outdated(_)
            | Failure::BeyondScope(_)
            | Failure::Blocked(_)
            | Failure::CredentialRefused(_)
            | Failure::Declined(_) => Duration::ZERO,
        };
        self.cause = Some(failure.to_string());
        let was_looked_up = matches!(failure, Failure::Blocked(BlockCause::MissingExecutable(_)));
        if was_looked_up {
            // Nothing was spawned.
            let counted = std::mem::replace(&mut self.counted, CountedAs::Nothing);
            self.restarts -= u64::from(counted != CountedAs::Nothing);
            if counted == CountedAs::RestartOnBudget {
                self.budget.take_back();
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
            pause = pause.min(Self::LOOKED_UP_EVERY);
        }
        if self.waiting > 0 && patience.is_zero() && pause > Self::WAKE_EVERY {
            // Held callers are not kept waiting for a server that may be back: this is the attempt that they pull forward.
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

    /// For how long a server that has worked may fail like this before a person is asked to look at it. An ingress answers
    /// 404, 401 or with a page while the server behind it restarts, and an upgrade removes an executable for a moment.
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
            | Failure::LacksResources(_)
            | Failure::Lost(_)
            | Failure::TimedOut(_)
            | Failure::SessionExpired(_)
            | Failure::BeyondScope(_)
            | Failure::Busy { .. }
            | Failure::ServerFault(_)
            | Failure::Nonsense(_)
            | Failure::Outdated(_)
            | Failure::Declined(_) => None,
        }
    }

    pub(super) fn park(&mut self, now: Mono) {
        self.drop_second();
        self.outage.get_or_insert_with(|| Outage::new(now, &self.spec.restart)).parked = true;
        let pause = self.jitter.around(self.spec.restart.parked_probe);
        self.link = Link::Parked { probe_at: now + pause };
    }

    pub(super) fn block(&mut self, now: Mono, cause: BlockCause) {
        self.drop_second();
        self.cause = Some(cause.text().to_owned());
        self.outage = None;
        let pause = self.jitter.around(self.spec.restart.parked_probe);
        self.link = Link::Blocked { cause, recheck_at: now + pause };
    }

    /// Another attempt of the present outage.
    pub(super) fn restart(&mut self, now: Mono) {
        // An attempt that was not made is not a second restart.
        let was_counted = self.outage.as_ref().is_some_and(|outage| outage.lacks_resources);
        let counted = match self.kind {
            LinkKind::Process if was_counted => self.counted,
            LinkKind::Process => self.count_restart(now),
            LinkKind::Remote => CountedAs::Nothing,
        };
        self.dial(now);
        self.counted = counted;
    }

    /// A parked upstream tries itself. Nobody waits for that, and its tools do not return before it does.
    pub(super) fn try_parked(&mut self, now: Mono) {
        self.restart(now);
        if let Link::Connecting { parked, .. } = &mut self.link {
            *parked = true;
        }
    }

    pub(super) fn dial(&mut self, now: Mono) {
        self.counted = CountedAs::Nothing;
        self.epoch = self.epoch.next();
        let give_up_at = now + self.connect_limit.next(&self.spec.timeouts);
        self.link =
            Link::Connecting { epoch: self.epoch, since: now, give_up_at, blocked: None, parked: false };
        let action = match self.take_spare() {
            Some(id) => Action::UseSpare { id, epoch: self.epoch },
            None => Action::Dial { epoch: self.epoch },
        };
        self.actions.push_back(action);
    }

    /// Looks whether the cause of a block is gone.
    pub(super) fn recheck(&mut self, now: Mono) {
        let still = match &self.link {
            Link::Blocked { cause, .. } => Some(cause.clone()),
            Link::Dormant
            | Link::Connecting { .. }
            | Link::Ready(_)
            | Link::Renewing { .. }
            | Link::Waiting { .. }
            | Link::Parked { .. }
            | Link::Draining { .. }
            | Link::Stopped => None,
        };
        self.rechecked_at = Some(now);
        self.dial(now);
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

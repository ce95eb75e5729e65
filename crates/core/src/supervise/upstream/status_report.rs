//! Status reports of the upstream machine.

use super::UpstreamMachine;
use crate::event::Event;
use crate::failure::BlockCause;
use crate::supervise::circuit::{CircuitDecision, CircuitView};
use crate::supervise::link::{CatalogState, Link, Ready};
use crate::supervise::status::{Attempt, NextAction, State, UpstreamStatus};
use crate::time::{Mono, Now};

impl UpstreamMachine {
    /// The status at this moment.
    pub fn status(&self, now: Now) -> UpstreamStatus {
        let now = now.mono;
        let state = self.state(now);
        let next_attempt = match &self.link {
            Link::Waiting { until: at }
            | Link::Parked { probe_at: at }
            | Link::Blocked { recheck_at: at, .. } => Some(*at),
            Link::Connecting { .. } | Link::Renewing { .. } => Some(now),
            Link::Ready(ready) => match (self.circuit.decision(now), ready.catalog) {
                (CircuitDecision::Refused { retry_at }, _) => Some(retry_at),
                (CircuitDecision::TrialDue, _) => Some(now),
                (CircuitDecision::Allowed, CatalogState::Stale { retry_at, .. }) => Some(retry_at),
                (
                    CircuitDecision::Allowed,
                    CatalogState::FirstListing { .. }
                    | CatalogState::Listing { .. }
                    | CatalogState::Changed { .. }
                    | CatalogState::Fresh,
                ) => None,
            },
            Link::Dormant | Link::Draining { .. } | Link::Stopped => None,
        };
        let attempt = self.attempt().map(|(since, limit)| Attempt { elapsed: now - since, limit });
        UpstreamStatus {
            state,
            attempt,
            in_state_for: now - self.reported_since,
            cause: self.reported_cause(state),
            next_attempt: next_attempt.map(|at| now.until(at)),
            next_wake: self.poll_timeout().map(|at| now.until(at)),
            next_action: next_action(state),
            circuit: self.circuit.view(now),
            consecutive_failures: self.circuit.consecutive_failures(),
            restarts: self.restarts,
            restarts_in_window: self.budget.in_window(now),
            in_flight: self.in_flight,
            waiting: self.waiting,
            epoch: self.epoch.number(),
            replacing: self.is_replacing(),
            outdated: self.is_outdated(),
            spare: self.spare_state(),
        }
    }

    /// Reports a changed state once, and wakes calls that wait for slots that are gone.
    pub(super) fn report_state(&mut self, now: Mono) {
        self.detect_stranded();
        let state = self.state(now);
        // Each attempt of a server that was never up is another start; it is reported once, as one outage.
        let same_outage = self.reported_state == State::Reconnecting && state == State::Starting;
        if state != self.reported_state && !same_outage {
            let from = std::mem::replace(&mut self.reported_state, state);
            self.reported_since = now;
            let cause = self.reported_cause(state);
            self.events.push_back(Event::StateChanged { from, to: state, cause });
        }
    }

    fn reported_cause(&self, state: State) -> Option<String> {
        let is_stale = |ready: &Ready| matches!(ready.catalog, CatalogState::Stale { .. });
        let stale = || self.stale_cause.clone().filter(|_| self.ready().is_some_and(is_stale));
        if state == State::NeedsApproval {
            self.approval_cause.clone()
        } else {
            self.cause.clone().or_else(stale)
        }
    }

    fn state(&self, now: Mono) -> State {
        match &self.link {
            Link::Dormant => State::Idle,
            Link::Connecting { blocked: Some(cause), .. } | Link::Blocked { cause, .. } => match cause {
                BlockCause::NeedsLogin(_) => State::NeedsLogin,
                BlockCause::MissingExecutable(_)
                | BlockCause::UnsetVariable(_)
                | BlockCause::BadConfig(_)
                | BlockCause::NotMcp(_) => State::ConfigError,
            },
            Link::Connecting { parked: true, .. } | Link::Parked { .. } => State::Parked,
            Link::Connecting { .. } if self.ever_up => State::Reconnecting,
            Link::Connecting { .. } => State::Starting,
            Link::Ready(ready) if ready.keepalive.is_late() => State::Degraded,
            Link::Ready(ready) => match (self.circuit.view(now), ready.catalog) {
                (CircuitView::Closed, CatalogState::FirstListing { .. }) => ready.state_until_listed,
                (
                    CircuitView::Closed,
                    CatalogState::Fresh | CatalogState::Listing { .. } | CatalogState::Changed { .. },
                ) => {
                    if self.approval_cause.is_some() {
                        State::NeedsApproval
                    } else {
                        State::Ready
                    }
                }
                (CircuitView::Closed, CatalogState::Stale { .. }) => State::Degraded,
                (CircuitView::Open | CircuitView::HalfOpen, _) => State::Degraded,
            },
            Link::Renewing { .. } | Link::Waiting { .. } => State::Reconnecting,
            Link::Draining { .. } | Link::Stopped => State::Stopped,
        }
    }
}

fn next_action(state: State) -> Option<NextAction> {
    match state {
        State::Idle | State::Starting | State::Ready | State::Disabled => None,
        State::NeedsApproval => Some(NextAction::Approve),
        State::Degraded | State::Reconnecting => Some(NextAction::Reconnect),
        State::Parked => Some(NextAction::Doctor),
        State::NeedsLogin => Some(NextAction::Login),
        State::ConfigError => Some(NextAction::Configure),
        State::Stopped => Some(NextAction::Start),
    }
}

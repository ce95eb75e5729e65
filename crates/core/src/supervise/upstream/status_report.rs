//! The machine as people see it.

use super::Upstream;
use crate::event::Event;
use crate::failure::BlockCause;
use crate::supervise::circuit::{CircuitView, Passage};
use crate::supervise::link::{CatalogState, Link, Ready};
use crate::supervise::status::{Attempt, NextAction, State, UpstreamStatus};
use crate::time::{Mono, Now};

impl Upstream {
    /// The facts at this moment.
    pub fn status(&self, now: Now) -> UpstreamStatus {
        let now = now.mono;
        let state = self.state(now);
        let next_attempt = match &self.link {
            Link::Waiting { until: at }
            | Link::Parked { probe_at: at }
            | Link::Blocked { recheck_at: at, .. } => Some(*at),
            Link::Connecting { .. } | Link::Renewing { .. } => Some(now),
            Link::Ready(ready) => match (self.circuit.passage(now), ready.catalog) {
                (Passage::Refused { retry_at }, _) => Some(retry_at),
                (Passage::TrialDue, _) => Some(now),
                (Passage::Free, CatalogState::Stale { retry_at, .. }) => Some(retry_at),
                (
                    Passage::Free,
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
            for_how_long: now - self.shown_since,
            cause: self.shown_cause(state),
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

    /// Tells once what has changed: the visible state, and that there are no slots to wait for.
    pub(super) fn show(&mut self, now: Mono) {
        self.look_for_stranded();
        let state = self.state(now);
        // Each attempt of a server that was never up is another start; told once, that is an outage.
        let same_outage = self.shown == State::Reconnecting && state == State::Starting;
        if state != self.shown && !same_outage {
            let from = std::mem::replace(&mut self.shown, state);
            self.shown_since = now;
            let cause = self.shown_cause(state);
            self.events.push_back(Event::StateChanged { from, to: state, cause });
        }
    }

    fn shown_cause(&self, state: State) -> Option<String> {
        let stale = || match &self.link {
            Link::Ready(Ready { catalog: CatalogState::Stale { .. }, .. }) => self.stale_cause.clone(),
            Link::Dormant
            | Link::Connecting { .. }
            | Link::Ready(_)
            | Link::Renewing { .. }
            | Link::Waiting { .. }
            | Link::Parked { .. }
            | Link::Blocked { .. }
            | Link::Draining { .. }
            | Link::Stopped => None,
        };
        if state == State::NeedsApproval { self.held_back.clone() } else { self.cause.clone().or_else(stale) }
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
                (CircuitView::Closed, CatalogState::FirstListing { .. }) => ready.until_listed,
                (
                    CircuitView::Closed,
                    CatalogState::Fresh | CatalogState::Listing { .. } | CatalogState::Changed { .. },
                ) => {
                    if self.held_back.is_some() {
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

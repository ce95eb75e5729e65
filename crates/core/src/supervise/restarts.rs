//! Restart budget: the number of restarts within a sliding window after which an upstream is parked. Only proven health
//! clears it; a handshake proves nothing.

use super::spec::RestartSpec;
use crate::ids::PrincipalName;
use crate::time::Mono;
use std::collections::VecDeque;
use std::time::Duration;

/// Restarts of one upstream within the sliding window.
#[derive(Debug, Clone)]
pub struct RestartBudget {
    max: u32,
    window: Duration,
    /// The time, and the principal whose calls alone were in flight before, if there was one.
    entries: VecDeque<(Mono, Option<PrincipalName>)>,
}

/// Cause that a restart is counted for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RestartCause {
    /// The server, or unknown.
    #[default]
    Server,
    /// The calls of this principal, which alone were in flight.
    Principal(PrincipalName),
    /// The calls of a principal that is refused because of it: the restart does not count.
    Forgiven,
}

impl RestartBudget {
    /// An untouched budget.
    pub fn new(spec: &RestartSpec) -> Self {
        Self { max: spec.max, window: spec.window, entries: VecDeque::new() }
    }

    /// Applies a changed config, also to earlier restarts.
    pub fn reconfigure(&mut self, spec: &RestartSpec) {
        (self.max, self.window) = (spec.max, spec.window);
    }

    /// Returns whether the budget is used up.
    pub fn is_spent(&self, now: Mono) -> bool {
        self.in_window(now) >= self.max
    }

    /// Records a restart.
    pub fn record(&mut self, now: Mono) {
        self.push(now, None);
    }

    /// Records a restart with its cause.
    pub fn record_for(&mut self, now: Mono, cause: RestartCause) {
        match cause {
            RestartCause::Server => self.push(now, None),
            RestartCause::Principal(principal) => self.push(now, Some(principal)),
            RestartCause::Forgiven => {}
        }
    }

    fn push(&mut self, now: Mono, principal: Option<PrincipalName>) {
        while self.entries.front().is_some_and(|(at, _)| now - *at > self.window) {
            self.entries.pop_front();
        }
        // Attempts while parked count as restarts too; more entries than the decision needs would waste memory.
        if self.entries.len() > self.max as usize {
            self.entries.pop_front();
        }
        self.entries.push_back((now, principal));
    }

    /// Removes the last restart, which did not happen.
    pub fn undo_record(&mut self) {
        self.entries.pop_back();
    }

    /// Removes the restarts that this principal caused.
    pub fn forgive_principal(&mut self, principal: &PrincipalName) {
        self.entries.retain(|(_, of)| of.as_ref() != Some(principal));
    }

    /// Clears the budget after the upstream has proven to be healthy.
    pub fn forgive(&mut self) {
        self.entries.clear();
    }

    /// Restarts within the window that ends now.
    pub fn in_window(&self, now: Mono) -> u32 {
        self.entries.iter().filter(|(at, _)| now - *at <= self.window).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn b03_the_sixth_restart_in_five_minutes_is_one_too_many() {
        let mut budget = RestartBudget::new(&RestartSpec::default());
        for second in 0..5 {
            assert!(!budget.is_spent(at(second)));
            budget.record(at(second));
        }
        assert!(budget.is_spent(at(5)));
    }

    #[test]
    fn b03_restarts_leave_the_window_one_by_one() {
        let mut budget = RestartBudget::new(&RestartSpec::default());
        (0..5).for_each(|n| budget.record(at(n * 60)));
        assert!(budget.is_spent(at(299)));
        assert!(!budget.is_spent(at(301)), "the one at 0 s has left the window");
    }

    #[test]
    fn c05_restarts_of_a_refused_principal_are_taken_off_and_those_of_others_stay() {
        let mut budget = RestartBudget::new(&RestartSpec::default());
        let (mallory, other) = (PrincipalName::new("mallory"), PrincipalName::new("other"));
        for cause in [mallory.clone(), other, mallory.clone()] {
            budget.record_for(at(1), RestartCause::Principal(cause));
        }
        budget.record_for(at(1), RestartCause::Server);
        budget.record_for(at(1), RestartCause::Forgiven);
        assert_eq!(budget.in_window(at(2)), 4);
        budget.forgive_principal(&mallory);
        assert_eq!(budget.in_window(at(2)), 2);
    }

    #[test]
    fn the_restart_record_stays_bounded() {
        let mut budget = RestartBudget::new(&RestartSpec::default());
        (0..100_000).for_each(|_| budget.record(at(1)));
        assert!(budget.entries.len() <= 6 + 1);
    }
}

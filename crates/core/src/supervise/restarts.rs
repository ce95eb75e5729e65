//! The restart budget: how many restarts within a sliding window are bad luck, and when they become a
//! pattern. Only proven health forgives; a handshake proves nothing.

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
    /// When, and the principal whose calls alone were in flight before, if there was one.
    at: VecDeque<(Mono, Option<PrincipalName>)>,
}

/// What a restart is counted for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RestartCause {
    /// The server, or nobody knows.
    #[default]
    Server,
    /// The calls of this principal, which alone were in flight.
    Principal(PrincipalName),
    /// The calls of a principal that is refused for it: the restart does not count.
    Forgiven,
}

impl RestartBudget {
    /// An untouched budget.
    pub fn new(spec: &RestartSpec) -> Self {
        Self { max: spec.max, window: spec.window, at: VecDeque::new() }
    }

    /// Counts by these rules from now on, also what was before.
    pub fn revise(&mut self, spec: &RestartSpec) {
        (self.max, self.window) = (spec.max, spec.window);
    }

    /// Whether one more restart would be one too many.
    pub fn is_spent(&self, now: Mono) -> bool {
        self.in_window(now) >= self.max
    }

    /// Takes note of a restart.
    pub fn record(&mut self, now: Mono) {
        self.push(now, None);
    }

    /// Takes note of a restart, for this cause.
    pub fn record_for(&mut self, now: Mono, cause: RestartCause) {
        match cause {
            RestartCause::Server => self.push(now, None),
            RestartCause::Principal(principal) => self.push(now, Some(principal)),
            RestartCause::Forgiven => {}
        }
    }

    fn push(&mut self, now: Mono, principal: Option<PrincipalName>) {
        while self.at.front().is_some_and(|(at, _)| now - *at > self.window) {
            self.at.pop_front();
        }
        // Parked probes restart too; more entries than the verdict needs would only cost memory.
        if self.at.len() > self.max as usize {
            self.at.pop_front();
        }
        self.at.push_back((now, principal));
    }

    /// The last restart that was noted did not happen.
    pub fn take_back(&mut self) {
        self.at.pop_back();
    }

    /// Takes off the restarts that this principal has caused.
    pub fn forgive_principal(&mut self, principal: &PrincipalName) {
        self.at.retain(|(_, of)| of.as_ref() != Some(principal));
    }

    /// The upstream has proven to be healthy: earlier restarts were bad luck.
    pub fn forgive(&mut self) {
        self.at.clear();
    }

    /// Restarts within the window that ends now.
    pub fn in_window(&self, now: Mono) -> u32 {
        self.at.iter().filter(|(at, _)| now - *at <= self.window).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::at(Duration::from_secs(seconds))
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
    fn the_record_stays_small_however_long_it_flaps() {
        let mut budget = RestartBudget::new(&RestartSpec::default());
        (0..100_000).for_each(|_| budget.record(at(1)));
        assert!(budget.at.len() <= 6 + 1);
    }
}

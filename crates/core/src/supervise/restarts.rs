//! The restart budget: how many restarts within a sliding window are bad luck, and when they become a
//! pattern. Only proven health forgives; a handshake proves nothing.

use super::spec::RestartSpec;
use crate::time::Mono;
use std::collections::VecDeque;
use std::time::Duration;

/// Restarts of one upstream within the sliding window.
#[derive(Debug, Clone)]
pub struct RestartBudget {
    max: u32,
    window: Duration,
    at: VecDeque<Mono>,
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
        while self.at.front().is_some_and(|at| now - *at > self.window) {
            self.at.pop_front();
        }
        // Parked probes restart too; more entries than the verdict needs would only cost memory.
        if self.at.len() > self.max as usize {
            self.at.pop_front();
        }
        self.at.push_back(now);
    }

    /// The last restart that was noted did not happen.
    pub fn take_back(&mut self) {
        self.at.pop_back();
    }

    /// The upstream has proven to be healthy: earlier restarts were bad luck.
    pub fn forgive(&mut self) {
        self.at.clear();
    }

    /// Restarts within the window that ends now.
    pub fn in_window(&self, now: Mono) -> u32 {
        self.at.iter().filter(|at| now - **at <= self.window).count() as u32
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
    fn the_record_stays_small_however_long_it_flaps() {
        let mut budget = RestartBudget::new(&RestartSpec::default());
        (0..100_000).for_each(|_| budget.record(at(1)));
        assert!(budget.at.len() <= 6 + 1);
    }
}

//! Circuit breaker of one upstream. Closed: calls are admitted. Open: they are refused until a time. Half-open: one
//! trial call is admitted on a lease. The upstream machine decides which failures count.

use super::principals::RecentPrincipals;
use super::spec::CircuitSpec;
use crate::ids::PrincipalName;
use crate::time::Mono;

/// The circuit breaker of one upstream.
#[derive(Debug, Clone)]
pub struct Circuit {
    spec: CircuitSpec,
    failures: u32,
    /// The principals of consecutive failures that their own requests may have caused, each once.
    failed_principals: Vec<PrincipalName>,
    /// The principals that were answered recently.
    answered: RecentPrincipals,
    /// The principal of the last trial since the circuit opened.
    last_trial_by: Option<PrincipalName>,
    position: CircuitPosition,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CircuitPosition {
    Closed,
    /// Open until the time; half-open from then on.
    Open {
        until: Mono,
    },
    /// Half-open, with the trial taken until the lease ends.
    OnTrial {
        trial: u64,
        lease_ends: Mono,
    },
}

word_enum! {
    /// The state of the circuit, for status.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CircuitView {
        /// Calls are admitted.
        Closed = "closed",
        /// Calls are refused.
        Open = "open",
        /// One trial call decides.
        HalfOpen = "half_open",
    }
}

/// The circuit's decision about one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitDecision {
    /// Admitted.
    Allowed,
    /// The trial is free; the call that takes it decides the state of the circuit.
    TrialDue,
    /// Refused until this time.
    Refused {
        /// The time after which a retry is useful.
        retry_at: Mono,
    },
}

impl Circuit {
    /// Maximum number of principals that are distinguished in a row of failures.
    const MAX_PRINCIPALS: usize = 64;

    /// A closed circuit.
    pub fn new(spec: CircuitSpec) -> Self {
        Self {
            spec,
            failures: 0,
            failed_principals: Vec::new(),
            answered: RecentPrincipals::default(),
            last_trial_by: None,
            position: CircuitPosition::Closed,
        }
    }

    /// Applies a changed config. An open circuit stays open for the time it was given.
    pub fn reconfigure(&mut self, spec: CircuitSpec) {
        self.spec = spec;
    }

    /// The decision about a call now. Does not take the trial.
    pub fn decision(&self, now: Mono) -> CircuitDecision {
        match self.position {
            CircuitPosition::Closed => CircuitDecision::Allowed,
            CircuitPosition::Open { until } if now < until => CircuitDecision::Refused { retry_at: until },
            CircuitPosition::Open { .. } => CircuitDecision::TrialDue,
            CircuitPosition::OnTrial { lease_ends, .. } if now < lease_ends => {
                CircuitDecision::Refused { retry_at: lease_ends }
            }
            CircuitPosition::OnTrial { .. } => CircuitDecision::TrialDue,
        }
    }

    /// The call `trial` takes the trial.
    pub fn begin_trial(&mut self, now: Mono, trial: u64) {
        self.position = CircuitPosition::OnTrial { trial, lease_ends: now + self.spec.cooldown };
    }

    /// [`Self::begin_trial`] by a call of this principal.
    pub fn begin_trial_for(&mut self, now: Mono, trial: u64, principal: &PrincipalName) {
        self.last_trial_by = Some(principal.clone());
        self.begin_trial(now, trial);
    }

    /// The time until which this principal leaves a due trial to others, if the last trial was its own.
    pub fn yields_until(&self, now: Mono, principal: &PrincipalName) -> Option<Mono> {
        let due_at = match self.position {
            CircuitPosition::Closed => return None,
            CircuitPosition::Open { until } => until,
            CircuitPosition::OnTrial { lease_ends, .. } => lease_ends,
        };
        let until = due_at + self.spec.cooldown;
        (self.last_trial_by.as_ref() == Some(principal) && now < until).then_some(until)
    }

    /// Returns whether this call holds the trial.
    pub fn is_trial(&self, call: u64) -> bool {
        matches!(self.position, CircuitPosition::OnTrial { trial, .. } if trial == call)
    }

    /// Records a call that failed in a way that counts; it may hold the trial. Returns whether this opened the circuit.
    pub fn record_failure(&mut self, now: Mono, call: u64) -> bool {
        match self.position {
            CircuitPosition::Closed => {
                self.failures += 1;
                let opens = self.failures >= self.spec.threshold;
                if opens {
                    self.open(now);
                }
                opens
            }
            CircuitPosition::OnTrial { trial, .. } if trial == call => {
                self.failures += 1;
                self.open(now);
                true
            }
            // A late failure from before the circuit opened, or a trial whose lease expired.
            CircuitPosition::Open { .. } | CircuitPosition::OnTrial { .. } => false,
        }
    }

    /// [`Self::record_failure`] for a failure that the request itself may have caused, such as a timeout. While the
    /// server answers other principals (within the last cooldown), such failures count once per principal, and those of
    /// a single principal do not open the circuit.
    pub fn record_failure_of(&mut self, now: Mono, call: u64, principal: &PrincipalName) -> bool {
        if self.position != CircuitPosition::Closed {
            return self.record_failure(now, call);
        }
        let is_known = self.failed_principals.contains(principal);
        let others_succeed = self.answered.has_other(now, principal, self.spec.cooldown);
        if others_succeed && is_known {
            return false;
        }
        if !is_known && self.failed_principals.len() < Self::MAX_PRINCIPALS {
            self.failed_principals.push(principal.clone());
        }
        if others_succeed && self.failed_principals.len() == 1 {
            self.failures += 1;
            return false;
        }
        self.record_failure(now, call)
    }

    /// Records an answer to a call of this principal.
    pub fn record_answer(&mut self, now: Mono, principal: &PrincipalName) {
        self.answered.record(now, principal);
    }

    /// Records a call that ended without a verdict: the trial becomes free again.
    pub fn release_trial(&mut self, now: Mono, call: u64) {
        if let CircuitPosition::OnTrial { trial, .. } = self.position
            && trial == call
        {
            self.position = CircuitPosition::Open { until: now };
        }
    }

    /// Closes the circuit after a successful trial or a new link. Returns whether it was open.
    pub fn close(&mut self) -> bool {
        if self.failures > 0 {
            self.failures = 0;
            self.failed_principals.clear();
            self.last_trial_by = None;
        }
        std::mem::replace(&mut self.position, CircuitPosition::Closed) != CircuitPosition::Closed
    }

    /// Consecutive failures.
    pub fn consecutive_failures(&self) -> u32 {
        self.failures
    }

    /// The state of the circuit, for status.
    pub fn view(&self, now: Mono) -> CircuitView {
        match self.position {
            CircuitPosition::Closed => CircuitView::Closed,
            CircuitPosition::Open { until } if now < until => CircuitView::Open,
            CircuitPosition::Open { .. } | CircuitPosition::OnTrial { .. } => CircuitView::HalfOpen,
        }
    }

    fn open(&mut self, now: Mono) {
        self.position = CircuitPosition::Open { until: now + self.spec.cooldown };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Mono {
        Mono::from_origin(Duration::from_secs(seconds))
    }

    fn opened_at_zero() -> Circuit {
        let mut circuit = Circuit::new(CircuitSpec::default());
        (1..=3).for_each(|call| {
            circuit.record_failure(at(0), call);
        });
        circuit
    }

    #[test]
    fn b11_three_failures_in_a_row_open_it_and_a_success_between_them_does_not() {
        let mut circuit = Circuit::new(CircuitSpec::default());
        assert!(!circuit.record_failure(at(0), 1));
        assert!(!circuit.record_failure(at(0), 2));
        circuit.close();
        assert!(!circuit.record_failure(at(0), 3));
        assert!(!circuit.record_failure(at(0), 4));
        assert_eq!(circuit.view(at(0)), CircuitView::Closed);
        assert!(circuit.record_failure(at(0), 5));
        assert_eq!(circuit.view(at(0)), CircuitView::Open);
    }

    /// A circuit whose server has just answered `honest`.
    fn with_honest() -> (Circuit, PrincipalName, PrincipalName) {
        let (honest, hostile) = (PrincipalName::new("honest"), PrincipalName::new("hostile"));
        let mut circuit = Circuit::new(CircuitSpec::default());
        circuit.record_answer(at(0), &honest);
        (circuit, honest, hostile)
    }

    #[test]
    fn b11_timeouts_of_one_principal_do_not_open_it_while_others_are_answered() {
        let (mut circuit, _, hostile) = with_honest();
        for call in 0..100 {
            assert!(!circuit.record_failure_of(at(59), call, &hostile));
        }
        assert_eq!(circuit.consecutive_failures(), 1, "it counts once");
        assert!(!circuit.record_failure_of(at(60), 100, &hostile));
        assert!(circuit.record_failure_of(at(60), 101, &hostile), "no other answer for a minute");
    }

    #[test]
    fn b11_timeouts_of_several_principals_open_it_although_others_were_answered() {
        let (mut circuit, honest, hostile) = with_honest();
        circuit.record_answer(at(1), &PrincipalName::new("third"));
        assert!(!circuit.record_failure_of(at(2), 1, &hostile));
        assert!(!circuit.record_failure_of(at(2), 2, &honest));
        assert!(circuit.record_failure_of(at(2), 3, &PrincipalName::new("fourth")));
    }

    #[test]
    fn b11_one_timeout_of_one_principal_opens_no_circuit_with_a_threshold_of_one() {
        let (mut circuit, honest, hostile) = with_honest();
        circuit.reconfigure(CircuitSpec { threshold: 1, ..CircuitSpec::default() });
        circuit.record_answer(at(1), &hostile);
        assert!(!circuit.record_failure_of(at(2), 1, &hostile));
        assert!(circuit.record_failure_of(at(2), 2, &honest));
    }

    #[test]
    fn b11_a_lost_connection_counts_for_any_principal() {
        let (mut circuit, _, hostile) = with_honest();
        assert!(!circuit.record_failure(at(1), 1) && !circuit.record_failure(at(1), 2));
        assert!(!circuit.record_failure_of(at(1), 3, &hostile));
        assert!(circuit.record_failure(at(1), 4));
    }

    #[test]
    fn b11_timeouts_of_the_only_principal_open_it() {
        let mut circuit = Circuit::new(CircuitSpec::default());
        let local = PrincipalName::new(PrincipalName::LOCAL);
        circuit.record_answer(at(0), &local);
        assert!(!circuit.record_failure_of(at(1), 1, &local) && !circuit.record_failure_of(at(1), 2, &local));
        assert!(circuit.record_failure_of(at(1), 3, &local));
    }

    #[test]
    fn b13_an_open_circuit_refuses_and_names_the_next_trial() {
        assert_eq!(opened_at_zero().decision(at(59)), CircuitDecision::Refused { retry_at: at(60) });
    }

    #[test]
    fn b14_after_the_cooldown_exactly_one_caller_is_the_trial() {
        let mut circuit = opened_at_zero();
        assert_eq!(circuit.decision(at(60)), CircuitDecision::TrialDue);
        circuit.begin_trial(at(60), 9);
        assert_eq!(circuit.decision(at(60)), CircuitDecision::Refused { retry_at: at(120) });
        assert_eq!(circuit.view(at(60)), CircuitView::HalfOpen);
    }

    #[test]
    fn b14_an_abandoned_trial_is_free_at_once_and_a_lost_one_after_its_lease() {
        let mut circuit = opened_at_zero();
        circuit.begin_trial(at(60), 9);
        circuit.release_trial(at(61), 9);
        assert_eq!(circuit.decision(at(61)), CircuitDecision::TrialDue);
        circuit.begin_trial(at(61), 10);
        assert_eq!(circuit.decision(at(121)), CircuitDecision::TrialDue);
        circuit.begin_trial(at(121), 11);
        assert!(!circuit.record_failure(at(122), 10), "the forgotten trial has no say any more");
        circuit.release_trial(at(122), 10);
        assert_eq!(circuit.decision(at(122)), CircuitDecision::Refused { retry_at: at(181) });
    }

    #[test]
    fn b15_the_trial_decides() {
        let mut circuit = opened_at_zero();
        circuit.begin_trial(at(60), 9);
        assert!(circuit.record_failure(at(65), 9));
        assert_eq!(circuit.decision(at(124)), CircuitDecision::Refused { retry_at: at(125) });
        circuit.begin_trial(at(125), 10);
        assert!(circuit.close());
        assert_eq!(
            (circuit.decision(at(126)), circuit.consecutive_failures()),
            (CircuitDecision::Allowed, 0)
        );
    }
}

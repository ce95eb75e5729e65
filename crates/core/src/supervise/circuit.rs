//! The circuit of one upstream. Closed: calls flow. Open: they are refused until a time. Half-open: one
//! trial is let through on a lease. It counts what it is told to count; what deserves counting is decided
//! by the upstream machine.

use super::principals::RecentPrincipals;
use super::spec::CircuitSpec;
use crate::ids::PrincipalName;
use crate::time::Mono;

/// The circuit of one upstream.
#[derive(Debug, Clone)]
pub struct Circuit {
    spec: CircuitSpec,
    failures: u32,
    /// The principals of the failures in a row that their requests may have caused. Each is here once.
    failed_for: Vec<PrincipalName>,
    /// The principals that were answered lately.
    answered: RecentPrincipals,
    /// The principal of the last trial since the circuit opened.
    tried: Option<PrincipalName>,
    position: Position,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Closed,
    /// Open until the time; half-open from then on.
    Open {
        until: Mono,
    },
    /// Half-open, with the place taken until the lease ends.
    OnTrial {
        trial: u64,
        lease_ends: Mono,
    },
}

/// The circuit as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitView {
    /// Calls flow.
    Closed,
    /// Calls are refused.
    Open,
    /// One trial decides.
    HalfOpen,
}

impl CircuitView {
    /// All positions.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// The word used in status, logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// What the circuit says to one caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// Go on.
    Free,
    /// The trial's place is free; whoever takes it decides the circuit's fate.
    TrialDue,
    /// Not before this time.
    Refused {
        /// When it is worth asking again.
        retry_at: Mono,
    },
}

impl Circuit {
    /// Principals that are told apart in a row of failures.
    const MOST_PRINCIPALS: usize = 64;

    /// A closed circuit.
    pub fn new(spec: CircuitSpec) -> Self {
        Self {
            spec,
            failures: 0,
            failed_for: Vec::new(),
            answered: RecentPrincipals::default(),
            tried: None,
            position: Position::Closed,
        }
    }

    /// Counts by these rules from now on. What is open stays open for as long as it was to be.
    pub fn revise(&mut self, spec: CircuitSpec) {
        self.spec = spec;
    }

    /// What a caller would be told now. Takes nothing.
    pub fn passage(&self, now: Mono) -> Passage {
        match self.position {
            Position::Closed => Passage::Free,
            Position::Open { until } if now < until => Passage::Refused { retry_at: until },
            Position::Open { .. } => Passage::TrialDue,
            Position::OnTrial { lease_ends, .. } if now < lease_ends => {
                Passage::Refused { retry_at: lease_ends }
            }
            Position::OnTrial { .. } => Passage::TrialDue,
        }
    }

    /// The call `trial` takes the one place of the trial.
    pub fn begin_trial(&mut self, now: Mono, trial: u64) {
        self.position = Position::OnTrial { trial, lease_ends: now + self.spec.cooldown };
    }

    /// [`Self::begin_trial`] by a call of this principal.
    pub fn begin_trial_of(&mut self, now: Mono, trial: u64, principal: &PrincipalName) {
        self.tried = Some(principal.clone());
        self.begin_trial(now, trial);
    }

    /// Until when this principal lets others have the trial that is due, if the last one was its own.
    pub fn yields_until(&self, now: Mono, principal: &PrincipalName) -> Option<Mono> {
        let due_at = match self.position {
            Position::Closed => return None,
            Position::Open { until } => until,
            Position::OnTrial { lease_ends, .. } => lease_ends,
        };
        let until = due_at + self.spec.cooldown;
        (self.tried.as_ref() == Some(principal) && now < until).then_some(until)
    }

    /// Whether this call holds the trial's place.
    pub fn is_trial(&self, call: u64) -> bool {
        matches!(self.position, Position::OnTrial { trial, .. } if trial == call)
    }

    /// A call failed in a way that counts; it may have held the trial's place.
    /// Answers whether this opened the circuit.
    pub fn failed(&mut self, now: Mono, call: u64) -> bool {
        match self.position {
            Position::Closed => {
                self.failures += 1;
                let opens = self.failures >= self.spec.threshold;
                if opens {
                    self.open(now);
                }
                opens
            }
            Position::OnTrial { trial, .. } if trial == call => {
                self.failures += 1;
                self.open(now);
                true
            }
            // A straggler from before it opened, or a trial whose lease ran out.
            Position::Open { .. } | Position::OnTrial { .. } => false,
        }
    }

    /// [`Self::failed`] for a failure that the request itself may have caused, such as a timeout. While the server
    /// answers other principals such failures count once for each principal, and those of one alone do not open the
    /// circuit: others answered within the last cooldown.
    pub fn failed_by(&mut self, now: Mono, call: u64, principal: &PrincipalName) -> bool {
        if self.position != Position::Closed {
            return self.failed(now, call);
        }
        let is_known = self.failed_for.contains(principal);
        let others_succeed = self.answered.has_other(now, principal, self.spec.cooldown);
        if others_succeed && is_known {
            return false;
        }
        if !is_known && self.failed_for.len() < Self::MOST_PRINCIPALS {
            self.failed_for.push(principal.clone());
        }
        if others_succeed && self.failed_for.len() == 1 {
            self.failures += 1;
            return false;
        }
        self.failed(now, call)
    }

    /// The server has answered a call of this principal.
    pub fn answered(&mut self, now: Mono, principal: &PrincipalName) {
        self.answered.note(now, principal);
    }

    /// A call was given up without a verdict: a trial's place becomes free again.
    pub fn abandoned(&mut self, now: Mono, call: u64) {
        if let Position::OnTrial { trial, .. } = self.position
            && trial == call
        {
            self.position = Position::Open { until: now };
        }
    }

    /// The upstream works: a trial succeeded, or a new link is up. Answers whether this closed the circuit.
    pub fn close(&mut self) -> bool {
        if self.failures > 0 {
            self.failures = 0;
            self.failed_for.clear();
            self.tried = None;
        }
        std::mem::replace(&mut self.position, Position::Closed) != Position::Closed
    }

    /// Failures in a row.
    pub fn consecutive_failures(&self) -> u32 {
        self.failures
    }

    /// The circuit as people see it.
    pub fn view(&self, now: Mono) -> CircuitView {
        match self.position {
            Position::Closed => CircuitView::Closed,
            Position::Open { until } if now < until => CircuitView::Open,
            Position::Open { .. } | Position::OnTrial { .. } => CircuitView::HalfOpen,
        }
    }

    fn open(&mut self, now: Mono) {
        self.position = Position::Open { until: now + self.spec.cooldown };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Mono {
        Mono::at(Duration::from_secs(seconds))
    }

    fn opened_at_zero() -> Circuit {
        let mut circuit = Circuit::new(CircuitSpec::default());
        (1..=3).for_each(|call| {
            circuit.failed(at(0), call);
        });
        circuit
    }

    #[test]
    fn b11_three_failures_in_a_row_open_it_and_a_success_between_them_does_not() {
        let mut circuit = Circuit::new(CircuitSpec::default());
        assert!(!circuit.failed(at(0), 1));
        assert!(!circuit.failed(at(0), 2));
        circuit.close();
        assert!(!circuit.failed(at(0), 3));
        assert!(!circuit.failed(at(0), 4));
        assert_eq!(circuit.view(at(0)), CircuitView::Closed);
        assert!(circuit.failed(at(0), 5));
        assert_eq!(circuit.view(at(0)), CircuitView::Open);
    }

    /// A circuit whose server has just answered `honest`.
    fn with_honest() -> (Circuit, PrincipalName, PrincipalName) {
        let (honest, hostile) = (PrincipalName::new("honest"), PrincipalName::new("hostile"));
        let mut circuit = Circuit::new(CircuitSpec::default());
        circuit.answered(at(0), &honest);
        (circuit, honest, hostile)
    }

    #[test]
    fn b11_timeouts_of_one_principal_do_not_open_it_while_others_are_answered() {
        let (mut circuit, _, hostile) = with_honest();
        for call in 0..100 {
            assert!(!circuit.failed_by(at(59), call, &hostile));
        }
        assert_eq!(circuit.consecutive_failures(), 1, "it counts once");
        assert!(!circuit.failed_by(at(60), 100, &hostile));
        assert!(circuit.failed_by(at(60), 101, &hostile), "nobody else was answered for a minute");
    }

    #[test]
    fn b11_timeouts_of_several_principals_open_it_although_others_were_answered() {
        let (mut circuit, honest, hostile) = with_honest();
        circuit.answered(at(1), &PrincipalName::new("third"));
        assert!(!circuit.failed_by(at(2), 1, &hostile));
        assert!(!circuit.failed_by(at(2), 2, &honest));
        assert!(circuit.failed_by(at(2), 3, &PrincipalName::new("fourth")));
    }

    #[test]
    fn b11_one_timeout_of_one_principal_opens_no_circuit_with_a_threshold_of_one() {
        let (mut circuit, honest, hostile) = with_honest();
        circuit.revise(CircuitSpec { threshold: 1, ..CircuitSpec::default() });
        circuit.answered(at(1), &hostile);
        assert!(!circuit.failed_by(at(2), 1, &hostile));
        assert!(circuit.failed_by(at(2), 2, &honest));
    }

    #[test]
    fn b11_a_lost_connection_counts_whoever_called() {
        let (mut circuit, _, hostile) = with_honest();
        assert!(!circuit.failed(at(1), 1) && !circuit.failed(at(1), 2));
        assert!(!circuit.failed_by(at(1), 3, &hostile));
        assert!(circuit.failed(at(1), 4));
    }

    #[test]
    fn b11_timeouts_of_the_only_principal_open_it_as_ever() {
        let mut circuit = Circuit::new(CircuitSpec::default());
        let local = PrincipalName::new(PrincipalName::LOCAL);
        circuit.answered(at(0), &local);
        assert!(!circuit.failed_by(at(1), 1, &local) && !circuit.failed_by(at(1), 2, &local));
        assert!(circuit.failed_by(at(1), 3, &local));
    }

    #[test]
    fn b13_an_open_circuit_refuses_and_names_the_next_trial() {
        assert_eq!(opened_at_zero().passage(at(59)), Passage::Refused { retry_at: at(60) });
    }

    #[test]
    fn b14_after_the_cooldown_exactly_one_caller_is_the_trial() {
        let mut circuit = opened_at_zero();
        assert_eq!(circuit.passage(at(60)), Passage::TrialDue);
        circuit.begin_trial(at(60), 9);
        assert_eq!(circuit.passage(at(60)), Passage::Refused { retry_at: at(120) });
        assert_eq!(circuit.view(at(60)), CircuitView::HalfOpen);
    }

    #[test]
    fn b14_an_abandoned_trial_frees_its_place_at_once_and_a_forgotten_one_with_its_lease() {
        let mut circuit = opened_at_zero();
        circuit.begin_trial(at(60), 9);
        circuit.abandoned(at(61), 9);
        assert_eq!(circuit.passage(at(61)), Passage::TrialDue);
        circuit.begin_trial(at(61), 10);
        assert_eq!(circuit.passage(at(121)), Passage::TrialDue);
        circuit.begin_trial(at(121), 11);
        assert!(!circuit.failed(at(122), 10), "the forgotten trial has no say any more");
        circuit.abandoned(at(122), 10);
        assert_eq!(circuit.passage(at(122)), Passage::Refused { retry_at: at(181) });
    }

    #[test]
    fn b15_the_trial_decides() {
        let mut circuit = opened_at_zero();
        circuit.begin_trial(at(60), 9);
        assert!(circuit.failed(at(65), 9));
        assert_eq!(circuit.passage(at(124)), Passage::Refused { retry_at: at(125) });
        circuit.begin_trial(at(125), 10);
        assert!(circuit.close());
        assert_eq!((circuit.passage(at(126)), circuit.consecutive_failures()), (Passage::Free, 0));
    }
}

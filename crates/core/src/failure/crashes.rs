//! Requests that were the only one in flight when their server process died (C05).
//!
//! One death says little: the process may have been killed from outside. A request that was alone at two deaths is not
//! replayed any more, and one that was alone at three is refused for a while. An answer clears its record.
//!
//! The same for principals, where several use a server: one that kills it over and over, with whatever requests, is
//! refused for a while, and the server is not parked for it.

use crate::ids::PrincipalName;
use crate::json::Digest;
use crate::time::Mono;
use std::collections::VecDeque;
use std::time::Duration;

/// Deaths of one server process, by the request that was alone in flight.
#[derive(Debug, Default)]
pub struct Crashes {
    /// The request that died last is at the back.
    records: VecDeque<Record>,
}

#[derive(Debug)]
struct Record {
    request: Digest,
    deaths: Vec<Mono>,
    refused_until: Option<Mono>,
}

/// What the record of a request allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// It may be sent, and replayed if it is harmless.
    Replay,
    /// It may be sent, and is not replayed.
    Once,
    /// It is not sent for this long.
    Nothing(Duration),
}

impl Crashes {
    /// Deaths within this time count, and a request that is refused is refused for this time.
    pub const WINDOW: Duration = Duration::from_secs(600);
    /// Deaths after which a request is refused.
    pub const REFUSED_AT: usize = 3;
    const NOT_REPLAYED_AT: usize = 2;
    /// Requests that are remembered; the one whose last death is longest ago is forgotten first.
    const MOST: usize = 64;

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Notes that the process died while this request was the only one in flight.
    pub fn died(&mut self, now: Mono, request: Digest) {
        let known = self.records.iter().position(|record| record.request == request);
        let mut record = known.and_then(|at| self.records.remove(at)).unwrap_or(Record {
            request,
            deaths: Vec::new(),
            refused_until: None,
        });
        record.deaths.retain(|at| now - *at < Self::WINDOW);
        record.deaths.push(now);
        if record.deaths.len() >= Self::REFUSED_AT {
            record.refused_until = Some(now + Self::WINDOW);
        }
        if self.records.len() == Self::MOST {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    /// Forgets a request that was answered, and all that is too old to count.
    pub fn answered(&mut self, now: Mono, request: Digest) {
        self.records.retain(|record| {
            let last = record.deaths.last().is_some_and(|at| now - *at < Self::WINDOW);
            last && record.request != request
        });
    }

    /// What this request may do now.
    pub fn allowed(&self, now: Mono, request: Digest) -> Allowed {
        let Some(record) = self.records.iter().find(|record| record.request == request) else {
            return Allowed::Replay;
        };
        if let Some(until) = record.refused_until.filter(|until| *until > now) {
            return Allowed::Nothing(now.until(until));
        }
        let recent = record.deaths.iter().filter(|at| now - **at < Self::WINDOW).count();
        if recent >= Self::NOT_REPLAYED_AT { Allowed::Once } else { Allowed::Replay }
    }
}

/// Deaths of one server process, by the principal whose calls alone were in flight.
#[derive(Debug, Default)]
pub struct PrincipalCrashes {
    /// The principal of the last death is at the back.
    records: VecDeque<PrincipalRecord>,
    /// When deaths were taken off the restart budget.
    forgiven: VecDeque<Mono>,
}

#[derive(Debug)]
struct PrincipalRecord {
    principal: PrincipalName,
    deaths: Vec<Mono>,
    refused_until: Option<Mono>,
}

/// A principal is refused from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrincipalVerdict {
    /// For how long.
    pub wait: Duration,
    /// Whether its deaths are taken off the restart budget.
    pub forgiven: bool,
}

impl PrincipalCrashes {
    /// Deaths within this time count.
    pub const WINDOW: Duration = Crashes::WINDOW;
    /// Deaths after which a principal is refused.
    pub const REFUSED_AT: usize = 3;
    /// How long a principal is refused.
    pub const REFUSED_FOR: Duration = Duration::from_secs(60);
    /// How often within the window deaths are taken off the restart budget: a server that dies of itself is parked.
    const MOST_FORGIVEN: usize = 3;
    /// Principals that are remembered; the one whose last death is longest ago is forgotten first.
    const MOST: usize = 64;

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Notes that the process died while calls of this principal alone were in flight. Answers whether it is refused from
    /// now on: at the third death, for a minute. If deaths cannot be taken off the restart budget any more, until they can.
    pub fn died(&mut self, now: Mono, principal: &PrincipalName) -> Option<PrincipalVerdict> {
        let is_recent = |at: &Mono| now - *at < Self::WINDOW;
        let known = self.records.iter().position(|record| record.principal == *principal);
        let mut record = known.and_then(|at| self.records.remove(at)).unwrap_or(PrincipalRecord {
            principal: principal.clone(),
            deaths: Vec::new(),
            refused_until: None,
        });
        self.records.retain(|record| {
            record.deaths.last().is_some_and(is_recent)
                || record.refused_until.is_some_and(|until| until > now)
        });
        record.deaths.retain(is_recent);
        record.deaths.push(now);
        let verdict = (record.deaths.len() >= Self::REFUSED_AT).then(|| self.judge(now));
        if let Some(PrincipalVerdict { wait, .. }) = verdict {
            record.deaths.clear();
            record.refused_until = Some(now + wait);
        }
        if self.records.len() == Self::MOST {
            self.records.pop_front();
        }
        self.records.push_back(record);
        verdict
    }

    fn judge(&mut self, now: Mono) -> PrincipalVerdict {
        self.forgiven.retain(|at| now - *at < Self::WINDOW);
        let forgiven = self.forgiven.len() < Self::MOST_FORGIVEN;
        let wait = match self.forgiven.front() {
            Some(first) if !forgiven => now.until(*first + Self::WINDOW).max(Self::REFUSED_FOR),
            Some(_) | None => Self::REFUSED_FOR,
        };
        if forgiven {
            self.forgiven.push_back(now);
        }
        PrincipalVerdict { wait, forgiven }
    }

    /// For how long calls of this principal are still refused, if they are.
    pub fn refused(&self, now: Mono, principal: &PrincipalName) -> Option<Duration> {
        let record = self.records.iter().find(|record| record.principal == *principal)?;
        record.refused_until.filter(|until| *until > now).map(|until| now.until(until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::at(Duration::from_secs(seconds))
    }

    fn request(name: &str) -> Digest {
        Digest::of(name.as_bytes())
    }

    #[test]
    fn c05_two_deaths_end_the_replays_of_a_request_and_three_refuse_it() {
        let (mut crashes, it) = (Crashes::default(), request("it"));
        crashes.died(at(0), it);
        assert_eq!(crashes.allowed(at(1), it), Allowed::Replay);
        crashes.died(at(100), it);
        assert_eq!(crashes.allowed(at(101), it), Allowed::Once);
        crashes.died(at(200), it);
        assert_eq!(crashes.allowed(at(201), it), Allowed::Nothing(Duration::from_secs(599)));
        assert_eq!(crashes.allowed(at(799), it), Allowed::Nothing(Duration::from_secs(1)));
        assert_eq!(crashes.allowed(at(800), it), Allowed::Replay);
        assert_eq!(crashes.allowed(at(201), request("another")), Allowed::Replay);
    }

    #[test]
    fn c05_deaths_count_for_ten_minutes_and_an_answer_clears_them() {
        let (mut crashes, it) = (Crashes::default(), request("it"));
        crashes.died(at(0), it);
        crashes.died(at(600), it);
        assert_eq!(crashes.allowed(at(601), it), Allowed::Replay);
        crashes.died(at(602), it);
        assert_eq!(crashes.allowed(at(603), it), Allowed::Once);
        crashes.answered(at(604), it);
        assert_eq!(crashes.allowed(at(605), it), Allowed::Replay);
        assert!(crashes.is_empty());
    }

    const MINUTE: Duration = PrincipalCrashes::REFUSED_FOR;

    #[test]
    fn c05_three_deaths_of_one_principal_refuse_it_for_a_minute_and_nobody_else() {
        let (mut crashes, hostile) = (PrincipalCrashes::default(), PrincipalName::new("hostile"));
        assert_eq!(crashes.died(at(0), &hostile), None);
        assert_eq!(crashes.died(at(1), &hostile), None);
        assert_eq!(crashes.refused(at(1), &hostile), None);
        let verdict = PrincipalVerdict { wait: MINUTE, forgiven: true };
        assert_eq!(crashes.died(at(2), &hostile), Some(verdict));
        assert_eq!(crashes.refused(at(2), &hostile), Some(MINUTE));
        assert_eq!(crashes.refused(at(2), &PrincipalName::new("honest")), None);
        assert_eq!(crashes.refused(at(61), &hostile), Some(Duration::from_secs(1)));
        assert_eq!(crashes.refused(at(62), &hostile), None);
        assert_eq!(crashes.died(at(63), &hostile), None, "three more deaths are needed");
    }

    #[test]
    fn c05_deaths_of_a_principal_count_for_ten_minutes() {
        let (mut crashes, hostile) = (PrincipalCrashes::default(), PrincipalName::new("hostile"));
        crashes.died(at(0), &hostile);
        crashes.died(at(1), &hostile);
        assert_eq!(crashes.died(at(600), &hostile), None, "the first one is ten minutes old");
        assert!(crashes.died(at(600), &hostile).is_some());
    }

    #[test]
    fn c05_deaths_are_forgiven_three_times_in_a_window_and_then_the_principal_waits_for_the_next() {
        let (mut crashes, hostile) = (PrincipalCrashes::default(), PrincipalName::new("hostile"));
        let mut third_death = |second: u64| {
            crashes.died(at(second), &hostile);
            crashes.died(at(second), &hostile);
            crashes.died(at(second), &hostile).unwrap()
        };
        for round in 0..3 {
            assert_eq!(third_death(round * 70), PrincipalVerdict { wait: MINUTE, forgiven: true });
        }
        let wait = Duration::from_secs(600 - 210);
        assert_eq!(third_death(210), PrincipalVerdict { wait, forgiven: false });
        assert_eq!(third_death(600), PrincipalVerdict { wait: MINUTE, forgiven: true });
    }

    #[test]
    fn what_is_remembered_of_principals_is_bounded() {
        let mut crashes = PrincipalCrashes::default();
        for number in 0..1000 {
            crashes.died(at(number / 10), &PrincipalName::new(number.to_string()));
        }
        assert_eq!(crashes.records.len(), PrincipalCrashes::MOST);
    }

    #[test]
    fn what_is_remembered_of_deaths_is_bounded() {
        let mut crashes = Crashes::default();
        for number in 0..1000 {
            crashes.died(at(number), request(&number.to_string()));
        }
        assert_eq!(crashes.records.len(), Crashes::MOST);
    }
}

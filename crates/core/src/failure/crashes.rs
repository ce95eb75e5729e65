//! Record of requests that were the only one in flight when their server process died (C05).
//!
//! One death proves little: the process may have been killed from outside. A request that was alone at two deaths is
//! not replayed, and one that was alone at three is refused for a while. An answer clears its record.
//!
//! Principals have the same record: one that kills a shared server repeatedly, with whatever requests, is refused for a
//! while, and the server is not parked because of it.

use crate::ids::PrincipalName;
use crate::json::Digest;
use crate::time::Mono;
use std::collections::VecDeque;
use std::time::Duration;

/// Deaths of one server process, by the request that was alone in flight.
#[derive(Debug, Default)]
pub struct Crashes {
    /// The request with the latest death is at the back.
    records: VecDeque<Record>,
}

#[derive(Debug)]
struct Record {
    request: Digest,
    deaths: Vec<Mono>,
    refused_until: Option<Mono>,
}

/// Verdict on sending and replaying a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayVerdict {
    /// It may be sent, and replayed if that is safe.
    Replay,
    /// It may be sent, but not replayed.
    NoReplay,
    /// It is refused for this duration.
    Refused(Duration),
}

impl Crashes {
    /// Window in which deaths count, and duration of a refusal.
    pub const WINDOW: Duration = Duration::from_secs(600);
    /// Number of deaths at which a request is refused.
    pub const REFUSED_AT: usize = 3;
    const NOT_REPLAYED_AT: usize = 2;
    /// Maximum number of remembered requests; the one with the oldest last death is forgotten first.
    const MAX_RECORDS: usize = 64;

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Records that the process died while this request was the only one in flight.
    pub fn record_crash(&mut self, now: Mono, request: Digest) {
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
        if self.records.len() == Self::MAX_RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    /// Forgets a request that was answered, and records that are too old to count.
    pub fn answered(&mut self, now: Mono, request: Digest) {
        self.records.retain(|record| {
            let last = record.deaths.last().is_some_and(|at| now - *at < Self::WINDOW);
            last && record.request != request
        });
    }

    /// The verdict on this request now.
    pub fn verdict(&self, now: Mono, request: Digest) -> ReplayVerdict {
        let Some(record) = self.records.iter().find(|record| record.request == request) else {
            return ReplayVerdict::Replay;
        };
        if let Some(until) = record.refused_until.filter(|until| *until > now) {
            return ReplayVerdict::Refused(now.until(until));
        }
        let recent = record.deaths.iter().filter(|at| now - **at < Self::WINDOW).count();
        if recent >= Self::NOT_REPLAYED_AT { ReplayVerdict::NoReplay } else { ReplayVerdict::Replay }
    }
}

/// Deaths of one server process, by the principal whose calls alone were in flight.
#[derive(Debug, Default)]
pub struct PrincipalCrashes {
    /// The principal of the latest death is at the back.
    records: VecDeque<PrincipalRecord>,
    /// Times at which deaths were taken off the restart budget.
    forgiven: VecDeque<Mono>,
}

#[derive(Debug)]
struct PrincipalRecord {
    principal: PrincipalName,
    deaths: Vec<Mono>,
    refused_until: Option<Mono>,
}

/// Refusal of a principal that starts now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrincipalVerdict {
    /// Duration of the refusal.
    pub wait: Duration,
    /// True if its deaths are taken off the restart budget.
    pub forgiven: bool,
}

impl PrincipalCrashes {
    /// Window in which deaths count.
    pub const WINDOW: Duration = Crashes::WINDOW;
    /// Number of deaths at which a principal is refused.
    pub const REFUSED_AT: usize = 3;
    /// Duration of a refusal.
    pub const REFUSED_FOR: Duration = Duration::from_secs(60);
    /// Maximum number of times within the window that deaths are taken off the restart budget: a server that dies
    /// without a cause from outside is parked.
    const MAX_FORGIVEN: usize = 3;
    /// Maximum number of remembered principals; the one with the oldest last death is forgotten first.
    const MAX_RECORDS: usize = 64;

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Records that the process died while only calls of this principal were in flight. Returns the refusal that starts
    /// now: at the third death, for a minute; or, if deaths cannot be taken off the restart budget any more, until they
    /// can.
    pub fn record_crash(&mut self, now: Mono, principal: &PrincipalName) -> Option<PrincipalVerdict> {
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
        if self.records.len() == Self::MAX_RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(record);
        verdict
    }

    fn judge(&mut self, now: Mono) -> PrincipalVerdict {
        self.forgiven.retain(|at| now - *at < Self::WINDOW);
        let forgiven = self.forgiven.len() < Self::MAX_FORGIVEN;
        let wait = match self.forgiven.front() {
            Some(first) if !forgiven => now.until(*first + Self::WINDOW).max(Self::REFUSED_FOR),
            Some(_) | None => Self::REFUSED_FOR,
        };
        if forgiven {
            self.forgiven.push_back(now);
        }
        PrincipalVerdict { wait, forgiven }
    }

    /// The remaining duration of the refusal of this principal, if it is refused.
    pub fn refused_for(&self, now: Mono, principal: &PrincipalName) -> Option<Duration> {
        let record = self.records.iter().find(|record| record.principal == *principal)?;
        record.refused_until.filter(|until| *until > now).map(|until| now.until(until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::from_origin(Duration::from_secs(seconds))
    }

    fn request(name: &str) -> Digest {
        Digest::of(name.as_bytes())
    }

    #[test]
    fn c05_two_deaths_end_the_replays_of_a_request_and_three_refuse_it() {
        let (mut crashes, it) = (Crashes::default(), request("it"));
        crashes.record_crash(at(0), it);
        assert_eq!(crashes.verdict(at(1), it), ReplayVerdict::Replay);
        crashes.record_crash(at(100), it);
        assert_eq!(crashes.verdict(at(101), it), ReplayVerdict::NoReplay);
        crashes.record_crash(at(200), it);
        assert_eq!(crashes.verdict(at(201), it), ReplayVerdict::Refused(Duration::from_secs(599)));
        assert_eq!(crashes.verdict(at(799), it), ReplayVerdict::Refused(Duration::from_secs(1)));
        assert_eq!(crashes.verdict(at(800), it), ReplayVerdict::Replay);
        assert_eq!(crashes.verdict(at(201), request("another")), ReplayVerdict::Replay);
    }

    #[test]
    fn c05_deaths_count_for_ten_minutes_and_an_answer_clears_them() {
        let (mut crashes, it) = (Crashes::default(), request("it"));
        crashes.record_crash(at(0), it);
        crashes.record_crash(at(600), it);
        assert_eq!(crashes.verdict(at(601), it), ReplayVerdict::Replay);
        crashes.record_crash(at(602), it);
        assert_eq!(crashes.verdict(at(603), it), ReplayVerdict::NoReplay);
        crashes.answered(at(604), it);
        assert_eq!(crashes.verdict(at(605), it), ReplayVerdict::Replay);
        assert!(crashes.is_empty());
    }

    const MINUTE: Duration = PrincipalCrashes::REFUSED_FOR;

    #[test]
    fn c05_three_deaths_of_a_principal_refuse_only_it_for_a_minute() {
        let (mut crashes, hostile) = (PrincipalCrashes::default(), PrincipalName::new("hostile"));
        assert_eq!(crashes.record_crash(at(0), &hostile), None);
        assert_eq!(crashes.record_crash(at(1), &hostile), None);
        assert_eq!(crashes.refused_for(at(1), &hostile), None);
        let verdict = PrincipalVerdict { wait: MINUTE, forgiven: true };
        assert_eq!(crashes.record_crash(at(2), &hostile), Some(verdict));
        assert_eq!(crashes.refused_for(at(2), &hostile), Some(MINUTE));
        assert_eq!(crashes.refused_for(at(2), &PrincipalName::new("honest")), None);
        assert_eq!(crashes.refused_for(at(61), &hostile), Some(Duration::from_secs(1)));
        assert_eq!(crashes.refused_for(at(62), &hostile), None);
        assert_eq!(crashes.record_crash(at(63), &hostile), None, "three more deaths are needed");
    }

    #[test]
    fn c05_deaths_of_a_principal_count_for_ten_minutes() {
        let (mut crashes, hostile) = (PrincipalCrashes::default(), PrincipalName::new("hostile"));
        crashes.record_crash(at(0), &hostile);
        crashes.record_crash(at(1), &hostile);
        assert_eq!(crashes.record_crash(at(600), &hostile), None, "the first one is ten minutes old");
        assert!(crashes.record_crash(at(600), &hostile).is_some());
    }

    #[test]
    fn c05_deaths_are_taken_off_the_budget_three_times_per_window() {
        let (mut crashes, hostile) = (PrincipalCrashes::default(), PrincipalName::new("hostile"));
        let mut third_death = |second: u64| {
            crashes.record_crash(at(second), &hostile);
            crashes.record_crash(at(second), &hostile);
            crashes.record_crash(at(second), &hostile).unwrap()
        };
        for round in 0..3 {
            assert_eq!(third_death(round * 70), PrincipalVerdict { wait: MINUTE, forgiven: true });
        }
        let wait = Duration::from_secs(600 - 210);
        assert_eq!(third_death(210), PrincipalVerdict { wait, forgiven: false });
        assert_eq!(third_death(600), PrincipalVerdict { wait: MINUTE, forgiven: true });
    }

    #[test]
    fn the_record_of_principals_is_bounded() {
        let mut crashes = PrincipalCrashes::default();
        for number in 0..1000 {
            crashes.record_crash(at(number / 10), &PrincipalName::new(number.to_string()));
        }
        assert_eq!(crashes.records.len(), PrincipalCrashes::MAX_RECORDS);
    }

    #[test]
    fn the_record_of_deaths_is_bounded() {
        let mut crashes = Crashes::default();
        for number in 0..1000 {
            crashes.record_crash(at(number), request(&number.to_string()));
        }
        assert_eq!(crashes.records.len(), Crashes::MAX_RECORDS);
    }
}

//! Requests that were the only one in flight when their server process died (C05).
//!
//! One death says little: the process may have been killed from outside. A request that was alone at two deaths is not
//! replayed any more, and one that was alone at three is refused for a while. An answer clears its record.

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

    #[test]
    fn what_is_remembered_of_deaths_is_bounded() {
        let mut crashes = Crashes::default();
        for number in 0..1000 {
            crashes.died(at(number), request(&number.to_string()));
        }
        assert_eq!(crashes.records.len(), Crashes::MOST);
    }
}

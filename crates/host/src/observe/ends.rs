//! How the calls of one upstream ended and how long they took, for whoever measures. Every call that reached
//! its upstream's name ends here once, also one that a rule turned away or that its caller gave up.

use crate::clock::Clock;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
use gripfast_core::time::Mono;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How the calls of one upstream ended.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    counted: Mutex<CallEnds>,
}

/// How many calls ended in which way. There are as many ways as there are outcomes and codes, and no more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallEnds {
    /// How many ended with this outcome, and with this code if they failed.
    pub counts: Vec<(Fate, Option<Code>, u64)>,
    /// How long those of each outcome took.
    pub took: Vec<(Fate, Spread)>,
}

/// How many calls took how long.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spread {
    /// For each of [`Spread::BOUNDS`] how many took that long or less, but longer than the one before it; then
    /// those that took longer than all of them.
    pub counts: [u64; Self::BOUNDS.len() + 1],
    /// How long all of them took together.
    pub sum: Duration,
}

impl Spread {
    /// In seconds: from a local server that answers at once to the longest that a call may take by default.
    pub const BOUNDS: [f64; 16] =
        [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

    fn add(&mut self, took: Duration) {
        let at = Self::BOUNDS.partition_point(|bound| *bound < took.as_secs_f64());
        self.counts[at] += 1;
        self.sum = self.sum.saturating_add(took);
    }
}

/// A call whose end will be counted. Dropped before its end was told, it counts as given up by its caller.
pub(crate) struct OpenEnd<'a> {
    ends: &'a Ends,
    clock: Clock,
    begun: Mono,
    told: Option<(Fate, Option<Code>)>,
}

impl Ends {
    pub(crate) fn open(&self, clock: Clock) -> OpenEnd<'_> {
        OpenEnd { ends: self, clock, begun: clock.mono(), told: None }
    }

    pub(crate) fn read(&self) -> CallEnds {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, outcome: Fate, code: Option<Code>, took: Duration) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        match counted.counts.iter_mut().find(|(fate, known, _)| (*fate, *known) == (outcome, code)) {
            Some((_, _, count)) => *count += 1,
            None => counted.counts.push((outcome, code, 1)),
        }
        match counted.took.iter_mut().find(|(fate, _)| *fate == outcome) {
            Some((_, spread)) => spread.add(took),
            None => {
                let mut spread = Spread::default();
                spread.add(took);
                counted.took.push((outcome, spread));
            }
        }
    }
}

impl OpenEnd<'_> {
    /// It was answered; `is_error` if the server says that it failed.
    pub(crate) fn answered(mut self, is_error: bool) {
        self.told = Some((if is_error { Fate::Failed } else { Fate::Done }, None));
    }

    pub(crate) fn failed(mut self, error: &CallError) {
        self.told = Some((error.outcome, Some(error.code)));
    }
}

impl Drop for OpenEnd<'_> {
    fn drop(&mut self) {
        // Whether a call that was given up was carried out is not known here; the ledger may know better.
        let (outcome, code) = self.told.unwrap_or((Fate::Unknown, Some(Code::Cancelled)));
        self.ends.add(outcome, code, self.clock.mono() - self.begun);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_call_ends_once_in_its_own_way() {
        let (ends, clock) = (Ends::default(), Clock::new());
        let denied = CallError::new(Code::Denied, "demo", Fate::NotSent, "no");
        ends.open(clock).failed(&denied);
        ends.open(clock).failed(&denied);
        let open = ends.open(clock);
        tokio::time::advance(Duration::from_millis(30)).await;
        open.answered(false);
        ends.open(clock).answered(true);
        drop(ends.open(clock));
        let CallEnds { counts, took } = ends.read();
        assert_eq!(
            counts,
            [
                (Fate::NotSent, Some(Code::Denied), 2),
                (Fate::Done, None, 1),
                (Fate::Failed, None, 1),
                (Fate::Unknown, Some(Code::Cancelled), 1),
            ]
        );
        let (_, done) = &took[1];
        assert_eq!(done.sum, Duration::from_millis(30));
        assert_eq!(done.counts.iter().position(|count| *count == 1), Some(5), "more than 25 ms, at most 50");
    }

    #[test]
    fn a_bound_belongs_to_what_is_below_it() {
        let mut spread = Spread::default();
        for took in [0.0, 0.001, 0.0011, 300.0, 301.0] {
            spread.add(Duration::from_secs_f64(took));
        }
        assert_eq!((spread.counts[0], spread.counts[1], spread.counts[15], spread.counts[16]), (2, 1, 1, 1));
    }
}

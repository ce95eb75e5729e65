//! Outcomes and durations of the calls of one upstream, for metrics. Every call with a known server is counted once,
//! including those that a policy refused or the caller cancelled.

use crate::clock::Clock;
use crate::sync::Mutex;
use gripfast_core::failure::{CallError, CallOutcome, Code};
use gripfast_core::time::Mono;
use std::time::Duration;

/// Counters of call outcomes of one upstream.
#[derive(Debug, Default)]
pub(crate) struct EndCounters {
    counted: Mutex<CallEnds>,
}

/// Call counts by outcome and code. The sets of both are closed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallEnds {
    /// Number of calls with this outcome, and with this code if they failed.
    pub counts: Vec<(CallOutcome, Option<Code>, u64)>,
    /// Durations by outcome.
    pub durations: Vec<(CallOutcome, DurationHistogram)>,
}

/// Histogram of call durations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DurationHistogram {
    /// Number of calls in each bucket: up to the bound and above the one before; the last bucket is above all bounds.
    pub counts: [u64; Self::BOUNDS.len() + 1],
    /// Sum of all durations.
    pub sum: Duration,
}

impl DurationHistogram {
    /// Bucket bounds in seconds: from a fast local server to the default call timeout.
    pub const BOUNDS: [f64; 16] =
        [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

    fn add(&mut self, took: Duration) {
        let at = Self::BOUNDS.partition_point(|bound| *bound < took.as_secs_f64());
        self.counts[at] += 1;
        self.sum = self.sum.saturating_add(took);
    }
}

/// A call whose end will be counted. Dropped without an outcome, it counts as cancelled by its caller.
pub(crate) struct PendingEnd<'a> {
    ends: &'a EndCounters,
    clock: Clock,
    started: Mono,
    end: Option<(CallOutcome, Option<Code>)>,
}

impl EndCounters {
    pub(crate) fn open(&self, clock: Clock) -> PendingEnd<'_> {
        PendingEnd { ends: self, clock, started: clock.mono(), end: None }
    }

    pub(crate) fn read(&self) -> CallEnds {
        self.counted.lock().clone()
    }

    fn add(&self, outcome: CallOutcome, code: Option<Code>, took: Duration) {
        let mut counted = self.counted.lock();
        match counted
            .counts
            .iter_mut()
            .find(|(known_outcome, known, _)| (*known_outcome, *known) == (outcome, code))
        {
            Some((_, _, count)) => *count += 1,
            None => counted.counts.push((outcome, code, 1)),
        }
        match counted.durations.iter_mut().find(|(known_outcome, _)| *known_outcome == outcome) {
            Some((_, spread)) => spread.add(took),
            None => {
                let mut spread = DurationHistogram::default();
                spread.add(took);
                counted.durations.push((outcome, spread));
            }
        }
    }
}

impl PendingEnd<'_> {
    /// Counts an answered call; `is_error` if the server reports a failure.
    pub(crate) fn answered(mut self, is_error: bool) {
        self.end = Some((if is_error { CallOutcome::Failed } else { CallOutcome::Done }, None));
    }

    pub(crate) fn failed(mut self, error: &CallError) {
        self.end = Some((error.outcome, Some(error.code)));
    }
}

impl Drop for PendingEnd<'_> {
    fn drop(&mut self) {
        // The outcome of a cancelled call is not known here; the ledger may know it.
        let (outcome, code) = self.end.unwrap_or((CallOutcome::Unknown, Some(Code::Cancelled)));
        self.ends.add(outcome, code, self.clock.mono() - self.started);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_call_is_counted_once_by_its_outcome() {
        let (ends, clock) = (EndCounters::default(), Clock::new());
        let denied = CallError::new(Code::Denied, "demo", CallOutcome::NotSent, "no");
        ends.open(clock).failed(&denied);
        ends.open(clock).failed(&denied);
        let open = ends.open(clock);
        tokio::time::advance(Duration::from_millis(30)).await;
        open.answered(false);
        ends.open(clock).answered(true);
        drop(ends.open(clock));
        let CallEnds { counts, durations: took } = ends.read();
        assert_eq!(
            counts,
            [
                (CallOutcome::NotSent, Some(Code::Denied), 2),
                (CallOutcome::Done, None, 1),
                (CallOutcome::Failed, None, 1),
                (CallOutcome::Unknown, Some(Code::Cancelled), 1),
            ]
        );
        let (_, done) = &took[1];
        assert_eq!(done.sum, Duration::from_millis(30));
        assert_eq!(done.counts.iter().position(|count| *count == 1), Some(5), "more than 25 ms, at most 50");
    }

    #[test]
    fn a_duration_equal_to_a_bound_is_counted_below_it() {
        let mut spread = DurationHistogram::default();
        for took in [0.0, 0.001, 0.0011, 300.0, 301.0] {
            spread.add(Duration::from_secs_f64(took));
        }
        assert_eq!((spread.counts[0], spread.counts[1], spread.counts[15], spread.counts[16]), (2, 1, 1, 1));
    }
}

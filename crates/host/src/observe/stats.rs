//! Counts and durations of the calls of one upstream, in bounded memory.

use crate::sync::Mutex;
use gripfast_core::time::Mono;
use std::collections::VecDeque;
use std::time::Duration;

/// Counters of one upstream.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    calls: u64,
    errors: u64,
    tool_errors: u64,
    refused: u64,
    dropped: u64,
    last_ok: Option<Mono>,
    durations: VecDeque<Duration>,
}

/// Call statistics of one upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallStats {
    /// Calls since the start.
    pub calls: u64,
    /// Calls that were not served.
    pub errors: u64,
    /// Calls that were answered with an error of the tool.
    pub tool_errors: u64,
    /// Calls that were refused because the server is stopped. They are in neither of the counts above.
    pub refused: u64,
    /// Notifications that were dropped because they could belong to several principals.
    pub dropped: u64,
    /// Time since the last successful call.
    pub last_ok: Option<Duration>,
    /// Median duration of the last calls.
    pub p50: Option<Duration>,
    /// 95th percentile of the durations of the last calls.
    pub p95: Option<Duration>,
}

impl Stats {
    /// Number of durations that are kept.
    const MAX_DURATIONS: usize = 256;

    pub(crate) fn answered(&self, now: Mono, took: Duration, tool_error: bool) {
        let mut counts = self.counts.lock();
        counts.calls += 1;
        counts.tool_errors += u64::from(tool_error);
        counts.last_ok = Some(now);
        if counts.durations.len() == Self::MAX_DURATIONS {
            counts.durations.pop_front();
        }
        counts.durations.push_back(took);
    }

    pub(crate) fn failed(&self) {
        let mut counts = self.counts.lock();
        counts.calls += 1;
        counts.errors += 1;
    }

    /// Counts a call that was refused because the server is stopped, which says nothing about the server.
    pub(crate) fn refused(&self) {
        self.counts.lock().refused += 1;
    }

    /// Counts a dropped notification and returns the total.
    pub(crate) fn notification_dropped(&self) -> u64 {
        let mut counts = self.counts.lock();
        counts.dropped += 1;
        counts.dropped
    }

    pub(crate) fn read(&self, now: Mono) -> CallStats {
        let counts = self.counts.lock();
        let mut times: Vec<Duration> = counts.durations.iter().copied().collect();
        times.sort_unstable();
        let quantile = |of: usize| times.get(times.len().saturating_sub(1) * of / 100).copied();
        CallStats {
            calls: counts.calls,
            errors: counts.errors,
            tool_errors: counts.tool_errors,
            refused: counts.refused,
            dropped: counts.dropped,
            last_ok: counts.last_ok.map(|at| now - at),
            p50: quantile(50),
            p95: quantile(95),
        }
    }
}

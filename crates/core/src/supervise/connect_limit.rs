//! Time limit of connection attempts. It doubles after each attempt that timed out, and the duration of a slow
//! successful start is remembered, so that a server that needs 40 s is not killed every 30 s.

use super::spec::TimeoutSpec;
use std::time::Duration;

/// The time limit for the connection attempts of one upstream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectLimit {
    /// Twice the limit of the last attempt, if it timed out.
    grown: Duration,
    /// The duration of the last successful start.
    last_start: Duration,
}

impl ConnectLimit {
    /// The limit of the next attempt: at least `connect`, at most `connect_max`.
    pub fn next(&self, spec: &TimeoutSpec) -> Duration {
        let most = spec.connect_max.max(spec.connect);
        // Twice the last start, because the machine may be busier than last time.
        spec.connect.max(self.grown).max(self.last_start.saturating_mul(2)).min(most)
    }

    /// Records an attempt that timed out while the process ran or the connection was open.
    pub fn record_timeout(&mut self, limit: Duration) {
        self.grown = limit.saturating_mul(2);
    }

    /// Records a handshake that finished after this duration.
    pub fn record_start(&mut self, took: Duration) {
        *self = Self { grown: Duration::ZERO, last_start: took };
    }

    /// The duration of the last successful start; zero if there was none.
    pub fn last_start(&self) -> Duration {
        self.last_start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn c03_the_limit_doubles_up_to_connect_max_and_never_beyond() {
        let (spec, mut limit) = (TimeoutSpec::default(), ConnectLimit::default());
        let mut limits = Vec::new();
        for _ in 0..6 {
            limits.push(limit.next(&spec).as_secs());
            limit.record_timeout(limit.next(&spec));
        }
        assert_eq!(limits, [30, 60, 120, 240, 300, 300]);
    }

    #[test]
    fn c03_a_slow_start_that_succeeded_is_remembered_for_the_next_outage() {
        let (spec, mut limit) = (TimeoutSpec::default(), ConnectLimit::default());
        limit.record_timeout(30 * SECOND);
        limit.record_start(40 * SECOND);
        assert_eq!(limit.next(&spec), 80 * SECOND);
        limit.record_start(2 * SECOND);
        assert_eq!(limit.next(&spec), spec.connect, "it is quick again");
        limit.record_start(Duration::MAX);
        assert_eq!(limit.next(&spec), spec.connect_max);
    }

    #[test]
    fn a_connect_above_connect_max_counts() {
        let spec = TimeoutSpec { connect: 600 * SECOND, ..TimeoutSpec::default() };
        assert_eq!(ConnectLimit::default().next(&spec), 600 * SECOND);
    }
}

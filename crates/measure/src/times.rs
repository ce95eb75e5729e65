//! Percentiles of measured durations. A percentile is always one of the measured values.

use serde::Serialize;
use std::time::Duration;

/// Durations in milliseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Times {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

impl Times {
    /// Percentiles of these durations.
    #[must_use]
    pub fn of(times: &[Duration]) -> Self {
        let mut times = times.to_vec();
        times.sort_unstable();
        let at = |share: f64| percentile(&times, share).as_secs_f64() * 1000.0;
        Self { p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

/// The value below which this share of the sorted durations is; zero without durations.
#[must_use]
pub fn percentile(sorted: &[Duration], share: f64) -> Duration {
    let place = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(place.max(1) - 1).copied().unwrap_or_default()
}

/// The median, the lower one of two middle values; NaN without values.
#[must_use]
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        let Times { p50, p99, max } = Times::of(&times);
        assert_eq!((p50, p99, max), (100.0, 198.0, 200.0));
        let Times { p50, p99, max } = Times::of(&times[..1]);
        assert_eq!((p50, p99, max), (1.0, 1.0, 1.0));
        assert_eq!(Times::of(&[]).max, 0.0);
    }

    #[test]
    fn the_median_ignores_one_bad_round() {
        assert_eq!(median([9.0, 1.0, 1.2].into_iter()), 1.2);
        assert_eq!(median([1.0].into_iter()), 1.0);
        assert_eq!(median([2.0, 1.0].into_iter()), 1.0);
        assert!(median(std::iter::empty()).is_nan());
    }
}

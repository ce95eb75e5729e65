//! Rate limiter: each key has a number of permits, and gets the same number back every second. The table of keys is
//! bounded.
//!
//! A token bucket as generic cell rate algorithm (GCRA): one point in time per key, up to which its permits are spent.

use crate::time::Mono;
use std::collections::BTreeMap;
use std::time::Duration;

/// A token bucket per key.
#[derive(Debug)]
pub struct RateLimiter<K> {
    /// Time in which one permit comes back.
    interval: Duration,
    burst: u32,
    /// The time at which all permits of a key are back. A key that is not in the map has all of them.
    full_at: BTreeMap<K, Mono>,
}

impl<K: Ord + Clone> RateLimiter<K> {
    /// Maximum number of keys. Beyond it, keys with all permits are removed, and if there are few of those, the half
    /// that has spent least.
    pub const MAX_KEYS: usize = 10_000;

    /// A limiter with `per_second` permits at once, and as many again every second. Zero counts as one.
    pub fn new(per_second: u32) -> Self {
        let burst = per_second.max(1);
        Self { interval: Duration::from_secs(1) / burst, burst, full_at: BTreeMap::new() }
    }

    /// Spends `permits` of a key.
    ///
    /// # Errors
    /// The key has fewer left, and nothing was spent. The duration is the time until it has that many, or all, if that
    /// is less.
    pub fn spend(&mut self, now: Mono, key: &K, permits: u32) -> Result<(), Duration> {
        let full_at = self.after(now, key, permits)?;
        if self.full_at.len() >= Self::MAX_KEYS && !self.full_at.contains_key(key) {
            self.evict(now);
        }
        self.full_at.insert(key.clone(), full_at);
        Ok(())
    }

    /// Checks for a permit without spending it.
    ///
    /// # Errors
    /// The key has none. The duration is the time until it has one.
    pub fn check(&self, now: Mono, key: &K) -> Result<(), Duration> {
        self.after(now, key, 1).map(drop)
    }

    /// The time at which all permits of `key` are back if `permits` are spent now.
    fn after(&self, now: Mono, key: &K, permits: u32) -> Result<Mono, Duration> {
        let permits = permits.min(self.burst);
        let full_at = self.full_at.get(key).copied().unwrap_or_default().max(now) + self.interval * permits;
        let over = full_at - (now + self.interval * self.burst);
        if over.is_zero() { Ok(full_at) } else { Err(over) }
    }

    fn evict(&mut self, now: Mono) {
        self.full_at.retain(|_, full_at| *full_at > now);
        if self.full_at.len() > Self::MAX_KEYS / 2 {
            let mut times: Vec<Mono> = self.full_at.values().copied().collect();
            let middle = times.len() / 2;
            let (_, median, _) = times.select_nth_unstable(middle);
            let median = *median;
            self.full_at.retain(|_, full_at| *full_at > median);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Mono {
        Mono::from_origin(Duration::from_millis(millis))
    }

    #[test]
    fn a_burst_spends_all_permits_and_the_next_waits_for_a_refill() {
        let mut limiter = RateLimiter::new(10);
        for _ in 0..10 {
            assert_eq!(limiter.check(at(5), &"a"), Ok(()));
            assert_eq!(limiter.spend(at(5), &"a", 1), Ok(()));
        }
        assert_eq!(limiter.spend(at(5), &"a", 1), Err(Duration::from_millis(100)));
        assert_eq!(limiter.check(at(5), &"a"), Err(Duration::from_millis(100)));
        assert_eq!(limiter.spend(at(5), &"b", 1), Ok(()), "each key has its own");
        assert_eq!(limiter.spend(at(104), &"a", 1), Err(Duration::from_millis(1)));
        assert_eq!(limiter.spend(at(105), &"a", 1), Ok(()));
        assert!(limiter.spend(at(105), &"a", 1).is_err(), "only one");
        assert!((0..10).all(|_| limiter.spend(at(2000), &"a", 1).is_ok()), "all are back");
        assert!(limiter.spend(at(2000), &"a", 1).is_err(), "and no more than all");
    }

    #[test]
    fn a_request_for_more_than_the_burst_takes_all_permits() {
        let mut limiter = RateLimiter::new(10);
        assert_eq!(limiter.spend(at(0), &"a", 100), Ok(()));
        assert_eq!(limiter.spend(at(0), &"a", 1), Err(Duration::from_millis(100)));
        assert_eq!(limiter.spend(at(500), &"a", 100), Err(Duration::from_millis(500)));
        assert_eq!(limiter.spend(at(1000), &"a", 100), Ok(()));
    }

    #[test]
    fn the_key_table_is_bounded_and_keeps_the_keys_that_spent_most() {
        let mut limiter = RateLimiter::new(10);
        for _ in 0..10 {
            limiter.spend(at(0), &0, 1).unwrap();
        }
        for key in 1..100_000 {
            limiter.spend(at(0), &key, 1).unwrap();
            assert!(limiter.full_at.len() <= RateLimiter::<i32>::MAX_KEYS);
        }
        assert!(limiter.check(at(0), &0).is_err(), "others do not wash it out");
    }
}

//! Replay window of forwarded requests: each number of one forwarder is accepted once. It needs no wall clock.

use super::place::BootId;
use std::collections::BTreeMap;

/// The numbers that one forwarder used, as a sliding window of [`ReplayWindow::SIZE`] numbers.
#[derive(Debug, Clone)]
pub struct ReplayWindow {
    /// The highest number so far.
    highest: u64,
    /// One bit per number: bit `n % SIZE` belongs to `n`, for the numbers up to `highest`.
    seen: [u64; Self::WORDS],
}

impl ReplayWindow {
    /// Requests of one forwarder may arrive in another order by up to this many numbers.
    pub const SIZE: u64 = 1_024;
    const WORDS: usize = (Self::SIZE / 64) as usize;

    /// An empty window.
    pub const fn new() -> Self {
        Self { highest: 0, seen: [0; Self::WORDS] }
    }

    /// Accepts a number that was not used before. Numbers start with 1. Refused are a used number, and one so old that
    /// the window no longer covers it.
    pub fn accept(&mut self, number: u64) -> bool {
        if number == 0 || self.highest.saturating_sub(number) >= Self::SIZE {
            return false;
        }
        if number > self.highest {
            let skipped = (number - self.highest - 1).min(Self::SIZE - 1);
            for old in (number - skipped)..number {
                self.set(old, false);
            }
            self.highest = number;
            self.set(number, true);
            return true;
        }
        let is_new = !self.is_set(number);
        self.set(number, true);
        is_new
    }

    fn is_set(&self, number: u64) -> bool {
        let bit = number % Self::SIZE;
        self.seen[(bit / 64) as usize] & (1 << (bit % 64)) != 0
    }

    fn set(&mut self, number: u64, to: bool) {
        let bit = number % Self::SIZE;
        let mask = 1 << (bit % 64);
        let word = &mut self.seen[(bit / 64) as usize];
        *word = if to { *word | mask } else { *word & !mask };
    }
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

/// The windows of all forwarders, by boot. A forwarder whose boot is gone sends nothing new, and a captured request of
/// its is refused, because its window stays until the replica ends.
#[derive(Debug, Clone, Default)]
pub struct ReplayWindows {
    windows: BTreeMap<BootId, ReplayWindow>,
}

impl ReplayWindows {
    /// The largest number of forwarders. Beyond it a request of a new boot is refused: only a replica with the key can
    /// add one, and a thousand restarts of a hundred replicas fit.
    pub const MAX_FORWARDERS: usize = 100_000;

    /// Accepts a number that this forwarder did not use before. The caller has checked the MAC: an unauthenticated
    /// number must not change a window.
    pub fn accept(&mut self, from: BootId, number: u64) -> bool {
        if self.windows.len() >= Self::MAX_FORWARDERS && !self.windows.contains_key(&from) {
            return false;
        }
        self.windows.entry(from).or_default().accept(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_number_is_accepted_once() {
        let mut window = ReplayWindow::new();
        assert!(!window.accept(0), "numbers start with 1");
        assert!(window.accept(1));
        assert!(!window.accept(1));
        assert!(window.accept(3));
        assert!(window.accept(2), "another order is accepted");
        assert!(!window.accept(2));
    }

    #[test]
    fn a_number_behind_the_window_of_1024_is_refused() {
        let mut window = ReplayWindow::new();
        assert!(window.accept(2_000));
        assert!(window.accept(2_000 - 1_023));
        assert!(!window.accept(2_000 - 1_024));
        assert!(window.accept(u64::MAX));
        assert!(!window.accept(u64::MAX));
        assert!(window.accept(u64::MAX - 5));
        assert!(!window.accept(2_001));
    }

    #[test]
    fn each_forwarder_has_a_window_of_its_own() {
        let mut windows = ReplayWindows::default();
        let (one, other) = (BootId::from_number(1), BootId::from_number(2));
        assert!(windows.accept(one, 7));
        assert!(windows.accept(other, 7));
        assert!(!windows.accept(one, 7));
    }

    proptest! {
        /// The window agrees with a set of all numbers that were used.
        #[test]
        fn the_window_never_accepts_a_number_twice(
            numbers in prop::collection::vec(prop_oneof![1u64..50, 1u64..3_000, 1_000u64..1_100], 1..400)
        ) {
            let mut window = ReplayWindow::new();
            let mut used = BTreeSet::new();
            let mut highest = 0;
            for number in numbers {
                let is_covered = number + ReplayWindow::SIZE > highest;
                prop_assert_eq!(window.accept(number), is_covered && used.insert(number));
                highest = highest.max(number);
            }
        }
    }
}

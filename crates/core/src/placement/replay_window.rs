//! Replay window of forwarded requests: each number of one forwarder is accepted once. It needs no wall clock.

use super::place::BootId;
use std::collections::BTreeMap;

/// The numbers that one forwarder used, as a sliding window of [`ReplayWindow::SIZE`] numbers. It takes memory only for
/// gaps.
#[derive(Debug, Clone, Default)]
pub struct ReplayWindow {
    /// The highest number so far.
    highest: u64,
    /// The lower numbers in the window that were not used: ranges, from the first to the last number.
    missing: BTreeMap<u64, u64>,
}

impl ReplayWindow {
    /// Requests of one forwarder may arrive in another order by up to this many numbers. A request has its number before
    /// its connection is made, which takes two seconds at most: so a forwarder can send 32,000 requests a second
    /// meanwhile.
    pub const SIZE: u64 = 65_536;

    /// An empty window.
    pub const fn new() -> Self {
        Self { highest: 0, missing: BTreeMap::new() }
    }

    /// Accepts a number that was not used before. Numbers start with 1. Refused are a used number, and one so old that
    /// the window no longer covers it.
    pub fn accept(&mut self, number: u64) -> bool {
        if number <= self.highest {
            return self.take_missing(number);
        }
        let next = self.highest + 1;
        if next < number {
            self.missing.insert(next, number - 1);
        }
        self.highest = number;
        self.slide();
        true
    }

    /// Uses a number of a gap.
    fn take_missing(&mut self, number: u64) -> bool {
        let gap = self.missing.range(..=number).next_back().map(|(first, last)| (*first, *last));
        let Some((first, last)) = gap.filter(|(_, last)| number <= *last) else { return false };
        self.missing.remove(&first);
        if first < number {
            self.missing.insert(first, number - 1);
        }
        if number < last {
            self.missing.insert(number + 1, last);
        }
        true
    }

    /// Drops the numbers that the window no longer covers.
    fn slide(&mut self) {
        let lowest = self.highest.saturating_sub(Self::SIZE - 1);
        while let Some((first, last)) = self.missing.first_key_value().map(|(first, last)| (*first, *last)) {
            if first >= lowest {
                return;
            }
            self.missing.pop_first();
            if last >= lowest {
                self.missing.insert(lowest, last);
            }
        }
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
    fn a_number_behind_the_window_of_65536_is_refused() {
        let mut window = ReplayWindow::new();
        assert!(window.accept(100_000));
        assert!(window.accept(100_000 - 65_535));
        assert!(!window.accept(100_000 - 65_536));
        assert!(window.accept(u64::MAX));
        assert!(!window.accept(u64::MAX));
        assert!(window.accept(u64::MAX - 5));
        assert!(!window.accept(2_001));
    }

    /// A packet of its connection was lost and sent again a second later.
    #[test]
    fn a_request_may_be_overtaken_by_tens_of_thousands_of_others() {
        let mut window = ReplayWindow::new();
        (2..=60_000).for_each(|number| assert!(window.accept(number)));
        assert!(window.accept(1));
        assert!(!window.accept(1));
        assert_eq!(window.missing.len(), 0, "numbers in order take no memory");
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
            numbers in prop::collection::vec(prop_oneof![1u64..50, 1u64..200_000, 65_500u64..65_600], 1..400)
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

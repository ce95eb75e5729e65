//! Time of leases: the clocks that count, the durations that follow from `cluster.lease`, and the term of one lease.

use crate::time::Wall;
use std::time::Duration;

/// A reading of the two clocks that leases use.
///
/// CLOCK_BOOTTIME goes on while the machine sleeps. Some hypervisors stop it, and then only the wall clock shows the
/// pause. The wall clock may also be set back. So the one that says that more time has passed counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseNow {
    /// CLOCK_BOOTTIME: the time since the machine started.
    pub boottime: Duration,
    /// The wall clock.
    pub wall: Wall,
}

impl LeaseNow {
    /// The duration since `earlier` on the clock that says that more time has passed.
    pub fn since(self, earlier: Self) -> Duration {
        let by_wall = self.wall.since_epoch().saturating_sub(earlier.wall.since_epoch());
        self.boottime.saturating_sub(earlier.boottime).max(by_wall)
    }
}

/// The durations that follow from `cluster.lease`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseSpec {
    /// Lifetime of a replica's record and of an exclusive lease, unless a heartbeat renews it.
    pub lease: Duration,
}

impl LeaseSpec {
    /// Part of a lease in which its holder no longer acts. It covers the end of the holder's work and clocks of
    /// different speed.
    pub const MARGIN: Duration = Duration::from_secs(1);

    /// Pause between two heartbeats, and the time that one may take.
    pub fn heartbeat(&self) -> Duration {
        self.lease / 5
    }

    /// Grace period after an outage of the store: every live replica has renewed its record by then, and a lease that
    /// the store forgot has ended.
    pub fn grace(&self) -> Duration {
        self.lease + self.heartbeat()
    }

    /// Longest time until another replica serves the sessions of one that was lost: its record ends, the others learn
    /// that by a heartbeat, and their request to the store takes a moment.
    pub fn longest_move(&self) -> Duration {
        self.grace() + self.heartbeat()
    }
}

impl Default for LeaseSpec {
    fn default() -> Self {
        Self { lease: Duration::from_secs(10) }
    }
}

/// The time in which the holder of a lease may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerm {
    sent: LeaseNow,
    lease: Duration,
}

impl LeaseTerm {
    /// The term of a lease that a request of this time granted. The store counts from the arrival of the request, which
    /// is later.
    pub const fn granted(sent: LeaseNow, lease: Duration) -> Self {
        Self { sent, lease }
    }

    /// The time for which the holder may still act; zero from [`LeaseSpec::MARGIN`] before the end.
    pub fn left(&self, now: LeaseNow) -> Duration {
        self.lease.saturating_sub(LeaseSpec::MARGIN).saturating_sub(now.since(self.sent))
    }

    /// Returns whether the holder may act.
    pub fn may_act(&self, now: LeaseNow) -> bool {
        !self.left(now).is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boottime: u64, wall: u64) -> LeaseNow {
        LeaseNow {
            boottime: Duration::from_secs(boottime),
            wall: Wall::from_unix_epoch(Duration::from_secs(wall)),
        }
    }

    #[test]
    fn the_clock_that_says_more_has_passed_counts() {
        let start = at(100, 5_000);
        assert_eq!(at(103, 5_003).since(start), Duration::from_secs(3));
        assert_eq!(
            at(100, 5_060).since(start),
            Duration::from_secs(60),
            "the hypervisor stopped the boot clock"
        );
        assert_eq!(at(109, 4_000).since(start), Duration::from_secs(9), "the wall clock was set back");
    }

    #[test]
    fn a_holder_acts_until_one_second_before_the_end() {
        let term = LeaseTerm::granted(at(100, 5_000), Duration::from_secs(10));
        assert_eq!(term.left(at(104, 5_004)), Duration::from_secs(5));
        assert!(term.may_act(at(108, 5_008)));
        assert!(!term.may_act(at(109, 5_009)));
        assert!(!term.may_act(at(101, 5_009)), "the wall clock alone ends it");
    }

    #[test]
    fn the_durations_follow_from_the_lease() {
        let spec = LeaseSpec::default();
        assert_eq!(spec.heartbeat(), Duration::from_secs(2));
        assert_eq!(spec.grace(), Duration::from_secs(12));
    }
}

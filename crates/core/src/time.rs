//! Time as an argument. Nothing here reads a clock: the shell that drives a machine says what time it is.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the monotonic clock, counted from an origin that the shell chooses.
///
/// It stands still while the machine sleeps, which is what deadlines of our own making want.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(Duration);

impl Mono {
    /// The point `since_origin` after the origin.
    pub const fn at(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// How long after the origin this is.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// How long it is until `later`; zero if it has passed.
    pub fn until(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

impl Add<Duration> for Mono {
    type Output = Self;
    fn add(self, pause: Duration) -> Self {
        Self(self.0.saturating_add(pause))
    }
}

impl Sub<Self> for Mono {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// A point on the wall clock, counted from the Unix epoch. It jumps when the machine wakes or is corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Wall(Duration);

impl Wall {
    /// The point `since_epoch` after the Unix epoch.
    pub const fn at(since_epoch: Duration) -> Self {
        Self(since_epoch)
    }

    /// How long after the Unix epoch this is.
    pub const fn since_epoch(self) -> Duration {
        self.0
    }
}

/// One look at both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// For waiting and deadlines.
    pub mono: Mono,
    /// For expiry dates, and for noticing that the machine slept.
    pub wall: Wall,
}

/// Notices that the wall clock ran ahead of the monotonic one: the machine slept, or was set right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SleepWatch {
    last: Now,
}

impl SleepWatch {
    /// Clocks drift and are nudged; a gap below this is not a sleep.
    const TOLERANCE: Duration = Duration::from_secs(10);

    pub(crate) fn new(now: Now) -> Self {
        Self { last: now }
    }

    /// Whether the machine slept since the last look.
    pub(crate) fn slept(&mut self, now: Now) -> bool {
        let by_wall = now.wall.since_epoch().saturating_sub(self.last.wall.since_epoch());
        let by_mono = now.mono - self.last.mono;
        self.last = now;
        by_wall > by_mono + Self::TOLERANCE
    }
}

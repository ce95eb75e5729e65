//! Points in time as arguments. Nothing here reads a clock: the caller passes the time.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the monotonic clock, counted from an origin that the host chooses.
///
/// It stands still while the machine sleeps, which suits internal deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(Duration);

impl Mono {
    /// The point `since_origin` after the origin.
    pub const fn from_origin(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// The duration since the origin.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// The duration since `earlier`; zero if it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The duration until `later`; zero if it has passed.
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
    pub const fn from_unix_epoch(since_epoch: Duration) -> Self {
        Self(since_epoch)
    }

    /// The duration since the Unix epoch.
    pub const fn since_epoch(self) -> Duration {
        self.0
    }
}

/// A reading of both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// For waiting and deadlines.
    pub mono: Mono,
    /// For expiry dates, and to notice that the machine slept.
    pub wall: Wall,
}

/// Detects that the wall clock ran ahead of the monotonic one: the machine slept, or its clock was corrected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SleepWatch {
    last: Now,
}

impl SleepWatch {
    /// Smaller gaps are clock drift or corrections, not a sleep.
    const TOLERANCE: Duration = Duration::from_secs(10);

    pub(crate) fn new(now: Now) -> Self {
        Self { last: now }
    }

    /// Returns whether the machine slept since the last call.
    pub(crate) fn slept(&mut self, now: Now) -> bool {
        let by_wall = now.wall.since_epoch().saturating_sub(self.last.wall.since_epoch());
        let by_mono = now.mono - self.last.mono;
        self.last = now;
        by_wall > by_mono + Self::TOLERANCE
    }
}

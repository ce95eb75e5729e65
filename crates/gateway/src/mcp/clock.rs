//! The only place on this side that reads a clock. Everything that decides is told what time it is.

use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Both clocks, with an origin for the monotonic one. It reads the runtime's, so that a test that turns that
/// by hand turns this too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
    /// The wall clock at the origin.
    began: Duration,
}

/// A moment, on both clocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Now {
    /// Since this process began to look; stands still while the machine sleeps.
    pub(crate) mono: Duration,
    /// Since 1970, which other processes count too.
    pub(crate) wall: Duration,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), began: wall() }
    }

    /// This moment. The wall clock jumps ahead when the machine has slept, and never runs behind the other:
    /// one that is set back does not make a session younger.
    pub(crate) fn now(&self) -> Now {
        let mono = self.mono();
        Now { mono, wall: wall().max(self.began + mono) }
    }

    /// This moment on the monotonic clock, for those who only measure.
    pub(crate) fn mono(&self) -> Duration {
        self.origin.elapsed()
    }
}

fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

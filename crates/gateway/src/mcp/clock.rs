//! The only reader of the clock in `mcp`. Code that decides by time takes [`Now`] as an argument.

use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Monotonic clock with an origin, and the wall clock. The monotonic part reads Tokio's clock, so that tests with
/// paused time control it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
    /// Wall-clock time at the origin.
    origin_wall: Duration,
}

/// One moment on both clocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Now {
    /// Since the origin of the clock; stands still while the machine sleeps.
    pub(crate) mono: Duration,
    /// Since 1970; comparable between processes.
    pub(crate) wall: Duration,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), origin_wall: wall() }
    }

    /// Current time. The wall clock jumps ahead when the machine has slept, and never runs behind the monotonic one:
    /// setting the system clock back does not make a session younger.
    pub(crate) fn now(&self) -> Now {
        let mono = self.mono();
        Now { mono, wall: wall().max(self.origin_wall + mono) }
    }

    /// Current time on the monotonic clock only.
    pub(crate) fn mono(&self) -> Duration {
        self.origin.elapsed()
    }
}

fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

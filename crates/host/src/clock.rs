//! The only place that reads a clock or draws entropy. Everything else is told what time it is.

use gripfast_core::time::{Mono, Now, Wall};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::SystemTime;
use tokio::time::Instant;

/// Both clocks, with an origin for the monotonic one.
///
/// It reads tokio's clock, so that a test which turns that clock by hand turns this one too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose origin is this moment.
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// This moment.
    pub(crate) fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { mono: Mono::at(self.origin.elapsed()), wall: Wall::at(wall) }
    }

    /// The runtime's name for a point on the monotonic clock.
    pub(crate) fn instant(&self, at: Mono) -> Instant {
        self.origin + at.since_origin()
    }
}

/// A number that is different each time: seeds jitter and makes names ours alone. Not for secrets.
pub(crate) fn unique_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

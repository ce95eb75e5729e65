//! The only place that reads a clock or draws entropy. Everything else is told what time it is.

use gripfast_core::time::{Mono, Now, Wall};
use ring::rand::{SecureRandom, SystemRandom};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, SystemTime};
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
        Now { mono: self.mono(), wall: Wall::at(wall) }
    }

    /// This moment on the monotonic clock, for those who only measure: a call does so a dozen times.
    pub(crate) fn mono(&self) -> Mono {
        Mono::at(self.origin.elapsed())
    }

    /// The runtime's name for a point on the monotonic clock. A point beyond what it has names for, such as
    /// the end of a patience without end, is one that nobody lives to see.
    pub(crate) fn instant(&self, at: Mono) -> Instant {
        self.origin.checked_add(at.since_origin()).unwrap_or_else(|| self.origin + A_LIFETIME)
    }
}

const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A number that is different each time: seeds jitter and makes names ours alone. Not for secrets.
pub(crate) fn unique_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The system's randomness, for signatures.
pub(crate) fn randomness() -> SystemRandom {
    SystemRandom::new()
}

/// Bytes that nobody can guess, for keys and what must never be the same twice; `None` if the system has none to give.
pub(crate) fn secret_bytes<const LENGTH: usize>() -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    SystemRandom::new().fill(&mut bytes).ok().map(|()| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_time_has_a_name_too() {
        let clock = Clock::new();
        let near = clock.instant(Mono::at(Duration::from_secs(1)));
        for beyond in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(u64::MAX / 2)] {
            assert!(clock.instant(Mono::at(beyond)) > near + A_LIFETIME / 2, "{beyond:?}");
        }
    }
}

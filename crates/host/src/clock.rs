//! The only module that reads a clock or random numbers. All other code of the library gets the time as an argument.

use gripfast_core::time::{Mono, Now, Wall};
use ring::rand::{SecureRandom, SystemRandom};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Monotonic and wall clock.
///
/// The monotonic clock is Tokio's, so that tests with paused time control it.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
    origin_wall: Duration,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Creates a clock whose origin is now.
    pub fn new() -> Self {
        Self { origin: Instant::now(), origin_wall: unix_time() }
    }

    /// The present time on both clocks.
    pub fn now(&self) -> Now {
        Now { mono: self.mono(), wall: Wall::from_unix_epoch(unix_time()) }
    }

    /// The present time, with a wall clock that never runs behind the monotonic one: setting the system clock back does
    /// not make anything younger. It still jumps ahead when the machine has slept.
    pub fn steady_now(&self) -> Now {
        let mono = self.mono();
        let wall = unix_time().max(self.origin_wall + mono.since_origin());
        Now { mono, wall: Wall::from_unix_epoch(wall) }
    }

    /// The present monotonic time. Cheaper than [`Clock::now`]: a call needs it a dozen times.
    pub fn mono(&self) -> Mono {
        Mono::from_origin(self.origin.elapsed())
    }

    /// Time since the clock was made: on the monotonic clock, which stands still while the machine sleeps, or on the wall
    /// clock, which may be set back; whichever says more.
    pub(crate) fn elapsed(&self) -> Duration {
        self.mono().since_origin().max(unix_time().saturating_sub(self.origin_wall))
    }

    /// Converts a monotonic time to a Tokio instant. A time beyond its range becomes one in the far future.
    pub(crate) fn instant(&self, at: Mono) -> Instant {
        self.origin.checked_add(at.since_origin()).unwrap_or_else(|| self.origin + FAR_FUTURE)
    }
}

const FAR_FUTURE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The present wall-clock time, since the Unix epoch.
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// A random number for jitter and unique names. Not for secrets.
pub(crate) fn unique_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The system's random generator, for signatures.
pub(crate) fn randomness() -> SystemRandom {
    SystemRandom::new()
}

/// Cryptographically random bytes for keys and nonces; `None` if the system has none.
pub(crate) fn secret_bytes<const LENGTH: usize>() -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    SystemRandom::new().fill(&mut bytes).ok().map(|()| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_beyond_the_range_of_instants_becomes_the_far_future() {
        let clock = Clock::new();
        let near = clock.instant(Mono::from_origin(Duration::from_secs(1)));
        for beyond in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(u64::MAX / 2)] {
            assert!(clock.instant(Mono::from_origin(beyond)) > near + FAR_FUTURE / 2, "{beyond:?}");
        }
    }
}

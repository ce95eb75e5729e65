//! The only module of this crate that reads a clock.

use gripfast_core::placement::term::LeaseNow;
use gripfast_core::time::Wall;
use std::time::{Duration, SystemTime};

/// The present time on the clocks that leases use.
#[must_use]
pub fn lease_now() -> LeaseNow {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    LeaseNow { boottime: boottime(), wall: Wall::from_unix_epoch(wall) }
}

#[cfg(target_os = "linux")]
fn boottime() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Other systems: the monotonic clock. The wall clock covers a sleep of the machine.
#[cfg(not(target_os = "linux"))]
fn boottime() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_run() {
        let first = lease_now();
        while lease_now().since(first).is_zero() {}
        assert!(lease_now().boottime > first.boottime);
        assert!(first.wall.since_epoch() > Duration::from_secs(1_700_000_000));
    }
}

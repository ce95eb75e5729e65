//! Seeded jitter, so that a test history can be replayed from its seed.

use std::time::Duration;

/// A seeded jitter source (SplitMix64). Not for secrets.
#[derive(Debug, Clone)]
pub struct Jitter(u64);

impl Jitter {
    /// A generator that is deterministic for its seed.
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// `pause` ± up to 20 %, so that many instances do not act at the same moment.
    pub fn spread(&mut self, pause: Duration) -> Duration {
        pause.mul_f64(0.8 + 0.4 * self.unit())
    }

    /// `pause` minus up to 20 %, for pauses with an upper bound.
    pub fn spread_below(&mut self, pause: Duration) -> Duration {
        pause.mul_f64(0.8 + 0.2 * self.unit())
    }

    /// A duration between zero and `limit`.
    pub fn up_to(&mut self, limit: Duration) -> Duration {
        limit.mul_f64(self.unit())
    }

    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        // An f64 holds 53 bits exactly.
        (z >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_bounds_and_varies() {
        let mut jitter = Jitter::seeded(7);
        let pause = Duration::from_secs(10);
        let drawn: Vec<Duration> = (0..1000).map(|_| jitter.spread(pause)).collect();
        assert!(drawn.iter().all(|d| (8.0..=12.0).contains(&d.as_secs_f64())));
        assert!(drawn.iter().any(|d| *d < Duration::from_secs(9)));
        assert!(drawn.iter().any(|d| *d > Duration::from_secs(11)));
        assert!(
            (0..1000).map(|_| jitter.spread_below(pause)).all(|d| d <= pause && d >= Duration::from_secs(8))
        );
    }
}

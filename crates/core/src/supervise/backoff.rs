//! Backoff: the pause before the next attempt within one outage.

use super::spec::RestartSpec;
use crate::jitter::Jitter;
use std::time::Duration;

/// The schedule of one outage: at once, then a few quick attempts, then with doubling pauses.
#[derive(Debug, Clone)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    last: Option<Duration>,
}

impl Backoff {
    /// Age of an outage up to which attempts are quick, because most causes are a short restart.
    pub const EAGER_FOR: Duration = Duration::from_secs(2);
    /// The longest pause in that phase. A server that comes back then should serve within 250 ms, and what the pause
    /// leaves of that is for connecting and the handshake.
    pub const EAGER_PAUSE: Duration = Duration::from_millis(200);

    /// A fresh schedule for a new outage.
    pub fn new(spec: &RestartSpec) -> Self {
        Self { min: spec.backoff_min, max: spec.backoff_max, last: None }
    }

    /// The pause before the next attempt of an outage that has lasted for `age`.
    pub fn next(&mut self, age: Duration, jitter: &mut Jitter) -> Duration {
        let Some(last) = self.last else {
            self.last = Some(Duration::ZERO);
            return Duration::ZERO;
        };
        let doubled = if last.is_zero() { self.min } else { last.saturating_mul(2) };
        // A longer `backoff_min` of the operator counts in this phase too.
        let eager_cap = Self::EAGER_PAUSE.max(self.min).min(self.max);
        if age < Self::EAGER_FOR {
            let pause = doubled.min(eager_cap);
            self.last = Some(pause);
            jitter.spread_below(pause)
        } else {
            let pause = doubled.min(self.max);
            self.last = Some(pause);
            jitter.spread(pause)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Time from its return within which a server that was down for less than two seconds has to serve again.
    const BACK_WITHIN: Duration = Duration::from_millis(250);

    fn schedule(attempt_takes: Duration, attempts: usize) -> Vec<(Duration, Duration)> {
        let mut backoff = Backoff::new(&RestartSpec::default());
        let mut jitter = Jitter::seeded(1);
        let mut age = Duration::ZERO;
        (0..attempts)
            .map(|_| {
                let pause = backoff.next(age, &mut jitter);
                let at = age;
                age += pause + attempt_takes;
                (at, pause)
            })
            .collect()
    }

    #[test]
    fn b02_the_first_retry_is_immediate_and_the_next_two_seconds_are_quick() {
        let pauses = schedule(Duration::from_millis(1), 40);
        assert_eq!(pauses[0].1, Duration::ZERO);
        for (age, pause) in pauses.iter().filter(|(age, _)| *age < Backoff::EAGER_FOR) {
            assert!(*pause <= Backoff::EAGER_PAUSE, "{pause:?} at {age:?}");
        }
        assert!(pauses.iter().filter(|(age, _)| *age < Backoff::EAGER_FOR).count() >= 8);
    }

    #[test]
    fn b02_later_pauses_double_up_to_thirty_seconds_with_a_fifth_of_jitter() {
        let pauses = schedule(Duration::from_millis(1), 40);
        let patient: Vec<Duration> =
            pauses.iter().filter(|(age, _)| *age >= Backoff::EAGER_FOR).map(|(_, pause)| *pause).collect();
        let mut nominal = Duration::from_millis(400);
        for pause in &patient {
            let (low, high) = (nominal.mul_f64(0.8), nominal.mul_f64(1.2));
            assert!((low..=high).contains(pause), "{pause:?} is not around {nominal:?}");
            nominal = (nominal * 2).min(Duration::from_secs(30));
        }
        assert_eq!(nominal, Duration::from_secs(30));
    }

    #[test]
    fn a_long_backoff_min_is_respected() {
        let spec = RestartSpec { backoff_min: Duration::from_secs(1), ..RestartSpec::default() };
        let mut backoff = Backoff::new(&spec);
        let mut jitter = Jitter::seeded(1);
        backoff.next(Duration::ZERO, &mut jitter);
        assert!(backoff.next(Duration::ZERO, &mut jitter) >= Duration::from_millis(800));
    }

    proptest! {
        /// For any duration of the attempts and any jitter: a server that is back before the outage is two seconds old
        /// is connected within [`BACK_WITHIN`] of its return.
        #[test]
        fn b02_a_server_back_within_two_seconds_serves_within_250_ms(
            seed: u64,
            back_at in 0u64..2_000,
            attempts in prop::collection::vec(0u64..200, 64),
        ) {
            const GREETED_WITHIN: Duration = Duration::from_millis(50);
            let back_at = Duration::from_millis(back_at);
            let mut backoff = Backoff::new(&RestartSpec::default());
            let mut jitter = Jitter::seeded(seed);
            let mut age = Duration::ZERO;
            for takes in attempts {
                // The attempt that fails at this age may have started before the return.
                if age >= Backoff::EAGER_FOR {
                    break;
                }
                let dialed_at = age + backoff.next(age, &mut jitter);
                if dialed_at >= back_at {
                    let served_at = dialed_at + GREETED_WITHIN;
                    prop_assert!(served_at - age.max(back_at) <= BACK_WITHIN, "{back_at:?}, {dialed_at:?}");
                    break;
                }
                age = dialed_at + Duration::from_millis(takes);
            }
        }
    }
}

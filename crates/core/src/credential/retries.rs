//! When an authorization server that has failed is asked again. Its schedule is slower than the one for dialing: every
//! attempt shows it a secret, and many clients share it.

use crate::time::Mono;
use std::time::Duration;

/// The failures in a row of one token endpoint.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retries {
    failures: u32,
    not_before: Option<Mono>,
}

impl Retries {
    const SHORTEST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(60);
    /// A server that asks for more patience (`Retry-After`) is asked after this all the same.
    const LONGEST_PATIENCE: Duration = Duration::from_secs(300);

    /// It failed, and asks for this much patience if it says so. The pause doubles with every failure.
    pub fn failed(&mut self, now: Mono, patience: Option<Duration>) {
        let pause = Self::SHORTEST.saturating_mul(1 << self.failures.min(6)).min(Self::LONGEST);
        self.failures = self.failures.saturating_add(1);
        let patience = patience.unwrap_or_default().min(Self::LONGEST_PATIENCE);
        self.not_before = Some(now + pause.max(patience));
    }

    /// It has answered.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// How long it is not asked; `None` if it may be asked now.
    pub fn wait(&self, now: Mono) -> Option<Duration> {
        self.not_before.filter(|at| *at > now).map(|at| at - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    #[test]
    fn e02_an_authorization_server_that_fails_is_asked_five_times_in_fifteen_seconds() {
        let (mut retries, mut now, mut asked) = (Retries::default(), Mono::default(), Vec::new());
        let begun = now;
        while now - begun <= 200 * SEC {
            if retries.wait(now).is_none() {
                asked.push((now - begun).as_secs());
                retries.failed(now, None);
            }
            now = now + SEC;
        }
        assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
        retries.succeeded();
        assert_eq!(retries.wait(now), None);
    }

    #[test]
    fn e02_patience_that_an_authorization_server_asks_for_is_had_up_to_five_minutes() {
        for (asked, had) in [(0, 1), (20, 20), (300, 300), (86_400, 300)] {
            let mut retries = Retries::default();
            retries.failed(Mono::default(), Some(asked * SEC));
            assert_eq!(retries.wait(Mono::default()), Some(had * SEC), "{asked}");
        }
    }
}

//! Backoff for a token endpoint that failed. It is slower than the backoff of connections: every attempt sends a
//! secret, and many clients share the authorization server.

use crate::time::Mono;
use std::time::Duration;

/// Consecutive failures of one token endpoint.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retries {
    failures: u32,
    not_before: Option<Mono>,
}

impl Retries {
    const MIN_PAUSE: Duration = Duration::from_secs(1);
    const MAX_PAUSE: Duration = Duration::from_secs(60);
    /// Upper bound of a `Retry-After` that the server sends.
    const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

    /// Records a failure, with the server's `Retry-After` if there was one. The pause doubles with every failure.
    pub fn failed(&mut self, now: Mono, patience: Option<Duration>) {
        let pause = Self::MIN_PAUSE.saturating_mul(1 << self.failures.min(6)).min(Self::MAX_PAUSE);
        self.failures = self.failures.saturating_add(1);
        let patience = patience.unwrap_or_default().min(Self::MAX_RETRY_AFTER);
        self.not_before = Some(now + pause.max(patience));
    }

    /// Records a successful answer.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// The time to wait before the next request; `None` if it may be sent now.
    pub fn wait(&self, now: Mono) -> Option<Duration> {
        self.not_before.filter(|at| *at > now).map(|at| at - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    #[test]
    fn e02_a_failing_token_endpoint_gets_five_requests_in_fifteen_seconds() {
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
    fn e02_retry_after_of_a_token_endpoint_is_bounded_to_five_minutes() {
        for (asked, had) in [(0, 1), (20, 20), (300, 300), (86_400, 300)] {
            let mut retries = Retries::default();
            retries.failed(Mono::default(), Some(asked * SEC));
            assert_eq!(retries.wait(Mono::default()), Some(had * SEC), "{asked}");
        }
    }
}

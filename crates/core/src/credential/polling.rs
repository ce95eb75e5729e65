//! Polling of a token endpoint during a device login (RFC 8628): its interval and its end.

use crate::time::Mono;
use std::time::Duration;

/// The polling schedule of one device login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polling {
    interval: Duration,
    until: Mono,
}

/// The result of a poll that returned no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled<'a> {
    /// The `error` of the response.
    Refused(&'a str),
    /// No response, or one that cannot be understood.
    Unclear,
}

/// The next step after a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollStep {
    /// Poll again at this time.
    PollAt(Mono),
    /// The person refused the login.
    Denied,
    /// The login was not approved in time.
    Expired,
    /// The login failed for good.
    Failed,
}

impl Polling {
    /// Interval if the authorization server names none.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);
    /// Increase of the interval after `slow_down`.
    pub const SLOW_DOWN_STEP: Duration = Duration::from_secs(5);
    /// Lower bound of the interval, whatever the server says.
    pub const MIN_INTERVAL: Duration = Duration::from_secs(1);
    /// Upper bound of the interval while the server does not answer.
    pub const MAX_BACKOFF: Duration = Duration::from_secs(60);
    /// Upper bound of the total time, whatever the lifetime of the code.
    pub const MAX_DURATION: Duration = Duration::from_secs(3600);

    /// Starts polling at this interval, if the authorization server named one, until the code expires.
    pub fn new(now: Mono, interval: Option<Duration>, good_for: Duration) -> Self {
        let interval =
            interval.unwrap_or(Self::DEFAULT_INTERVAL).clamp(Self::MIN_INTERVAL, Self::MAX_DURATION);
        Self { interval, until: now + good_for.min(Self::MAX_DURATION) }
    }

    /// The time of the first poll: one interval after the start, because the person has to read the code first.
    pub fn first_poll(&self, now: Mono) -> PollStep {
        self.again(now)
    }

    /// The next step after a poll without a token.
    pub fn next_step(&mut self, now: Mono, polled: Polled<'_>) -> PollStep {
        match polled {
            Polled::Refused("authorization_pending") => {}
            Polled::Refused("slow_down") => self.interval += Self::SLOW_DOWN_STEP,
            Polled::Refused("access_denied") => return PollStep::Denied,
            Polled::Refused("expired_token") => return PollStep::Expired,
            Polled::Refused(_) => return PollStep::Failed,
            Polled::Unclear => self.interval = (self.interval * 2).min(self.interval.max(Self::MAX_BACKOFF)),
        }
        self.again(now)
    }

    fn again(&self, now: Mono) -> PollStep {
        let at = now + self.interval;
        if at < self.until { PollStep::PollAt(at) } else { PollStep::Expired }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::from_origin(Duration::from_secs(seconds))
    }

    fn polling(interval: Option<u64>, good_for: u64) -> Polling {
        Polling::new(at(0), interval.map(Duration::from_secs), Duration::from_secs(good_for))
    }

    const PENDING: Polled<'_> = Polled::Refused("authorization_pending");

    /// E04
    #[test]
    fn e04_a_device_login_polls_at_the_given_interval_until_expiry() {
        let mut polling = polling(Some(10), 35);
        assert_eq!(polling.first_poll(at(0)), PollStep::PollAt(at(10)));
        assert_eq!(polling.next_step(at(10), PENDING), PollStep::PollAt(at(20)));
        assert_eq!(polling.next_step(at(20), PENDING), PollStep::PollAt(at(30)));
        assert_eq!(polling.next_step(at(30), PENDING), PollStep::Expired);
    }

    /// E04
    #[test]
    fn e04_slow_down_increases_the_polling_interval_for_good() {
        let mut polling = polling(None, 600);
        assert_eq!(polling.first_poll(at(0)), PollStep::PollAt(at(5)));
        assert_eq!(polling.next_step(at(5), Polled::Refused("slow_down")), PollStep::PollAt(at(15)));
        assert_eq!(polling.next_step(at(15), PENDING), PollStep::PollAt(at(25)));
        assert_eq!(polling.next_step(at(25), Polled::Refused("slow_down")), PollStep::PollAt(at(40)));
    }

    #[test]
    fn a_final_error_ends_a_device_login_at_once() {
        for (said, next) in [
            ("access_denied", PollStep::Denied),
            ("expired_token", PollStep::Expired),
            ("invalid_grant", PollStep::Failed),
            ("invalid_client", PollStep::Failed),
        ] {
            assert_eq!(polling(None, 600).next_step(at(5), Polled::Refused(said)), next, "{said}");
        }
    }

    #[test]
    fn the_polling_interval_doubles_while_the_server_does_not_answer() {
        let mut polling = polling(Some(20), 600);
        assert_eq!(polling.next_step(at(20), Polled::Unclear), PollStep::PollAt(at(60)));
        assert_eq!(polling.next_step(at(60), Polled::Unclear), PollStep::PollAt(at(120)));
        assert_eq!(polling.next_step(at(120), Polled::Unclear), PollStep::PollAt(at(180)));
    }

    #[test]
    fn intervals_and_lifetimes_are_clamped() {
        assert_eq!(polling(Some(0), 600).first_poll(at(0)), PollStep::PollAt(at(1)));
        assert_eq!(polling(Some(u64::MAX), 600).first_poll(at(0)), PollStep::Expired);
        let mut endless = polling(None, u64::MAX);
        assert_eq!(endless.next_step(at(3600), PENDING), PollStep::Expired);
    }
}

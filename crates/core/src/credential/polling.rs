//! How often an authorization server is asked whether a person, on whatever device, has agreed to a login (RFC 8628), and
//! when there is nothing to wait for any more.

use crate::time::Mono;
use std::time::Duration;

/// Asking until somebody has agreed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polling {
    interval: Duration,
    until: Mono,
}

/// What came of asking, where it was no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled<'a> {
    /// The `error` of an answer.
    Refused(&'a str),
    /// No answer, or one that makes no sense.
    Unclear,
}

/// What to do then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Ask again then.
    AskAt(Mono),
    /// The person said no.
    Denied,
    /// Nobody has agreed in time.
    Expired,
    /// It will never be a token.
    Failed,
}

impl Polling {
    /// How often to ask where the authorization server does not say.
    pub const USUAL: Duration = Duration::from_secs(5);
    /// What the interval grows by when we are too fast for it.
    pub const SLOWER: Duration = Duration::from_secs(5);
    /// Nobody is asked more often, whatever it says.
    pub const OFTENEST: Duration = Duration::from_secs(1);
    /// A server that does not answer is asked more and more seldom, and not more seldom than this.
    pub const SELDOMEST: Duration = Duration::from_secs(60);
    /// A person who has not agreed by then has gone away, however long the code may be good.
    pub const LONGEST: Duration = Duration::from_secs(3600);

    /// Begins to ask: at this interval, if the authorization server named one, for as long as the code is good.
    pub fn begin(now: Mono, interval: Option<Duration>, good_for: Duration) -> Self {
        let interval = interval.unwrap_or(Self::USUAL).clamp(Self::OFTENEST, Self::LONGEST);
        Self { interval, until: now + good_for.min(Self::LONGEST) }
    }

    /// When to ask for the first time: nobody agrees before having read the code.
    pub fn first(&self, now: Mono) -> Next {
        self.again(now)
    }

    /// What to do after having asked in vain.
    pub fn after(&mut self, now: Mono, polled: Polled<'_>) -> Next {
        match polled {
            Polled::Refused("authorization_pending") => {}
            Polled::Refused("slow_down") => self.interval += Self::SLOWER,
            Polled::Refused("access_denied") => return Next::Denied,
            Polled::Refused("expired_token") => return Next::Expired,
            Polled::Refused(_) => return Next::Failed,
            Polled::Unclear => self.interval = (self.interval * 2).min(self.interval.max(Self::SELDOMEST)),
        }
        self.again(now)
    }

    fn again(&self, now: Mono) -> Next {
        let at = now + self.interval;
        if at < self.until { Next::AskAt(at) } else { Next::Expired }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::at(Duration::from_secs(seconds))
    }

    fn polling(interval: Option<u64>, good_for: u64) -> Polling {
        Polling::begin(at(0), interval.map(Duration::from_secs), Duration::from_secs(good_for))
    }

    const PENDING: Polled<'_> = Polled::Refused("authorization_pending");

    /// E04
    #[test]
    fn e04_a_device_login_asks_at_the_interval_it_was_given_until_the_code_is_over() {
        let mut polling = polling(Some(10), 35);
        assert_eq!(polling.first(at(0)), Next::AskAt(at(10)));
        assert_eq!(polling.after(at(10), PENDING), Next::AskAt(at(20)));
        assert_eq!(polling.after(at(20), PENDING), Next::AskAt(at(30)));
        assert_eq!(polling.after(at(30), PENDING), Next::Expired);
    }

    /// E04
    #[test]
    fn e04_a_device_login_that_is_too_fast_slows_down_for_good() {
        let mut polling = polling(None, 600);
        assert_eq!(polling.first(at(0)), Next::AskAt(at(5)));
        assert_eq!(polling.after(at(5), Polled::Refused("slow_down")), Next::AskAt(at(15)));
        assert_eq!(polling.after(at(15), PENDING), Next::AskAt(at(25)));
        assert_eq!(polling.after(at(25), Polled::Refused("slow_down")), Next::AskAt(at(40)));
    }

    #[test]
    fn what_ends_a_device_login_ends_it_at_once() {
        for (said, next) in [
            ("access_denied", Next::Denied),
            ("expired_token", Next::Expired),
            ("invalid_grant", Next::Failed),
            ("invalid_client", Next::Failed),
        ] {
            assert_eq!(polling(None, 600).after(at(5), Polled::Refused(said)), next, "{said}");
        }
    }

    #[test]
    fn a_server_that_does_not_answer_is_asked_more_and_more_seldom() {
        let mut polling = polling(Some(20), 600);
        assert_eq!(polling.after(at(20), Polled::Unclear), Next::AskAt(at(60)));
        assert_eq!(polling.after(at(60), Polled::Unclear), Next::AskAt(at(120)));
        assert_eq!(polling.after(at(120), Polled::Unclear), Next::AskAt(at(180)));
    }

    #[test]
    fn numbers_that_make_no_sense_are_kept_within_bounds() {
        assert_eq!(polling(Some(0), 600).first(at(0)), Next::AskAt(at(1)));
        assert_eq!(polling(Some(u64::MAX), 600).first(at(0)), Next::Expired);
        let mut endless = polling(None, u64::MAX);
        assert_eq!(endless.after(at(3600), PENDING), Next::Expired);
    }
}

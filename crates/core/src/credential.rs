//! When a token has to be replaced, and which of two is the one to use. Nothing here knows what a token is good for.

mod polling;
mod retries;
pub mod scopes;

pub use polling::{Next, Polled, Polling};
pub use retries::Retries;

use crate::time::Wall;
use std::time::Duration;

/// How long a token lasts, as far as its issuer said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetime {
    /// When it was received.
    pub received: Wall,
    /// For how long it is good from then on; `None` if nobody said.
    pub lasts: Option<Duration>,
}

/// Whether a token has to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It is good for a while.
    NotYet,
    /// It is good, and will not be for long.
    Soon,
    /// It is not good any more.
    Over,
}

impl Lifetime {
    /// A token is replaced ahead of its end by this at the most, and by a tenth of its life if that is less: what is on
    /// its way meanwhile still has to arrive.
    pub const AHEAD: Duration = Duration::from_secs(60);

    /// Whether it has to be replaced now. A token without an end is good until a server refuses it, and so is one that
    /// is said to be good for no time at all: replacing it for every request would bring no better one.
    pub fn due(&self, now: Wall) -> Due {
        let Some(lasts) = self.lasts.filter(|lasts| !lasts.is_zero()) else { return Due::NotYet };
        let age = now.since_epoch().saturating_sub(self.received.since_epoch());
        let ahead = (lasts / 10).min(Self::AHEAD);
        if age >= lasts {
            Due::Over
        } else if age >= lasts.saturating_sub(ahead) {
            Due::Soon
        } else {
            Due::NotYet
        }
    }
}

/// Whether the token that is `stored` may be used in the place of one that was `refused`: another process may have
/// replaced it already, and replacing it again would cost everybody theirs.
pub fn adopts(stored: &str, lifetime: Lifetime, refused: Option<&str>, now: Wall) -> bool {
    refused != Some(stored) && lifetime.due(now) != Due::Over
}

/// What an authorization server complains about when it gives no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Complaint {
    /// The login is over.
    Login,
    /// It does not know the client, or not by this secret, or does not let it have tokens in this way.
    Client,
    /// It does not give what was asked for.
    Request,
    /// Something that may be different the next time.
    Other,
}

impl Complaint {
    /// Understands the `error` of an answer without a token (RFC 6749, section 5.2).
    pub fn of(code: &str) -> Self {
        match code {
            // The second is GitHub's, under HTTP 200.
            "invalid_grant" | "bad_refresh_token" => Self::Login,
            "invalid_client" | "unauthorized_client" | "incorrect_client_credentials" => Self::Client,
            "invalid_scope" | "invalid_target" | "unsupported_grant_type" => Self::Request,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Wall {
        Wall::at(Duration::from_secs(seconds))
    }

    fn hour() -> Lifetime {
        Lifetime { received: at(1000), lasts: Some(Duration::from_secs(3600)) }
    }

    /// E04
    #[test]
    fn a_token_is_replaced_ahead_of_its_end() {
        assert_eq!(hour().due(at(1000)), Due::NotYet);
        assert_eq!(hour().due(at(1000 + 3539)), Due::NotYet);
        assert_eq!(hour().due(at(1000 + 3540)), Due::Soon);
        assert_eq!(hour().due(at(1000 + 3600)), Due::Over);
    }

    #[test]
    fn a_short_life_is_not_spent_on_replacing() {
        let short = Lifetime { received: at(0), lasts: Some(Duration::from_secs(20)) };
        assert_eq!(short.due(at(17)), Due::NotYet);
        assert_eq!(short.due(at(18)), Due::Soon);
    }

    #[test]
    fn without_an_end_nothing_is_due_and_a_clock_set_back_makes_nothing_old() {
        assert_eq!(Lifetime { received: at(0), lasts: None }.due(at(u64::MAX)), Due::NotYet);
        assert_eq!(hour().due(at(0)), Due::NotYet);
    }

    #[test]
    fn a_token_that_is_said_to_last_no_time_is_good_until_it_is_refused() {
        let none = Lifetime { received: at(1000), lasts: Some(Duration::ZERO) };
        assert_eq!((none.due(at(1000)), none.due(at(9999))), (Due::NotYet, Due::NotYet));
    }

    /// B09
    #[test]
    fn what_retrying_cannot_mend_is_told_from_what_passes() {
        for (code, complaint) in [
            ("invalid_grant", Complaint::Login),
            ("bad_refresh_token", Complaint::Login),
            ("invalid_client", Complaint::Client),
            ("incorrect_client_credentials", Complaint::Client),
            ("unauthorized_client", Complaint::Client),
            ("invalid_scope", Complaint::Request),
            ("unsupported_grant_type", Complaint::Request),
            ("temporarily_unavailable", Complaint::Other),
            ("server_error", Complaint::Other),
            ("invalid_request", Complaint::Other),
            ("", Complaint::Other),
        ] {
            assert_eq!(Complaint::of(code), complaint, "{code}");
        }
    }

    /// E02
    #[test]
    fn a_token_that_another_process_has_rotated_is_adopted_and_the_refused_one_is_not() {
        assert!(adopts("new", hour(), Some("old"), at(1001)));
        assert!(!adopts("old", hour(), Some("old"), at(1001)));
        assert!(!adopts("new", hour(), Some("old"), at(9999)));
    }
}

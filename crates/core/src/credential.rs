//! Token lifetimes: the time to refresh a token, and the choice between a stored and a refused one. OAuth requests are
//! made by the host.

mod polling;
mod retries;
pub mod scopes;

pub use polling::{PollStep, Polled, Polling};
pub use retries::Retries;

use crate::time::Wall;
use std::time::Duration;

/// Lifetime of a token, as its issuer stated it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetime {
    /// The time at which it was received.
    pub received: Wall,
    /// Its lifetime from then on; `None` if the issuer did not say.
    pub expires_in: Option<Duration>,
}

/// Refresh state of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It is valid for a while.
    NotYet,
    /// It is valid, and expires soon.
    Soon,
    /// It has expired.
    Expired,
}

impl Lifetime {
    /// A token is refreshed this long before it expires, or a tenth of its lifetime if that is less: requests that are
    /// on their way still have to arrive in time.
    pub const MAX_REFRESH_AHEAD: Duration = Duration::from_secs(60);

    /// Returns whether it has to be refreshed now. A token without expiry is used until a server refuses it. So is one
    /// with a lifetime of zero: refreshing it for every request would not bring a better one.
    pub fn due(&self, now: Wall) -> Due {
        let Some(lasts) = self.expires_in.filter(|lasts| !lasts.is_zero()) else { return Due::NotYet };
        let age = now.since_epoch().saturating_sub(self.received.since_epoch());
        let ahead = (lasts / 10).min(Self::MAX_REFRESH_AHEAD);
        if age >= lasts {
            Due::Expired
        } else if age >= lasts.saturating_sub(ahead) {
            Due::Soon
        } else {
            Due::NotYet
        }
    }
}

/// Returns whether the `stored` token can be used in place of the `refused` one. Another process may have refreshed it
/// already, and a second refresh would invalidate the token of all processes.
pub fn can_use_stored(stored: &str, lifetime: Lifetime, refused: Option<&str>, now: Wall) -> bool {
    refused != Some(stored) && lifetime.due(now) != Due::Expired
}

/// The reason of an authorization server for not issuing a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Complaint {
    /// The login has ended.
    Login,
    /// The client is unknown, its secret is wrong, or it may not use this grant.
    Client,
    /// The requested scope, target or grant is not supported.
    Request,
    /// Any other reason; the next attempt may succeed.
    Other,
}

impl Complaint {
    /// Maps the `error` of a token response (RFC 6749, section 5.2).
    pub fn from_code(code: &str) -> Self {
        match code {
            // GitHub sends the second one, with HTTP 200.
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
        Wall::from_unix_epoch(Duration::from_secs(seconds))
    }

    fn hour() -> Lifetime {
        Lifetime { received: at(1000), expires_in: Some(Duration::from_secs(3600)) }
    }

    /// E04
    #[test]
    fn a_token_is_refreshed_before_it_expires() {
        assert_eq!(hour().due(at(1000)), Due::NotYet);
        assert_eq!(hour().due(at(1000 + 3539)), Due::NotYet);
        assert_eq!(hour().due(at(1000 + 3540)), Due::Soon);
        assert_eq!(hour().due(at(1000 + 3600)), Due::Expired);
    }

    #[test]
    fn a_short_lived_token_is_not_refreshed_too_early() {
        let short = Lifetime { received: at(0), expires_in: Some(Duration::from_secs(20)) };
        assert_eq!(short.due(at(17)), Due::NotYet);
        assert_eq!(short.due(at(18)), Due::Soon);
    }

    #[test]
    fn a_token_without_expiry_or_with_a_clock_set_back_is_not_due() {
        assert_eq!(Lifetime { received: at(0), expires_in: None }.due(at(u64::MAX)), Due::NotYet);
        assert_eq!(hour().due(at(0)), Due::NotYet);
    }

    #[test]
    fn a_token_with_zero_lifetime_is_used_until_it_is_refused() {
        let none = Lifetime { received: at(1000), expires_in: Some(Duration::ZERO) };
        assert_eq!((none.due(at(1000)), none.due(at(9999))), (Due::NotYet, Due::NotYet));
    }

    /// B09
    #[test]
    fn oauth_errors_are_mapped_to_permanent_and_passing_ones() {
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
            assert_eq!(Complaint::from_code(code), complaint, "{code}");
        }
    }

    /// E02
    #[test]
    fn a_token_rotated_by_another_process_is_used_but_not_the_refused_one() {
        assert!(can_use_stored("new", hour(), Some("old"), at(1001)));
        assert!(!can_use_stored("old", hour(), Some("old"), at(1001)));
        assert!(!can_use_stored("new", hour(), Some("old"), at(9999)));
    }
}

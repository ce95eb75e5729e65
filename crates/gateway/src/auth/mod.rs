//! Who a client is. Where the config asks for it, each request to the endpoint shows an API key or a token, and
//! counts as its principal's; what shows neither is told how to get in.
//!
//! `keys` knows API keys, `challenge` words the refusals, `guard.rs` of the endpoint is about browsers and
//! not about who somebody is. What a principal may do is decided elsewhere.

mod challenge;
pub mod keys;

use crate::shares::Peer;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use challenge::Challenge;
use gripfast::Principal;
use gripfast::config::AccessConfig;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use keys::Keyring;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How clients show who they are.
pub(crate) struct Access {
    keys: Option<Keyring>,
    challenge: Challenge,
}

/// Why a request is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// It shows nothing.
    ShowsNothing,
    /// What it shows is not good here, or not any more.
    Refused(String),
}

impl Access {
    /// As the config says; `None` where nobody has to show anything.
    ///
    /// # Errors
    /// What is asked for cannot be checked.
    pub(crate) fn of(config: &AccessConfig, state_dir: Option<&Path>) -> io::Result<Option<Arc<Self>>> {
        if !config.asks() {
            return Ok(None);
        }
        let keys = match (config.keys, state_dir) {
            (false, _) => None,
            (true, Some(directory)) => Some(Keyring::in_directory(directory)),
            (true, None) => {
                return Err(io::Error::other("`gateway.auth.keys` needs a state directory to keep keys in"));
            }
        };
        if keys.as_ref().is_some_and(Keyring::is_empty) {
            tracing::warn!("no client can get in by a key yet; `gripfast keys add NAME` makes one");
        }
        Ok(Some(Arc::new(Self { keys, challenge: Challenge })))
    }

    /// Lets those in who show who they are.
    pub(crate) async fn admit(State(access): State<Arc<Self>>, mut request: Request, next: Next) -> Response {
        match access.who(request.headers()) {
            Ok(principal) => {
                request.extensions_mut().insert(Peer::Is(principal));
                next.run(request).await
            }
            Err(stranger) => access.challenge.to(&stranger),
        }
    }

    /// Who sends this.
    fn who(&self, headers: &HeaderMap) -> Result<Principal, Stranger> {
        let shown = bearer(headers).ok_or(Stranger::ShowsNothing)?;
        let by_key = self.keys.as_ref().and_then(|keys| keys.whose(shown));
        by_key.map(Principal::named).ok_or_else(|| Stranger::Refused("this key is not known here".to_owned()))
    }
}

/// What a request shows. Two of it are none: nobody could tell which one counts.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (only, None) = (all.next()?, all.next()) else { return None };
    let (scheme, shown) = only.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| shown.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[test]
    fn only_one_bearer_counts() {
        assert_eq!(bearer(&headers(&["Bearer abc"])), Some("abc"));
        assert_eq!(bearer(&headers(&["bearer  abc "])), Some("abc"));
        for odd in [&[][..], &["abc"], &["Basic abc"], &["Bearer abc", "Bearer def"]] {
            assert_eq!(bearer(&headers(odd)), None, "{odd:?}");
        }
    }

    #[test]
    fn g05_whoever_shows_a_key_is_its_principal_and_nobody_else_is_let_in() {
        let directory = tempfile::tempdir().unwrap();
        let config = AccessConfig { keys: true, ..AccessConfig::default() };
        let access = Access::of(&config, Some(directory.path())).unwrap().unwrap();
        let key = keys::add(directory.path(), "laptop").unwrap();
        let who = |shown: &str| access.who(&headers(&[&format!("Bearer {shown}")]));
        assert_eq!(who(&key), Ok(Principal::named("laptop")));
        assert!(matches!(who("gfk_made-up"), Err(Stranger::Refused(_))));
        assert_eq!(access.who(&HeaderMap::new()), Err(Stranger::ShowsNothing));
        assert!(keys::remove(directory.path(), "laptop").unwrap());
        assert!(matches!(who(&key), Err(Stranger::Refused(_))), "it is over at once");
        assert!(Access::of(&AccessConfig::default(), None).unwrap().is_none());
        assert!(Access::of(&config, None).is_err());
    }
}

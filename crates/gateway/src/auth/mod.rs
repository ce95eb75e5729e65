//! Who a client is. Where the config asks for it, each request to the endpoint shows an API key or a token, and
//! counts as its principal's; what shows neither is told how to get in.
//!
//! `keys` knows API keys, `tokens` signed tokens, with the keys of their `issuer` and the check of a `signature`;
//! `challenge` words the refusals and tells OAuth clients where to log in. What a principal may do is decided
//! elsewhere, and browsers that were tricked are the business of the endpoint's guard.

mod challenge;
mod issuer;
pub mod keys;
mod signature;
mod tokens;

use crate::shares::Peer;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use challenge::Challenge;
use gripfast::Principal;
use gripfast::config::AccessConfig;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Uri};
use keys::Keyring;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokens::Tokens;

/// How clients show who they are.
pub(crate) struct Access {
    keys: Option<Keyring>,
    tokens: Option<Tokens>,
    challenge: Challenge,
}

/// Why a request is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// It shows nothing.
    ShowsNothing,
    /// What it shows is not good here, or not any more.
    Refused(String),
    /// Its token is good, and not for this.
    LacksScope,
    /// The issuer's keys are not there at the moment.
    CannotCheck,
}

impl Access {
    /// As the config says, for a gateway at `base`; `None` where nobody has to show anything.
    ///
    /// # Errors
    /// What is asked for cannot be checked.
    pub(crate) fn of(
        config: &AccessConfig,
        state_dir: Option<&Path>,
        base: &str,
    ) -> io::Result<Option<Arc<Self>>> {
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
        let challenge = Challenge::new(base, config.jwt.as_ref());
        let tokens = config.jwt.clone().map(|jwt| Tokens::of(jwt, config.strict_modes));
        Ok(Some(Arc::new(Self { keys, tokens, challenge })))
    }

    /// Where clients find out how to log in, which they may ask before they have.
    pub(crate) fn router(&self) -> Router {
        self.challenge.router()
    }

    /// Lets those in who show who they are.
    pub(crate) async fn admit(State(access): State<Arc<Self>>, mut request: Request, next: Next) -> Response {
        match access.peer(request.uri(), request.headers()).await {
            Ok(peer) => {
                request.extensions_mut().insert(peer);
                next.run(request).await
            }
            Err(refusal) => *refusal,
        }
    }

    /// Who sends this, or what those are told who do not show it.
    pub(crate) async fn peer(&self, uri: &Uri, headers: &HeaderMap) -> Result<Peer, Box<Response>> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let principal = self.who(headers, wall).await;
        principal.map(Peer::Is).map_err(|stranger| Box::new(self.challenge.to(&stranger, uri.path())))
    }

    /// Who sends this.
    async fn who(&self, headers: &HeaderMap, wall: Duration) -> Result<Principal, Stranger> {
        let shown = bearer(headers).ok_or(Stranger::ShowsNothing)?;
        match (&self.keys, &self.tokens) {
            (_, Some(tokens)) if !shown.starts_with(keys::PREFIX) => tokens.whose(shown, wall).await,
            (Some(keys), _) => {
                let name = keys.whose(shown);
                name.map(Principal::named).ok_or_else(|| refused("this key is not known here"))
            }
            (None, _) => Err(refused("keys are not asked for here")),
        }
    }
}

fn refused(why: &str) -> Stranger {
    Stranger::Refused(why.to_owned())
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

    const HERE: &str = "http://127.0.0.1:7331";

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

    #[tokio::test]
    async fn g05_whoever_shows_a_key_is_its_principal_and_nobody_else_is_let_in() {
        let directory = tempfile::tempdir().unwrap();
        let config = AccessConfig { keys: true, ..AccessConfig::default() };
        let access = Access::of(&config, Some(directory.path()), HERE).unwrap().unwrap();
        let key = keys::add(directory.path(), "laptop").unwrap();
        let who =
            async |shown: &str| access.who(&headers(&[&format!("Bearer {shown}")]), Duration::ZERO).await;
        assert_eq!(who(&key).await, Ok(Principal::named("laptop")));
        assert!(matches!(who("gfk_made-up").await, Err(Stranger::Refused(_))));
        assert_eq!(access.who(&HeaderMap::new(), Duration::ZERO).await, Err(Stranger::ShowsNothing));
        assert!(keys::remove(directory.path(), "laptop").unwrap());
        assert!(matches!(who(&key).await, Err(Stranger::Refused(_))), "it is over at once");
        assert!(Access::of(&AccessConfig::default(), None, HERE).unwrap().is_none());
        assert!(Access::of(&config, None, HERE).is_err());
    }
}

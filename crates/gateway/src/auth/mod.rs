//! Who a client is. Where the config asks for it, each request to the endpoint shows an API key or a token, and
//! counts as its principal's; what shows neither is told how to get in.
//!
//! `keys` knows API keys, `tokens` signed tokens, with the keys of their `issuer` and the check of a `signature`;
//! `challenge` words the refusals and tells OAuth clients where to log in, `failures` records them and lets those who go on
//! failing wait for their answers. What a principal may do is decided
//! elsewhere, and browsers that were tricked are the business of the endpoint's guard.

mod challenge;
mod failures;
mod in_use;
mod issuer;
pub mod keys;
mod signature;
mod tokens;

use crate::connection_table::Slot;
use crate::credential::Credential;
use crate::downstream::{Gateway, too_many_requests};
use crate::front::source_of;
use crate::request_limits::{RequestLimits, TooMany};
use crate::shares::Peer;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use challenge::Challenge;
pub(crate) use failures::FailedAuth;
use gripfast::config::AccessConfig;
use gripfast::{AuthFailure, AuthTarget, Host, Principal, SecurityEvent, Source};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use in_use::{CredentialId, InUse};
use keys::Keyring;
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokens::Tokens;
use tokio_util::sync::CancellationToken;

/// How clients show who they are.
pub(crate) struct Access {
    keys: Option<Keyring>,
    tokens: Option<Tokens>,
    challenge: Challenge,
    /// What those have shown who are being served.
    in_use: InUse,
    /// Requests per second of each client, where they are limited.
    limits: Option<Arc<RequestLimits>>,
    /// Digests of tokens that were valid when they were last shown.
    verified: Mutex<HashSet<[u8; 32]>>,
    failed: FailedAuth,
    host: Host,
}

/// Tokens that are remembered as valid. Beyond it all are forgotten, which costs nothing but the exemption of
/// [`Access::limited_peer`].
const MOST_VERIFIED: usize = 10_000;

/// How often credentials in use are looked at. What they opened ends within a second of them.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Why a request is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// It shows nothing.
    ShowsNothing,
    /// What it shows is not good here, or not any more.
    Refused {
        /// For the client.
        why: String,
        /// For the operator.
        reason: AuthFailure,
        /// The principal whose credential it was, if it was one of ours.
        principal: Option<String>,
    },
    /// Its token is good, and not for this.
    LacksScope {
        /// The principal of the token.
        principal: Option<String>,
    },
    /// The issuer's keys are not there at the moment.
    CannotCheck,
}

/// Why a request is not let in.
pub(crate) enum NotAdmitted {
    /// It does not show a valid credential.
    Stranger(Box<Stranger>),
    /// Its client has sent too many requests.
    TooMany(TooMany),
}

impl Stranger {
    fn refused(reason: AuthFailure, why: &str) -> Self {
        Self::Refused { why: why.to_owned(), reason, principal: None }
    }

    /// The failure of `principal`, whose credential was recognised.
    fn of(self, name: Option<String>) -> Self {
        match self {
            Self::Refused { why, reason, principal: _ } => Self::Refused { why, reason, principal: name },
            Self::LacksScope { principal: _ } => Self::LacksScope { principal: name },
            Self::ShowsNothing | Self::CannotCheck => self,
        }
    }

    /// The failure as it is recorded.
    fn failure(&self) -> (AuthFailure, Option<String>) {
        match self {
            Self::ShowsNothing => (AuthFailure::NoCredential, None),
            Self::Refused { reason, principal, .. } => (*reason, principal.clone()),
            Self::LacksScope { principal } => (AuthFailure::InsufficientScope, principal.clone()),
            Self::CannotCheck => (AuthFailure::CannotCheck, None),
        }
    }
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
        limits: Option<Arc<RequestLimits>>,
        host: &Host,
        leaving: CancellationToken,
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
        let (in_use, verified) = (InUse::default(), Mutex::default());
        let failed = FailedAuth::new(host.clone(), leaving);
        let host = host.clone();
        Ok(Some(Arc::new(Self { keys, tokens, challenge, in_use, limits, verified, failed, host })))
    }

    /// Where clients find out how to log in, which they may ask before they have.
    pub(crate) fn router(&self) -> Router {
        self.challenge.router()
    }

    /// Lets those in who show who they are.
    pub(crate) async fn admit(State(access): State<Arc<Self>>, mut request: Request, next: Next) -> Response {
        let address = Peer::of(&request);
        match access.limited_peer(&address, request.headers()).await {
            Ok((peer, credential)) => {
                if let Some(slot) = request.extensions().get::<Arc<Slot>>() {
                    slot.mark_known_as(&peer);
                }
                let path = request.uri().path().to_owned();
                request.extensions_mut().insert(peer);
                request.extensions_mut().insert(credential.clone());
                access.serve(&credential, &path, next.run(request)).await
            }
            Err(refused) => {
                let (source, path) = (source_of(&request), request.uri().path().to_owned());
                // Its body holds nothing while the answer waits.
                drop(request);
                access.refuse(&refused, source, &path).await
            }
        }
    }

    /// Who sends this, within the limits of requests per second. A request with a valid credential counts for its
    /// principal, any other for its `address`. Where that has no requests left, no signature is verified, unless the
    /// token was valid before: clients behind one address go on with the tokens they have, and wait with new ones.
    pub(crate) async fn limited_peer(
        &self,
        address: &Peer,
        headers: &HeaderMap,
    ) -> Result<(Peer, Credential), NotAdmitted> {
        let Some(limits) = &self.limits else {
            return self.peer(headers).await.map_err(NotAdmitted::Stranger);
        };
        let token = self.tokens.is_some().then(|| bearer(headers)).flatten();
        let token = token.filter(|shown| !shown.starts_with(keys::PREFIX)).map(digest);
        if let Some(token) = token
            && !self.verified().contains(&token)
        {
            limits.check(address).map_err(NotAdmitted::TooMany)?;
        }
        let shown = self.peer(headers).await;
        if let Some(token) = token {
            let mut verified = self.verified();
            if verified.len() >= MOST_VERIFIED {
                verified.clear();
            }
            let _ = if shown.is_ok() { verified.insert(token) } else { verified.remove(&token) };
        }
        limits.spend(shown.as_ref().map_or(address, |(peer, _)| peer), 1).map_err(NotAdmitted::TooMany)?;
        shown.map_err(NotAdmitted::Stranger)
    }

    fn verified(&self) -> MutexGuard<'_, HashSet<[u8; 32]>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who sends this, or why it is not let in.
    async fn peer(&self, headers: &HeaderMap) -> Result<(Peer, Credential), Box<Stranger>> {
        let (principal, id) = self.who(headers, wall()).await.map_err(Box::new)?;
        Ok((Peer::Is(principal), self.in_use.credential(id)))
    }

    /// Records that a request was not let in, and answers it: later and later, if its address goes on like this.
    pub(crate) async fn refuse(&self, refused: &NotAdmitted, source: Source, path: &str) -> Response {
        let stranger = match refused {
            NotAdmitted::Stranger(stranger) => stranger,
            NotAdmitted::TooMany(too_many) => return too_many_requests(*too_many),
        };
        let (reason, principal) = stranger.failure();
        let delay = self.failed.record(source, AuthTarget::Mcp, reason, principal);
        self.failed.delayed(source, delay, self.challenge.to(stranger, path)).await
    }

    /// The response of `served`, for as long as what was shown for it is good.
    pub(crate) async fn serve(
        &self,
        credential: &Credential,
        path: &str,
        served: impl Future<Output = Response>,
    ) -> Response {
        match credential.while_good(served).await {
            Some(response) => credential.bound(response),
            None => {
                let why = "what was shown for this request is good no more";
                self.challenge.to(&Stranger::refused(AuthFailure::Expired, why), path)
            }
        }
    }

    /// Ends what was opened with credentials that are good no more, and notes when keys were used, for as long as the
    /// gateway serves.
    pub(crate) async fn watch(&self, gateway: &Gateway) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let gone = self.end_those_over(wall());
            if !gone.is_empty() {
                gateway.sessions.end_of(|principal| gone.contains(principal)).await;
            }
            if let Some(keys) = &self.keys {
                self.record_changes(keys);
                keys.note_uses().await;
            }
        }
    }

    /// Records the keys that changed in the state directory. The process that changed them has its own line in the audit
    /// log; this one tells that they count here, and finds a file that was changed by hand.
    fn record_changes(&self, keys: &Keyring) {
        for (change, names) in keys.changes() {
            self.host.record(SecurityEvent::KeysChanged { change, names, actor: None });
        }
    }

    /// Ends what was opened with credentials that are good no more at `wall`. Answers with the principals that had
    /// a key and have none any more.
    fn end_those_over(&self, wall: Duration) -> Vec<Principal> {
        self.in_use.end_those(|id| match id {
            CredentialId::Key(digest) => !self.keys.as_ref().is_some_and(|keys| keys.has(digest, wall)),
            CredentialId::Token { ends, .. } => wall >= *ends,
        });
        let lost = self.keys.as_ref().map(|keys| keys.lost(wall)).unwrap_or_default();
        lost.into_iter().map(Principal::named).collect()
    }

    /// Who sends this, and by which credential.
    async fn who(&self, headers: &HeaderMap, wall: Duration) -> Result<(Principal, CredentialId), Stranger> {
        let Some(shown) = bearer(headers) else {
            return Err(match headers.contains_key(AUTHORIZATION) {
                true => Stranger::refused(AuthFailure::Malformed, NOT_ONE_BEARER),
                false => Stranger::ShowsNothing,
            });
        };
        match (&self.keys, &self.tokens) {
            (_, Some(tokens)) if !shown.starts_with(keys::PREFIX) => {
                let (principal, ends) = tokens.whose(shown, wall).await?;
                Ok((principal.clone(), CredentialId::Token { principal, ends }))
            }
            (Some(keys), _) => {
                let (digest, name) = keys.whose(shown, wall)?;
                Ok((Principal::named(name), CredentialId::Key(digest)))
            }
            (None, _) => Err(Stranger::refused(AuthFailure::UnknownKey, "keys are not asked for here")),
        }
    }
}

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn digest(token: &str) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

const NOT_ONE_BEARER: &str =
    "this gateway wants one `Authorization` header, with `Bearer` and a key or a token";

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
    use axum::body::Body;

    const HERE: &str = "http://127.0.0.1:7331";

    fn access_of(config: &AccessConfig, directory: Option<&Path>) -> io::Result<Option<Arc<Access>>> {
        Access::of(config, directory, HERE, None, &Host::builder().build(), CancellationToken::new())
    }

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
        let access = access_of(&config, Some(directory.path())).unwrap().unwrap();
        let key = keys::add(directory.path(), "laptop").unwrap();
        let who =
            async |shown: &str| access.who(&headers(&[&format!("Bearer {shown}")]), Duration::ZERO).await;
        assert_eq!(who(&key).await.map(|(principal, _)| principal), Ok(Principal::named("laptop")));
        assert!(matches!(who("gfk_made-up").await, Err(Stranger::Refused { .. })));
        assert!(matches!(access.who(&HeaderMap::new(), Duration::ZERO).await, Err(Stranger::ShowsNothing)));
        assert!(keys::remove(directory.path(), "laptop").unwrap());
        assert!(matches!(who(&key).await, Err(Stranger::Refused { .. })), "it is over at once");
        assert!(access_of(&AccessConfig::default(), None).unwrap().is_none());
        assert!(access_of(&config, None).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn g05_wrong_keys_wait_longer_and_longer_and_a_valid_one_never_does() {
        let directory = tempfile::tempdir().unwrap();
        let config = AccessConfig { keys: true, ..AccessConfig::default() };
        let access = access_of(&config, Some(directory.path())).unwrap().unwrap();
        let key = keys::add(directory.path(), "laptop").unwrap();
        let layer = axum::middleware::from_fn_with_state(Arc::clone(&access), Access::admit);
        let router = Router::new().route("/sse", axum::routing::post(async || "served")).layer(layer);
        // Its body never ends, and says when it is let go of.
        let ask = async |shown: Option<&str>, from: [u8; 4]| {
            let (held, unread) = tokio::sync::mpsc::channel::<Result<Vec<u8>, io::Error>>(1);
            let endless = futures_util::stream::unfold(unread, async |mut unread| {
                let piece = unread.recv().await?;
                Some((piece, unread))
            });
            let mut request = Request::new(Body::from_stream(endless));
            *request.method_mut() = http::Method::POST;
            *request.uri_mut() = "/sse".parse().unwrap();
            request.extensions_mut().insert(Peer::at(from.into()));
            if let Some(shown) = shown {
                request.headers_mut().insert(AUTHORIZATION, format!("Bearer {shown}").parse().unwrap());
            }
            let begun = tokio::time::Instant::now();
            let answering = tower_service::Service::call(&mut router.clone(), request);
            let let_go = async {
                held.closed().await;
                begun.elapsed()
            };
            let (answer, let_go) = tokio::join!(answering, let_go);
            (answer.unwrap().status().as_u16(), begun.elapsed().as_millis(), let_go.as_millis())
        };
        let (here, elsewhere) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        let mut waited = Vec::new();
        for _ in 0..13 {
            let (status, took, held) = ask(Some("gfk_guessed"), here).await;
            assert_eq!((status, held), (401, 0), "no body is held while the answer waits");
            waited.push(took);
            assert_eq!(ask(Some(&key), here).await.1, 0, "a valid key from the same address");
            assert_eq!(ask(None, here).await.1, 0, "a client that asks where to log in");
        }
        assert_eq!(waited, [0, 0, 0, 0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(ask(Some("gfk_guessed"), elsewhere).await.1, 0, "another address");
    }

    #[tokio::test]
    async fn g05_what_a_credential_has_opened_ends_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let config = AccessConfig { keys: true, ..AccessConfig::default() };
        let access = access_of(&config, Some(directory.path())).unwrap().unwrap();
        let key = keys::add(directory.path(), "laptop").unwrap();
        let at = |seconds| Duration::from_secs(seconds);
        let (_, by_key) = access.who(&headers(&[&format!("Bearer {key}")]), at(0)).await.unwrap();
        let alice = Principal::named("jwt:alice");
        let token = |ends| CredentialId::Token { principal: alice.clone(), ends: at(ends) };
        let [key, old, new] = [by_key, token(100), token(200)].map(|id| access.in_use.credential(id));
        let is_good = |credential: &Credential| !credential.has_ended();
        assert!(access.end_those_over(at(99)).is_empty());
        assert!(is_good(&key) && is_good(&old) && is_good(&new));
        assert!(access.end_those_over(at(100)).is_empty(), "its principal may have another token");
        assert!(is_good(&key) && !is_good(&old) && is_good(&new));
        assert!(keys::remove(directory.path(), "laptop").unwrap());
        assert_eq!(access.end_those_over(at(101)), [Principal::named("laptop")]);
        assert!(!is_good(&key) && is_good(&new));
        drop(new);
        access.end_those_over(at(101));
        assert_eq!(access.in_use.len(), 0, "what is not in use is not kept");
    }
}

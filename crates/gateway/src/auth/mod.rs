//! Authentication of MCP clients. If the config requires it, each request to the endpoint needs an API key or a token,
//! which determines its principal. Policy (what a principal may do) and the check of `Origin` are elsewhere.
//!
//! `keys` has the API keys, `tokens` the signed tokens, with the keys of their `issuer` and the verification of the
//! `signature`. `challenge` writes the refusals and tells OAuth clients where to log in. `failures` records failures
//! and delays their answers. `active` and `credential` end calls and streams when their credential ends.

mod active;
mod challenge;
pub(crate) mod credential;
mod failures;
mod issuer;
pub mod keys;
mod signature;
mod tokens;

use crate::auth::active::{ActiveCredentials, CredentialId};
use crate::auth::credential::Credential;
use crate::mcp::{Gateway, too_many_requests};
use crate::server::connection_table::ConnectionSlot;
use crate::server::dispatcher::source_of;
use crate::server::quota::Peer;
use crate::server::request_rate::{RateExceeded, RequestRates};
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use challenge::Challenge;
pub(crate) use failures::FailedAuth;
use gripfast::config::AccessConfig;
use gripfast::sync::Mutex;
use gripfast::{AuthFailure, AuthTarget, Host, Principal, RequestSource, SecurityEvent};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use keys::{KeySource, Keyring};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokens::Tokens;
use tokio_util::sync::CancellationToken;

/// Authenticates the requests of MCP clients.
pub(crate) struct Authenticator {
    keys: Option<Keyring>,
    tokens: Option<Tokens>,
    challenge: Challenge,
    /// Credentials of the requests that are being served.
    active: ActiveCredentials,
    /// Request rate of each client, if it is limited.
    limits: Option<Arc<RequestRates>>,
    /// Digests of tokens that were valid at their last use.
    verified: Mutex<HashSet<[u8; 32]>>,
    failed_auth: FailedAuth,
    host: Host,
}

/// Maximum number of tokens remembered as valid. Beyond it all are forgotten, which only costs the exemption in
/// [`Authenticator::authenticate_limited`].
const MAX_VERIFIED: usize = 10_000;

/// Interval at which credentials in use are checked. Calls and streams end within a second of their credential.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Failed authentication of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// The request has no credential.
    NoCredential,
    /// The credential is invalid, unknown or expired.
    Refused {
        /// Text for the client.
        message: String,
        /// Reason for the operator.
        reason: AuthFailure,
        /// Principal of the credential, if it was recognised.
        principal: Option<String>,
    },
    /// The token is valid, but lacks a scope.
    InsufficientScope {
        /// Principal of the token.
        principal: Option<String>,
    },
    /// The keys of the issuer are not available at the moment.
    CannotCheck,
}

/// Reason why a request is not admitted.
pub(crate) enum AdmissionError {
    /// It has no valid credential.
    Unauthenticated(Box<AuthError>),
    /// Its client has sent too many requests.
    RateLimited(RateExceeded),
}

impl AuthError {
    fn refused(reason: AuthFailure, message: &str) -> Self {
        Self::Refused { message: message.to_owned(), reason, principal: None }
    }

    /// Adds the principal whose credential was recognised.
    fn with_principal(self, name: Option<String>) -> Self {
        match self {
            Self::Refused { message, reason, principal: _ } => {
                Self::Refused { message, reason, principal: name }
            }
            Self::InsufficientScope { principal: _ } => Self::InsufficientScope { principal: name },
            Self::NoCredential | Self::CannotCheck => self,
        }
    }

    /// Reason and principal for the record.
    fn failure(&self) -> (AuthFailure, Option<String>) {
        match self {
            Self::NoCredential => (AuthFailure::NoCredential, None),
            Self::Refused { reason, principal, .. } => (*reason, principal.clone()),
            Self::InsufficientScope { principal } => (AuthFailure::InsufficientScope, principal.clone()),
            Self::CannotCheck => (AuthFailure::CannotCheck, None),
        }
    }
}

impl Authenticator {
    /// Creates the authenticator for a gateway at `base`; `None` if clients need no credential.
    ///
    /// # Errors
    /// Keys are required, but there is no state directory.
    pub(crate) fn from_config(
        config: &AccessConfig,
        key_source: Option<KeySource>,
        base: &str,
        limits: Option<Arc<RequestRates>>,
        host: &Host,
        shutdown: CancellationToken,
    ) -> io::Result<Option<Arc<Self>>> {
        if !config.requires_auth() {
            return Ok(None);
        }
        let keys = match (config.keys, key_source) {
            (false, _) => None,
            (true, Some(source)) => Some(Keyring::new(source)),
            (true, None) => {
                return Err(io::Error::other("`gateway.auth.keys` needs a state directory for the keys"));
            }
        };
        if keys.as_ref().is_some_and(Keyring::is_empty) {
            tracing::warn!("there are no client keys yet; `gripfast keys add NAME` creates one");
        }
        let challenge = Challenge::new(base, config.jwt.as_ref());
        let tokens = config.jwt.clone().map(|jwt| Tokens::new(jwt, config.strict_modes));
        let (in_use, verified) = (ActiveCredentials::default(), Mutex::default());
        let failed = FailedAuth::new(host.clone(), shutdown);
        let host = host.clone();
        Ok(Some(Arc::new(Self {
            keys,
            tokens,
            challenge,
            active: in_use,
            limits,
            verified,
            failed_auth: failed,
            host,
        })))
    }

    /// Router of the login metadata, which needs no credential.
    pub(crate) fn router(&self) -> Router {
        self.challenge.router()
    }

    /// Middleware: admits requests with a valid credential.
    pub(crate) async fn admit(State(access): State<Arc<Self>>, mut request: Request, next: Next) -> Response {
        let address = Peer::from_request(&request);
        match access.authenticate_limited(&address, request.headers()).await {
            Ok((peer, credential)) => {
                if let Some(slot) = request.extensions().get::<Arc<ConnectionSlot>>() {
                    slot.mark_known_as(&peer);
                }
                let path = request.uri().path().to_owned();
                request.extensions_mut().insert(peer);
                request.extensions_mut().insert(credential.clone());
                access.serve_while_valid(&credential, &path, next.run(request)).await
            }
            Err(refused) => {
                let (source, path) = (source_of(&request), request.uri().path().to_owned());
                // Releases the body before the delay.
                drop(request);
                access.refuse(&refused, source, &path).await
            }
        }
    }

    /// Authenticates a request within the rate limits. A request with a valid credential counts for its principal, any
    /// other for its `address`. If the address has no requests left, no signature is verified, unless the token was
    /// valid before: clients behind one address can continue with known tokens, and must wait with new ones.
    pub(crate) async fn authenticate_limited(
        &self,
        address: &Peer,
        headers: &HeaderMap,
    ) -> Result<(Peer, Credential), AdmissionError> {
        let Some(limits) = &self.limits else {
            return self.authenticate_peer(headers).await.map_err(AdmissionError::Unauthenticated);
        };
        let token = self.tokens.is_some().then(|| bearer(headers)).flatten();
        let token = token.filter(|shown| !shown.starts_with(keys::PREFIX)).map(digest);
        if let Some(token) = token
            && !self.verified.lock().contains(&token)
        {
            limits.check(address).map_err(AdmissionError::RateLimited)?;
        }
        let shown = self.authenticate_peer(headers).await;
        if let Some(token) = token {
            let mut verified = self.verified.lock();
            if verified.len() >= MAX_VERIFIED {
                verified.clear();
            }
            let _ = if shown.is_ok() { verified.insert(token) } else { verified.remove(&token) };
        }
        limits
            .spend(shown.as_ref().map_or(address, |(peer, _)| peer), 1)
            .map_err(AdmissionError::RateLimited)?;
        shown.map_err(AdmissionError::Unauthenticated)
    }

    /// Principal and credential of a request.
    async fn authenticate_peer(&self, headers: &HeaderMap) -> Result<(Peer, Credential), Box<AuthError>> {
        let (principal, id) = self.authenticate(headers, gripfast::unix_time()).await.map_err(Box::new)?;
        Ok((Peer::Principal(principal), self.active.credential(id)))
    }

    /// The credential of a request that another replica has authenticated, so that the request ends with it here too.
    /// `None` if it is not valid here: this replica may learn of a new key later than the other one.
    pub(crate) fn forwarded_credential(&self, header: &str, principal: &Principal) -> Option<Credential> {
        let id = CredentialId::from_header(header, principal)?;
        (!self.has_ended(&id, gripfast::unix_time())).then(|| self.active.credential(id))
    }

    fn has_ended(&self, id: &CredentialId, wall: Duration) -> bool {
        match id {
            CredentialId::Key(digest) => !self.keys.as_ref().is_some_and(|keys| keys.has_valid(digest, wall)),
            CredentialId::Token { ends, .. } => wall >= *ends,
        }
    }

    /// Records the refusal and answers it. The answer is delayed more and more if the address keeps failing.
    pub(crate) async fn refuse(
        &self,
        refused: &AdmissionError,
        source: RequestSource,
        path: &str,
    ) -> Response {
        let failure = match refused {
            AdmissionError::Unauthenticated(failure) => failure,
            AdmissionError::RateLimited(too_many) => return too_many_requests(*too_many),
        };
        let (reason, principal) = failure.failure();
        let delay = self.failed_auth.record(source, AuthTarget::Mcp, reason, principal);
        self.failed_auth.respond_after(source, delay, self.challenge.response_to(failure, path)).await
    }

    /// Runs `served` while the credential is valid, and answers 401 if it ends before.
    pub(crate) async fn serve_while_valid(
        &self,
        credential: &Credential,
        path: &str,
        served: impl Future<Output = Response>,
    ) -> Response {
        match credential.while_valid(served).await {
            Some(response) => credential.bind_stream(response),
            None => {
                let message = "the credential of this request has expired or was removed";
                self.challenge.response_to(&AuthError::refused(AuthFailure::Expired, message), path)
            }
        }
    }

    /// Background task: ends calls, streams and sessions of expired or removed credentials, and saves the last uses of
    /// keys.
    pub(crate) async fn watch(&self, gateway: &Gateway) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let gone = self.end_expired(gripfast::unix_time());
            if !gone.is_empty() {
                gateway.sessions.end_matching(|principal| gone.contains(principal)).await;
            }
            if let Some(keys) = &self.keys {
                self.record_key_changes(keys);
                keys.save_uses().await;
            }
        }
    }

    /// Records keys that changed in the state directory. The process that changed them writes its own line to the audit
    /// log; this one shows that the change is in effect here, and also covers a file that was edited by hand.
    fn record_key_changes(&self, keys: &Keyring) {
        for (change, names) in keys.take_changes() {
            self.host.record_security_event(SecurityEvent::KeysChanged { change, names, actor: None });
        }
    }

    /// Ends calls and streams of credentials that are not valid at `wall`. Returns the principals that no longer have a
    /// key.
    fn end_expired(&self, wall: Duration) -> Vec<Principal> {
        self.active.end_matching(|id| self.has_ended(id, wall));
        let lost = self.keys.as_ref().map(|keys| keys.take_lost(wall)).unwrap_or_default();
        lost.into_iter().map(Principal::new).collect()
    }

    /// Principal and credential id of a request.
    async fn authenticate(
        &self,
        headers: &HeaderMap,
        wall: Duration,
    ) -> Result<(Principal, CredentialId), AuthError> {
        let Some(shown) = bearer(headers) else {
            return Err(match headers.contains_key(AUTHORIZATION) {
                true => AuthError::refused(AuthFailure::Malformed, MALFORMED_AUTHORIZATION),
                false => AuthError::NoCredential,
            });
        };
        match (&self.keys, &self.tokens) {
            (_, Some(tokens)) if !shown.starts_with(keys::PREFIX) => {
                let (principal, ends) = tokens.authenticate(shown, wall).await?;
                Ok((principal.clone(), CredentialId::Token { principal, ends }))
            }
            (Some(keys), _) => {
                let (digest, name) = keys.authenticate(shown, wall)?;
                Ok((Principal::new(name), CredentialId::Key(digest)))
            }
            (None, _) => {
                Err(AuthError::refused(AuthFailure::UnknownKey, "this gateway does not accept keys"))
            }
        }
    }
}

fn digest(token: &str) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

const MALFORMED_AUTHORIZATION: &str =
    "this gateway requires one `Authorization` header with `Bearer` and a key or a token";

/// The bearer credential of a request. Several `Authorization` headers are ambiguous and count as none.
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
    use std::path::Path;

    const HERE: &str = "http://127.0.0.1:7331";

    fn access_of(config: &AccessConfig, directory: Option<&Path>) -> io::Result<Option<Arc<Authenticator>>> {
        Authenticator::from_config(
            config,
            directory.map(|directory| KeySource::Directory(directory.to_owned())),
            HERE,
            None,
            &Host::builder().build(),
            CancellationToken::new(),
        )
    }

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[test]
    fn a_request_with_two_authorization_headers_has_no_credential() {
        assert_eq!(bearer(&headers(&["Bearer abc"])), Some("abc"));
        assert_eq!(bearer(&headers(&["bearer  abc "])), Some("abc"));
        for odd in [&[][..], &["abc"], &["Basic abc"], &["Bearer abc", "Bearer def"]] {
            assert_eq!(bearer(&headers(odd)), None, "{odd:?}");
        }
    }

    #[tokio::test]
    async fn g05_a_valid_key_gives_its_principal_and_other_requests_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let config = AccessConfig { keys: true, ..AccessConfig::default() };
        let access = access_of(&config, Some(directory.path())).unwrap().unwrap();
        let key = keys::add(directory.path(), "laptop").unwrap();
        let who = async |shown: &str| {
            access.authenticate(&headers(&[&format!("Bearer {shown}")]), Duration::ZERO).await
        };
        assert_eq!(who(&key).await.map(|(principal, _)| principal), Ok(Principal::new("laptop")));
        assert!(matches!(who("gfk_made-up").await, Err(AuthError::Refused { .. })));
        assert!(matches!(
            access.authenticate(&HeaderMap::new(), Duration::ZERO).await,
            Err(AuthError::NoCredential)
        ));
        assert!(keys::remove(directory.path(), "laptop").unwrap());
        assert!(matches!(who(&key).await, Err(AuthError::Refused { .. })), "it is refused at once");
        assert!(access_of(&AccessConfig::default(), None).unwrap().is_none());
        assert!(access_of(&config, None).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn g05_answers_to_wrong_keys_are_delayed_and_valid_keys_never_are() {
        let directory = tempfile::tempdir().unwrap();
        let config = AccessConfig { keys: true, ..AccessConfig::default() };
        let access = access_of(&config, Some(directory.path())).unwrap().unwrap();
        let key = keys::add(directory.path(), "laptop").unwrap();
        let layer = axum::middleware::from_fn_with_state(Arc::clone(&access), Authenticator::admit);
        let router = Router::new().route("/sse", axum::routing::post(async || "served")).layer(layer);
        // The body never ends, and reports when it is dropped.
        let ask = async |shown: Option<&str>, from: [u8; 4]| {
            let (held, unread) = tokio::sync::mpsc::channel::<Result<Vec<u8>, io::Error>>(1);
            let endless = futures_util::stream::unfold(unread, async |mut unread| {
                let piece = unread.recv().await?;
                Some((piece, unread))
            });
            let mut request = Request::new(Body::from_stream(endless));
            *request.method_mut() = http::Method::POST;
            *request.uri_mut() = "/sse".parse().unwrap();
            request.extensions_mut().insert(Peer::from_address(from.into()));
            if let Some(shown) = shown {
                request.headers_mut().insert(AUTHORIZATION, format!("Bearer {shown}").parse().unwrap());
            }
            let started = tokio::time::Instant::now();
            let answering = tower_service::Service::call(&mut router.clone(), request);
            let dropped = async {
                held.closed().await;
                started.elapsed()
            };
            let (answer, dropped) = tokio::join!(answering, dropped);
            (answer.unwrap().status().as_u16(), started.elapsed().as_millis(), dropped.as_millis())
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
    async fn g05_calls_and_streams_end_with_their_credential() {
        let directory = tempfile::tempdir().unwrap();
        let config = AccessConfig { keys: true, ..AccessConfig::default() };
        let access = access_of(&config, Some(directory.path())).unwrap().unwrap();
        let key = keys::add(directory.path(), "laptop").unwrap();
        let at = |seconds| Duration::from_secs(seconds);
        let (_, by_key) = access.authenticate(&headers(&[&format!("Bearer {key}")]), at(0)).await.unwrap();
        let alice = Principal::new("jwt:alice");
        let token = |ends| CredentialId::Token { principal: alice.clone(), ends: at(ends) };
        let [key, old, new] = [by_key, token(100), token(200)].map(|id| access.active.credential(id));
        let is_good = |credential: &Credential| !credential.has_ended();
        assert!(access.end_expired(at(99)).is_empty());
        assert!(is_good(&key) && is_good(&old) && is_good(&new));
        assert!(access.end_expired(at(100)).is_empty(), "its principal may have another token");
        assert!(is_good(&key) && !is_good(&old) && is_good(&new));
        assert!(keys::remove(directory.path(), "laptop").unwrap());
        assert_eq!(access.end_expired(at(101)), [Principal::new("laptop")]);
        assert!(!is_good(&key) && is_good(&new));
        drop(new);
        access.end_expired(at(101));
        assert_eq!(access.active.len(), 0, "unused credentials are removed");
    }
}

//! Public keys (JWKS) of the token issuer: cached in memory, and fetched again when a token names an unknown key, so
//! that the issuer can rotate its keys at any time.

use gripfast::config::Jwks;
use gripfast::private_files::{self, StrictModes};
use gripfast::sync::Mutex;
use jsonwebtoken::jwk::{Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

/// The keys of one issuer.
pub(super) struct Issuer {
    source: Jwks,
    /// Check of the file's permissions: a user who can write the file can forge tokens.
    strict_modes: StrictModes,
    cached: Mutex<CachedKeys>,
    /// Time of the last fetch, successful or not. The lock is held during a fetch.
    last_fetch: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Default)]
struct CachedKeys {
    keys: Vec<Jwk>,
    /// Time of the last successful fetch.
    fetched: Option<Instant>,
    /// Modification time of the file.
    modified: Option<SystemTime>,
}

impl CachedKeys {
    fn age(&self) -> Option<Duration> {
        self.fetched.map(|found| found.elapsed())
    }

    fn is_usable(&self) -> bool {
        self.age().is_some_and(|age| age < Issuer::MAX_AGE)
    }
}

/// Reason why there is no key for a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IssuerKeyError {
    /// The issuer has no matching key.
    Unknown,
    /// The keys of the issuer are not available.
    Unreachable,
}

impl Issuer {
    /// Keys are fetched again after this time.
    const FRESH_FOR: Duration = Duration::from_secs(3600);
    /// Keys that could not be fetched again stay valid until this age.
    const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
    /// Tokens with made-up key ids do not cause more fetches than one per interval.
    const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(10);
    const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
    const MAX_DOCUMENT_BYTES: usize = 1 << 20;
    const MAX_KEYS: usize = 100;

    pub(super) fn new(source: Jwks, strict_modes: StrictModes) -> Self {
        Self { source, strict_modes, cached: Mutex::default(), last_fetch: tokio::sync::Mutex::default() }
    }

    /// The key with this id for this algorithm; without an id, the only matching key.
    ///
    /// A cached key is returned without waiting; if it is old, it is fetched again in the background.
    pub(super) async fn key(
        self: &Arc<Self>,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<DecodingKey, IssuerKeyError> {
        if let Jwks::Url(_) = &self.source
            && let Some((key, age)) = self.cached_key(id, algorithm)
        {
            if age >= Self::FRESH_FOR {
                let issuer = Arc::clone(self);
                tokio::spawn(async move {
                    // Otherwise another task is fetching already.
                    if let Ok(mut last_fetch) = issuer.last_fetch.try_lock() {
                        issuer.refresh(&mut last_fetch).await;
                    }
                });
            }
            return Ok(key);
        }
        // All waiting requests share one fetch.
        self.refresh(&mut *self.last_fetch.lock().await).await;
        match self.cached_key(id, algorithm) {
            Some((key, _)) => Ok(key),
            None if self.cached.lock().is_usable() => Err(IssuerKeyError::Unknown),
            None => Err(IssuerKeyError::Unreachable),
        }
    }

    /// A valid cached key and its age.
    fn cached_key(&self, id: Option<&str>, algorithm: Algorithm) -> Option<(DecodingKey, Duration)> {
        let cached = self.cached.lock();
        let age = cached.age().filter(|_| cached.is_usable())?;
        Some((find_key(&cached.keys, id, algorithm)?, age))
    }

    /// Fetches the keys, unless they were just fetched.
    async fn refresh(&self, last_fetch: &mut Option<Instant>) {
        let may_fetch = match &self.source {
            Jwks::File(_) => true,
            Jwks::Url(_) => last_fetch.is_none_or(|last| last.elapsed() >= Self::MIN_FETCH_INTERVAL),
        };
        if !may_fetch {
            return;
        }
        let before = self.cached.lock().modified;
        let found = self.fetch(before).await;
        // The end of the fetch, not its start: requests that waited for it must not fetch again.
        let now = Instant::now();
        *last_fetch = Some(now);
        match found {
            Ok(Some((keys, modified))) => {
                *self.cached.lock() = CachedKeys { keys, fetched: Some(now), modified }
            }
            Ok(None) => self.cached.lock().fetched = Some(now),
            Err(error) => {
                tracing::warn!(%error, "cannot fetch the public keys of the token issuer");
            }
        }
    }

    /// Fetches or reads the keys; `None` if the file has not changed.
    async fn fetch(
        &self,
        before: Option<SystemTime>,
    ) -> Result<Option<(Vec<Jwk>, Option<SystemTime>)>, String> {
        let (document, modified) = match &self.source {
            Jwks::Url(url) => {
                (gripfast::fetch(url, Self::MAX_DOCUMENT_BYTES, Self::FETCH_TIMEOUT).await?.to_vec(), None)
            }
            Jwks::File(path) => {
                let with_path = |error: std::io::Error| format!("`{}`: {error}", path.display());
                let mut file = tokio::fs::File::open(path).await.map_err(with_path)?;
                let metadata = file.metadata().await.map_err(with_path)?;
                let modified = metadata.modified().ok();
                if modified.is_some() && modified == before {
                    return Ok(None);
                }
                private_files::check_with(self.strict_modes, path, &metadata)
                    .map_err(|found| found.to_string())?;
                if metadata.len() > Self::MAX_DOCUMENT_BYTES as u64 {
                    return Err(format!("`{}` is too large", path.display()));
                }
                let mut document = Vec::new();
                file.read_to_end(&mut document).await.map_err(with_path)?;
                (document, modified)
            }
        };
        Ok(Some((parse_jwks(&document)?, modified)))
    }
}

/// Parses a JWKS document. Keys of unknown kinds are skipped.
fn parse_jwks(document: &[u8]) -> Result<Vec<Jwk>, String> {
    let document: serde_json::Value =
        serde_json::from_slice(document).map_err(|error| format!("not a JSON Web Key Set: {error}"))?;
    let keys = document["keys"].as_array().ok_or("not a JSON Web Key Set: no `keys`")?;
    let readable = keys.iter().filter_map(|key| serde_json::from_value(key.clone()).ok());
    Ok(readable.take(Issuer::MAX_KEYS).collect())
}

fn find_key(keys: &[Jwk], id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
    let fits = |key: &&Jwk| {
        let common = &key.common;
        let named = id.is_none_or(|id| common.key_id.as_deref() == Some(id));
        let signs = common.public_key_use.as_ref().is_none_or(|key_use| *key_use == PublicKeyUse::Signature);
        let has_algorithm = common.key_algorithm.is_none_or(|named| named == KeyAlgorithm::from(algorithm));
        named && signs && has_algorithm
    };
    let mut usable = keys
        .iter()
        .filter(fits)
        .filter_map(|key| DecodingKey::from_jwk(key).ok())
        .filter(|key| key.family() == algorithm.family());
    let first = usable.next()?;
    // Without an id, a key is used only if it is the only match.
    (id.is_some() || usable.next().is_none()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use std::net::TcpListener;

    const KEY: &str = r#"{ "keys": [{ "kty": "oct", "kid": "one", "alg": "HS256", "k": "c2VjcmV0" }] }"#;

    /// An issuer that accepts connections and never answers, while the listener lives.
    fn silent_issuer() -> (Arc<Issuer>, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/jwks.json", listener.local_addr().expect("it is bound"));
        let source = Jwks::Url(url.parse().expect("a URL"));
        (Arc::new(Issuer::new(source, StrictModes::On)), listener)
    }

    #[tokio::test(start_paused = true)]
    async fn g05_a_cached_key_is_used_without_waiting_for_a_silent_issuer() {
        let (issuer, _listener) = silent_issuer();
        let keys = parse_jwks(KEY.as_bytes()).expect("a key");
        *issuer.cached.lock() = CachedKeys { keys, fetched: Some(Instant::now()), modified: None };
        tokio::time::advance(2 * Issuer::FRESH_FOR).await;
        let started = Instant::now();
        for _ in 0..20 {
            assert!(issuer.key(Some("one"), Algorithm::HS256).await.is_ok());
        }
        assert_eq!(started.elapsed(), Duration::ZERO);
        tokio::time::advance(Issuer::MAX_AGE).await;
        assert_eq!(issuer.key(Some("one"), Algorithm::HS256).await.err(), Some(IssuerKeyError::Unreachable));
    }

    #[tokio::test(start_paused = true)]
    async fn g05_requests_that_wait_for_a_silent_issuer_share_one_fetch() {
        let (issuer, _listener) = silent_issuer();
        let started = Instant::now();
        let unknown = join_all((0..20).map(|_| issuer.key(Some("made-up"), Algorithm::HS256))).await;
        assert!(unknown.iter().all(|key| key.as_ref().err() == Some(&IssuerKeyError::Unreachable)));
        assert!(
            started.elapsed() <= Issuer::FETCH_TIMEOUT + Duration::from_secs(1),
            "{:?}",
            started.elapsed()
        );
    }
}

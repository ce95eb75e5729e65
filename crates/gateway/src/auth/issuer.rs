//! The public keys of whoever issues tokens: kept in memory, and looked up again when a token names one that is
//! not known, so that an issuer can change its keys without telling us.

use gripfast::config::Jwks;
use gripfast::private_files::{self, StrictModes};
use jsonwebtoken::jwk::{Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

/// The keys of one issuer.
pub(super) struct Issuer {
    source: Jwks,
    /// What is done about a file that another user could have changed: whoever writes keys into it makes tokens.
    strict_modes: StrictModes,
    kept: Mutex<Kept>,
    /// When the source was last asked, in vain or not. Whoever holds it is asking.
    asking: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Kept {
    keys: Vec<Jwk>,
    /// When they were looked up.
    found: Option<Instant>,
    /// When a file was last changed.
    modified: Option<SystemTime>,
}

impl Kept {
    fn age(&self) -> Option<Duration> {
        self.found.map(|found| found.elapsed())
    }

    fn is_usable(&self) -> bool {
        self.age().is_some_and(|age| age < Issuer::LAST_FOR)
    }
}

/// Why there is no key for a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// The issuer has none that fits.
    Unknown,
    /// The issuer's keys are not there.
    Unreachable,
}

impl Issuer {
    /// How long keys are good without being looked up again, and how long if they cannot be.
    const GOOD_FOR: Duration = Duration::from_secs(3600);
    const LAST_FOR: Duration = Duration::from_secs(24 * 3600);
    /// Whoever shows tokens with names of keys that were made up does not have us ask more often than this.
    const ASKED_EVERY: Duration = Duration::from_secs(10);
    const WITHIN: Duration = Duration::from_secs(10);
    const LARGEST: usize = 1 << 20;
    const MOST_KEYS: usize = 100;

    pub(super) fn new(source: Jwks, strict_modes: StrictModes) -> Self {
        Self { source, strict_modes, kept: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// The key that a token of this algorithm names; without a name, the only one that fits.
    ///
    /// Whoever names one that is at hand waits for nobody; if it is old, the issuer is asked on the side.
    pub(super) async fn key(
        self: &Arc<Self>,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<DecodingKey, NoKey> {
        if let Jwks::Url(_) = &self.source
            && let Some((key, age)) = self.at_hand(id, algorithm)
        {
            if age >= Self::GOOD_FOR {
                let issuer = Arc::clone(self);
                tokio::spawn(async move {
                    // Somebody else is asking already otherwise.
                    if let Ok(mut asked) = issuer.asking.try_lock() {
                        issuer.ask(&mut asked).await;
                    }
                });
            }
            return Ok(key);
        }
        // Those who wait here wait for the same answer.
        self.ask(&mut *self.asking.lock().await).await;
        match self.at_hand(id, algorithm) {
            Some((key, _)) => Ok(key),
            None if self.lock().is_usable() => Err(NoKey::Unknown),
            None => Err(NoKey::Unreachable),
        }
    }

    /// A key that can be used now, and how long ago it was looked up.
    fn at_hand(&self, id: Option<&str>, algorithm: Algorithm) -> Option<(DecodingKey, Duration)> {
        let kept = self.lock();
        let age = kept.age().filter(|_| kept.is_usable())?;
        Some((fitting(&kept.keys, id, algorithm)?, age))
    }

    /// Looks the keys up, unless that was just done.
    async fn ask(&self, asked: &mut Option<Instant>) {
        let may_ask = match &self.source {
            Jwks::File(_) => true,
            Jwks::Url(_) => asked.is_none_or(|asked| asked.elapsed() >= Self::ASKED_EVERY),
        };
        if !may_ask {
            return;
        }
        let before = self.lock().modified;
        let found = self.look_up(before).await;
        // As of now, and not as of when it began: those who waited for this answer do not ask again.
        let now = Instant::now();
        *asked = Some(now);
        match found {
            Ok(Some((keys, modified))) => *self.lock() = Kept { keys, found: Some(now), modified },
            Ok(None) => self.lock().found = Some(now),
            Err(error) => {
                tracing::warn!(%error, "the keys that tokens are checked with cannot be looked up");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the issuer says now; `None` if a file is as it was.
    async fn look_up(
        &self,
        before: Option<SystemTime>,
    ) -> Result<Option<(Vec<Jwk>, Option<SystemTime>)>, String> {
        let (document, modified) = match &self.source {
            Jwks::Url(url) => (gripfast::fetch(url, Self::LARGEST, Self::WITHIN).await?.to_vec(), None),
            Jwks::File(path) => {
                let said = |error: std::io::Error| format!("`{}`: {error}", path.display());
                let mut file = tokio::fs::File::open(path).await.map_err(said)?;
                let metadata = file.metadata().await.map_err(said)?;
                let modified = metadata.modified().ok();
                if modified.is_some() && modified == before {
                    return Ok(None);
                }
                private_files::judge_by(self.strict_modes, path, &metadata)
                    .map_err(|found| found.to_string())?;
                if metadata.len() > Self::LARGEST as u64 {
                    return Err(format!("`{}` is too large", path.display()));
                }
                let mut document = Vec::new();
                file.read_to_end(&mut document).await.map_err(said)?;
                (document, modified)
            }
        };
        Ok(Some((read(&document)?, modified)))
    }
}

/// Keys of a kind that we do not know are left out.
fn read(document: &[u8]) -> Result<Vec<Jwk>, String> {
    let document: serde_json::Value =
        serde_json::from_slice(document).map_err(|error| format!("not a set of keys: {error}"))?;
    let keys = document["keys"].as_array().ok_or("not a set of keys: no `keys`")?;
    let readable = keys.iter().filter_map(|key| serde_json::from_value(key.clone()).ok());
    Ok(readable.take(Issuer::MOST_KEYS).collect())
}

fn fitting(keys: &[Jwk], id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
    let fits = |key: &&Jwk| {
        let common = &key.common;
        let named = id.is_none_or(|id| common.key_id.as_deref() == Some(id));
        let signs = common.public_key_use.as_ref().is_none_or(|what| *what == PublicKeyUse::Signature);
        let says = common.key_algorithm.is_none_or(|said| said == KeyAlgorithm::from(algorithm));
        named && signs && says
    };
    let mut usable = keys
        .iter()
        .filter(fits)
        .filter_map(|key| DecodingKey::from_jwk(key).ok())
        .filter(|key| key.family() == algorithm.family());
    let first = usable.next()?;
    // Where nothing tells two keys apart, neither is meant.
    (id.is_some() || usable.next().is_none()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use std::net::TcpListener;

    const KEY: &str = r#"{ "keys": [{ "kty": "oct", "kid": "one", "alg": "HS256", "k": "c2VjcmV0" }] }"#;

    /// An issuer that takes connections and says nothing, for as long as the listener lives.
    fn mute() -> (Arc<Issuer>, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/jwks.json", listener.local_addr().expect("it is bound"));
        let source = Jwks::Url(url.parse().expect("a URL"));
        (Arc::new(Issuer::new(source, StrictModes::On)), listener)
    }

    #[tokio::test(start_paused = true)]
    async fn g05_a_key_that_is_at_hand_waits_for_nobody_however_silent_the_issuer() {
        let (issuer, _listener) = mute();
        let keys = read(KEY.as_bytes()).expect("a key");
        *issuer.lock() = Kept { keys, found: Some(Instant::now()), modified: None };
        tokio::time::advance(2 * Issuer::GOOD_FOR).await;
        let begun = Instant::now();
        for _ in 0..20 {
            assert!(issuer.key(Some("one"), Algorithm::HS256).await.is_ok());
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        tokio::time::advance(Issuer::LAST_FOR).await;
        assert_eq!(issuer.key(Some("one"), Algorithm::HS256).await.err(), Some(NoKey::Unreachable));
    }

    #[tokio::test(start_paused = true)]
    async fn g05_those_who_wait_for_a_silent_issuer_wait_together() {
        let (issuer, _listener) = mute();
        let begun = Instant::now();
        let unknown = join_all((0..20).map(|_| issuer.key(Some("made-up"), Algorithm::HS256))).await;
        assert!(unknown.iter().all(|key| key.as_ref().err() == Some(&NoKey::Unreachable)));
        assert!(begun.elapsed() <= Issuer::WITHIN + Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}

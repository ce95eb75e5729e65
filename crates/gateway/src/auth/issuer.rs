//! The public keys of whoever issues tokens: kept in memory, and looked up again when a token names one that is
//! not known, so that an issuer can change its keys without telling us.

use gripfast::config::Jwks;
use jsonwebtoken::jwk::{Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The keys of one issuer.
pub(super) struct Issuer {
    source: Jwks,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    keys: Arc<Vec<Jwk>>,
    /// When they were looked up, and when that was last tried.
    found: Option<Instant>,
    tried: Option<Instant>,
    /// When a file was last changed.
    modified: Option<SystemTime>,
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

    pub(super) fn new(source: Jwks) -> Self {
        Self { source, kept: Mutex::default() }
    }

    /// The key that a token of this algorithm names; without a name, the only one that fits.
    pub(super) async fn key(&self, id: Option<&str>, algorithm: Algorithm) -> Result<DecodingKey, NoKey> {
        // Those who wait here wait for the same answer.
        let mut kept = self.kept.lock().await;
        let now = Instant::now();
        let since = |then: Option<Instant>| then.map(|then| now.duration_since(then));
        let is_old = since(kept.found).is_none_or(|age| age >= Self::GOOD_FOR);
        let may_ask = since(kept.tried).is_none_or(|ago| ago >= Self::ASKED_EVERY);
        let look = match &self.source {
            Jwks::File(_) => true,
            Jwks::Url(_) => may_ask && (is_old || fitting(&kept.keys, id, algorithm).is_none()),
        };
        if look {
            kept.tried = Some(now);
            match self.look_up(kept.modified).await {
                Ok(Some((keys, modified))) => {
                    *kept = Kept { keys: Arc::new(keys), found: Some(now), tried: Some(now), modified };
                }
                Ok(None) => kept.found = Some(now),
                Err(error) => {
                    tracing::warn!(%error, "the keys that tokens are checked with cannot be looked up")
                }
            }
        }
        if since(kept.found).is_none_or(|age| age >= Self::LAST_FOR) {
            return Err(NoKey::Unreachable);
        }
        fitting(&kept.keys, id, algorithm).ok_or(NoKey::Unknown)
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
                let metadata = tokio::fs::metadata(path).await.map_err(said)?;
                let modified = metadata.modified().ok();
                if modified.is_some() && modified == before {
                    return Ok(None);
                }
                if metadata.len() > Self::LARGEST as u64 {
                    return Err(format!("`{}` is too large", path.display()));
                }
                (tokio::fs::read(path).await.map_err(said)?, modified)
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

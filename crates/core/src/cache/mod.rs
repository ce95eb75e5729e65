//! Cache of answers: freshness, keys and a bounded store with eviction. How an answer is produced is not its business,
//! and its values are opaque to it.

mod freshness;
mod store;

pub use freshness::{AnswerKind, CacheHint, CacheScope, Freshness, ToolRule, freshness};
pub use store::{Cache, CacheLabel, CacheLimits, CacheTopic, CachedEntry, KeepOptions};

use crate::json::{Digest, canonical};
use serde_json::Value;

/// Cache key of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheKey(Digest);

impl CacheKey {
    /// The key of a request, by its meaning and not its spelling. `_meta` is ignored. `principal` is set where answers
    /// are private.
    ///
    /// `None` if the request has to reach the server: then the cache is not used.
    pub fn for_request(
        principal: Option<&str>,
        server: &str,
        method: &str,
        params: Option<&str>,
    ) -> Option<Self> {
        let mut params: Value = params.map_or(Some(Value::Null), |text| serde_json::from_str(text).ok())?;
        if let Some(members) = params.as_object_mut() {
            // An answer to an elicitation or sampling request of the server is never answered from the cache.
            if members.contains_key("inputResponses") || members.contains_key("requestState") {
                return None;
            }
            members.remove("_meta");
        }
        let whole = Value::from(vec![principal.into(), server.into(), method.into(), params]);
        Some(Self(Digest::of(canonical(&whole)?.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g04_a_cache_key_depends_on_the_meaning_of_the_request() {
        let key =
            |principal, server, params| CacheKey::for_request(principal, server, "tools/call", Some(params));
        let plain = key(None, "docs", r#"{"name":"search","arguments":{"q":"x","n":1}}"#);
        let respelled = r#"{"arguments":{"n":1.0,"q":"x"},"_meta":{"progressToken":7},"name":"search"}"#;
        assert_eq!(plain, key(None, "docs", respelled));
        assert_ne!(plain, key(Some("ann"), "docs", respelled), "private answers are apart");
        assert_ne!(plain, key(None, "other", respelled));
        assert_ne!(plain, key(None, "docs", r#"{"name":"search","arguments":{"q":"y","n":1}}"#));
    }

    #[test]
    fn g04_an_answer_to_a_server_request_is_never_cached() {
        for params in [r#"{"name":"a","requestState":"x"}"#, r#"{"name":"a","inputResponses":{}}"#, "{"] {
            assert_eq!(CacheKey::for_request(None, "docs", "tools/call", Some(params)), None, "{params}");
        }
    }
}

//! Answers that may be given again: for how long, to whom, and which are dropped first. Knows nothing of how
//! an answer is made, and holds whatever it is given.

mod freshness;
mod store;

pub use freshness::{Freshness, Hint, Scope as CacheScope, Source, ToolRule, freshness};
pub use store::{Cache, CacheCounts, CacheLimits, Found, Keep, Label, Topic};

use crate::json::{Digest, canonical};
use serde_json::Value;

/// What tells one answer from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheKey(Digest);

impl CacheKey {
    /// The key of a request: of what is asked, not of how it is written. What a request says about itself
    /// (`_meta`) has no part in it. `principal` is given where answers are private.
    ///
    /// `None` if the request cannot be told from others: then it is not answered from the cache.
    pub fn of(principal: Option<&str>, server: &str, method: &str, params: Option<&str>) -> Option<Self> {
        let mut params: Value = params.map_or(Some(Value::Null), |text| serde_json::from_str(text).ok())?;
        if let Some(members) = params.as_object_mut() {
            // The answer to a question of the server makes a request unlike any other.
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
    fn g04_a_key_is_about_what_is_asked() {
        let key = |principal, server, params| CacheKey::of(principal, server, "tools/call", Some(params));
        let plain = key(None, "docs", r#"{"name":"search","arguments":{"q":"x","n":1}}"#);
        let respelled = r#"{"arguments":{"n":1.0,"q":"x"},"_meta":{"progressToken":7},"name":"search"}"#;
        assert_eq!(plain, key(None, "docs", respelled));
        assert_ne!(plain, key(Some("ann"), "docs", respelled), "private answers are apart");
        assert_ne!(plain, key(None, "other", respelled));
        assert_ne!(plain, key(None, "docs", r#"{"name":"search","arguments":{"q":"y","n":1}}"#));
    }

    #[test]
    fn g04_an_answer_to_a_servers_question_is_never_looked_up() {
        for params in [r#"{"name":"a","requestState":"x"}"#, r#"{"name":"a","inputResponses":{}}"#, "{"] {
            assert_eq!(CacheKey::of(None, "docs", "tools/call", Some(params)), None, "{params}");
        }
    }
}

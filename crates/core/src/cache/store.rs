//! Bounded store of answers, by number and size, with least-recently-used eviction.

use super::CacheKey;
use crate::time::Mono;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Label of an entry, by which it is removed when its subject changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheLabel {
    /// The server that answered.
    pub server: String,
    /// The part of the server.
    pub topic: CacheTopic,
}

/// The part of a server that an answer depends on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheTopic {
    /// The result of this tool.
    Tool(String),
    /// Its lists of tools, resources and prompts.
    Lists,
    /// The resource with this URI.
    Resource(String),
}

/// Size limits of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Maximum number of answers about one topic.
    pub per_topic: u32,
    /// Maximum number of bytes in total.
    pub bytes: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { per_topic: 64, bytes: 64 << 20 }
    }
}

/// Options for keeping an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepOptions {
    /// The label.
    pub label: CacheLabel,
    /// Its size in bytes.
    pub size: usize,
    /// Time to live.
    pub ttl: Duration,
    /// Duration for which it may be served stale after that.
    pub stale_for: Duration,
}

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachedEntry<V> {
    /// A fresh answer.
    Fresh {
        /// The answer.
        value: V,
        /// The time to live that is left.
        ttl: Duration,
    },
    /// An expired answer within `stale_for`.
    Stale(V),
    /// No answer.
    Absent,
}

/// The cache.
#[derive(Debug)]
pub struct Cache<V> {
    limits: CacheLimits,
    entries: BTreeMap<CacheKey, Entry<V>>,
    /// Keys in the order of their last use.
    by_use: BTreeMap<u64, CacheKey>,
    by_label: BTreeMap<CacheLabel, BTreeSet<CacheKey>>,
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    label: CacheLabel,
    size: usize,
    fresh_until: Mono,
    expires_at: Mono,
    used: u64,
}

/// Estimated overhead of an entry in bytes.
const OVERHEAD: usize = 512;

impl<V: Clone> Cache<V> {
    /// An empty cache.
    pub fn new(limits: CacheLimits) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            by_use: BTreeMap::new(),
            by_label: BTreeMap::new(),
            uses: 0,
            bytes: 0,
        }
    }

    /// Looks up an answer.
    pub fn peek(&mut self, now: Mono, key: &CacheKey) -> CachedEntry<V> {
        if self.entries.get(key).is_some_and(|entry| entry.expires_at <= now) {
            self.remove(key);
        }
        match self.entries.get(key) {
            None => CachedEntry::Absent,
            Some(entry) if entry.fresh_until <= now => CachedEntry::Stale(entry.value.clone()),
            Some(entry) => {
                CachedEntry::Fresh { value: entry.value.clone(), ttl: now.until(entry.fresh_until) }
            }
        }
    }

    /// Marks an answer as used now, so that it is evicted last.
    pub fn touch(&mut self, key: &CacheKey) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.uses += 1;
        self.by_use.remove(&entry.used);
        entry.used = self.uses;
        self.by_use.insert(self.uses, *key);
    }

    /// Inserts an answer.
    pub fn insert(&mut self, now: Mono, key: CacheKey, value: V, keep: KeepOptions) {
        let KeepOptions { label, size, ttl, stale_for } = keep;
        self.remove(&key);
        let size = size + OVERHEAD;
        if size > self.limits.bytes || self.limits.per_topic == 0 {
            return;
        }
        while self.by_label.get(&label).is_some_and(|keys| keys.len() >= self.limits.per_topic as usize) {
            let keys = self.by_label.get(&label).into_iter().flatten();
            let oldest = keys.min_by_key(|key| self.entries.get(key).map(|entry| entry.used)).copied();
            let Some(oldest) = oldest else { break };
            self.remove(&oldest);
        }
        while self.bytes + size > self.limits.bytes {
            let Some(oldest) = self.by_use.first_key_value().map(|(_, key)| *key) else { break };
            self.remove(&oldest);
        }
        self.uses += 1;
        self.bytes += size;
        self.by_use.insert(self.uses, key);
        self.by_label.entry(label.clone()).or_default().insert(key);
        let good_until = now + ttl;
        let entry = Entry {
            value,
            label,
            size,
            fresh_until: good_until,
            expires_at: good_until + stale_for,
            used: self.uses,
        };
        self.entries.insert(key, entry);
    }

    /// Removes all answers about a topic.
    pub fn remove_topic(&mut self, label: &CacheLabel) {
        for key in self.by_label.get(label).cloned().unwrap_or_default() {
            self.remove(&key);
        }
    }

    /// Removes all answers of a server.
    pub fn remove_server(&mut self, server: &str) {
        let labels: Vec<CacheLabel> =
            self.by_label.keys().filter(|label| label.server == server).cloned().collect();
        for label in labels {
            self.remove_topic(&label);
        }
    }

    /// Returns the number of answers, and their size in bytes.
    pub fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }

    fn remove(&mut self, key: &CacheKey) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.bytes -= entry.size;
        self.by_use.remove(&entry.used);
        if let Some(keys) = self.by_label.get_mut(&entry.label) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_label.remove(&entry.label);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Mono {
        Mono::from_origin(Duration::from_secs(seconds))
    }

    fn key(name: &str) -> CacheKey {
        CacheKey::for_request(None, "docs", name, None).unwrap()
    }

    fn tool(name: &str) -> CacheLabel {
        CacheLabel { server: "docs".to_owned(), topic: CacheTopic::Tool(name.to_owned()) }
    }

    fn put(cache: &mut Cache<u32>, now: Mono, name: &str, label: CacheLabel, value: u32, size: usize) {
        cache.insert(now, key(name), value, KeepOptions { label, size, ttl: MINUTE, stale_for: MINUTE });
    }

    #[test]
    fn g04_an_answer_is_fresh_then_stale_then_removed() {
        let mut cache = Cache::new(CacheLimits::default());
        put(&mut cache, at(0), "a", tool("t"), 1, 10);
        assert_eq!(
            cache.peek(at(59), &key("a")),
            CachedEntry::Fresh { value: 1, ttl: Duration::from_secs(1) }
        );
        assert_eq!(cache.peek(at(60), &key("a")), CachedEntry::Stale(1));
        assert_eq!(cache.peek(at(120), &key("a")), CachedEntry::Absent);
        assert_eq!(cache.size(), (0, 0));
    }

    #[test]
    fn g04_entries_per_tool_are_bounded_and_evicted_by_last_use() {
        let mut cache = Cache::new(CacheLimits { per_topic: 2, ..CacheLimits::default() });
        put(&mut cache, at(0), "a", tool("t"), 1, 10);
        put(&mut cache, at(0), "b", tool("t"), 2, 10);
        cache.touch(&key("a"));
        put(&mut cache, at(1), "c", tool("t"), 3, 10);
        put(&mut cache, at(1), "other", tool("u"), 4, 10);
        assert_eq!(cache.peek(at(1), &key("b")), CachedEntry::Absent);
        for kept in ["a", "c", "other"] {
            assert!(matches!(cache.peek(at(1), &key(kept)), CachedEntry::Fresh { .. }), "{kept}");
        }
    }

    #[test]
    fn g04_only_entries_of_the_changed_topic_are_removed() {
        let mut cache = Cache::new(CacheLimits::default());
        let resource =
            CacheLabel { server: "docs".to_owned(), topic: CacheTopic::Resource("file:///a".to_owned()) };
        let elsewhere = CacheLabel { server: "other".to_owned(), topic: CacheTopic::Lists };
        put(&mut cache, at(0), "read", resource.clone(), 1, 10);
        put(&mut cache, at(0), "call", tool("t"), 2, 10);
        put(&mut cache, at(0), "elsewhere", elsewhere, 3, 10);
        cache.remove_topic(&resource);
        assert_eq!(cache.peek(at(1), &key("read")), CachedEntry::Absent);
        assert!(matches!(cache.peek(at(1), &key("call")), CachedEntry::Fresh { .. }));
        cache.remove_server("docs");
        assert_eq!(cache.peek(at(1), &key("call")), CachedEntry::Absent);
        assert!(matches!(cache.peek(at(1), &key("elsewhere")), CachedEntry::Fresh { .. }));
    }

    proptest! {
        #[test]
        fn g04_the_cache_bounds_hold_for_any_history(
            puts in prop::collection::vec((0u8..40, 0u8..4, 0usize..3000, 0u64..200), 0..200),
        ) {
            let limits = CacheLimits { per_topic: 3, bytes: 8000 };
            let mut cache = Cache::new(limits);
            for (name, label, size, second) in puts {
                put(&mut cache, at(second), &name.to_string(), tool(&label.to_string()), 0, size);
                let (entries, bytes) = cache.size();
                prop_assert!(bytes <= limits.bytes);
                prop_assert_eq!(cache.by_use.len(), entries);
                prop_assert!(cache.by_label.values().all(|keys| (1..=3).contains(&keys.len())));
                prop_assert_eq!(cache.entries.values().map(|entry| entry.size).sum::<usize>(), bytes);
            }
        }
    }
}

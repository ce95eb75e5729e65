//! Where answers are kept: bounded by number and size, the least recently used go first.

use super::CacheKey;
use crate::time::Mono;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What an answer is about, so that it can be dropped when that changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// The server that gave it.
    pub server: String,
    /// What of it.
    pub topic: Topic,
}

/// What of a server an answer is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The result of this tool.
    Tool(String),
    /// What it offers.
    Lists,
    /// The resource of this URI.
    Resource(String),
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Answers about one topic.
    pub per_topic: usize,
    /// Bytes in all.
    pub bytes: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { per_topic: 64, bytes: 64 << 20 }
    }
}

/// How an answer is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    /// What it is about.
    pub label: Label,
    /// Its size in bytes.
    pub size: usize,
    /// For how long it is good.
    pub ttl: Duration,
    /// For how long after that it is better than nothing.
    pub stale_for: Duration,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<V> {
    /// An answer that is good.
    Fresh {
        /// The answer.
        value: V,
        /// For how long it is good still.
        ttl: Duration,
    },
    /// An answer that was good once; better than an error, where that was asked for.
    Stale(V),
    /// Nothing.
    Nothing,
}

/// Counters, and what is kept now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Lookups that found a good answer.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Answers that are kept.
    pub entries: usize,
    /// Their size in bytes.
    pub bytes: usize,
}

/// Answers that may be given again.
#[derive(Debug)]
pub struct Cache<V> {
    limits: CacheLimits,
    entries: BTreeMap<CacheKey, Entry<V>>,
    /// Keys in the order of their last use.
    by_use: BTreeMap<u64, CacheKey>,
    by_label: BTreeMap<Label, BTreeSet<CacheKey>>,
    uses: u64,
    bytes: usize,
    hits: u64,
    misses: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    label: Label,
    size: usize,
    good_until: Mono,
    kept_until: Mono,
    used: u64,
}

/// What an entry costs besides the answer itself.
const OVERHEAD: usize = 512;

impl<V: Clone> Cache<V> {
    /// An empty one.
    pub fn new(limits: CacheLimits) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            by_use: BTreeMap::new(),
            by_label: BTreeMap::new(),
            uses: 0,
            bytes: 0,
            hits: 0,
            misses: 0,
        }
    }

    /// Looks for an answer and counts whether there was one.
    pub fn get(&mut self, now: Mono, key: &CacheKey) -> Found<V> {
        let found = self.peek(now, key);
        match &found {
            Found::Fresh { .. } => {
                self.hits += 1;
                self.used(key);
            }
            Found::Stale(_) | Found::Nothing => self.misses += 1,
        }
        found
    }

    /// Looks for an answer, for somebody who counts by itself.
    pub fn peek(&mut self, now: Mono, key: &CacheKey) -> Found<V> {
        if self.entries.get(key).is_some_and(|entry| entry.kept_until <= now) {
            self.forget(key);
        }
        match self.entries.get(key) {
            None => Found::Nothing,
            Some(entry) if entry.good_until <= now => Found::Stale(entry.value.clone()),
            Some(entry) => Found::Fresh { value: entry.value.clone(), ttl: now.until(entry.good_until) },
        }
    }

    /// An answer was given again: it goes last when room is made.
    pub fn used(&mut self, key: &CacheKey) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.uses += 1;
        self.by_use.remove(&entry.used);
        entry.used = self.uses;
        self.by_use.insert(self.uses, *key);
    }

    /// Keeps an answer.
    pub fn put(&mut self, now: Mono, key: CacheKey, value: V, keep: Keep) {
        let Keep { label, size, ttl, stale_for } = keep;
        self.forget(&key);
        let size = size + OVERHEAD;
        if size > self.limits.bytes || self.limits.per_topic == 0 {
            return;
        }
        while self.by_label.get(&label).is_some_and(|keys| keys.len() >= self.limits.per_topic) {
            let keys = self.by_label.get(&label).into_iter().flatten();
            let oldest = keys.min_by_key(|key| self.entries.get(key).map(|entry| entry.used)).copied();
            let Some(oldest) = oldest else { break };
            self.forget(&oldest);
        }
        while self.bytes + size > self.limits.bytes {
            let Some(oldest) = self.by_use.first_key_value().map(|(_, key)| *key) else { break };
            self.forget(&oldest);
        }
        self.uses += 1;
        self.bytes += size;
        self.by_use.insert(self.uses, key);
        self.by_label.entry(label.clone()).or_default().insert(key);
        let good_until = now + ttl;
        let entry =
            Entry { value, label, size, good_until, kept_until: good_until + stale_for, used: self.uses };
        self.entries.insert(key, entry);
    }

    /// Drops everything about a topic.
    pub fn forget_topic(&mut self, label: &Label) {
        for key in self.by_label.get(label).cloned().unwrap_or_default() {
            self.forget(&key);
        }
    }

    /// Drops everything of a server.
    pub fn forget_server(&mut self, server: &str) {
        let labels: Vec<Label> =
            self.by_label.keys().filter(|label| label.server == server).cloned().collect();
        for label in labels {
            self.forget_topic(&label);
        }
    }

    /// Counters, and what is kept now.
    pub fn counts(&self) -> CacheCounts {
        CacheCounts { hits: self.hits, misses: self.misses, entries: self.entries.len(), bytes: self.bytes }
    }

    fn forget(&mut self, key: &CacheKey) {
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
        Mono::at(Duration::from_secs(seconds))
    }

    fn key(name: &str) -> CacheKey {
        CacheKey::of(None, "docs", name, None).unwrap()
    }

    fn tool(name: &str) -> Label {
        Label { server: "docs".to_owned(), topic: Topic::Tool(name.to_owned()) }
    }

    fn put(cache: &mut Cache<u32>, now: Mono, name: &str, label: Label, value: u32, size: usize) {
        cache.put(now, key(name), value, Keep { label, size, ttl: MINUTE, stale_for: MINUTE });
    }

    #[test]
    fn g04_an_answer_is_good_for_its_time_then_stale_then_gone() {
        let mut cache = Cache::new(CacheLimits::default());
        put(&mut cache, at(0), "a", tool("t"), 1, 10);
        assert_eq!(cache.get(at(59), &key("a")), Found::Fresh { value: 1, ttl: Duration::from_secs(1) });
        assert_eq!(cache.get(at(60), &key("a")), Found::Stale(1));
        assert_eq!(cache.get(at(120), &key("a")), Found::Nothing);
        let counts = cache.counts();
        assert_eq!((counts.hits, counts.misses, counts.entries, counts.bytes), (1, 2, 0, 0));
    }

    #[test]
    fn g04_one_tool_keeps_so_many_answers_and_the_least_used_goes_first() {
        let mut cache = Cache::new(CacheLimits { per_topic: 2, ..CacheLimits::default() });
        put(&mut cache, at(0), "a", tool("t"), 1, 10);
        put(&mut cache, at(0), "b", tool("t"), 2, 10);
        cache.get(at(1), &key("a"));
        put(&mut cache, at(1), "c", tool("t"), 3, 10);
        put(&mut cache, at(1), "other", tool("u"), 4, 10);
        assert_eq!(cache.get(at(1), &key("b")), Found::Nothing);
        for kept in ["a", "c", "other"] {
            assert!(matches!(cache.get(at(1), &key(kept)), Found::Fresh { .. }), "{kept}");
        }
    }

    #[test]
    fn g04_what_changed_is_dropped_and_nothing_else() {
        let mut cache = Cache::new(CacheLimits::default());
        let resource = Label { server: "docs".to_owned(), topic: Topic::Resource("file:///a".to_owned()) };
        let elsewhere = Label { server: "other".to_owned(), topic: Topic::Lists };
        put(&mut cache, at(0), "read", resource.clone(), 1, 10);
        put(&mut cache, at(0), "call", tool("t"), 2, 10);
        put(&mut cache, at(0), "elsewhere", elsewhere, 3, 10);
        cache.forget_topic(&resource);
        assert_eq!(cache.get(at(1), &key("read")), Found::Nothing);
        assert!(matches!(cache.get(at(1), &key("call")), Found::Fresh { .. }));
        cache.forget_server("docs");
        assert_eq!(cache.get(at(1), &key("call")), Found::Nothing);
        assert!(matches!(cache.get(at(1), &key("elsewhere")), Found::Fresh { .. }));
    }

    proptest! {
        #[test]
        fn g04_the_bounds_hold_whatever_is_put(
            puts in prop::collection::vec((0u8..40, 0u8..4, 0usize..3000, 0u64..200), 0..200),
        ) {
            let limits = CacheLimits { per_topic: 3, bytes: 8000 };
            let mut cache = Cache::new(limits);
            for (name, label, size, second) in puts {
                put(&mut cache, at(second), &name.to_string(), tool(&label.to_string()), 0, size);
                let counts = cache.counts();
                prop_assert!(counts.bytes <= limits.bytes);
                prop_assert_eq!(cache.by_use.len(), counts.entries);
                prop_assert!(cache.by_label.values().all(|keys| (1..=3).contains(&keys.len())));
                prop_assert_eq!(cache.entries.values().map(|entry| entry.size).sum::<usize>(), counts.bytes);
            }
        }
    }
}

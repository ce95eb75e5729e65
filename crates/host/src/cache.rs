//! Answer cache of a host: bounded, invalidated when servers report changes, and filled once for concurrent requests.
//! `core` decides the TTL and scope of an answer.

pub use gripfast_core::cache::{CacheLimits, ToolRule};

use crate::clock::Clock;
use crate::sync::Mutex;
use crate::upstream::Answer;
use gripfast_core::cache::{
    AnswerKind, Cache, CacheHint, CacheKey, CacheLabel, CacheScope, CacheTopic, CachedEntry, Freshness,
    KeepOptions, freshness,
};
use gripfast_core::policy::Pattern;
use gripfast_wire::patch::Object;
use gripfast_wire::results::{self, CallResult, ResultType};
use gripfast_wire::{Outcome, tasks};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;

/// Cache settings of one server (key `cache`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSpec {
    /// Caches resources for as long as the server declares. Default true; legacy servers declare no TTL, so their
    /// resources are not cached.
    pub reads: bool,
    /// Tools whose results may be cached, by pattern, with a TTL. Only tools that declare themselves read-only are
    /// cached, whatever is set here. The first matching pattern applies. Default: none.
    pub tools: Vec<(String, ToolRule)>,
    /// TTL that clients get for the lists of a server that declares none, as legacy servers do, but notifies of
    /// changes. If it is too long, a client that ignores notifications works with old lists. Default 0 s: clients do
    /// not cache.
    pub lists: Duration,
    /// Time after its TTL during which an expired list is returned if the server fails. Only for lists requested
    /// through the library. Default 0 s: the failure is returned.
    pub stale_lists: Duration,
}

impl Default for CacheSpec {
    fn default() -> Self {
        Self { reads: true, tools: Vec::new(), lists: Duration::ZERO, stale_lists: Duration::ZERO }
    }
}

impl CacheSpec {
    /// The configured rule for a tool.
    pub(crate) fn rule_for(&self, tool: &str) -> Option<ToolRule> {
        let fitting = self.tools.iter().find(|(pattern, _)| Pattern::new(pattern.as_str()).matches(tool));
        fitting.map(|(_, rule)| *rule)
    }
}

/// Cache hits and misses of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheUse {
    /// Requests that were answered from the cache.
    pub hits: u64,
    /// Cacheable requests that were not.
    pub misses: u64,
}

/// Counters and current size of the answer cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Lookups that found a fresh answer.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Answers in the cache.
    pub entries: usize,
    /// Their size in bytes.
    pub bytes: usize,
}

/// The answer cache.
pub(crate) struct AnswerCache {
    clock: Clock,
    answers: Mutex<CachedAnswer>,
    /// Cacheable requests in flight.
    in_flight: Mutex<BTreeMap<CacheKey, watch::Receiver<()>>>,
}

struct CachedAnswer {
    cache: Cache<Answer>,
    /// Grows with the number of servers that ever existed.
    by_server: BTreeMap<String, Server>,
}

#[derive(Default)]
struct Server {
    used: CacheUse,
    /// Number of invalidations: an answer requested before one is not stored after it.
    invalidations: u64,
}

/// A cacheable request with its private and public keys.
pub(crate) struct CacheRequest {
    pub(crate) private: CacheKey,
    pub(crate) public: CacheKey,
    /// The request uses a dedicated instance, so its answer is private to the client.
    pub(crate) is_dedicated: bool,
    pub(crate) label: CacheLabel,
    pub(crate) source: AnswerKind,
    /// Time after the TTL during which the answer may replace a failure.
    pub(crate) stale_for: Duration,
    /// Number of invalidations of the server when the request was made.
    pub(crate) invalidations: u64,
}

/// Result of a lookup.
pub(crate) enum CacheLookup {
    /// A valid answer.
    Answer(Answer),
    /// No answer; `expected` if the next answer will probably be cacheable.
    Missing { expected: bool },
}

/// A request that is made for all concurrent callers. They look up the cache again when this is dropped.
pub(crate) struct CacheFill<'c> {
    cache: &'c AnswerCache,
    key: CacheKey,
    _done: watch::Sender<()>,
}

impl AnswerCache {
    pub(crate) fn new(limits: CacheLimits, clock: Clock) -> Self {
        let answers = CachedAnswer { cache: Cache::new(limits), by_server: BTreeMap::new() };
        Self { clock, answers: Mutex::new(answers), in_flight: Mutex::default() }
    }

    /// Number of invalidations of a server so far.
    pub(crate) fn invalidations(&self, server: &str) -> u64 {
        self.answers.lock().by_server.get(server).map_or(0, |server| server.invalidations)
    }

    /// Looks up an answer; a private one comes first.
    pub(crate) fn get(&self, request: &CacheRequest) -> CacheLookup {
        let now = self.clock.mono();
        let mut answers = self.answers.lock();
        let mut expected = matches!(request.source, AnswerKind::Tool { .. });
        for key in [&request.private, &request.public] {
            match answers.cache.peek(now, key) {
                CachedEntry::Fresh { value, ttl } => {
                    answers.server(&request.label.server).used.hits += 1;
                    answers.cache.touch(key);
                    return CacheLookup::Answer(value.with_ttl(ttl));
                }
                CachedEntry::Stale(_) => expected = true,
                CachedEntry::Absent => {}
            }
        }
        answers.server(&request.label.server).used.misses += 1;
        CacheLookup::Missing { expected }
    }

    /// An expired answer that may still replace a failure.
    pub(crate) fn get_stale(&self, request: &CacheRequest) -> Option<Answer> {
        if request.stale_for.is_zero() {
            return None;
        }
        let now = self.clock.mono();
        let mut answers = self.answers.lock();
        [&request.private, &request.public].into_iter().find_map(|key| match answers.cache.peek(now, key) {
            CachedEntry::Fresh { value, .. } | CachedEntry::Stale(value) => {
                Some(value.with_ttl(Duration::ZERO))
            }
            CachedEntry::Absent => None,
        })
    }

    /// Becomes the maker of the request, or waits for the present maker and returns `None`; then the cache can be
    /// looked up again.
    pub(crate) async fn join_or_start(&self, request: &CacheRequest) -> Option<CacheFill<'_>> {
        let in_flight = {
            let mut in_flight_requests = self.in_flight.lock();
            match in_flight_requests.get(&request.private) {
                Some(receiver) => receiver.clone(),
                None => {
                    let (done, receiver) = watch::channel(());
                    in_flight_requests.insert(request.private, receiver);
                    return Some(CacheFill { cache: self, key: request.private, _done: done });
                }
            }
        };
        let mut in_flight = in_flight;
        // The channel closes with its maker, however that ends.
        while in_flight.changed().await.is_ok() {}
        None
    }

    /// Stores an answer, if it is cacheable.
    pub(crate) fn insert(&self, request: &CacheRequest, answer: &Answer) {
        let Some(Freshness { ttl, scope }) = freshness_of(request.source, answer) else { return };
        let key = match scope {
            CacheScope::Public => request.public,
            CacheScope::Private => request.private,
        };
        let keep = KeepOptions {
            label: request.label.clone(),
            size: answer.size(),
            ttl,
            stale_for: request.stale_for.max(ttl.min(Self::MISS_MEMORY)),
        };
        let mut answers = self.answers.lock();
        if answers.server(&request.label.server).invalidations == request.invalidations {
            answers.cache.insert(self.clock.mono(), key, answer.without_reservation(), keep);
        }
    }

    /// Time for which an expired entry is remembered, so that the next answer is expected.
    const MISS_MEMORY: Duration = Duration::from_secs(60);

    /// Removes all answers of a server: its catalog has changed, or it was stopped or reloaded.
    pub(crate) fn invalidate_server(&self, server: &str) {
        let mut answers = self.answers.lock();
        answers.server(server).invalidations += 1;
        answers.cache.remove_server(server);
    }

    /// Removes the answers about a changed resource.
    pub(crate) fn invalidate_resource(&self, server: &str, uri: &str) {
        let topic = CacheTopic::Resource(uri.to_owned());
        let mut answers = self.answers.lock();
        answers.server(server).invalidations += 1;
        answers.cache.remove_topic(&CacheLabel { server: server.to_owned(), topic });
    }

    pub(crate) fn counts(&self) -> CacheCounts {
        let answers = self.answers.lock();
        let sum =
            |count: fn(&CacheUse) -> u64| answers.by_server.values().map(|server| count(&server.used)).sum();
        let (entries, bytes) = answers.cache.size();
        CacheCounts { hits: sum(|used| used.hits), misses: sum(|used| used.misses), entries, bytes }
    }

    pub(crate) fn cache_use(&self, server: &str) -> CacheUse {
        self.answers.lock().by_server.get(server).map(|server| server.used).unwrap_or_default()
    }
}

impl CachedAnswer {
    fn server(&mut self, server: &str) -> &mut Server {
        self.by_server.entry(server.to_owned()).or_default()
    }
}

impl Drop for CacheFill<'_> {
    fn drop(&mut self) {
        self.cache.in_flight.lock().remove(&self.key);
    }
}

fn freshness_of(source: AnswerKind, answer: &Answer) -> Option<Freshness> {
    let Outcome::Result(result) = answer.outcome() else { return None };
    let called = CallResult::read(result).ok()?;
    // A created task belongs to its caller.
    let task = tasks::CreatedTask::read(answer.era(), result);
    if called.is_error || task.is_some() || !matches!(called.result_type, ResultType::Complete) {
        return None;
    }
    let object = Object::parse(result).ok()?;
    let Freshness { ttl, scope } = freshness_from_wire(results::Freshness::read(&object));
    let hint = (!ttl.is_zero() || object.has("cacheScope")).then_some(CacheHint { ttl, scope });
    freshness(source, hint)
}

/// Converts the wire form of TTL and scope.
pub(crate) fn freshness_from_wire(wire: results::Freshness) -> Freshness {
    let scope = match wire.scope {
        results::CacheScope::Public => CacheScope::Public,
        results::CacheScope::Private => CacheScope::Private,
    };
    Freshness { ttl: wire.ttl, scope }
}

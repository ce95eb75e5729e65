//! Answers that may be given again, for all servers of a host: kept within bounds, dropped when what they are
//! about changes, and made once for all who ask meanwhile. For how long one is good, and for whom, is decided in
//! `core`.

pub use gripfast_core::cache::{CacheCounts, CacheLimits, ToolRule};

use crate::clock::Clock;
use crate::upstream::Answer;
use gripfast_core::cache::{
    Cache, CacheKey, CacheScope, Found, Freshness, Hint, Keep, Label, Source, Topic, freshness,
};
use gripfast_core::policy::Pattern;
use gripfast_wire::patch::Object;
use gripfast_wire::results::{self, CallResult, ResultType};
use gripfast_wire::{Outcome, tasks};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// What the config says about giving answers of one server again: the key `cache`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSpec {
    /// Whether resources are kept for as long as the server says. Default true; servers of the legacy era say
    /// nothing, and nothing of theirs is kept.
    pub reads: bool,
    /// Tools whose results may be given again, by pattern, and for how long. Only tools that say that they change
    /// nothing are kept, whatever is written here. The first pattern that fits counts. Default: none.
    pub tools: Vec<(String, ToolRule)>,
    /// For how long clients may keep the lists of a server that says nothing about it, as no server of the legacy era
    /// does, but tells when they change. Too long, and a client that does not listen works with old lists. Default
    /// 0 s: no longer than they are looked at.
    pub lists: Duration,
    /// For how long a list that the library was asked for, and whose time is over, is given all the same if the server
    /// fails. Default 0 s: then its failure is the answer.
    pub stale_lists: Duration,
}

impl Default for CacheSpec {
    fn default() -> Self {
        Self { reads: true, tools: Vec::new(), lists: Duration::ZERO, stale_lists: Duration::ZERO }
    }
}

impl CacheSpec {
    /// What the operator says about this tool.
    pub(crate) fn rule_for(&self, tool: &str) -> Option<ToolRule> {
        let fitting = self.tools.iter().find(|(pattern, _)| Pattern::new(pattern.as_str()).matches(tool));
        fitting.map(|(_, rule)| *rule)
    }
}

/// How often answers of one server were given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheUse {
    /// Requests that were answered from the cache.
    pub hits: u64,
    /// Requests that could have been, and were not.
    pub misses: u64,
}

/// Answers that may be given again.
pub(crate) struct AnswerCache {
    clock: Clock,
    kept: Mutex<Kept>,
    /// Requests that somebody is making for all, as many as are under way.
    flights: Mutex<BTreeMap<CacheKey, watch::Receiver<()>>>,
}

struct Kept {
    cache: Cache<Answer>,
    /// As many as there ever were servers.
    by_server: BTreeMap<String, Server>,
}

#[derive(Default)]
struct Server {
    used: CacheUse,
    /// How often something of it was dropped: what was asked before that is not kept after it.
    dropped: u64,
}

/// A request whose answer may be kept: the keys under which it is, privately and for all.
pub(crate) struct Request {
    pub(crate) private: CacheKey,
    pub(crate) public: CacheKey,
    /// Whether it is for a client's own instance, whose answers are that client's.
    pub(crate) is_apart: bool,
    pub(crate) label: Label,
    pub(crate) source: Source,
    /// For how long after its time an answer may be given in place of a failure.
    pub(crate) stale_for: Duration,
    /// How often something of its server had been dropped when it was made.
    pub(crate) dropped: u64,
}

/// What was found.
pub(crate) enum Looked {
    /// An answer that is good.
    Answer(Answer),
    /// None. Whether there was one before, so that one is to be expected again.
    Missing { expected: bool },
}

/// Somebody makes the request for all who ask meanwhile. When this is dropped they look again.
pub(crate) struct Flight<'c> {
    cache: &'c AnswerCache,
    key: CacheKey,
    _landing: watch::Sender<()>,
}

impl AnswerCache {
    pub(crate) fn new(limits: CacheLimits, clock: Clock) -> Self {
        let kept = Kept { cache: Cache::new(limits), by_server: BTreeMap::new() };
        Self { clock, kept: Mutex::new(kept), flights: Mutex::default() }
    }

    /// How often something of a server was dropped so far.
    pub(crate) fn dropped(&self, server: &str) -> u64 {
        self.kept().by_server.get(server).map_or(0, |server| server.dropped)
    }

    /// Looks for an answer; what was made for this principal alone comes first.
    pub(crate) fn look(&self, request: &Request) -> Looked {
        let now = self.clock.mono();
        let mut kept = self.kept();
        let mut expected = matches!(request.source, Source::Tool { .. });
        for key in [&request.private, &request.public] {
            match kept.cache.peek(now, key) {
                Found::Fresh { value, ttl } => {
                    kept.of(&request.label.server).used.hits += 1;
                    kept.cache.used(key);
                    return Looked::Answer(value.with_ttl(ttl));
                }
                Found::Stale(_) => expected = true,
                Found::Nothing => {}
            }
        }
        kept.of(&request.label.server).used.misses += 1;
        Looked::Missing { expected }
    }

    /// An answer whose time is over, but not for so long that a failure would be better.
    pub(crate) fn look_for_stale(&self, request: &Request) -> Option<Answer> {
        if request.stale_for.is_zero() {
            return None;
        }
        let now = self.clock.mono();
        let mut kept = self.kept();
        [&request.private, &request.public].into_iter().find_map(|key| match kept.cache.peek(now, key) {
            Found::Fresh { value, .. } | Found::Stale(value) => Some(value.with_ttl(Duration::ZERO)),
            Found::Nothing => None,
        })
    }

    /// Makes the request for all, or waits for whoever does; then there is something to look at.
    pub(crate) async fn fly(&self, request: &Request) -> Option<Flight<'_>> {
        let under_way = {
            let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
            match flights.get(&request.private) {
                Some(flight) => flight.clone(),
                None => {
                    let (landing, flight) = watch::channel(());
                    flights.insert(request.private, flight);
                    return Some(Flight { cache: self, key: request.private, _landing: landing });
                }
            }
        };
        let mut under_way = under_way;
        // It ends with its maker, however that ends.
        while under_way.changed().await.is_ok() {}
        None
    }

    /// Keeps an answer, if it may be.
    pub(crate) fn keep(&self, request: &Request, answer: &Answer) {
        let Some(Freshness { ttl, scope }) = keeps_for(request.source, answer) else { return };
        let key = match scope {
            CacheScope::Public => request.public,
            CacheScope::Private => request.private,
        };
        let keep = Keep {
            label: request.label.clone(),
            size: answer.size(),
            ttl,
            stale_for: request.stale_for.max(ttl.min(Self::REMEMBERED)),
        };
        let mut kept = self.kept();
        if kept.of(&request.label.server).dropped == request.dropped {
            kept.cache.put(self.clock.mono(), key, answer.uncounted(), keep);
        }
    }

    /// For how long it is remembered after its time that there was an answer.
    const REMEMBERED: Duration = Duration::from_secs(60);

    /// What a server offers has changed, or it was stopped or reloaded.
    pub(crate) fn forget_server(&self, server: &str) {
        let mut kept = self.kept();
        kept.of(server).dropped += 1;
        kept.cache.forget_server(server);
    }

    /// A resource has changed.
    pub(crate) fn forget_resource(&self, server: &str, uri: &str) {
        let topic = Topic::Resource(uri.to_owned());
        let mut kept = self.kept();
        kept.of(server).dropped += 1;
        kept.cache.forget_topic(&Label { server: server.to_owned(), topic });
    }

    pub(crate) fn counts(&self) -> CacheCounts {
        let kept = self.kept();
        let sum =
            |count: fn(&CacheUse) -> u64| kept.by_server.values().map(|server| count(&server.used)).sum();
        CacheCounts { hits: sum(|used| used.hits), misses: sum(|used| used.misses), ..kept.cache.counts() }
    }

    pub(crate) fn used_of(&self, server: &str) -> CacheUse {
        self.kept().by_server.get(server).map(|server| server.used).unwrap_or_default()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn of(&mut self, server: &str) -> &mut Server {
        self.by_server.entry(server.to_owned()).or_default()
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.cache.flights.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

fn keeps_for(source: Source, answer: &Answer) -> Option<Freshness> {
    let Outcome::Result(result) = answer.outcome() else { return None };
    let called = CallResult::read(result).ok()?;
    // A task is whose it is.
    let task = tasks::Begun::read(answer.era(), result);
    if called.is_error || task.is_some() || !matches!(called.result_type, ResultType::Complete) {
        return None;
    }
    let object = Object::parse(result).ok()?;
    let Freshness { ttl, scope } = said(results::Freshness::read(&object));
    let hint = (!ttl.is_zero() || object.has("cacheScope")).then_some(Hint { ttl, scope });
    freshness(source, hint)
}

/// What a server says on the wire, as it is decided on.
pub(crate) fn said(wire: results::Freshness) -> Freshness {
    let scope = match wire.scope {
        results::CacheScope::Public => CacheScope::Public,
        results::CacheScope::Private => CacheScope::Private,
    };
    Freshness { ttl: wire.ttl, scope }
}

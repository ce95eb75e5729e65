//! The cache phase of a call: finds a cached answer, or waits within the call's deadline for one that another call is
//! fetching.

use super::Resolved;
use crate::cache::{CacheCounts, CacheFill, CacheLookup, CacheRequest};
use crate::client::{Client, Principal};
use crate::host::{Host, HostEntry};
use crate::upstream::Answer;
use gripfast_core::cache::{AnswerKind, CacheKey, CacheLabel, CacheTopic};
use gripfast_core::json_text::Json;
use gripfast_core::time::Mono;
use gripfast_wire::Era;
use gripfast_wire::patch::Object;
use std::borrow::Cow;
use std::time::Duration;

/// Result of a cache lookup.
pub(super) enum CacheResult<'h> {
    /// A cached answer.
    Answer(Answer),
    /// No answer. With a [`CacheFill`], this call fetches the answer for all calls that ask for the same meanwhile.
    Miss(Option<CacheFill<'h>>),
}

impl Host {
    /// The cache keys and rules of a request, if its answer may be cached. An answer of a dedicated instance is
    /// private to its client, even among clients of the same principal.
    pub(super) fn cacheable(
        &self,
        entry: &HostEntry,
        resolved: &Resolved<'_>,
        principal: Option<&Principal>,
        client: Option<&Client>,
    ) -> Option<CacheRequest> {
        let upstream_request = &resolved.request;
        let cache = &entry.spec.as_ref()?.cache;
        let (source, topic) = match (upstream_request.method, &upstream_request.tool) {
            (_, Some(tool)) => {
                let rule = Some(cache.rule_for(tool)?);
                // A tool with side effects is called each time, so it is not looked up.
                let listing = resolved.upstream.listing.borrow();
                let read_only = listing.catalog.tool(tool)?.hints.read_only.then_some(true)?;
                (AnswerKind::Tool { rule, read_only }, CacheTopic::Tool(tool.to_string()))
            }
            // Only modern servers declare a TTL.
            (_, None) if !cache.reads || resolved.upstream.listing.borrow().era == Era::Legacy => {
                return None;
            }
            ("resources/read", None) => {
                let uri = Object::parse(upstream_request.params?).ok()?.text("uri")?.into_owned();
                (AnswerKind::ListOrRead, CacheTopic::Resource(uri))
            }
            ("tools/list" | "prompts/list" | "resources/list" | "resources/templates/list", None) => {
                (AnswerKind::ListOrRead, CacheTopic::Lists)
            }
            (_, None) => return None,
        };
        let stale_for = if topic == CacheTopic::Lists { cache.stale_lists } else { Duration::ZERO };
        let params = upstream_request.params.map(Json::get);
        let key = |principal| CacheKey::for_request(principal, &entry.name, upstream_request.method, params);
        let name = principal.map_or("", Principal::name);
        let own = client.filter(|client| entry.uses_dedicated_instance(client));
        let scope = match own.and_then(|client| client.caller.key()) {
            Some(client) => Cow::Owned(format!("{name}\0{}", client.as_str())),
            None => Cow::Borrowed(name),
        };
        Some(CacheRequest {
            private: key(Some(&*scope))?,
            is_dedicated: own.is_some(),
            public: key(None)?,
            label: CacheLabel { server: entry.name.clone(), topic },
            source,
            stale_for,
            invalidations: self.inner.cache.invalidations(&entry.name),
        })
    }

    /// Looks up an answer, and waits until `deadline` for one that another call is fetching.
    pub(super) async fn lookup_cached(&self, request: &CacheRequest, deadline: Mono) -> CacheResult<'_> {
        let cache = &self.inner.cache;
        match cache.get(request) {
            CacheLookup::Answer(answer) => return CacheResult::Answer(answer),
            CacheLookup::Missing { expected: false } => return CacheResult::Miss(None),
            CacheLookup::Missing { expected: true } => {}
        }
        let timeout = tokio::time::sleep_until(self.inner.clock.instant(deadline));
        let fill = tokio::select! {
            fill = cache.join_or_start(request) => fill,
            () = timeout => None,
        };
        match fill {
            Some(fill) => CacheResult::Miss(Some(fill)),
            None => match cache.get(request) {
                CacheLookup::Answer(answer) => CacheResult::Answer(answer),
                // The fetched answer cannot be shared: each call sends its own request.
                CacheLookup::Missing { .. } => CacheResult::Miss(None),
            },
        }
    }

    /// Counters of the answer cache.
    pub fn cache_counts(&self) -> CacheCounts {
        self.inner.cache.counts()
    }
}

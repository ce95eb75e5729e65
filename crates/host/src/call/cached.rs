//! Answers that were given before. What is found costs nothing and goes nowhere; what is made meanwhile by
//! somebody else is waited for, within the call's own time.

use super::Resolved;
use crate::cache::{Flight, Looked, Request};
use crate::client::{Client, Principal};
use crate::host::{Entry, Host};
use crate::upstream::Answer;
use gripfast_core::cache::{CacheCounts, CacheKey, Label, Source, Topic};
use gripfast_core::time::Mono;
use gripfast_wire::Era;
use gripfast_wire::patch::Object;
use std::borrow::Cow;
use std::time::Duration;

/// What came of looking.
pub(super) enum Recalled<'h> {
    /// An answer.
    Answer(Answer),
    /// There is none, and what is made now is made for all who ask meanwhile.
    Nothing(Option<Flight<'h>>),
}

impl Host {
    /// The request as the cache knows it, if its answer may be kept. What a client's own instance says is that
    /// client's, also among others of the same principal.
    pub(super) fn cacheable(
        &self,
        entry: &Entry,
        resolved: &Resolved<'_>,
        principal: Option<&Principal>,
        client: Option<&Client>,
    ) -> Option<Request> {
        let order = &resolved.order;
        let listing = resolved.upstream.listing.borrow().clone();
        let (source, topic) = match (order.method.as_str(), &order.tool) {
            (_, Some(tool)) => {
                let rule = Some(entry.cache.rule_for(tool)?);
                // One that does something is done again each time, so there is nothing to look for.
                let read_only = listing.catalog.tool(tool)?.hints.read_only.then_some(true)?;
                (Source::Tool { rule, read_only }, Topic::Tool(tool.clone()))
            }
            // Only modern servers say for how long.
            (_, None) if !entry.cache.reads || listing.era == Era::Legacy => return None,
            ("resources/read", None) => {
                let uri = Object::parse(order.params.as_deref()?).ok()?.text("uri")?.into_owned();
                (Source::ListOrRead, Topic::Resource(uri))
            }
            ("tools/list" | "prompts/list" | "resources/list" | "resources/templates/list", None) => {
                (Source::ListOrRead, Topic::Lists)
            }
            (_, None) => return None,
        };
        let stale_for = if topic == Topic::Lists { entry.cache.stale_lists } else { Duration::ZERO };
        let params = order.params.as_deref().map(gripfast_wire::RawValue::get);
        let key = |principal| CacheKey::of(principal, &entry.name, &order.method, params);
        let name = principal.map_or("", Principal::name);
        let own = client.filter(|client| entry.serves_apart(client));
        let whose = match own.and_then(|client| client.caller.key()) {
            Some(client) => Cow::Owned(format!("{name}\0{}", client.as_str())),
            None => Cow::Borrowed(name),
        };
        Some(Request {
            private: key(Some(&*whose))?,
            is_apart: own.is_some(),
            public: key(None)?,
            label: Label { server: entry.name.clone(), topic },
            source,
            stale_for,
            dropped: self.cache().dropped(&entry.name),
        })
    }

    /// Looks for an answer, and waits for one that is being made, as long as the caller does.
    pub(super) async fn recall(&self, request: &Request, deadline: Mono) -> Recalled<'_> {
        let cache = self.cache();
        match cache.look(request) {
            Looked::Answer(answer) => return Recalled::Answer(answer),
            Looked::Missing { expected: false } => return Recalled::Nothing(None),
            Looked::Missing { expected: true } => {}
        }
        let patience = tokio::time::sleep_until(self.clock().instant(deadline));
        let flight = tokio::select! {
            flight = cache.fly(request) => flight,
            () = patience => None,
        };
        match flight {
            Some(flight) => Recalled::Nothing(Some(flight)),
            None => match cache.look(request) {
                Looked::Answer(answer) => Recalled::Answer(answer),
                // It came to nothing that could be shared: everybody goes.
                Looked::Missing { .. } => Recalled::Nothing(None),
            },
        }
    }

    /// How the cache of answers does.
    pub fn cache_counts(&self) -> CacheCounts {
        self.cache().counts()
    }
}

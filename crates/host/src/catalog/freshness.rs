//! For how long clients may keep what they are told, and whether others may be given it: no longer than the server that
//! promised least, and for nobody else where clients do not all see the same.

use crate::host::{Entry, Host};
use crate::upstream::Origin;
use gripfast_core::cache::{CacheScope, Freshness};
use gripfast_core::time::Mono;
use gripfast_wire::results::List;
use std::time::Duration;

impl Host {
    /// For how long a list of the menu is good. Where the time that a server gave is over, it is asked anew, and
    /// whoever listens is told if something has changed.
    pub fn list_freshness(&self, list: List) -> Freshness {
        let now = self.now();
        let parts = self.entries().into_iter().filter_map(|entry| entry.list_freshness(list, now));
        self.for_whom(Freshness::of_all(parts))
    }

    /// For how long what the servers say about themselves is good.
    pub fn facts_freshness(&self) -> Freshness {
        let now = self.now();
        let parts = self.entries().into_iter().filter_map(|entry| entry.facts_freshness(now));
        self.for_whom(Freshness::of_all(parts))
    }

    /// What some clients do not see must not reach them by way of others.
    fn for_whom(&self, fresh: Freshness) -> Freshness {
        let scope = if self.tells_clients_apart() { CacheScope::Private } else { fresh.scope };
        Freshness { scope, ..fresh }
    }
}

impl Entry {
    /// `None` if it has no part in the list.
    fn list_freshness(&self, list: List, now: Mono) -> Option<Freshness> {
        let upstream = self.upstream().ok()?;
        let (origin, said) = {
            let listing = upstream.listing.borrow();
            (listing.origin, listing.said)
        };
        if origin != Origin::Server {
            return Some(Freshness::UNSAID);
        }
        if said.of(list)?.ttl.is_zero() {
            return Some(
                self.as_the_operator_says(upstream.tells_of_changes(list)).unwrap_or(said.of(list)?),
            );
        }
        let left = said.left_of(list, now)?;
        if left.ttl.is_zero() {
            upstream.list_again();
        }
        Some(left)
    }

    fn facts_freshness(&self, now: Mono) -> Option<Freshness> {
        let upstream = self.upstream().ok()?;
        let Some(live) = upstream.live() else { return Some(Freshness::UNSAID) };
        match live.server.freshness {
            Some(said) => Some(said.after(now.since(live.since))),
            None => Some(self.as_the_operator_says(true).unwrap_or(Freshness::UNSAID)),
        }
    }

    /// A server that tells of changes is as good as one that says how long there will be none.
    fn as_the_operator_says(&self, tells_of_changes: bool) -> Option<Freshness> {
        let is_said = tells_of_changes && self.cache.lists > Duration::ZERO;
        is_said.then_some(Freshness { ttl: self.cache.lists, scope: CacheScope::Private })
    }
}

//! TTL and cache scope of the lists that clients get: the shortest TTL of all servers, and `private` where clients
//! may see different catalogs.

use crate::host::{Host, HostEntry};
use crate::upstream::ListingOrigin;
use gripfast_core::cache::{CacheScope, Freshness};
use gripfast_core::time::Mono;
use gripfast_wire::results::List;
use std::time::Duration;

impl Host {
    /// TTL of a list of the merged catalog. A server whose TTL is over is listed again, and clients are notified if
    /// something has changed.
    pub fn list_freshness(&self, list: List) -> Freshness {
        let now = self.now();
        let parts = self.entries().into_iter().filter_map(|entry| entry.list_freshness(list, now));
        self.limit_scope(Freshness::combine(parts))
    }

    /// TTL of what the servers declare about themselves, such as capabilities and instructions.
    pub fn server_info_freshness(&self) -> Freshness {
        let now = self.now();
        let parts = self.entries().into_iter().filter_map(|entry| entry.server_info_freshness(now));
        self.limit_scope(Freshness::combine(parts))
    }

    /// Makes the scope private where clients may see different catalogs.
    fn limit_scope(&self, fresh: Freshness) -> Freshness {
        let scope = if self.has_client_policies() { CacheScope::Private } else { fresh.scope };
        Freshness { scope, ..fresh }
    }
}

impl HostEntry {
    /// `None` if the server has no such list.
    fn list_freshness(&self, list: List, now: Mono) -> Option<Freshness> {
        let upstream = self.upstream().ok()?;
        let (origin, ttls) = {
            let listing = upstream.listing.borrow();
            (listing.origin, listing.ttls)
        };
        if origin != ListingOrigin::Server {
            return Some(Freshness::UNSPECIFIED);
        }
        if ttls.of(list)?.ttl.is_zero() {
            return Some(
                self.configured_freshness(upstream.has_list_changes(list)).unwrap_or(ttls.of(list)?),
            );
        }
        let left = ttls.remaining(list, now)?;
        if left.ttl.is_zero() {
            upstream.refresh_catalog();
        }
        Some(left)
    }

    fn server_info_freshness(&self, now: Mono) -> Option<Freshness> {
        let upstream = self.upstream().ok()?;
        let Some(connection) = upstream.connection() else { return Some(Freshness::UNSPECIFIED) };
        match connection.server.freshness {
            Some(declared) => Some(declared.aged(now.since(connection.since))),
            None => Some(self.configured_freshness(true).unwrap_or(Freshness::UNSPECIFIED)),
        }
    }

    /// The configured TTL, for a server that declares none but notifies of changes.
    fn configured_freshness(&self, tells_of_changes: bool) -> Option<Freshness> {
        let ttl = self.spec.as_ref()?.cache.lists;
        let is_said = tells_of_changes && ttl > Duration::ZERO;
        is_said.then_some(Freshness { ttl, scope: CacheScope::Private })
    }
}

//! Per-client quotas for bounded resources: limits what one client may hold, and what all clients may hold together.

use gripfast::sync::Mutex;
use gripfast::{Principal, RequestSource, network};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Identity of a client for quotas: its principal after authentication, otherwise its address. All programs on this
/// machine count as one client.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// Client at this address.
    Address(IpAddr),
    /// Authenticated principal.
    Principal(Principal),
}

impl Peer {
    /// Program on this machine.
    pub(crate) fn local() -> Self {
        Self::Address(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Client at this address. An IPv6 address stands for its /64 network, which usually belongs to one client; an
    /// IPv4-mapped address counts as IPv4.
    pub(crate) fn from_address(address: IpAddr) -> Self {
        match address.to_canonical() {
            local if local.is_loopback() => Self::local(),
            other => Self::Address(network(other)),
        }
    }

    /// Client that sent this request. If the listener has not set it, it counts as an unknown remote address.
    pub(crate) fn from_request<B>(request: &http::Request<B>) -> Self {
        request
            .extensions()
            .get::<Self>()
            .cloned()
            .unwrap_or(Self::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
    }

    /// Source of its requests for the records.
    pub(crate) fn source(&self) -> RequestSource {
        match self {
            Self::Address(address) => RequestSource::Address(*address),
            // A principal does not carry its address, which was only known before authentication.
            Self::Principal(_) => RequestSource::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        }
    }

    /// Tests if it is a program on this machine.
    pub(crate) fn is_local(&self) -> bool {
        *self == Self::local()
    }

    /// Principal of its calls; the local principal without authentication.
    pub(crate) fn principal(&self) -> Principal {
        match self {
            Self::Address(_) => Principal::local(),
            Self::Principal(principal) => principal.clone(),
        }
    }
}

/// Resource with a limit per client and in total.
#[derive(Debug, Clone)]
pub(crate) struct Quota {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    per_client: usize,
    total: usize,
    usage: Mutex<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    total: usize,
    /// Only clients that hold something, and at most one other. There are few at a time, and a tree cannot be slowed down by chosen addresses.
    per_client: BTreeMap<Peer, usize>,
}

/// The limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuotaExceeded {
    /// Limit of one client.
    ByClient,
    /// Limit of all clients together.
    ByAll,
}

impl Quota {
    /// Creates a quota of `per_client` for one client and `total` for all of them.
    pub(crate) fn new(per_client: usize, total: usize) -> Self {
        Self { inner: Arc::new(Inner { per_client, total, usage: Mutex::default() }) }
    }

    /// Acquires an amount for a client, until the permit is dropped.
    pub(crate) fn acquire(&self, peer: &Peer, amount: usize) -> Result<QuotaPermit, QuotaExceeded> {
        let mut permit = QuotaPermit { quota: Arc::clone(&self.inner), peer: peer.clone(), amount: 0 };
        permit.grow(amount)?;
        Ok(permit)
    }

    /// Acquires an amount for a client even above the limit.
    pub(crate) fn acquire_unchecked(&self, peer: &Peer, amount: usize) -> QuotaPermit {
        let mut guard = self.inner.usage.lock();
        guard.total = guard.total.saturating_add(amount);
        if amount > 0 {
            let has = guard.per_client.entry(peer.clone()).or_default();
            *has = has.saturating_add(amount);
        }
        drop(guard);
        QuotaPermit { quota: Arc::clone(&self.inner), peer: peer.clone(), amount }
    }

    /// Separate quota with `1/part` of the limits.
    pub(crate) fn fraction(&self, part: usize) -> Self {
        Self::new(self.inner.per_client / part, self.inner.total / part)
    }

    /// Amount in use.
    pub(crate) fn used(&self) -> usize {
        self.inner.usage.lock().total
    }
}

/// Amount that one client holds until this is dropped.
#[derive(Debug)]
pub(crate) struct QuotaPermit {
    quota: Arc<Inner>,
    peer: Peer,
    amount: usize,
}

impl QuotaPermit {
    /// Amount of the permit.
    pub(crate) fn amount(&self) -> usize {
        self.amount
    }

    /// Acquires more. On failure the permit stays as it was.
    pub(crate) fn grow(&mut self, amount: usize) -> Result<(), QuotaExceeded> {
        let mut guard = self.quota.usage.lock();
        let Usage { total, per_client } = &mut *guard;
        let known = per_client.get_mut(&self.peer);
        let has = known.as_deref().copied().unwrap_or_default();
        if has.saturating_add(amount) > self.quota.per_client {
            return Err(QuotaExceeded::ByClient);
        }
        if total.saturating_add(amount) > self.quota.total {
            return Err(QuotaExceeded::ByAll);
        }
        *total += amount;
        match known {
            Some(known) => *known += amount,
            None if amount > 0 => {
                per_client.insert(self.peer.clone(), amount);
            }
            None => {}
        }
        drop(guard);
        self.amount += amount;
        Ok(())
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        let mut guard = self.quota.usage.lock();
        let Usage { total, per_client } = &mut *guard;
        *total -= self.amount;
        let is_last = per_client.len() == 1;
        match per_client.get_mut(&self.peer) {
            Some(has) if *has > self.amount => *has -= self.amount,
            // The last entry stays, so that the tree keeps its memory.
            Some(has) if is_last => *has = 0,
            Some(_) => {
                per_client.remove(&self.peer);
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::from_address(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn the_limits_per_client_and_in_total_are_enforced() {
        let quota = Quota::new(2, 3);
        let mine = [quota.acquire(&peer(1), 1).unwrap(), quota.acquire(&peer(1), 1).unwrap()];
        assert_eq!(quota.acquire(&peer(1), 1).unwrap_err(), QuotaExceeded::ByClient);
        let theirs = quota.acquire(&peer(2), 1).unwrap();
        assert_eq!(quota.acquire(&peer(3), 1).unwrap_err(), QuotaExceeded::ByAll);
        drop(mine);
        assert!(quota.acquire(&peer(3), 1).is_ok());
        drop(theirs);
        assert_eq!((quota.used(), quota.inner.usage.lock().per_client.len()), (0, 1), "one entry is left");
    }

    #[test]
    fn a_permit_that_cannot_grow_stays_and_releases_all_on_drop() {
        let quota = Quota::new(10, 10);
        let mut permit = quota.acquire(&peer(1), 0).unwrap();
        permit.grow(8).unwrap();
        assert_eq!(permit.grow(3), Err(QuotaExceeded::ByClient));
        permit.grow(2).unwrap();
        assert_eq!(quota.used(), 10);
        drop(permit);
        assert_eq!(quota.used(), 0);
    }

    #[test]
    fn g05_an_ipv6_64_is_one_client_and_a_mapped_address_counts_as_ipv4() {
        let at = |address: &str| Peer::from_address(address.parse().unwrap());
        assert_eq!(at("2001:db8:1:2::1"), at("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(at("2001:db8:1:2::1"), at("2001:db8:1:3::1"));
        assert_eq!(at("::ffff:192.0.2.1"), peer(1));
        assert_ne!(at("::ffff:192.0.2.1"), at("::ffff:192.0.2.2"));
    }

    #[test]
    fn all_local_programs_are_one_client() {
        let local = ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"];
        assert!(local.iter().all(|address| Peer::from_address(address.parse().unwrap()) == Peer::local()));
        assert_ne!(peer(1), peer(2));
    }
}

//! Who has how much of something of which there is only so much: one client is stopped before it has
//! everything, and everybody before the machine has nothing left.

use gripfast::{Principal, Source, network};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// A client, as far as it can be told from others: by what it has shown, and before that, or where nobody
/// has to show anything, by its address. All programs of this machine are one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// Whoever is at this address.
    At(IpAddr),
    /// Whoever has shown to be this.
    Is(Principal),
}

impl Peer {
    /// A program of this machine.
    pub(crate) fn here() -> Self {
        Self::At(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// The client at this address. An IPv6 address stands for its network of 64 bits, of which one client has every
    /// address; one that holds an IPv4 address counts as that.
    pub(crate) fn at(address: IpAddr) -> Self {
        match address.to_canonical() {
            local if local.is_loopback() => Self::here(),
            other => Self::At(network(other)),
        }
    }

    /// Whoever sends this. If nobody has said who that is, it is nobody of this machine.
    pub(crate) fn of<B>(request: &http::Request<B>) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or(Self::At(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
    }

    /// Where a request of it comes from, as it is recorded.
    pub(crate) fn source(&self) -> Source {
        match self {
            Self::At(address) => Source::Address(*address),
            // Its address was known before it authenticated.
            Self::Is(_) => Source::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        }
    }

    /// Whether it is a program of this machine.
    pub(crate) fn is_here(&self) -> bool {
        *self == Self::here()
    }

    /// On whose behalf it calls.
    pub(crate) fn principal(&self) -> Principal {
        match self {
            Self::At(_) => Principal::local(),
            Self::Is(principal) => principal.clone(),
        }
    }
}

/// Something that clients share.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    each: usize,
    all: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Only who has something is in here. Few do at a time, and no choice of addresses makes a tree slow.
    each: BTreeMap<Peer, usize>,
}

/// Why there is nothing left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exhausted {
    /// The client has all that one may have.
    ByClient,
    /// All clients together have all there is.
    ByAll,
}

impl Shares {
    /// At most `each` for one client, and `all` for all of them.
    pub(crate) fn new(each: usize, all: usize) -> Self {
        Self { inner: Arc::new(Inner { each, all, taken: Mutex::default() }) }
    }

    /// Takes something for a client, who has it for as long as the answer lives.
    pub(crate) fn take(&self, peer: &Peer, amount: usize) -> Result<Share, Exhausted> {
        let mut share = Share { of: Arc::clone(&self.inner), peer: peer.clone(), amount: 0 };
        share.grow(amount)?;
        Ok(share)
    }

    /// Takes something for a client whether or not there is that much left.
    pub(crate) fn take_always(&self, peer: &Peer, amount: usize) -> Share {
        let mut guard = self.inner.lock();
        guard.all = guard.all.saturating_add(amount);
        if amount > 0 {
            let has = guard.each.entry(peer.clone()).or_default();
            *has = has.saturating_add(amount);
        }
        drop(guard);
        Share { of: Arc::clone(&self.inner), peer: peer.clone(), amount }
    }

    /// Something apart, of which there is this part of what there is of this.
    pub(crate) fn part(&self, part: usize) -> Self {
        Self::new(self.inner.each / part, self.inner.all / part)
    }

    /// How much is taken.
    pub(crate) fn taken(&self) -> usize {
        self.inner.lock().all
    }
}

/// What one client has, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Inner>,
    peer: Peer,
    amount: usize,
}

impl Share {
    /// How much it is.
    pub(crate) fn amount(&self) -> usize {
        self.amount
    }

    /// Takes some more. What it has already, it keeps in any case.
    pub(crate) fn grow(&mut self, amount: usize) -> Result<(), Exhausted> {
        let mut guard = self.of.lock();
        let Taken { all, each } = &mut *guard;
        let known = each.get_mut(&self.peer);
        let has = known.as_deref().copied().unwrap_or_default();
        if has.saturating_add(amount) > self.of.each {
            return Err(Exhausted::ByClient);
        }
        if all.saturating_add(amount) > self.of.all {
            return Err(Exhausted::ByAll);
        }
        *all += amount;
        match known {
            Some(known) => *known += amount,
            None if amount > 0 => {
                each.insert(self.peer.clone(), amount);
            }
            None => {}
        }
        drop(guard);
        self.amount += amount;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut guard = self.of.lock();
        let Taken { all, each } = &mut *guard;
        *all -= self.amount;
        match each.get_mut(&self.peer) {
            Some(has) if *has > self.amount => *has -= self.amount,
            Some(_) => {
                each.remove(&self.peer);
            }
            None => {}
        }
    }
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::at(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn one_client_is_stopped_before_it_has_everything_and_everybody_before_nothing_is_left() {
        let shares = Shares::new(2, 3);
        let mine = [shares.take(&peer(1), 1).unwrap(), shares.take(&peer(1), 1).unwrap()];
        assert_eq!(shares.take(&peer(1), 1).unwrap_err(), Exhausted::ByClient);
        let theirs = shares.take(&peer(2), 1).unwrap();
        assert_eq!(shares.take(&peer(3), 1).unwrap_err(), Exhausted::ByAll);
        drop(mine);
        assert!(shares.take(&peer(3), 1).is_ok());
        drop(theirs);
        assert_eq!((shares.taken(), shares.inner.lock().each.len()), (0, 0), "nobody is remembered");
    }

    #[test]
    fn a_share_that_cannot_grow_keeps_what_it_has_and_gives_all_of_it_back() {
        let shares = Shares::new(10, 10);
        let mut share = shares.take(&peer(1), 0).unwrap();
        share.grow(8).unwrap();
        assert_eq!(share.grow(3), Err(Exhausted::ByClient));
        share.grow(2).unwrap();
        assert_eq!(shares.taken(), 10);
        drop(share);
        assert_eq!(shares.taken(), 0);
    }

    #[test]
    fn g05_an_ipv6_network_of_64_bits_is_one_client_and_a_mapped_address_is_its_ipv4_address() {
        let at = |address: &str| Peer::at(address.parse().unwrap());
        assert_eq!(at("2001:db8:1:2::1"), at("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(at("2001:db8:1:2::1"), at("2001:db8:1:3::1"));
        assert_eq!(at("::ffff:192.0.2.1"), peer(1));
        assert_ne!(at("::ffff:192.0.2.1"), at("::ffff:192.0.2.2"));
    }

    #[test]
    fn all_programs_of_this_machine_are_one_client() {
        let local = ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"];
        assert!(local.iter().all(|address| Peer::at(address.parse().unwrap()) == Peer::here()));
        assert_ne!(peer(1), peer(2));
    }
}

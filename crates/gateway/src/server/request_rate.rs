//! Requests per second: of each principal and, for requests without a valid credential, of each address. The two do not
//! mix: clients behind one proxy share an address, and none of them can use up what another has as a principal.

use crate::downstream::clock::Clock;
use crate::shares::Peer;
use gripfast::{Mono, RateLimiter};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many requests each client may send in a second.
#[derive(Debug)]
pub(crate) struct RequestLimits {
    clock: Clock,
    addresses: Mutex<RateLimiter<Peer>>,
    principals: Mutex<RateLimiter<Peer>>,
}

/// A client has sent too many requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany {
    /// When the next one is let in.
    pub(crate) retry_after: Duration,
}

impl RequestLimits {
    /// So many of each client in a second.
    pub(crate) fn new(per_second: u32) -> Self {
        let [addresses, principals] = [(); 2].map(|()| Mutex::new(RateLimiter::new(per_second)));
        Self { clock: Clock::new(), addresses, principals }
    }

    /// Counts requests of a client.
    pub(crate) fn spend(&self, peer: &Peer, requests: u32) -> Result<(), TooMany> {
        let spent = self.of(peer).spend(self.now(), peer, requests);
        spent.map_err(|retry_after| TooMany { retry_after })
    }

    /// Whether a client may send a request, without counting it.
    pub(crate) fn check(&self, peer: &Peer) -> Result<(), TooMany> {
        self.of(peer).check(self.now(), peer).map_err(|retry_after| TooMany { retry_after })
    }

    fn of(&self, peer: &Peer) -> MutexGuard<'_, RateLimiter<Peer>> {
        let limiter = match peer {
            Peer::At(_) => &self.addresses,
            Peer::Is(_) => &self.principals,
        };
        limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Mono {
        Mono::at(self.clock.mono())
    }
}

//! Request rate limits, per principal and, for requests without a valid credential, per address. The two are separate:
//! clients behind one proxy share an address, and none of them can use up the limit of another's principal.

use super::quota::Peer;
use gripfast::sync::Mutex;
use gripfast::{Clock, RateLimiter};
use std::sync::MutexGuard;
use std::time::Duration;

/// Rate limits of all clients.
#[derive(Debug)]
pub(crate) struct RequestRates {
    clock: Clock,
    addresses: Mutex<RateLimiter<Peer>>,
    principals: Mutex<RateLimiter<Peer>>,
}

/// A client has sent too many requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateExceeded {
    /// Time until the next request is accepted.
    pub(crate) retry_after: Duration,
}

impl RequestRates {
    /// Allows `per_second` requests of each client.
    pub(crate) fn new(per_second: u32) -> Self {
        let [addresses, principals] = [(); 2].map(|()| Mutex::new(RateLimiter::new(per_second)));
        Self { clock: Clock::new(), addresses, principals }
    }

    /// Counts requests of a client.
    pub(crate) fn spend(&self, peer: &Peer, requests: u32) -> Result<(), RateExceeded> {
        let spent = self.limiter(peer).spend(self.clock.mono(), peer, requests);
        spent.map_err(|retry_after| RateExceeded { retry_after })
    }

    /// Checks if a client may send a request, without counting it.
    pub(crate) fn check(&self, peer: &Peer) -> Result<(), RateExceeded> {
        self.limiter(peer).check(self.clock.mono(), peer).map_err(|retry_after| RateExceeded { retry_after })
    }

    fn limiter(&self, peer: &Peer) -> MutexGuard<'_, RateLimiter<Peer>> {
        let limiter = match peer {
            Peer::Address(_) => &self.addresses,
            Peer::Principal(_) => &self.principals,
        };
        limiter.lock()
    }
}

//! States of a link with their data. The transitions are in the upstream machine.

use super::keepalive::{Keepalive, Probe};
use super::status::State;
use crate::failure::BlockCause;
use crate::ids::Epoch;
use crate::time::Mono;

/// State of the link of one upstream.
#[derive(Debug, Clone)]
pub(super) enum Link {
    /// Lazy, and not used yet.
    Dormant,
    /// Connecting or spawning, and the handshake. `blocked` is set while the cause of a block is being rechecked, and
    /// `parked` while a parked upstream makes an attempt: calls do not wait for either.
    Connecting { epoch: Epoch, since: Mono, give_up_at: Mono, blocked: Option<BlockCause>, parked: bool },
    /// Usable.
    Ready(Ready),
    /// The link works; its session or credential, that `of` the previous epoch, is being replaced.
    Renewing { epoch: Epoch, of: Epoch, renewal: Renewal, probe: Probe, give_up_at: Mono },
    /// Down; the next attempt has a time.
    Waiting { until: Mono },
    /// Down for long, or too often: attempts are rare.
    Parked { probe_at: Mono },
    /// It cannot work until the cause changes, which is rechecked occasionally.
    Blocked { cause: BlockCause, recheck_at: Mono },
    /// Stopping; calls in flight may finish until then.
    Draining { until: Mono },
    /// Stopped, until it is started again.
    Stopped,
}

/// The part that is replaced while the link stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The protocol session.
    Session,
    /// The credential.
    Credential,
}

/// A usable link.
#[derive(Debug, Clone)]
pub(super) struct Ready {
    pub(super) epoch: Epoch,
    pub(super) keepalive: Keepalive,
    /// True if the server has answered anything in this session.
    pub(super) answered: bool,
    /// True if its credential replaced a refused one and was not accepted yet.
    pub(super) credential_on_trial: bool,
    /// The time at which the link counts as healthy; `None` once it does.
    pub(super) proven_at: Option<Mono>,
    /// If the link is in doubt, the time of the next check. Calls wait until it has answered.
    pub(super) suspect: Option<Mono>,
    /// The number of the first call that was admitted after the last doubt was settled. The fate of earlier calls was
    /// decided with the doubt.
    pub(super) trusted_from_call: u64,
    pub(super) catalog: CatalogState,
    /// The times of the last two listings, the older one first.
    pub(super) listings: [Option<Mono>; 2],
    /// The reported state until the catalog of this link was listed once (B05).
    pub(super) state_until_listed: State,
    /// The time at which it has reached `max_lifetime` and is replaced.
    pub(super) recycle_at: Option<Mono>,
    /// The time of the next memory measurement.
    pub(super) measure_at: Option<Mono>,
}

impl Ready {
    /// The link has answered: calls from `next_call` on may use it.
    pub(super) fn trust(&mut self, next_call: u64) {
        if self.suspect.take().is_some() {
            self.trusted_from_call = next_call;
        }
    }

    /// Starts a listing.
    pub(super) fn begin_listing(&mut self, now: Mono, catalog: CatalogState) {
        self.catalog = catalog;
        self.listings = [self.listings[1], Some(now)];
    }

    /// Returns whether this call was in flight when the link was, or is, in doubt.
    pub(super) fn was_in_doubt(&self, call: u64) -> bool {
        self.suspect.is_some() || call < self.trusted_from_call
    }
}

/// State of the upstream's catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CatalogState {
    /// Not listed on this link yet, and being listed; `again` if it changed meanwhile.
    FirstListing { again: bool },
    /// Known, and being listed again; `again` if it changed meanwhile.
    Listing { again: bool },
    /// Known, and changed; listed again at the time.
    Changed { list_at: Mono },
    /// As the server last listed it.
    Fresh,
    /// The listing failed; retried at the time.
    Stale { retry_at: Mono, attempts: u32 },
}

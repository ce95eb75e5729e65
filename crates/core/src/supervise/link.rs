//! The states of a link. Which input leads where is told in the upstream machine; this file holds what
//! each state knows.

use super::keepalive::{Keepalive, Probe};
use super::status::State;
use crate::failure::BlockCause;
use crate::ids::Epoch;
use crate::time::Mono;

/// Where the link of one upstream stands.
#[derive(Debug, Clone)]
pub(super) enum Link {
    /// Lazy, and not wanted yet.
    Dormant,
    /// Dialing or spawning, and the handshake.
    /// `blocked` while the cause of a block is merely being re-checked: nobody should hope yet.
    /// `parked` while a parked upstream merely tries itself, for the same reason.
    Connecting { epoch: Epoch, since: Mono, give_up_at: Mono, blocked: Option<BlockCause>, parked: bool },
    /// Usable.
    Ready(Ready),
    /// The link is fine; its session or credential is being replaced, which is that `of` the epoch before.
    Renewing { epoch: Epoch, of: Epoch, renewal: Renewal, probe: Probe, give_up_at: Mono },
    /// Away; the next attempt has a time.
    Waiting { until: Mono },
    /// Away for long, or too often: it tries itself slowly.
    Parked { probe_at: Mono },
    /// It cannot work until its cause changes; that is checked now and then.
    Blocked { cause: BlockCause, recheck_at: Mono },
    /// Asked to end; calls in flight may finish until then.
    Draining { until: Mono },
    /// Ended, until somebody starts it again.
    Stopped,
}

/// What is being replaced while the link stays.
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
    /// Whether the server has answered anything in this session.
    pub(super) answered: bool,
    /// Whether its credential was put in the place of a refused one, and nothing was accepted with it yet.
    pub(super) credential_on_trial: bool,
    /// When surviving this long will have proven its health; `None` once it is proven.
    pub(super) proven_at: Option<Mono>,
    /// In doubt: when the link is to be checked. Until it has answered, nobody uses it.
    pub(super) suspect: Option<Mono>,
    /// The number of the first call that was admitted after the last doubt was settled. What becomes of those
    /// before it was decided when the doubt was.
    pub(super) vouched_from: u64,
    pub(super) catalog: CatalogState,
    /// When it was last listed again, and the time before that, which is the first of the two.
    pub(super) listings: [Option<Mono>; 2],
    /// The visible state until the catalog of this link was listed once (B05).
    pub(super) until_listed: State,
    /// When it has lived long enough and is replaced.
    pub(super) recycle_at: Option<Mono>,
    /// When its memory is looked at next.
    pub(super) measure_at: Option<Mono>,
}

impl Ready {
    /// The link has answered: whoever is admitted from `next_call` on may use it.
    pub(super) fn trust(&mut self, next_call: u64) {
        if self.suspect.take().is_some() {
            self.vouched_from = next_call;
        }
    }

    /// A listing is begun.
    pub(super) fn begin_listing(&mut self, now: Mono, catalog: CatalogState) {
        self.catalog = catalog;
        self.listings = [self.listings[1], Some(now)];
    }

    /// Whether this call was under way when the link was, or is, in doubt.
    pub(super) fn was_in_doubt(&self, call: u64) -> bool {
        self.suspect.is_some() || call < self.vouched_from
    }
}

/// What is known of the upstream's catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CatalogState {
    /// Not listed on this link yet, and being listed; `again` if it changed meanwhile.
    FirstListing { again: bool },
    /// Known, and being listed once more; `again` if it changed meanwhile.
    Listing { again: bool },
    /// Known, and changed meanwhile; listed once more at the time.
    Changed { list_at: Mono },
    /// As the server last told it.
    Fresh,
    /// Listing failed; tried again at the time.
    Stale { retry_at: Mono, attempts: u32 },
}

//! Renewal of a refused session or credential, once for all calls, on the present link.

use super::{Action, CloseMode, UpstreamMachine};
use crate::event::Event;
use crate::failure::{BlockCause, Failure};
use crate::ids::Epoch;
use crate::supervise::link::{CatalogState, Link, Renewal};
use crate::time::Mono;

impl UpstreamMachine {
    /// Handles a refused session. A session that never worked is not renewed, because that could repeat for ever; a
    /// lost link has a budget.
    pub(super) fn renew_session(&mut self, now: Mono, failure: Failure) {
        if self.ready().is_some_and(|ready| !ready.answered) {
            self.lose_link(now, failure);
        } else {
            self.renew(now, Renewal::Session);
        }
    }

    /// Handles a credential that was refused in a listing or probe, where it decides about the whole link. A new
    /// credential that was never accepted is not renewed again: a server that refuses all of them would cause endless
    /// renewals.
    pub(super) fn renew_credential(&mut self, now: Mono, text: String) {
        if self.ready().is_some_and(|ready| ready.credential_on_trial) {
            self.need_login(now, text);
        } else {
            self.renew(now, Renewal::Credential);
        }
    }

    /// Handles a credential that was refused in a call. If it is a new one, the listing in progress decides about it;
    /// perhaps it is refused only for this call.
    pub(super) fn credential_refused_to_call(&mut self, now: Mono, text: String) {
        let Some(ready) = self.ready() else { return };
        let listing_decides = match ready.catalog {
            CatalogState::FirstListing { .. }
            | CatalogState::Listing { .. }
            | CatalogState::Changed { .. } => ready.credential_on_trial,
            CatalogState::Fresh | CatalogState::Stale { .. } => false,
        };
        if !listing_decides {
            self.renew_credential(now, text);
        }
    }

    /// Blocks the upstream: no credential that can be obtained without a person is accepted.
    fn need_login(&mut self, now: Mono, text: String) {
        self.actions.push_back(Action::Close(CloseMode::Immediate));
        self.block(now, BlockCause::NeedsLogin(text));
    }

    /// Renews session or credential of the present link, once for all calls.
    fn renew(&mut self, now: Mono, renewal: Renewal) {
        let Link::Ready(ready) = &self.link else { return };
        let (of, probe) = (ready.epoch, ready.keepalive.era_probe());
        self.epoch = self.epoch.next();
        let give_up_at = now + self.spec.timeouts.connect;
        self.link = Link::Renewing { epoch: self.epoch, of, renewal, probe, give_up_at };
        self.actions.push_back(Action::Renew { epoch: self.epoch, renewal });
    }

    pub(super) fn on_renewal_ended(&mut self, now: Mono, epoch: Epoch, failure: Option<Failure>) {
        let Link::Renewing { epoch: renewed, renewal, probe, .. } = self.link else { return };
        if renewed != epoch {
            return;
        }
        match failure {
            None => {
                self.events.push_back(match renewal {
                    Renewal::Session => Event::SessionRenewed,
                    Renewal::Credential => Event::CredentialRenewed,
                });
                self.become_ready(now, epoch, probe, CatalogState::FirstListing { again: false });
                if let Some(ready) = self.ready_for_mut(epoch) {
                    ready.credential_on_trial = renewal == Renewal::Credential;
                }
            }
            // It may have worked a moment ago, and a proxy may be at fault: it is retried for a while.
            Some(failure) => self.lose_link(now, failure),
        }
    }
}

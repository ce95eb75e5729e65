//! A session or a credential that was refused is replaced once for everybody, on the link that there is.

use super::{Action, Manner, Upstream};
use crate::event::Event;
use crate::failure::{BlockCause, Failure};
use crate::ids::Epoch;
use crate::supervise::link::{CatalogState, Link, Renewal};
use crate::time::Mono;

impl Upstream {
    /// The session was refused. One that never worked is not replaced by another of its kind: that would
    /// go on for ever, while a lost link has a budget.
    pub(super) fn renew_session(&mut self, now: Mono, failure: Failure) {
        match &self.link {
            Link::Ready(ready) if !ready.answered => self.lose_link(now, failure),
            Link::Ready(_)
            | Link::Dormant
            | Link::Connecting { .. }
            | Link::Renewing { .. }
            | Link::Waiting { .. }
            | Link::Parked { .. }
            | Link::Blocked { .. }
            | Link::Draining { .. }
            | Link::Stopped => self.renew(now, Renewal::Session),
        }
    }

    /// The credential was refused where it decides about the whole link: in a listing or a probe. One that came in the
    /// place of another and was never accepted is not replaced by a third: a server that likes none of them would
    /// have them made for ever.
    pub(super) fn renew_credential(&mut self, now: Mono, text: String) {
        if self.ready().is_some_and(|ready| ready.credential_on_trial) {
            self.need_login(now, text);
        } else {
            self.renew(now, Renewal::Credential);
        }
    }

    /// The credential was refused to a call. If it is a new one, the listing under way will tell whether it is good for
    /// anything; perhaps it is only this call for which it is not.
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

    /// No credential that can be had without a person is accepted.
    fn need_login(&mut self, now: Mono, text: String) {
        self.actions.push_back(Action::HangUp(Manner::AtOnce));
        self.block(now, BlockCause::NeedsLogin(text));
    }

    /// Session or credential was refused on the present link: replace it once for everybody.
    fn renew(&mut self, now: Mono, renewal: Renewal) {
        let Link::Ready(ready) = &self.link else { return };
        let (of, probe) = (ready.epoch, ready.keepalive.first());
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
                if let Some(ready) = self.ready_at(epoch) {
                    ready.credential_on_trial = renewal == Renewal::Credential;
                }
            }
            // It may have worked a moment ago, and what is in between may be to blame: it is tried again for a while.
            Some(failure) => self.lose_link(now, failure),
        }
    }
}

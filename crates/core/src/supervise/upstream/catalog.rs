//! Catalog freshness: the state of the listing, and the time to list again.

use super::{Action, UpstreamMachine};
use crate::event::Event;
use crate::failure::Failure;
use crate::ids::Epoch;
use crate::supervise::link::{CatalogState, Link};
use crate::time::Mono;
use std::time::Duration;

impl UpstreamMachine {
    /// Returns whether the catalog is being listed on the link of this epoch, or will be.
    pub fn is_listing(&self, epoch: Epoch) -> bool {
        self.ready_for(epoch).is_some_and(|ready| match ready.catalog {
            CatalogState::FirstListing { .. }
            | CatalogState::Listing { .. }
            | CatalogState::Changed { .. } => true,
            CatalogState::Fresh | CatalogState::Stale { .. } => false,
        })
    }

    /// Returns whether the catalog of the link of this epoch is known, or will be.
    pub fn has_catalog(&self, epoch: Epoch) -> bool {
        self.ready_for(epoch).is_some_and(|ready| match ready.catalog {
            CatalogState::FirstListing { .. }
            | CatalogState::Listing { .. }
            | CatalogState::Changed { .. }
            | CatalogState::Fresh => true,
            CatalogState::Stale { .. } => false,
        })
    }

    pub(super) fn on_catalog_listed(&mut self, now: Mono, epoch: Epoch) {
        let Some(ready) = self.ready_for_mut(epoch) else { return };
        ready.keepalive.received(now);
        ready.answered = true;
        ready.credential_on_trial = false;
        match ready.catalog {
            CatalogState::FirstListing { again: true } | CatalogState::Listing { again: true } => {
                self.list_again(now);
            }
            // The listing for the change since then has its time.
            CatalogState::Changed { .. } => {}
            CatalogState::FirstListing { again: false }
            | CatalogState::Listing { again: false }
            | CatalogState::Fresh
            | CatalogState::Stale { .. } => ready.catalog = CatalogState::Fresh,
        }
        self.revived(now);
    }

    /// Records that the tools are usable; the other lists may take longer.
    pub(super) fn on_tools_listed(&mut self, now: Mono, epoch: Epoch) {
        let Some(ready) = self.ready_for_mut(epoch) else { return };
        ready.keepalive.received(now);
        ready.answered = true;
        ready.credential_on_trial = false;
        match ready.catalog {
            CatalogState::FirstListing { again } => ready.catalog = CatalogState::Listing { again },
            CatalogState::Listing { .. }
            | CatalogState::Changed { .. }
            | CatalogState::Fresh
            | CatalogState::Stale { .. } => {}
        }
        self.revived(now);
    }

    /// Records that the tools are known and other lists failed, which are retried. They say nothing about the link.
    pub(super) fn on_catalog_partly_listed(&mut self, now: Mono, epoch: Epoch, cause: String) {
        if self.ready_for(epoch).is_none() {
            return;
        }
        self.on_tools_listed(now, epoch);
        self.catalog_is_stale(now, epoch, cause);
    }

    /// Has the catalog listed again after a pause, which doubles with each failure.
    fn catalog_is_stale(&mut self, now: Mono, epoch: Epoch, cause: String) {
        let pause_max = Self::RELIST_PAUSE_MAX;
        let Some(ready) = self.ready_for_mut(epoch) else { return };
        let attempts = match ready.catalog {
            CatalogState::Stale { attempts, .. } => attempts + 1,
            CatalogState::FirstListing { .. }
            | CatalogState::Listing { .. }
            | CatalogState::Changed { .. }
            | CatalogState::Fresh => 0,
        };
        let pause = Duration::from_secs(1u64 << attempts.min(6)).min(pause_max);
        ready.catalog = CatalogState::Stale { retry_at: now + pause, attempts };
        self.stale_cause = Some(format!("catalog could not be listed: {cause}"));
        self.events.push_back(Event::CatalogFailed { cause });
    }

    /// Nothing was sent, so it proves nothing about the link.
    pub(super) fn on_catalog_known(&mut self, now: Mono, epoch: Epoch) {
        let Some(ready) = self.ready_for_mut(epoch) else { return };
        ready.catalog = CatalogState::Fresh;
        self.revived(now);
    }

    fn revived(&mut self, now: Mono) {
        if let Some(since) = self.away_since.take() {
            self.events.push_back(Event::Revived { away: now - since });
        }
        self.maintain_standby(now);
    }

    pub(super) fn on_catalog_failed(&mut self, now: Mono, epoch: Epoch, failure: Failure) {
        if self.ready_for(epoch).is_none() {
            return;
        }
        self.catalog_is_stale(now, epoch, failure.to_string());
        if let Failure::CredentialRefused(text) = failure {
            self.renew_credential(now, text);
        } else {
            self.on_link_failure(now, failure);
        }
    }

    pub(super) fn on_catalog_changed(&mut self, now: Mono, epoch: Epoch) {
        let Some(ready) = self.ready_for_mut(epoch) else { return };
        ready.keepalive.received(now);
        match ready.catalog {
            CatalogState::FirstListing { .. } => ready.catalog = CatalogState::FirstListing { again: true },
            CatalogState::Listing { .. } => ready.catalog = CatalogState::Listing { again: true },
            CatalogState::Changed { .. } => {}
            CatalogState::Fresh | CatalogState::Stale { .. } => self.list_again(now),
        }
    }

    /// Lists at once, unless there were two listings within the window.
    fn list_again(&mut self, now: Mono) {
        let Link::Ready(ready) = &mut self.link else { return };
        let list_at = ready.listings[0].map_or(now, |begun| begun + Self::RELIST_WINDOW);
        if now < list_at {
            ready.catalog = CatalogState::Changed { list_at };
        } else {
            ready.begin_listing(now, CatalogState::Listing { again: false });
            self.actions.push_back(Action::ListCatalog { epoch: ready.epoch });
        }
    }
}

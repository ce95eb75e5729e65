//! Requests for items that no known catalog has. A server that was never listed may have the item, so the request
//! waits for its first listing, as a call waits for a connection. Names alone decide which servers are candidates.

use crate::catalog::CatalogSnapshot;
use crate::host::{Host, HostEntry};
use crate::upstream::ListingOrigin;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gripfast_core::catalog::names::{self, NameFit};
use gripfast_core::failure::CallError;
use std::sync::Arc;

/// An item that the merged catalog does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnlistedItem<'a> {
    /// A tool or prompt, by its public name.
    Name(&'a str),
    /// A resource, by its public URI.
    Uri(&'a str),
}

impl Host {
    /// Looks for an item in the merged catalog. If it is missing, waits for the first listing of each candidate
    /// server, up to its `timeouts.reconnect_wait`; idle candidates are started.
    ///
    /// `None` means that the item is unknown: all candidates have been listed. The future can be dropped at any time.
    ///
    /// # Errors
    /// A candidate server could not be listed in time, or is unreachable.
    pub async fn find_item<T>(
        &self,
        wanted: UnlistedItem<'_>,
        look: impl Fn(&CatalogSnapshot) -> Option<T>,
    ) -> Result<Option<T>, CallError> {
        if let Some(found) = look(&self.catalog_snapshot()) {
            return Ok(Some(found));
        }
        let mut listings: FuturesUnordered<_> = self
            .unlisted_servers(wanted)
            .into_iter()
            .map(|entry| self.wait_for_first_listing(entry))
            .collect();
        let mut first_error = None;
        while let Some(listed) = listings.next().await {
            match listed {
                Ok(()) => {
                    if let Some(found) = look(&self.catalog_snapshot()) {
                        return Ok(Some(found));
                    }
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.map_or(Ok(None), Err)
    }

    async fn wait_for_first_listing(&self, entry: Arc<HostEntry>) -> Result<(), CallError> {
        let upstream = entry.upstream()?;
        upstream.wake();
        let timeout = upstream.spec().supervision.timeouts.reconnect_wait;
        self.catalog(&entry.name, timeout).await.map(drop)
    }

    /// Unlisted servers that may have the item: those whose prefix it has, or else all that fit. A URI rarely names
    /// its server, so it waits only if there is a single candidate.
    fn unlisted_servers(&self, wanted: UnlistedItem<'_>) -> Vec<Arc<HostEntry>> {
        let fit = |entry: &HostEntry| match wanted {
            UnlistedItem::Name(public) => names::name_fit(&entry.name, entry.prefix(), public),
            UnlistedItem::Uri(uri) if names::original_uri(&entry.name, uri).is_some() => NameFit::ByPrefix,
            UnlistedItem::Uri(_) => NameFit::Possible,
        };
        let (mut named, mut perhaps) = (Vec::new(), Vec::new());
        for entry in self.entries() {
            match (fit(&entry), entry.listing_prospect()) {
                (_, ListingProspect::Listed) | (NameFit::No, _) => {}
                (NameFit::ByPrefix, ListingProspect::Unlisted | ListingProspect::Unusable) => {
                    named.push(entry)
                }
                (NameFit::Possible, ListingProspect::Unlisted) => perhaps.push(entry),
                // An unusable server is a candidate only if the name has its prefix, so that the client gets its
                // error.
                (NameFit::Possible, ListingProspect::Unusable) => {}
            }
        }
        match wanted {
            _ if !named.is_empty() => named,
            UnlistedItem::Uri(_) if perhaps.len() > 1 => Vec::new(),
            UnlistedItem::Name(_) | UnlistedItem::Uri(_) => perhaps,
        }
    }
}

/// Listing state of a server.
enum ListingProspect {
    Listed,
    /// Never listed so far.
    Unlisted,
    /// The config is unusable, or the server is disabled.
    Unusable,
}

impl HostEntry {
    fn listing_prospect(&self) -> ListingProspect {
        match self.upstream().map(|upstream| upstream.listing.borrow().origin) {
            Ok(ListingOrigin::Stored | ListingOrigin::Server) => ListingProspect::Listed,
            Ok(ListingOrigin::Nothing) => ListingProspect::Unlisted,
            Err(_) => ListingProspect::Unusable,
        }
    }
}

//! Requests for something that nobody has listed yet. A server that was never listed may be the one that has
//! it, so the request is held for its first listing, as a call is held for a link, instead of being called
//! unknown. Which servers may be meant is decided on names alone.

use crate::host::{Entry, Host};
use crate::menu::Served;
use crate::upstream::Origin;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gripfast_core::catalog::names::{self, Fit};
use gripfast_core::failure::CallError;
use std::sync::Arc;

/// What a client asks for by a name that the menu does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// A tool or prompt, by its public name.
    Name(&'a str),
    /// A resource, by its public URI.
    Uri(&'a str),
}

impl Host {
    /// Looks for something on the menu. If it is not there, the servers that were never listed and may have
    /// it are waited for, each for its `timeouts.reconnect_wait`; those that sleep are started.
    ///
    /// `None` means that it is unknown: everybody who may have it was listed. Dropping the future leaves
    /// nothing behind.
    ///
    /// # Errors
    /// A server that may have it could not be listed in time, or cannot be reached at all.
    pub async fn find<T>(
        &self,
        wanted: Wanted<'_>,
        look: impl Fn(&Served) -> Option<T>,
    ) -> Result<Option<T>, CallError> {
        if let Some(found) = look(&self.menu()) {
            return Ok(Some(found));
        }
        let mut listings: FuturesUnordered<_> =
            self.unlisted(wanted).into_iter().map(|entry| self.first_listing(entry)).collect();
        let mut trouble = None;
        while let Some(listed) = listings.next().await {
            match listed {
                Ok(()) => {
                    if let Some(found) = look(&self.menu()) {
                        return Ok(Some(found));
                    }
                }
                Err(error) => {
                    trouble.get_or_insert(error);
                }
            }
        }
        trouble.map_or(Ok(None), Err)
    }

    async fn first_listing(&self, entry: Arc<Entry>) -> Result<(), CallError> {
        let upstream = entry.upstream()?;
        upstream.knock();
        let patience = upstream.settings().supervision.timeouts.reconnect_wait;
        self.catalog(&entry.name, patience).await.map(drop)
    }

    /// The servers that were never listed and may be meant: those that it names, or else those that may
    /// have anything. A URI names a server rarely, so it may be anybody's; it is held if there is only one.
    fn unlisted(&self, wanted: Wanted<'_>) -> Vec<Arc<Entry>> {
        let fit = |entry: &Entry| match wanted {
            Wanted::Name(public) => {
                names::fit(&entry.name, entry.prefix.as_deref().unwrap_or(&entry.name), public)
            }
            Wanted::Uri(uri) if names::own_uri(&entry.name, uri).is_some() => Fit::ByName,
            Wanted::Uri(_) => Fit::Perhaps,
        };
        let (mut named, mut perhaps) = (Vec::new(), Vec::new());
        for entry in self.entries() {
            match (fit(&entry), entry.prospect()) {
                (_, Prospect::Listed) | (Fit::No, _) => {}
                (Fit::ByName, Prospect::Unlisted | Prospect::Unusable) => named.push(entry),
                (Fit::Perhaps, Prospect::Unlisted) => perhaps.push(entry),
                // It will offer nothing, so only who names it is told why.
                (Fit::Perhaps, Prospect::Unusable) => {}
            }
        }
        match wanted {
            _ if !named.is_empty() => named,
            Wanted::Uri(_) if perhaps.len() > 1 => Vec::new(),
            Wanted::Name(_) | Wanted::Uri(_) => perhaps,
        }
    }
}

/// What is to be expected of a server's listing.
enum Prospect {
    Listed,
    /// It was never listed, and may be any time.
    Unlisted,
    /// Its config is unusable, or says that it is off.
    Unusable,
}

impl Entry {
    fn prospect(&self) -> Prospect {
        match self.upstream().map(|upstream| upstream.listing.borrow().origin) {
            Ok(Origin::Stored | Origin::Server) => Prospect::Listed,
            Ok(Origin::Nothing) => Prospect::Unlisted,
            Err(_) => Prospect::Unusable,
        }
    }
}

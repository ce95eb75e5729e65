//! The catalogs of all servers merged into one, rendered once and served many times.
//!
//! Each item is the server's own bytes with its public name, and a `_meta` entry with its origin. A snapshot is
//! rendered on request after a catalog has changed.

pub(crate) mod exposure;
pub(crate) mod freshness;
pub(crate) mod held_names;
pub(crate) mod hidden;
pub(crate) mod search;
pub(crate) mod snapshot;
pub(crate) mod views;

pub use crate::catalog::search::FoundTool;
pub(crate) use crate::catalog::search::tool_texts;
pub use crate::catalog::snapshot::{CatalogSnapshot, RenderedList};

use crate::catalog::exposure::SnapshotExposure;
use crate::catalog::snapshot::ItemOrigins;
use crate::host::{Host, HostEntry};
use crate::sync::Mutex;
use crate::upstream::ListingOrigin;
use gripfast_core::catalog::merge::{AbsentServer, CatalogSource, MergedCatalog, NameClaim, Renamed};
use gripfast_core::event::Event;
use gripfast_core::exposure::{ExposureRule, ExposureSettings, SEARCH_TOOLS};
use gripfast_core::supervise::status::State;
use gripfast_wire::{Era, apps};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Signals that the merged catalog may have changed.
#[derive(Debug, Clone)]
pub(crate) struct ChangeSignal(Arc<watch::Sender<u64>>);

impl ChangeSignal {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn notify(&self) {
        self.0.send_modify(|version| *version += 1);
    }

    pub(crate) fn version(&self) -> u64 {
        *self.0.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// The latest snapshot with the signal version that it was made for, and the views of it that clients with different
/// policies see.
#[derive(Debug, Default)]
pub(crate) struct CatalogCache {
    latest: Mutex<Option<(u64, Arc<CatalogSnapshot>)>>,
    revisions: AtomicU64,
    views: views::Views,
    held_names: held_names::NameStore,
    exposure: exposure::ExposureState,
    search: Mutex<search::ToolSearch>,
}

/// Input of the merge: the catalogs of all servers.
struct ServerCatalogs {
    sources: Vec<CatalogSource>,
    /// The era of each source.
    eras: Vec<Era>,
    /// The exposure rule of each source.
    rules: Vec<ExposureRule>,
    absent: Vec<AbsentServer>,
    /// Number of sources whose names are recorded: those before the first server that is starting for the first time.
    /// That server comes earlier in the config and may claim the same names.
    settled: usize,
}

impl Host {
    /// The merged catalog of all servers, under public names.
    pub fn catalog_snapshot(&self) -> Arc<CatalogSnapshot> {
        let version = self.inner.change_signal.version();
        let mut latest = self.inner.catalog_cache.latest.lock();
        if let Some((at, snapshot)) = &*latest
            && *at == version
        {
            return Arc::clone(snapshot);
        }
        let settings = self.exposure();
        let ServerCatalogs { sources, eras, rules, absent, settled } = self.server_catalogs(&settings);
        let withheld: &[&str] = if self.is_searchable() { &SEARCH_TOOLS } else { &[] };
        let merged = MergedCatalog::merge_without(sources, &absent, withheld);
        self.hold_names(&merged, settled);
        let origins = if self.is_view() { ItemOrigins::Omitted } else { ItemOrigins::Added };
        let mut snapshot = snapshot::render(merged, &eras, origins);
        let before = latest.as_ref().map(|(_, before)| &**before);
        snapshot.exposure = SnapshotExposure::of(&snapshot.merged, &rules, &settings, before);
        let before = match &*latest {
            Some((_, before)) if before.has_same_content(&snapshot) => {
                let before = Arc::clone(before);
                *latest = Some((version, Arc::clone(&before)));
                return before;
            }
            before => before.as_ref().map(|(_, before)| Arc::clone(before)),
        };
        snapshot.revision = self.inner.catalog_cache.revisions.fetch_add(1, Ordering::Relaxed) + 1;
        let snapshot = Arc::new(snapshot);
        *latest = Some((version, Arc::clone(&snapshot)));
        drop(latest);
        self.index_tools(&snapshot);
        self.announce_renamed(
            before.as_ref().map_or(&[], |before| &before.merged.renamed),
            &snapshot.merged.renamed,
        );
        snapshot
    }

    /// Loads the names that a server holds into the cache, so that no call has to wait for the store.
    pub(crate) fn load_names(&self, server: &str) {
        self.inner.catalog_cache.held_names.of(&*self.store(), server);
    }

    /// Records the names that servers use now.
    fn hold_names(&self, merged: &MergedCatalog, settled: usize) {
        let mut by_source: BTreeMap<usize, Vec<&NameClaim>> = BTreeMap::new();
        for claim in merged.claims.iter().filter(|claim| claim.source < settled) {
            by_source.entry(claim.source).or_default().push(claim);
        }
        let now = u64::try_from(self.inner.clock.now().wall.since_epoch().as_millis()).unwrap_or(u64::MAX);
        for (source, claims) in by_source {
            self.inner.catalog_cache.held_names.hold(
                &*self.store(),
                &merged.sources[source].server,
                claims,
                now,
            );
        }
    }

    /// Emits an event for each server whose renamed items have changed.
    fn announce_renamed(&self, before: &[Renamed], after: &[Renamed]) {
        if before == after {
            return;
        }
        for entry in self.entries() {
            let Ok(upstream) = entry.upstream() else { continue };
            let of = |all: &[Renamed]| -> Vec<String> {
                all.iter().filter(|one| one.server == entry.name).map(|one| one.public.clone()).collect()
            };
            let names = of(after);
            if names != of(before) {
                upstream.announce(self.inner.clock.now(), Event::NameConflicts { names });
            }
        }
    }

    /// Notifies when the merged catalog may have changed. Compare the revision of [`Host::catalog_snapshot`] to see
    /// whether it did.
    pub fn catalog_changes(&self) -> watch::Receiver<u64> {
        self.inner.change_signal.subscribe()
    }

    /// Waits up to `timeout` until every server that starts automatically has been listed once, or cannot be listed
    /// for now.
    pub async fn wait_until_listed(&self, timeout: Duration) {
        let unknown = self.entries().into_iter().filter(|entry| entry.awaits_first_listing());
        let listing = unknown.map(|entry| async move {
            // The result does not matter: one server must not hold up the others.
            let _ = self.catalog(&entry.name, timeout).await;
        });
        futures_util::future::join_all(listing).await;
    }

    /// The catalogs of all servers, with their eras and names.
    fn server_catalogs(&self, settings: &ExposureSettings) -> ServerCatalogs {
        let mut offered = ServerCatalogs {
            sources: Vec::new(),
            eras: Vec::new(),
            rules: Vec::new(),
            absent: Vec::new(),
            settled: usize::MAX,
        };
        let store = self.store();
        for entry in self.entries() {
            let server = entry.name.clone();
            let prefix = entry.prefix().to_owned();
            let held = self.inner.catalog_cache.held_names.of(&*store, &entry.name);
            let Ok(upstream) = entry.upstream() else {
                offered.absent.push(AbsentServer { server, prefix, held });
                continue;
            };
            if entry.awaits_first_listing() && upstream.state() == State::Starting {
                offered.settled = offered.settled.min(offered.sources.len());
            }
            let (catalog, era) = {
                let listing = upstream.listing.borrow();
                (Arc::clone(&listing.catalog), listing.era)
            };
            offered.eras.push(era);
            offered.rules.push(entry.exposure_rule(settings));
            let catalog = entry.visible_catalog(catalog);
            let linked = catalog.tools.iter().filter_map(|tool| apps::resource_of(&tool.raw));
            let linked = linked.map(Cow::into_owned).collect();
            offered.sources.push(CatalogSource { server, prefix, linked, catalog, held });
        }
        offered
    }
}

impl HostEntry {
    fn awaits_first_listing(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| !spec.supervision.lazy)
            && self
                .upstream()
                .is_ok_and(|upstream| upstream.listing.borrow().origin == ListingOrigin::Nothing)
    }
}

//! All servers' catalogs as one menu, rendered once and served many times.
//!
//! Each item is the server's own bytes with its public name in place of its own, and a note in `_meta` of
//! where it comes from. The menu is made anew when a catalog has changed and somebody asks.

mod freshness;
mod held;
mod hidden;
mod render;
mod views;

pub use render::{Rendered, Served};

use crate::host::{Entry, Host};
use crate::upstream::Origin;
use gripfast_core::catalog::merge::{Absent, Claim, Menu, Renamed, Source};
use gripfast_core::event::Event;
use gripfast_core::supervise::status::State;
use gripfast_wire::{Era, apps};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Rings when the menu may have changed.
#[derive(Debug, Clone)]
pub(crate) struct Bell(Arc<watch::Sender<u64>>);

impl Bell {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn ring(&self) {
        self.0.send_modify(|rung| *rung += 1);
    }

    pub(crate) fn rung(&self) -> u64 {
        *self.0.borrow()
    }

    pub(crate) fn listen(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// The last menu that was made, for which ring of the bell, and what of it different clients see.
#[derive(Debug, Default)]
pub(crate) struct Kitchen {
    made: Mutex<Option<(u64, Arc<Served>)>>,
    revisions: AtomicU64,
    views: views::Views,
    held: held::Held,
}

/// What all servers offer, as it is merged.
struct Offered {
    sources: Vec<Source>,
    /// The era in which each source has said so.
    eras: Vec<Era>,
    absent: Vec<Absent>,
    /// How many of the sources may hold what they go by: those up to the first server that is still being started for the
    /// first time. It comes earlier in the config, and may want the same names.
    settled: usize,
}

impl Host {
    /// Everything that all servers offer, under public names.
    pub fn menu(&self) -> Arc<Served> {
        let rung = self.bell().rung();
        let mut made = self.kitchen().made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, served)) = &*made
            && *at == rung
        {
            return Arc::clone(served);
        }
        let Offered { sources, eras, absent, settled } = self.offered();
        let menu = Menu::merge(sources, &absent);
        self.hold_names(&menu, settled);
        let mut served = render::render(menu, &eras);
        let before = match &*made {
            Some((_, before)) if before.reads_like(&served) => {
                let before = Arc::clone(before);
                *made = Some((rung, Arc::clone(&before)));
                return before;
            }
            before => before.as_ref().map(|(_, before)| Arc::clone(before)),
        };
        served.revision = self.kitchen().revisions.fetch_add(1, Ordering::Relaxed) + 1;
        let served = Arc::new(served);
        *made = Some((rung, Arc::clone(&served)));
        drop(made);
        self.tell_renamed(before.as_ref().map_or(&[], |before| &before.menu.renamed), &served.menu.renamed);
        served
    }

    /// Reads the names that a server holds, so that no call has to wait for it.
    pub(crate) fn load_names(&self, server: &str) {
        self.kitchen().held.of(&*self.store(), server);
    }

    /// Has servers hold the names that they go by.
    fn hold_names(&self, menu: &Menu, settled: usize) {
        let mut by_source: BTreeMap<usize, Vec<&Claim>> = BTreeMap::new();
        for claim in menu.claims.iter().filter(|claim| claim.source < settled) {
            by_source.entry(claim.source).or_default().push(claim);
        }
        let now = u64::try_from(self.clock().now().wall.since_epoch().as_millis()).unwrap_or(u64::MAX);
        for (source, claims) in by_source {
            self.kitchen().held.hold(&*self.store(), &menu.sources[source].server, claims, now);
        }
    }

    /// Tells of each server whose names that had to give way are others than before.
    fn tell_renamed(&self, before: &[Renamed], after: &[Renamed]) {
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
                upstream.announce(self.clock().now(), Event::NamesGaveWay { names });
            }
        }
    }

    /// Tells when the menu may have changed. Whoever is told asks for [`Host::menu`], whose revision tells
    /// whether it did.
    pub fn menu_changes(&self) -> watch::Receiver<u64> {
        self.bell().listen()
    }

    /// Waits until every server that is started by itself has been listed once, or cannot be for now; at
    /// most for `patience`.
    pub async fn settled(&self, patience: Duration) {
        let unknown = self.entries().into_iter().filter(|entry| entry.awaits_first_listing());
        let listing = unknown.map(|entry| async move {
            // Whatever comes of it: the others are not held up by this one.
            let _ = self.catalog(&entry.name, patience).await;
        });
        futures_util::future::join_all(listing).await;
    }

    /// What each server offers, and the era in which it said so.
    fn offered(&self) -> Offered {
        let mut offered =
            Offered { sources: Vec::new(), eras: Vec::new(), absent: Vec::new(), settled: usize::MAX };
        let store = self.store();
        for entry in self.entries() {
            let server = entry.name.clone();
            let prefix = entry.prefix.clone().unwrap_or_else(|| entry.name.clone());
            let held = self.kitchen().held.of(&*store, &entry.name);
            let Ok(upstream) = entry.upstream() else {
                offered.absent.push(Absent { server, prefix, held });
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
            let catalog = entry.visible(catalog);
            let linked = catalog.tools.iter().filter_map(|tool| apps::resource_of(&tool.raw));
            let linked = linked.map(Cow::into_owned).collect();
            offered.sources.push(Source { server, prefix, linked, catalog, held });
        }
        offered
    }
}

impl Entry {
    fn awaits_first_listing(&self) -> bool {
        !self.lazy
            && self.upstream().is_ok_and(|upstream| upstream.listing.borrow().origin == Origin::Nothing)
    }
}

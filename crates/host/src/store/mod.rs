//! Persistent state: catalogs, pins, remembered routes, and which clients need an instance of their own. One small
//! trait, so that a directory on disk, memory and a shared engine are used alike.
//!
//! A store that cannot be used is reported and ignored; it never stops the host.

mod approval_counts;
mod local;
mod queue;
mod table;

pub(crate) use approval_counts::ApprovalCounts;
pub use local::{LocalStore, StoreError};
pub(crate) use table::StoreTable;

use crate::shared_state::SharedState;
use crate::sync::Mutex;
use crate::upstream::RememberedRoute;
use gripfast_core::catalog::Catalog;
use gripfast_core::isolation::DedicatedFor;
use gripfast_core::policy::pins::{Approvals, PinKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Key-value store with spaces, safe to share by several processes.
pub trait Store: Send + Sync + 'static {
    /// Returns the value that was put last.
    fn get(&self, space: &str, key: &str) -> Option<Vec<u8>>;

    /// Puts a value. It need not be on disk when this returns; [`Store::flush`] waits for that.
    fn put(&self, space: &str, key: &str, value: Vec<u8>);

    /// Returns the keys in a space, in any order.
    fn keys(&self, space: &str) -> Vec<String>;

    /// Removes the entries of a space that `keep` rejects. As with [`Store::put`], it may happen after this returns,
    /// but after all earlier writes.
    fn retain(&self, space: &str, keep: RetainFn);

    /// Runs some work after all earlier writes, where it may wait for a disk. It is dropped, like a write, if the store
    /// is too slow.
    fn run_after_writes(&self, work: StoreWork) {
        work();
    }

    /// Waits until all earlier writes are on disk.
    fn flush(&self);
}

/// Decides by key and value whether an entry is kept.
pub type RetainFn = Box<dyn Fn(&str, &[u8]) -> bool + Send>;

/// Work that follows earlier writes.
pub type StoreWork = Box<dyn FnOnce() + Send>;

/// Store that is lost at the end of the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    entries: Mutex<BTreeMap<(String, String), Vec<u8>>>,
}

impl Store for MemoryStore {
    fn get(&self, space: &str, key: &str) -> Option<Vec<u8>> {
        let entries = self.entries.lock();
        entries.get(&(space.to_owned(), key.to_owned())).cloned()
    }

    fn put(&self, space: &str, key: &str, value: Vec<u8>) {
        let mut entries = self.entries.lock();
        entries.insert((space.to_owned(), key.to_owned()), value);
    }

    fn keys(&self, space: &str) -> Vec<String> {
        let entries = self.entries.lock();
        entries.keys().filter(|(in_space, _)| in_space == space).map(|(_, key)| key.clone()).collect()
    }

    fn retain(&self, space: &str, keep: RetainFn) {
        let mut entries = self.entries.lock();
        entries.retain(|(in_space, key), value| in_space != space || keep(key, value));
    }

    fn flush(&self) {}
}

/// Part of a store that belongs to one upstream. Approvals belong to its name. Everything else belongs to its name and
/// to the config by which it is reached: the key holds a fingerprint of that.
#[derive(Clone)]
pub(crate) struct ServerStore {
    store: Arc<dyn Store>,
    witness: ApprovalCounts,
    /// State that several hosts share; their pins are there instead.
    shared: Option<Arc<dyn SharedState>>,
    server: String,
    key: String,
}

const CATALOGS: StoreTable<Catalog> = StoreTable::json("catalog");
const ROUTES: StoreTable<RememberedRoute> = StoreTable::json("verdict");
const APPROVALS: StoreTable<Approvals> = StoreTable::json("approvals");
/// Pins of 0.1, under keys with a fingerprint. Never written.
const PINS_OF_0_1: StoreTable<Approvals> = StoreTable::new("pins", |_| None, Approvals::from_v0_1);
/// Last keys of a server, newest first.
const REACHED: StoreTable<Vec<String>> = StoreTable::json("reached");
const ISOLATION: StoreTable<DedicatedFor> =
    StoreTable::new("isolation", write_dedicated_for, read_dedicated_for);

const DEDICATED_FOR_ASKED: &[u8] = b"per_client";
const DEDICATED_FOR_ALL: &[u8] = b"every_client";

fn write_dedicated_for(dedicated_for: &DedicatedFor) -> Option<Vec<u8>> {
    match dedicated_for {
        DedicatedFor::None => None,
        DedicatedFor::Interactive => Some(DEDICATED_FOR_ASKED.to_vec()),
        DedicatedFor::All => Some(DEDICATED_FOR_ALL.to_vec()),
    }
}

fn read_dedicated_for(stored: &[u8]) -> Option<DedicatedFor> {
    match stored {
        DEDICATED_FOR_ASKED => Some(DedicatedFor::Interactive),
        DEDICATED_FOR_ALL => Some(DedicatedFor::All),
        _ => None,
    }
}

impl ServerStore {
    /// Number of keys that are kept. Several configs may share a state directory, each with a server of this name.
    const MAX_KEYS: usize = 4;

    /// Opens the part of a server. Entries under keys that were used long ago are dropped.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        witness: ApprovalCounts,
        server: &str,
        fingerprint: &str,
    ) -> Self {
        let key = format!("{server}@{fingerprint}");
        let part = Self { store, witness, shared: None, server: server.to_owned(), key };
        part.migrate_pins();
        part.drop_old_keys();
        part
    }

    /// Keeps pins in the state that several hosts share.
    pub(crate) fn with_shared(self, shared: Option<Arc<dyn SharedState>>) -> Self {
        Self { shared, ..self }
    }

    /// The state that several hosts share.
    pub(crate) fn shared(&self) -> Option<&Arc<dyn SharedState>> {
        self.shared.as_ref()
    }

    /// Name of the server.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    fn migrate_pins(&self) {
        if !APPROVALS.contains(&*self.store, &self.server)
            && let Some(pins) = self.pins_of_0_1()
        {
            self.save_pins(&pins);
        }
        if !self.keys_of_0_1().is_empty() {
            let server = self.server.clone();
            PINS_OF_0_1.retain_keys(&*self.store, move |key| server_of(key) != Some(&server));
        }
    }

    fn keys_of_0_1(&self) -> Vec<String> {
        let mut keys = PINS_OF_0_1.keys(&*self.store);
        keys.retain(|key| server_of(key) == Some(&self.server));
        keys
    }

    /// Returns the pins of 0.1 that were in force; if the config of the server has changed since, those of all its
    /// former configs.
    fn pins_of_0_1(&self) -> Option<Approvals> {
        let mut keys = self.keys_of_0_1();
        if keys.contains(&self.key) {
            keys = vec![self.key.clone()];
        }
        keys.iter().filter_map(|key| PINS_OF_0_1.get(&*self.store, key)).reduce(|mut pins, others| {
            pins.merge(others);
            pins
        })
    }

    fn drop_old_keys(&self) {
        let before = REACHED.get(&*self.store, &self.server);
        let mut keys = vec![self.key.clone()];
        keys.extend(before.iter().flatten().filter(|key| **key != self.key).cloned());
        let is_full = keys.len() > Self::MAX_KEYS;
        keys.truncate(Self::MAX_KEYS);
        if before.as_ref() == Some(&keys) {
            return;
        }
        REACHED.put(&*self.store, &self.server, &keys);
        // Before the first key was recorded, nothing was ever dropped.
        if is_full || before.is_none() {
            let server = self.server.clone();
            let keep =
                move |key: &str| server_of(key) != Some(&server) || keys.iter().any(|kept| kept == key);
            CATALOGS.retain_keys(&*self.store, keep.clone());
            ROUTES.retain_keys(&*self.store, keep.clone());
            ISOLATION.retain_keys(&*self.store, keep);
        }
    }

    pub(crate) fn has_same_key(&self, other: &Self) -> bool {
        self.key == other.key
    }

    pub(crate) fn catalog(&self) -> Option<Catalog> {
        CATALOGS.get(&*self.store, &self.key)
    }

    pub(crate) fn save_catalog(&self, catalog: &Catalog) {
        CATALOGS.put(&*self.store, &self.key, catalog);
    }

    /// Returns the approvals of this process and of others.
    pub(crate) fn pins(&self) -> Option<Approvals> {
        let stored = || APPROVALS.get(&*self.store, &self.server);
        if APPROVALS.contains(&*self.store, &self.server) {
            return stored();
        }
        // Pins of 0.1 are removed after they were migrated, which may happen between these lines.
        self.pins_of_0_1().or_else(stored)
    }

    pub(crate) fn save_pins(&self, pins: &Approvals) {
        APPROVALS.put(&*self.store, &self.server, pins);
    }

    /// Returns whether more tools were approved than these pins hold: the store has lost some.
    pub(crate) fn has_lost_approvals(&self, pins: &Approvals) -> bool {
        self.witness.approved_tools(&self.server) > pins.of(PinKind::Tool).len()
    }

    /// Updates the witness to these pins, as soon as the store has them.
    pub(crate) fn update_witness(&self, pins: &Approvals) {
        let tools = pins.of(PinKind::Tool).len();
        let (witness, server) = (self.witness.clone(), self.server.clone());
        if witness.approved_tools(&server) != tools {
            self.store.run_after_writes(Box::new(move || witness.save(&server, tools)));
        }
    }

    pub(crate) fn remembered_route(&self) -> Option<RememberedRoute> {
        ROUTES.get(&*self.store, &self.key)
    }

    pub(crate) fn save_remembered_route(&self, route: RememberedRoute) {
        ROUTES.put(&*self.store, &self.key, &route);
    }

    /// Returns which clients were seen to need an instance of their own.
    pub(crate) fn dedicated_for(&self) -> DedicatedFor {
        ISOLATION.get(&*self.store, &self.key).unwrap_or(DedicatedFor::None)
    }

    pub(crate) fn save_dedicated_for(&self, dedicated_for: DedicatedFor) {
        ISOLATION.put(&*self.store, &self.key, &dedicated_for);
    }
}

/// Returns the server of a key that has a fingerprint.
fn server_of(key: &str) -> Option<&str> {
    key.rsplit_once('@').map(|(server, _)| server)
}

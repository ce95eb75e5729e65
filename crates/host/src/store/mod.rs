//! Persistent state: catalogs, pins, remembered routes, and which clients need an instance of their own. One small
//! trait, so that a directory on disk, memory and a shared engine are used alike.
//!
//! A store that cannot be used is reported and ignored; it never stops the host.

mod approval_counts;
mod local;
mod queue;

pub(crate) use approval_counts::ApprovalCounts;
pub use local::{LocalStore, StoreError};

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
    server: String,
    key: String,
}

impl ServerStore {
    const CATALOGS: &'static str = "catalog";
    const VERDICTS: &'static str = "verdict";
    const ISOLATION: &'static str = "isolation";
    const APPROVALS: &'static str = "approvals";
    /// Pins of 0.1, under keys with a fingerprint.
    const PINS_OF_0_1: &'static str = "pins";
    /// Last keys of a server, newest first.
    const REACHED: &'static str = "reached";
    /// Number of keys that are kept. Several configs may share a state directory, each with a server of this name.
    const MAX_KEYS: usize = 4;
    const DEDICATED_FOR_ASKED: &'static [u8] = b"per_client";
    const DEDICATED_FOR_ALL: &'static [u8] = b"every_client";

    /// Opens the part of a server. Entries under keys that were used long ago are dropped.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        witness: ApprovalCounts,
        server: &str,
        fingerprint: &str,
    ) -> Self {
        let key = format!("{server}@{fingerprint}");
        let part = Self { store, witness, server: server.to_owned(), key };
        part.migrate_pins();
        part.drop_old_keys();
        part
    }

    fn migrate_pins(&self) {
        if let (None, Some(pins)) = (self.store.get(Self::APPROVALS, &self.server), self.pins_of_0_1()) {
            self.save_pins(&pins);
        }
        if !self.keys_of_0_1().is_empty() {
            let server = self.server.clone();
            self.store.retain(Self::PINS_OF_0_1, Box::new(move |key, _| server_of(key) != Some(&server)));
        }
    }

    fn keys_of_0_1(&self) -> Vec<String> {
        let mut keys = self.store.keys(Self::PINS_OF_0_1);
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
        let stored = keys.iter().filter_map(|key| self.store.get(Self::PINS_OF_0_1, key));
        stored.filter_map(|pins| Approvals::from_v0_1(&pins)).reduce(|mut pins, others| {
            pins.merge(others);
            pins
        })
    }

    fn drop_old_keys(&self) {
        let stored = self.store.get(Self::REACHED, &self.server);
        let before: Option<Vec<String>> = stored.and_then(|stored| serde_json::from_slice(&stored).ok());
        let mut keys = vec![self.key.clone()];
        keys.extend(before.iter().flatten().filter(|key| **key != self.key).cloned());
        let is_full = keys.len() > Self::MAX_KEYS;
        keys.truncate(Self::MAX_KEYS);
        if before.as_ref() == Some(&keys) {
            return;
        }
        if let Ok(bytes) = serde_json::to_vec(&keys) {
            self.store.put(Self::REACHED, &self.server, bytes);
        }
        // Before the first key was recorded, nothing was ever dropped.
        if is_full || before.is_none() {
            for space in [Self::CATALOGS, Self::VERDICTS, Self::ISOLATION] {
                let (server, keys) = (self.server.clone(), keys.clone());
                let keep = move |key: &str, _: &[u8]| {
                    server_of(key) != Some(&server) || keys.iter().any(|kept| kept == key)
                };
                self.store.retain(space, Box::new(keep));
            }
        }
    }

    pub(crate) fn has_same_key(&self, other: &Self) -> bool {
        self.key == other.key
    }

    pub(crate) fn catalog(&self) -> Option<Catalog> {
        let stored = self.store.get(Self::CATALOGS, &self.key)?;
        // Perhaps written by another version: the catalog will be listed again.
        serde_json::from_slice(&stored).ok()
    }

    pub(crate) fn save_catalog(&self, catalog: &Catalog) {
        if let Ok(bytes) = serde_json::to_vec(catalog) {
            self.store.put(Self::CATALOGS, &self.key, bytes);
        }
    }

    /// Returns the approvals of this process and of others.
    pub(crate) fn pins(&self) -> Option<Approvals> {
        let kept = || self.store.get(Self::APPROVALS, &self.server);
        let read = |kept: Vec<u8>| serde_json::from_slice(&kept).ok();
        // Pins of 0.1 are removed after they were migrated, which may happen between these lines.
        match kept() {
            Some(kept) => read(kept),
            None => self.pins_of_0_1().or_else(|| kept().and_then(read)),
        }
    }

    pub(crate) fn save_pins(&self, pins: &Approvals) {
        if let Ok(bytes) = serde_json::to_vec(pins) {
            self.store.put(Self::APPROVALS, &self.server, bytes);
        }
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
        serde_json::from_slice(&self.store.get(Self::VERDICTS, &self.key)?).ok()
    }

    /// Returns which clients were seen to need an instance of their own.
    pub(crate) fn dedicated_for(&self) -> DedicatedFor {
        match self.store.get(Self::ISOLATION, &self.key) {
            Some(kept) if kept == Self::DEDICATED_FOR_ASKED => DedicatedFor::Interactive,
            Some(kept) if kept == Self::DEDICATED_FOR_ALL => DedicatedFor::All,
            Some(_) | None => DedicatedFor::None,
        }
    }

    pub(crate) fn save_dedicated_for(&self, apart: DedicatedFor) {
        let kept = match apart {
            DedicatedFor::None => return,
            DedicatedFor::Interactive => Self::DEDICATED_FOR_ASKED,
            DedicatedFor::All => Self::DEDICATED_FOR_ALL,
        };
        self.store.put(Self::ISOLATION, &self.key, kept.to_vec());
    }

    pub(crate) fn save_remembered_route(&self, verdict: RememberedRoute) {
        if let Ok(bytes) = serde_json::to_vec(&verdict) {
            self.store.put(Self::VERDICTS, &self.key, bytes);
        }
    }
}

/// Returns the server of a key that has a fingerprint.
fn server_of(key: &str) -> Option<&str> {
    key.rsplit_once('@').map(|(server, _)| server)
}

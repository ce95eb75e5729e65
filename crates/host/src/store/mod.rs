//! What outlives a run: catalogs, pins, verdicts about eras and about the separation of clients. One small trait, so that
//! a directory on disk, memory and a shared engine look alike.
//!
//! A store that cannot be used is said aloud and done without; it never stops anything.

mod local;
mod queue;
mod witness;

pub use local::{CannotStore, LocalStore};
pub(crate) use witness::ApprovalWitness;

use crate::upstream::Verdict;
use gripfast_core::catalog::Catalog;
use gripfast_core::isolation::Apart;
use gripfast_core::policy::pins::{Approvals, PinKind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A place for bytes under a space and a key, safe to share by several processes.
pub trait Store: Send + Sync + 'static {
    /// What was last put there.
    fn get(&self, space: &str, key: &str) -> Option<Vec<u8>>;

    /// Puts something there. It need not be on disk when this returns; [`Store::flush`] waits for that.
    fn put(&self, space: &str, key: &str, value: Vec<u8>);

    /// The keys in a space, in any order.
    fn keys(&self, space: &str) -> Vec<String>;

    /// Removes everything from a space that is not to be kept. As with [`Store::put`], it need not have
    /// happened when this returns, and happens after what was put before.
    fn retain(&self, space: &str, keep: Keep);

    /// Does some work after everything that was put before, where it may wait for a disk. It is dropped together with
    /// what a store that is too slow cannot take.
    fn then(&self, work: Work) {
        work();
    }

    /// Waits until everything that was put is safe.
    fn flush(&self);
}

/// Says of a key and what stands there whether it is kept.
pub type Keep = Box<dyn Fn(&str, &[u8]) -> bool + Send>;

/// Work that follows what was put.
pub type Work = Box<dyn FnOnce() + Send>;

/// A store that forgets everything at the end of the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    entries: Mutex<BTreeMap<(String, String), Vec<u8>>>,
}

impl Store for MemoryStore {
    fn get(&self, space: &str, key: &str) -> Option<Vec<u8>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(&(space.to_owned(), key.to_owned())).cloned()
    }

    fn put(&self, space: &str, key: &str, value: Vec<u8>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert((space.to_owned(), key.to_owned()), value);
    }

    fn keys(&self, space: &str) -> Vec<String> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.keys().filter(|(in_space, _)| in_space == space).map(|(_, key)| key.clone()).collect()
    }

    fn retain(&self, space: &str, keep: Keep) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|(in_space, key), value| in_space != space || keep(key, value));
    }

    fn flush(&self) {}
}

/// The part of a store that belongs to one upstream. What was approved belongs to its name. Everything else belongs to
/// its name and to the way in which it is reached: the key holds a fingerprint of that.
#[derive(Clone)]
pub(crate) struct Shelf {
    store: Arc<dyn Store>,
    witness: ApprovalWitness,
    server: String,
    key: String,
}

impl Shelf {
    const CATALOGS: &'static str = "catalog";
    const VERDICTS: &'static str = "verdict";
    const ISOLATION: &'static str = "isolation";
    const APPROVALS: &'static str = "approvals";
    /// Pins of 0.1, which belonged to a way of reaching the server.
    const PINS_OF_0_1: &'static str = "pins";
    /// The ways in which a server was last reached, newest first.
    const REACHED: &'static str = "reached";
    /// Ways of which something is kept. Several configs may share a state directory, each with a server of this name.
    const MOST_WAYS: usize = 4;
    const APART: &'static [u8] = b"per_client";
    const ALL_APART: &'static [u8] = b"every_client";

    /// The shelf of a server. What there is of ways in which it was reached long ago is dropped.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        witness: ApprovalWitness,
        server: &str,
        fingerprint: &str,
    ) -> Self {
        let key = format!("{server}@{fingerprint}");
        let shelf = Self { store, witness, server: server.to_owned(), key };
        shelf.carry_over_pins();
        shelf.drop_old_ways();
        shelf
    }

    fn carry_over_pins(&self) {
        if let (None, Some(pins)) = (self.store.get(Self::APPROVALS, &self.server), self.pins_of_0_1()) {
            self.keep_pins(&pins);
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

    /// The pins that were in force; of a server whose config has changed since, those of all its former configs.
    fn pins_of_0_1(&self) -> Option<Approvals> {
        let mut keys = self.keys_of_0_1();
        if keys.contains(&self.key) {
            keys = vec![self.key.clone()];
        }
        let stored = keys.iter().filter_map(|key| self.store.get(Self::PINS_OF_0_1, key));
        stored.filter_map(|pins| Approvals::of_0_1(&pins)).reduce(|mut pins, others| {
            pins.adopt(others);
            pins
        })
    }

    fn drop_old_ways(&self) {
        let stored = self.store.get(Self::REACHED, &self.server);
        let before: Option<Vec<String>> = stored.and_then(|stored| serde_json::from_slice(&stored).ok());
        let mut ways = vec![self.key.clone()];
        ways.extend(before.iter().flatten().filter(|way| **way != self.key).cloned());
        let is_full = ways.len() > Self::MOST_WAYS;
        ways.truncate(Self::MOST_WAYS);
        if before.as_ref() == Some(&ways) {
            return;
        }
        if let Ok(bytes) = serde_json::to_vec(&ways) {
            self.store.put(Self::REACHED, &self.server, bytes);
        }
        // Before the first of them was written down, nothing was ever dropped.
        if is_full || before.is_none() {
            for space in [Self::CATALOGS, Self::VERDICTS, Self::ISOLATION] {
                let (server, ways) = (self.server.clone(), ways.clone());
                let keep = move |key: &str, _: &[u8]| {
                    server_of(key) != Some(&server) || ways.iter().any(|way| way == key)
                };
                self.store.retain(space, Box::new(keep));
            }
        }
    }

    pub(crate) fn is_the_same(&self, other: &Self) -> bool {
        self.key == other.key
    }

    pub(crate) fn catalog(&self) -> Option<Catalog> {
        let stored = self.store.get(Self::CATALOGS, &self.key)?;
        // Written by another version, perhaps: it will be listed anew.
        serde_json::from_slice(&stored).ok()
    }

    pub(crate) fn keep_catalog(&self, catalog: &Catalog) {
        if let Ok(bytes) = serde_json::to_vec(catalog) {
            self.store.put(Self::CATALOGS, &self.key, bytes);
        }
    }

    /// What was approved, by this process and by others.
    pub(crate) fn pins(&self) -> Option<Approvals> {
        let kept = || self.store.get(Self::APPROVALS, &self.server);
        let read = |kept: Vec<u8>| serde_json::from_slice(&kept).ok();
        // Those of 0.1 are removed after they were carried over, which may happen between these lines.
        match kept() {
            Some(kept) => read(kept),
            None => self.pins_of_0_1().or_else(|| kept().and_then(read)),
        }
    }

    pub(crate) fn keep_pins(&self, pins: &Approvals) {
        if let Ok(bytes) = serde_json::to_vec(pins) {
            self.store.put(Self::APPROVALS, &self.server, bytes);
        }
    }

    /// Whether more tools were approved than these pins hold: the store has lost some.
    pub(crate) fn has_lost(&self, pins: &Approvals) -> bool {
        self.witness.tools(&self.server) > pins.of(PinKind::Tool).len()
    }

    /// Has the witness count these pins, as soon as the store has them.
    pub(crate) fn witness(&self, pins: &Approvals) {
        let tools = pins.of(PinKind::Tool).len();
        let (witness, server) = (self.witness.clone(), self.server.clone());
        if witness.tools(&server) != tools {
            self.store.then(Box::new(move || witness.note(&server, tools)));
        }
    }

    pub(crate) fn verdict(&self) -> Option<Verdict> {
        serde_json::from_slice(&self.store.get(Self::VERDICTS, &self.key)?).ok()
    }

    /// Which clients were seen to need an instance of their own.
    pub(crate) fn apart(&self) -> Apart {
        match self.store.get(Self::ISOLATION, &self.key) {
            Some(kept) if kept == Self::APART => Apart::Asked,
            Some(kept) if kept == Self::ALL_APART => Apart::All,
            Some(_) | None => Apart::None,
        }
    }

    pub(crate) fn keep_apart(&self, apart: Apart) {
        let kept = match apart {
            Apart::None => return,
            Apart::Asked => Self::APART,
            Apart::All => Self::ALL_APART,
        };
        self.store.put(Self::ISOLATION, &self.key, kept.to_vec());
    }

    pub(crate) fn keep_verdict(&self, verdict: Verdict) {
        if let Ok(bytes) = serde_json::to_vec(&verdict) {
            self.store.put(Self::VERDICTS, &self.key, bytes);
        }
    }
}

/// The server that something belongs to whose key has a fingerprint.
fn server_of(key: &str) -> Option<&str> {
    key.rsplit_once('@').map(|(server, _)| server)
}

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
use gripfast_core::policy::pins::Pins;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A place for bytes under a space and a key, safe to share by several processes.
pub trait Store: Send + Sync + 'static {
    /// What was last put there.
    fn get(&self, space: &str, key: &str) -> Option<Vec<u8>>;

    /// Puts something there. It need not be on disk when this returns; [`Store::flush`] waits for that.
    fn put(&self, space: &str, key: &str, value: Vec<u8>);

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

    fn retain(&self, space: &str, keep: Keep) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|(in_space, key), value| in_space != space || keep(key, value));
    }

    fn flush(&self) {}
}

/// The part of a store that belongs to one upstream. What another target of the same name left there is
/// not looked at: the key holds a fingerprint of how the server is reached.
#[derive(Clone)]
pub(crate) struct Shelf {
    store: Arc<dyn Store>,
    witness: ApprovalWitness,
    key: String,
}

impl Shelf {
    const CATALOGS: &'static str = "catalog";
    const VERDICTS: &'static str = "verdict";
    const ISOLATION: &'static str = "isolation";
    const PINS: &'static str = "pins";
    const APART: &'static [u8] = b"per_client";
    const ALL_APART: &'static [u8] = b"every_client";

    pub(crate) fn new(
        store: Arc<dyn Store>,
        witness: ApprovalWitness,
        server: &str,
        fingerprint: &str,
    ) -> Self {
        Self { store, witness, key: format!("{server}@{fingerprint}") }
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

    /// What is pinned, by this process and by others.
    pub(crate) fn pins(&self) -> Option<Pins> {
        serde_json::from_slice(&self.store.get(Self::PINS, &self.key)?).ok()
    }

    pub(crate) fn keep_pins(&self, pins: &Pins) {
        if let Ok(bytes) = serde_json::to_vec(pins) {
            self.store.put(Self::PINS, &self.key, bytes);
        }
    }

    /// Whether more tools were approved than these pins hold: the store has lost some.
    pub(crate) fn has_lost(&self, pins: &Pins) -> bool {
        self.witness.tools(&self.key) > pins.len()
    }

    /// Has the witness count these pins, as soon as the store has them.
    pub(crate) fn witness(&self, pins: &Pins) {
        let (witness, key, tools) = (self.witness.clone(), self.key.clone(), pins.len());
        if witness.tools(&key) != tools {
            self.store.then(Box::new(move || witness.note(&key, tools)));
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

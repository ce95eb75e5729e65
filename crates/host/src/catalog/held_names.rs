//! The names that servers hold, kept in the store beside the pins. Who may have a name is decided in `core`.

use crate::store::Store;
use gripfast_core::catalog::holders::HeldNames;
use gripfast_core::catalog::merge::Claim;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SPACE: &str = "names";

/// The names of all servers that were looked at, as this process knows them.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<BTreeMap<String, Arc<HeldNames>>>);

impl Held {
    /// The names that a server holds.
    pub(super) fn of(&self, store: &dyn Store, server: &str) -> Arc<HeldNames> {
        let mut known = self.known();
        match known.get(server) {
            Some(held) => Arc::clone(held),
            None => {
                let held = Arc::new(stored(store, server).unwrap_or_default());
                known.insert(server.to_owned(), Arc::clone(&held));
                held
            }
        }
    }

    /// Writes down that a server goes by these names, and what other processes have written down about it meanwhile.
    pub(super) fn hold<'c>(
        &self,
        store: &dyn Store,
        server: &str,
        claims: impl IntoIterator<Item = &'c Claim>,
        now: u64,
    ) {
        let mut known = self.known();
        let held = Arc::make_mut(known.entry(server.to_owned()).or_default());
        let claims = claims.into_iter();
        if claims.filter(|claim| held.hold(claim.offer, &claim.name, now)).count() == 0 {
            return;
        }
        if let Some(stored) = stored(store, server) {
            held.adopt(&stored);
        }
        if let Ok(bytes) = serde_json::to_vec(held) {
            store.put(SPACE, server, bytes);
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Arc<HeldNames>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stored(store: &dyn Store, server: &str) -> Option<HeldNames> {
    serde_json::from_slice(&store.get(SPACE, server)?).ok()
}

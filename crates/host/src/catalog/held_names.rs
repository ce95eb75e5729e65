//! Persistent public names of tools and prompts, kept in the store. `core` decides which server gets a name.

use crate::store::{Store, StoreTable};
use crate::sync::Mutex;
use gripfast_core::catalog::holders::HeldNames;
use gripfast_core::catalog::merge::NameClaim;
use std::collections::BTreeMap;
use std::sync::Arc;

const NAMES: StoreTable<HeldNames> = StoreTable::json("names");

/// Cache of the names of all servers, as this process knows them.
#[derive(Debug, Default)]
pub(super) struct NameStore(Mutex<BTreeMap<String, Arc<HeldNames>>>);

impl NameStore {
    /// The names that a server holds, from the cache or the store.
    pub(super) fn of(&self, store: &dyn Store, server: &str) -> Arc<HeldNames> {
        let mut known = self.0.lock();
        match known.get(server) {
            Some(held) => Arc::clone(held),
            None => {
                let held = Arc::new(NAMES.get(store, server).unwrap_or_default());
                known.insert(server.to_owned(), Arc::clone(&held));
                held
            }
        }
    }

    /// Records the names that a server uses now, merged with those that other processes have stored meanwhile.
    pub(super) fn hold<'c>(
        &self,
        store: &dyn Store,
        server: &str,
        claims: impl IntoIterator<Item = &'c NameClaim>,
        now: u64,
    ) {
        let mut known = self.0.lock();
        let held = Arc::make_mut(known.entry(server.to_owned()).or_default());
        let claims = claims.into_iter();
        if claims.filter(|claim| held.insert(claim.kind, &claim.name, now)).count() == 0 {
            return;
        }
        if let Some(stored) = NAMES.get(store, server) {
            held.merge(&stored);
        }
        NAMES.put(store, server, held);
    }
}

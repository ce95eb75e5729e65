//! Typed tables: the values of one space of a store, in one format.

use super::Store;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Values of one type, by key.
pub(crate) struct StoreTable<V> {
    space: &'static str,
    write: fn(&V) -> Option<Vec<u8>>,
    read: fn(&[u8]) -> Option<V>,
}

impl<V> StoreTable<V> {
    /// Creates a table with a format of its own.
    pub(crate) const fn new(
        space: &'static str,
        write: fn(&V) -> Option<Vec<u8>>,
        read: fn(&[u8]) -> Option<V>,
    ) -> Self {
        Self { space, write, read }
    }

    /// Returns a value. One that cannot be read counts as absent: another version may have written it.
    pub(crate) fn get(&self, store: &dyn Store, key: &str) -> Option<V> {
        (self.read)(&store.get(self.space, key)?)
    }

    /// Returns whether there is a value, readable or not.
    pub(crate) fn contains(&self, store: &dyn Store, key: &str) -> bool {
        store.get(self.space, key).is_some()
    }

    /// Puts a value, as [`Store::put`] does.
    pub(crate) fn put(&self, store: &dyn Store, key: &str, value: &V) {
        if let Some(bytes) = (self.write)(value) {
            store.put(self.space, key, bytes);
        }
    }

    /// Returns all keys, in any order.
    pub(crate) fn keys(&self, store: &dyn Store) -> Vec<String> {
        store.keys(self.space)
    }

    /// Removes the values whose keys `keep` rejects, as [`Store::retain`] does.
    pub(crate) fn retain_keys(&self, store: &dyn Store, keep: impl Fn(&str) -> bool + Send + 'static) {
        store.retain(self.space, Box::new(move |key, _| keep(key)));
    }
}

impl<V: Serialize + DeserializeOwned> StoreTable<V> {
    /// Creates a table of JSON values.
    pub(crate) const fn json(space: &'static str) -> Self {
        Self::new(space, |value| serde_json::to_vec(value).ok(), |bytes| serde_json::from_slice(bytes).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn a_value_of_another_format_counts_as_absent() {
        const NUMBERS: StoreTable<u64> = StoreTable::json("numbers");
        let store = MemoryStore::default();
        NUMBERS.put(&store, "a", &7);
        store.put("numbers", "b", b"seven".to_vec());
        store.put("others", "a", b"1".to_vec());
        assert_eq!((NUMBERS.get(&store, "a"), NUMBERS.get(&store, "b")), (Some(7), None));
        assert!(NUMBERS.contains(&store, "b") && !NUMBERS.contains(&store, "c"));
        NUMBERS.retain_keys(&store, |key| key == "b");
        assert_eq!(NUMBERS.keys(&store), ["b"]);
        assert_eq!(store.get("others", "a"), Some(b"1".to_vec()));
    }
}

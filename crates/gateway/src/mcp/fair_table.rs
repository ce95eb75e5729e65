//! Bounded table of entries per principal: above its own limit a principal loses its oldest entry, and above the total
//! limit the principal with the most entries does.

use gripfast::Principal;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Entries in insertion order.
#[derive(Debug)]
pub(crate) struct FairTable<T> {
    max_per_principal: usize,
    max_total: usize,
    next: u64,
    entries: BTreeMap<u64, (Principal, T)>,
    /// Entry numbers of each principal that has any.
    by_principal: HashMap<Principal, BTreeSet<u64>>,
}

impl<T> FairTable<T> {
    /// Creates a table with at most `max_per_principal` entries of one principal and `max_total` altogether.
    pub(crate) fn new(max_per_principal: usize, max_total: usize) -> Self {
        Self { max_per_principal, max_total, next: 0, entries: BTreeMap::new(), by_principal: HashMap::new() }
    }

    /// Adds an entry. Returns its number, and the entries that were evicted for it.
    pub(crate) fn insert(&mut self, principal: &Principal, entry: T) -> (u64, Vec<T>) {
        let mut evicted = Vec::new();
        let has = |table: &Self| table.by_principal.get(principal).map_or(0, BTreeSet::len);
        while has(self) >= self.max_per_principal.max(1) {
            evicted.extend(self.oldest_of(principal).and_then(|number| self.remove(number)));
        }
        while self.entries.len() >= self.max_total.max(1) {
            // Among principals with equally many entries, the one with the oldest entry.
            let most = self
                .by_principal
                .iter()
                .max_by_key(|(_, theirs)| (theirs.len(), std::cmp::Reverse(theirs.first().copied())));
            let oldest = most.and_then(|(_, theirs)| theirs.first().copied());
            evicted.extend(oldest.and_then(|number| self.remove(number)));
        }
        let number = self.next;
        self.next += 1;
        self.entries.insert(number, (principal.clone(), entry));
        self.by_principal.entry(principal.clone()).or_default().insert(number);
        (number, evicted)
    }

    /// Removes an entry, if it is still there.
    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let (principal, entry) = self.entries.remove(&number)?;
        if let Some(theirs) = self.by_principal.get_mut(&principal) {
            theirs.remove(&number);
            if theirs.is_empty() {
                self.by_principal.remove(&principal);
            }
        }
        Some(entry)
    }

    /// First entry of this principal that matches, and its number.
    pub(crate) fn find(&self, principal: &Principal, wanted: impl Fn(&T) -> bool) -> Option<(u64, &T)> {
        let theirs = self.by_principal.get(principal)?.iter();
        let entries = theirs.filter_map(|number| self.entries.get(number).map(|(_, entry)| (*number, entry)));
        entries.into_iter().find(|(_, entry)| wanted(entry))
    }

    fn oldest_of(&self, principal: &Principal) -> Option<u64> {
        self.by_principal.get(principal)?.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_its_own_limit_a_principal_loses_its_oldest_entry() {
        let (greedy, modest) = (Principal::new("greedy"), Principal::new("modest"));
        let mut table = FairTable::new(3, 10);
        assert!(table.insert(&modest, 0).1.is_empty());
        for entry in 1..=3 {
            assert!(table.insert(&greedy, entry).1.is_empty());
        }
        assert_eq!(table.insert(&greedy, 4).1, [1]);
        assert!(table.find(&modest, |entry| *entry == 0).is_some());
    }

    #[test]
    fn above_the_total_limit_the_principal_with_the_most_loses_its_oldest() {
        let named = |number: u32| Principal::new(number.to_string());
        let (greedy, modest) = (Principal::new("greedy"), Principal::new("modest"));
        let mut table = FairTable::new(8, 10);
        table.insert(&modest, 0);
        for entry in 1..=8 {
            table.insert(&greedy, entry);
        }
        assert!(table.insert(&named(0), 9).1.is_empty(), "ten of ten");
        let evicted: Vec<_> = (1..=6).flat_map(|number| table.insert(&named(number), 0).1).collect();
        assert_eq!(evicted, [1, 2, 3, 4, 5, 6], "the modest one was there first, and keeps its only one");
        assert_eq!((table.entries.len(), table.by_principal.len()), (10, 9));
    }

    #[test]
    fn a_removed_entry_leaves_nothing_behind() {
        let mut table = FairTable::new(2, 2);
        let (number, _) = table.insert(&Principal::local(), "one");
        assert_eq!((table.remove(number), table.remove(number)), (Some("one"), None));
        assert_eq!((table.entries.len(), table.by_principal.len()), (0, 0));
    }
}

//! A bounded table of what principals have: beyond its own bound a principal loses its oldest entry, and beyond the bound
//! of all the principal with the most entries does.

use gripfast::Principal;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Entries in the order in which they came.
#[derive(Debug)]
pub(crate) struct FairTable<T> {
    each: usize,
    all: usize,
    next: u64,
    entries: BTreeMap<u64, (Principal, T)>,
    /// The entries of each principal that has any.
    of: HashMap<Principal, BTreeSet<u64>>,
}

impl<T> FairTable<T> {
    /// At most `each` entries of one principal, and `all` in all.
    pub(crate) fn new(each: usize, all: usize) -> Self {
        Self { each, all, next: 0, entries: BTreeMap::new(), of: HashMap::new() }
    }

    /// Adds an entry. Answers its number, and the entries that made room for it.
    pub(crate) fn insert(&mut self, principal: &Principal, entry: T) -> (u64, Vec<T>) {
        let mut gone = Vec::new();
        let has = |table: &Self| table.of.get(principal).map_or(0, BTreeSet::len);
        while has(self) >= self.each.max(1) {
            gone.extend(self.oldest_of(principal).and_then(|number| self.remove(number)));
        }
        while self.entries.len() >= self.all.max(1) {
            // Of several that have as many, the one with the oldest entry.
            let most = self
                .of
                .iter()
                .max_by_key(|(_, theirs)| (theirs.len(), std::cmp::Reverse(theirs.first().copied())));
            let oldest = most.and_then(|(_, theirs)| theirs.first().copied());
            gone.extend(oldest.and_then(|number| self.remove(number)));
        }
        let number = self.next;
        self.next += 1;
        self.entries.insert(number, (principal.clone(), entry));
        self.of.entry(principal.clone()).or_default().insert(number);
        (number, gone)
    }

    /// Takes an entry out, if it is still there.
    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let (principal, entry) = self.entries.remove(&number)?;
        if let Some(theirs) = self.of.get_mut(&principal) {
            theirs.remove(&number);
            if theirs.is_empty() {
                self.of.remove(&principal);
            }
        }
        Some(entry)
    }

    /// The first entry of this principal that is wanted, and its number.
    pub(crate) fn find(&self, principal: &Principal, wanted: impl Fn(&T) -> bool) -> Option<(u64, &T)> {
        let theirs = self.of.get(principal)?.iter();
        let entries = theirs.filter_map(|number| self.entries.get(number).map(|(_, entry)| (*number, entry)));
        entries.into_iter().find(|(_, entry)| wanted(entry))
    }

    fn oldest_of(&self, principal: &Principal) -> Option<u64> {
        self.of.get(principal)?.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_its_own_bound_a_principal_loses_its_oldest_entry_and_nobody_else_does() {
        let (greedy, modest) = (Principal::named("greedy"), Principal::named("modest"));
        let mut table = FairTable::new(3, 10);
        assert!(table.insert(&modest, 0).1.is_empty());
        for entry in 1..=3 {
            assert!(table.insert(&greedy, entry).1.is_empty());
        }
        assert_eq!(table.insert(&greedy, 4).1, [1]);
        assert!(table.find(&modest, |entry| *entry == 0).is_some());
    }

    #[test]
    fn beyond_the_bound_of_all_the_principal_with_the_most_loses_its_oldest_entry() {
        let named = |number: u32| Principal::named(number.to_string());
        let (greedy, modest) = (Principal::named("greedy"), Principal::named("modest"));
        let mut table = FairTable::new(8, 10);
        table.insert(&modest, 0);
        for entry in 1..=8 {
            table.insert(&greedy, entry);
        }
        assert!(table.insert(&named(0), 9).1.is_empty(), "ten of ten");
        let gone: Vec<_> = (1..=6).flat_map(|number| table.insert(&named(number), 0).1).collect();
        assert_eq!(gone, [1, 2, 3, 4, 5, 6], "the modest one was there first, and keeps its only one");
        assert_eq!((table.entries.len(), table.of.len()), (10, 9));
    }

    #[test]
    fn an_entry_that_was_taken_out_leaves_nothing_behind() {
        let mut table = FairTable::new(2, 2);
        let (number, _) = table.insert(&Principal::local(), "one");
        assert_eq!((table.remove(number), table.remove(number)), (Some("one"), None));
        assert_eq!((table.entries.len(), table.of.len()), (0, 0));
    }
}

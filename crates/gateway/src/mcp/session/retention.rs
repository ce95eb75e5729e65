//! Bounds a space of the store to its newest entries. The space may be large and shared by several processes, so it is
//! scanned twice instead of loaded: once to count entries per second, once to remove the oldest.

use gripfast::store::Store;
use gripfast::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number and size of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetentionLimit {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

/// Number and size of entries per second.
type SecondCounts = BTreeMap<u64, RetentionLimit>;

/// Keeps the newest entries of a space. `when` returns the second of an entry; entries without one are removed.
pub(crate) fn keep_newest(
    store: &dyn Store,
    space: &str,
    most: RetentionLimit,
    when: fn(&[u8]) -> Option<u64>,
) {
    let tally = Arc::<Mutex<SecondCounts>>::default();
    let counting = Arc::clone(&tally);
    store.retain(
        space,
        Box::new(move |_, value| {
            let Some(second) = when(value) else { return false };
            let mut tally = counting.lock();
            let there = tally.entry(second).or_insert(RetentionLimit { entries: 0, bytes: 0 });
            there.entries += 1;
            there.bytes += value.len();
            true
        }),
    );
    let room = Mutex::<Option<Cutoff>>::default();
    store.retain(
        space,
        Box::new(move |_, value| {
            let mut room = room.lock();
            let room = room.get_or_insert_with(|| Cutoff::for_newest(&tally.lock(), most));
            when(value).is_some_and(|second| room.takes(second, value.len()))
        }),
    );
}

/// Keeps everything after one second, and a limited amount of that second.
struct Cutoff {
    second: u64,
    left: RetentionLimit,
}

impl Cutoff {
    fn for_newest(tally: &SecondCounts, most: RetentionLimit) -> Self {
        let mut left = most;
        for (&second, there) in tally.iter().rev() {
            let entries = left.entries.checked_sub(there.entries);
            let bytes = left.bytes.checked_sub(there.bytes);
            match (entries, bytes) {
                (Some(entries), Some(bytes)) => left = RetentionLimit { entries, bytes },
                (None, _) | (_, None) => return Self { second, left },
            }
        }
        Self { second: 0, left }
    }

    fn takes(&mut self, second: u64, bytes: usize) -> bool {
        if second != self.second {
            return second > self.second;
        }
        match (self.left.entries.checked_sub(1), self.left.bytes.checked_sub(bytes)) {
            (Some(entries), Some(bytes)) => {
                self.left = RetentionLimit { entries, bytes };
                true
            }
            (None, _) | (_, None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::store::MemoryStore;

    /// The remaining values; each begins with its second.
    fn left(values: &[&str], most: RetentionLimit) -> Vec<String> {
        let store = MemoryStore::default();
        store.put("other", "0", b"x".to_vec());
        for (number, value) in values.iter().enumerate() {
            store.put("space", &number.to_string(), value.as_bytes().to_vec());
        }
        keep_newest(&store, "space", most, |value| std::str::from_utf8(value).ok()?.get(..1)?.parse().ok());
        assert!(store.get("other", "0").is_some());
        let found = (0..values.len()).filter_map(|number| store.get("space", &number.to_string()));
        found.map(|value| String::from_utf8(value).unwrap()).collect()
    }

    #[test]
    fn the_newest_entries_are_kept_within_number_and_size() {
        let values = ["3c", "1a", "2b", "2b", "nonsense", "2b", "4d"];
        let roomy = RetentionLimit { entries: 100, bytes: 1000 };
        assert_eq!(left(&values, roomy), ["3c", "1a", "2b", "2b", "2b", "4d"]);
        assert_eq!(left(&values, RetentionLimit { entries: 4, ..roomy }), ["3c", "2b", "2b", "4d"]);
        assert_eq!(left(&values, RetentionLimit { bytes: 7, ..roomy }), ["3c", "2b", "4d"]);
        assert_eq!(left(&values, RetentionLimit { entries: 0, ..roomy }), [""; 0]);
    }
}

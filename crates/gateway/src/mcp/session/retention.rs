//! Keeps a space of the store within a bound: what was noted last stays. A space may be large and is shared by several
//! processes, so it is gone through twice, once to see how much there is of each second, and once to let go.

use gripfast::store::Store;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Most {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

/// How much there is of each second.
type Tally = BTreeMap<u64, Most>;

/// Keeps the newest entries of a space. `when` says of which second one is; what is of none goes.
pub(crate) fn keep_newest(store: &dyn Store, space: &str, most: Most, when: fn(&[u8]) -> Option<u64>) {
    let tally = Arc::<Mutex<Tally>>::default();
    let counting = Arc::clone(&tally);
    store.retain(
        space,
        Box::new(move |_, value| {
            let Some(second) = when(value) else { return false };
            let mut tally = locked(&counting);
            let there = tally.entry(second).or_insert(Most { entries: 0, bytes: 0 });
            there.entries += 1;
            there.bytes += value.len();
            true
        }),
    );
    let room = Mutex::<Option<Room>>::default();
    store.retain(
        space,
        Box::new(move |_, value| {
            let mut room = locked(&room);
            let room = room.get_or_insert_with(|| Room::for_newest(&locked(&tally), most));
            when(value).is_some_and(|second| room.takes(second, value.len()))
        }),
    );
}

/// Room for everything after one second, and for so much of that second.
struct Room {
    second: u64,
    left: Most,
}

impl Room {
    fn for_newest(tally: &Tally, most: Most) -> Self {
        let mut left = most;
        for (&second, there) in tally.iter().rev() {
            let entries = left.entries.checked_sub(there.entries);
            let bytes = left.bytes.checked_sub(there.bytes);
            match (entries, bytes) {
                (Some(entries), Some(bytes)) => left = Most { entries, bytes },
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
                self.left = Most { entries, bytes };
                true
            }
            (None, _) | (_, None) => false,
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::store::MemoryStore;

    /// The values that are left of those that were put, each of which begins with its second.
    fn left(values: &[&str], most: Most) -> Vec<String> {
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
    fn what_was_noted_last_stays_within_the_number_and_the_size() {
        let values = ["3c", "1a", "2b", "2b", "nonsense", "2b", "4d"];
        let roomy = Most { entries: 100, bytes: 1000 };
        assert_eq!(left(&values, roomy), ["3c", "1a", "2b", "2b", "2b", "4d"]);
        assert_eq!(left(&values, Most { entries: 4, ..roomy }), ["3c", "2b", "2b", "4d"]);
        assert_eq!(left(&values, Most { bytes: 7, ..roomy }), ["3c", "2b", "4d"]);
        assert_eq!(left(&values, Most { entries: 0, ..roomy }), [""; 0]);
    }
}

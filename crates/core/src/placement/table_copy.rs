//! A replica's copy of a shared table: pins, logins or API keys. The store has the table; the copy is used while the
//! store is unreachable, and written back to a store that has lost fields. The highest version of a field wins in both
//! directions. A removed field stays as a tombstone.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A field of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopiedField {
    /// The version; zero if there is no such field.
    pub version: u64,
    /// The value; `None` is a tombstone, or a field that does not exist.
    pub value: Option<Arc<str>>,
}

/// The copy of one table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableCopy {
    fields: BTreeMap<String, CopiedField>,
}

impl TableCopy {
    /// The field of this name; version zero if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> CopiedField {
        self.fields.get(name).cloned().unwrap_or_default()
    }

    /// All fields, tombstones included.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &CopiedField)> {
        self.fields.iter().map(|(name, field)| (name.as_str(), field))
    }

    /// Number of fields, tombstones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns whether there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Adopts a field of a higher version. Returns whether it was adopted.
    pub fn adopt(&mut self, name: &str, field: CopiedField) -> bool {
        let is_newer = field.version > self.fields.get(name).map_or(0, |known| known.version);
        if is_newer {
            self.fields.insert(name.to_owned(), field);
        }
        is_newer
    }

    /// Drops a field that the store has in a form that this version cannot read: what the copy has is not true any more.
    /// Returns whether there was one.
    pub fn drop_field(&mut self, name: &str) -> bool {
        self.fields.remove(name).is_some()
    }

    /// Removes the fields of this version, tombstones of it included.
    pub fn remove_version(&mut self, version: u64) -> Vec<String> {
        let removed = self.fields.extract_if(.., |_, field| field.version == version);
        removed.map(|(name, _)| name).collect()
    }

    /// Names of fields that a table with these versions lacks, or has in a lower version.
    pub fn missing_in(&self, version_of: impl Fn(&str) -> u64) -> Vec<String> {
        let is_missing = |(name, field): &(&str, &CopiedField)| version_of(name) < field.version;
        self.iter().filter(is_missing).map(|(name, _)| name.to_owned()).collect()
    }
}

/// Whether a replica may let clients in by its copy.
///
/// A store that was emptied since the copy was written may lack what other replicas know, for example that a key was
/// removed. A replica that has just started then waits until the others had time to write that back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    /// The store has not been read since the start. The copy is all that is known.
    Alone,
    /// The store was emptied, and the replicas are still writing back.
    Settling,
    /// The copy has what the service knows.
    Settled,
}

impl CopyState {
    /// The standing after the copy was compared with a store of this generation. `known` is the generation that the
    /// copy was written for.
    #[must_use]
    pub fn compared(self, known: Option<u64>, generation: u64, in_grace: bool) -> Self {
        match self {
            Self::Settled => Self::Settled,
            Self::Alone | Self::Settling if known == Some(generation) || !in_grace => Self::Settled,
            Self::Alone | Self::Settling => Self::Settling,
        }
    }

    /// The standing after the store became unreachable.
    #[must_use]
    pub fn store_lost(self) -> Self {
        match self {
            Self::Settled => Self::Settled,
            Self::Alone | Self::Settling => Self::Alone,
        }
    }

    /// Returns whether entries of the copy are used.
    #[must_use]
    pub fn admits(self) -> bool {
        match self {
            Self::Alone | Self::Settled => true,
            Self::Settling => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(version: u64, value: Option<&str>) -> CopiedField {
        CopiedField { version, value: value.map(Into::into) }
    }

    #[test]
    fn the_highest_version_of_a_field_wins_and_a_tombstone_stays() {
        let mut copy = TableCopy::default();
        assert!(copy.adopt("ci", field(1, Some("digest"))));
        assert!(copy.adopt("ci", field(2, None)));
        assert!(!copy.adopt("ci", field(1, Some("digest"))), "an older copy does not revive it");
        assert_eq!(copy.get("ci"), field(2, None));
        assert_eq!(copy.get("other"), field(0, None));
        copy.adopt("laptop", field(5, Some("digest")));
        assert_eq!(copy.missing_in(|_| 0), ["ci", "laptop"], "an emptied store");
        assert_eq!(copy.missing_in(|name| if name == "ci" { 2 } else { 4 }), ["laptop"], "an older snapshot");
        assert_eq!(copy.remove_version(5), ["laptop"]);
        assert_eq!(copy.len(), 1);
    }

    #[test]
    fn a_replica_that_starts_on_an_emptied_store_waits_for_the_others() {
        use CopyState::{Alone, Settled, Settling};
        assert_eq!(Alone.compared(Some(1), 1, true), Settled, "the store that it knows");
        assert_eq!(Alone.compared(Some(1), 2, true), Settling);
        assert_eq!(Alone.compared(None, 2, true), Settling, "its first start");
        assert_eq!(Settling.compared(Some(1), 2, false), Settled);
        assert_eq!(Settled.compared(Some(1), 2, true), Settled, "it has seen all changes");
        assert_eq!((Settling.store_lost(), Settled.store_lost()), (Alone, Settled));
        assert!(Alone.admits() && Settled.admits() && !Settling.admits());
    }
}

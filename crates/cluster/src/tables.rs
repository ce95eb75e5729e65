//! Shared tables: pins with their approvals, logins and API keys. Each field has a version and is set by compare-and-set. A removed
//! field stays as a tombstone, so that writing back an older copy does not revive it.

use crate::connection::{Script, cmd};
use crate::store::{Store, millis};
use crate::{StoreError, format};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

static SET_FIELD: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/set_field.lua")))
});
static PUT_FIELDS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/put_fields.lua")))
});

static READ_CHANGES: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/read_changes.lua")))
});

/// Fields that one script writes back.
const BATCH: usize = 500;

/// A shared table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SharedTable {
    /// The approved texts of each server. The values are sealed by the caller.
    Pins,
    /// Logins at servers. The values are sealed by the caller.
    Logins,
    /// API keys of clients, as digests. The values are sealed by the caller.
    ApiKeys,
}

impl SharedTable {
    /// All tables.
    pub const ALL: [Self; 3] = [Self::Pins, Self::Logins, Self::ApiKeys];

    /// The name in the store, and in the revisions that a heartbeat returns.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pins => "pins",
            Self::Logins => "logins",
            Self::ApiKeys => "api_keys",
        }
    }
}

/// One field of a shared table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldEntry {
    /// The version. A later one is higher, also after the store was emptied.
    pub version: u64,
    /// The value; `None` is a tombstone.
    pub value: Option<String>,
}

impl FieldEntry {
    fn stored_value(value: Option<&str>) -> String {
        value.map_or_else(|| "-".to_owned(), |value| format!("+{value}"))
    }

    fn read(table: SharedTable, stored: &str) -> Result<Self, StoreError> {
        let malformed = || StoreError::Malformed(format!("table:{}", table.as_str()));
        let (version, value) =
            format::decode(table.as_str(), stored)?.split_once(':').ok_or_else(malformed)?;
        let version = version.parse().map_err(|_| malformed())?;
        let value = match value.split_at_checked(1) {
            Some(("+", value)) => Some(value.to_owned()),
            Some(("-", "")) => None,
            Some(_) | None => return Err(malformed()),
        };
        Ok(Self { version, value })
    }
}

/// Differences between a table in the store and a replica's copy of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableChanges {
    /// Fields with a higher version in the store.
    pub newer: BTreeMap<String, FieldEntry>,
    /// Fields of a newer format. They are neither read nor changed.
    pub unknown: Vec<String>,
    /// Fields that the store has lost, or has in a lower version.
    pub lost: Vec<String>,
    /// Number of fields in the store, tombstones included.
    pub stored: usize,
    /// Revision of the table.
    pub revision: u64,
}

/// The result of setting a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetReply {
    /// The field has the new value.
    Set {
        /// Its version.
        version: u64,
    },
    /// The field has another version than expected; nothing was changed.
    Changed {
        /// The present version; zero if there is no such field.
        version: u64,
    },
    /// Nothing may be changed during a grace period: the store may lack newer versions.
    Grace {
        /// The rest of the period.
        left: Duration,
    },
}

impl Store {
    /// All readable fields of a table, tombstones included. A field of a newer format is left out.
    ///
    /// # Errors
    ///
    /// If the store is unreachable or a field is malformed.
    pub async fn read_table(&self, table: SharedTable) -> Result<BTreeMap<String, FieldEntry>, StoreError> {
        let key = self.settings.namespace.key(&format!("table:{}", table.as_str()));
        let stored: BTreeMap<String, String> = self.connection.query(cmd("HGETALL").arg(&key)).await?;
        let mut fields = BTreeMap::new();
        for (field, stored) in stored {
            match FieldEntry::read(table, &stored) {
                Ok(entry) => {
                    fields.insert(field, entry);
                }
                Err(StoreError::NewerFormat { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(fields)
    }

    /// Compares a table with a replica's copy, given as names and versions.
    ///
    /// # Errors
    ///
    /// If the store is unreachable or a field is malformed.
    pub async fn read_changes(
        &self,
        table: SharedTable,
        known: impl IntoIterator<Item = (String, u64)>,
    ) -> Result<TableChanges, StoreError> {
        let mut script = READ_CHANGES.prepare_invoke();
        script.arg(self.prefix()).arg(table.as_str());
        for (field, version) in known {
            script.arg(field).arg(version);
        }
        let (newer, lost, stored, revision): (Vec<(String, String)>, Vec<String>, usize, u64) =
            self.connection.run(&script).await?;
        let mut changes =
            TableChanges { newer: BTreeMap::new(), unknown: Vec::new(), lost, stored, revision };
        for (field, stored) in newer {
            match FieldEntry::read(table, &stored) {
                Ok(entry) => {
                    changes.newer.insert(field, entry);
                }
                Err(StoreError::NewerFormat { .. }) => changes.unknown.push(field),
                Err(error) => return Err(error),
            }
        }
        Ok(changes)
    }

    /// Sets or removes a field whose version is still `expected`; zero stands for a field that does not exist.
    ///
    /// # Errors
    ///
    /// If the store is unreachable, or the field has a newer format.
    pub async fn set_field(
        &self,
        table: SharedTable,
        field: &str,
        expected: u64,
        value: Option<&str>,
    ) -> Result<SetReply, StoreError> {
        let spec = self.settings.spec;
        let mut script = SET_FIELD.prepare_invoke();
        script.arg(self.prefix()).arg(table.as_str()).arg(field).arg(expected);
        script.arg(FieldEntry::stored_value(value)).arg(millis(spec.lease)).arg(millis(spec.grace()));
        let (result, number): (String, u64) = self.connection.run(&script).await?;
        match result.as_str() {
            "set" => Ok(SetReply::Set { version: number }),
            "changed" => Ok(SetReply::Changed { version: number }),
            "grace" => Ok(SetReply::Grace { left: Duration::from_millis(number) }),
            _ => Err(StoreError::Malformed("set_field".to_owned())),
        }
    }

    /// Writes the replica's own copy of a table back after the store was emptied. The highest version of each field
    /// wins. Returns the number of fields that were written.
    ///
    /// # Errors
    ///
    /// If the store is unreachable; some fields may have been written.
    pub async fn put_fields(
        &self,
        table: SharedTable,
        fields: &BTreeMap<String, FieldEntry>,
    ) -> Result<usize, StoreError> {
        let fields: Vec<_> = fields.iter().collect();
        let mut written = 0;
        for batch in fields.chunks(BATCH) {
            let mut script = PUT_FIELDS.prepare_invoke();
            script.arg(self.prefix()).arg(table.as_str());
            for (field, entry) in batch {
                script.arg(field).arg(entry.version).arg(FieldEntry::stored_value(entry.value.as_deref()));
            }
            written += self.connection.run::<usize>(&script).await?;
        }
        Ok(written)
    }
}

//! Shared tables: pins, logins and API keys that hold for the whole service.
//!
//! The store has them; this replica keeps a copy in memory and, sealed with the cluster key, in its state directory.
//! Reads use the copy. Changes are made in the store by compare-and-set. Each heartbeat returns the revisions of the
//! tables: after a change the table is read again, and fields that the store has lost are written back.

use super::ClusterSettings;
use super::cluster_settings::ClusterSettingsError;
use crate::auth::keys::KeySource;
use gripfast::placement::place::{BootId, Place};
use gripfast::placement::table_copy::{CopiedField, CopyState, TableCopy};
use gripfast::private_files;
use gripfast::sync::Mutex;
use gripfast_cluster::StoreError;
use gripfast_cluster::keys::PlainValue;
use gripfast_cluster::marker::JoinError;
use gripfast_cluster::store::{Store, StoreSettings};
use gripfast_cluster::tables::{FieldEntry, SetReply, SharedTable, TableChanges};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Directory of the copies inside the state directory.
const DIRECTORY: &str = "cluster";
const MAX_COPY_BYTES: u64 = 512 << 20;
/// Maximum size of one value.
const MAX_VALUE_BYTES: usize = 64 << 20;
/// Version of entries that were made before the replica joined: every other version is higher.
const SEED_VERSION: u64 = 1;
/// Format of a copy in the state directory.
const COPY_FORMAT: u32 = 1;

/// The shared tables, as one process uses them.
pub struct SharedTables {
    settings: ClusterSettings,
    store: Store,
    directory: Option<PathBuf>,
    tables: BTreeMap<&'static str, Table>,
    access: Mutex<TableAccess>,
    changed: watch::Sender<u64>,
}

struct Table {
    kind: SharedTable,
    copy: Mutex<TableCopy>,
    /// Counts changes of the copy.
    changes: AtomicU64,
    /// Revision at the last comparison with the store; `u64::MAX` before it.
    revision: AtomicU64,
    /// The copy has entries that were made before the replica joined.
    has_seeds: AtomicBool,
    /// Held while the copy is compared with the store.
    comparison: tokio::sync::Mutex<()>,
    /// Held while the file is written.
    file: tokio::sync::Mutex<()>,
    /// A newer version of gripfast has written the file, which is left alone.
    is_newer_format: bool,
    /// Fields in the store that a newer version of gripfast has written.
    unknown: Mutex<BTreeSet<String>>,
}

struct TableAccess {
    /// Reason why nothing can be changed.
    blocked: Option<String>,
    standing: CopyState,
    /// Generation of the store that the copy belongs to.
    generation: Option<u64>,
}

/// Reason why a shared table was not changed or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The field was changed elsewhere since it was read.
    #[error("it was changed by another replica at the same time")]
    Changed,
    /// The replicas are still writing back what the store may have lost.
    #[error(
        "the store is new or was away, and changes are refused for {} until the replicas have reported to it",
        gripfast::text::duration(*.0)
    )]
    Grace(Duration),
    /// The store is unreachable, or the replica has not joined the service.
    #[error("{0}")]
    Blocked(String),
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The value is too large.
    #[error("the value has more than {} MiB", MAX_VALUE_BYTES >> 20)]
    TooLarge,
    /// The value cannot be sealed.
    #[error("the system random number generator failed")]
    NoEntropy,
}

impl TableError {
    /// The next step for the operator.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Changed => "run the command again",
            Self::Grace(_) => "start a replica of the service if none runs, and try again",
            Self::Blocked(_) | Self::Store(_) => {
                "changes need the store: start it, or correct `cluster.store`; `gripfast doctor` checks it"
            }
            Self::TooLarge => "lower `max_tools` of the server",
            Self::NoEntropy => "try again",
        }
    }
}

/// Content of a copy in the state directory, before it is sealed.
#[derive(Serialize, Deserialize)]
struct StoredCopy {
    generation: Option<u64>,
    fields: BTreeMap<String, (u64, Option<String>)>,
}

impl SharedTables {
    /// Opens the copies in a state directory. Nothing is read from the store yet.
    ///
    /// # Errors
    /// No connection to the store is possible with these settings.
    pub fn open(
        settings: &ClusterSettings,
        state_dir: Option<&Path>,
    ) -> Result<Arc<Self>, ClusterSettingsError> {
        let mut number = [0; 8];
        // Only the name of a lease holder: all zeros would do for one process.
        let _ = SystemRandom::new().fill(&mut number);
        let boot = BootId::from_number(u64::from_be_bytes(number));
        let store = Store::new(StoreSettings {
            url: settings.store.clone(),
            namespace: settings.namespace.clone(),
            keys: settings.keys.clone(),
            place: Place { name: settings.name.clone(), boot },
            spec: settings.lease,
            // This connection makes no records of sessions.
            retention: settings.lease.lease,
        })?;
        let mut generation = None;
        let directory = state_dir.map(|directory| directory.join(DIRECTORY));
        let mut tables = BTreeMap::new();
        for kind in SharedTable::ALL {
            let read = directory.as_deref().map(|directory| read_copy(settings, directory, kind));
            let is_newer_format =
                matches!(&read, Some(Err(error)) if error.kind() == io::ErrorKind::Unsupported);
            let copy = match read {
                Some(Ok(Some((copied, copy)))) => {
                    generation = copied;
                    Some(copy)
                }
                Some(Err(error)) => {
                    tracing::warn!(
                        "the copy of the shared table `{}` is not used: {error}; the store has the table",
                        kind.as_str()
                    );
                    None
                }
                Some(Ok(None)) | None => None,
            };
            let table = Table {
                kind,
                copy: Mutex::new(copy.unwrap_or_default()),
                changes: AtomicU64::new(1),
                revision: AtomicU64::new(u64::MAX),
                has_seeds: AtomicBool::new(false),
                comparison: tokio::sync::Mutex::default(),
                file: tokio::sync::Mutex::default(),
                is_newer_format,
                unknown: Mutex::default(),
            };
            tables.insert(kind.as_str(), table);
        }
        let access = TableAccess {
            blocked: Some("this replica has not joined its service yet".to_owned()),
            standing: CopyState::Alone,
            generation,
        };
        let tables = Arc::new(Self {
            settings: settings.clone(),
            store,
            directory,
            tables,
            access: Mutex::new(access),
            changed: watch::Sender::new(0),
        });
        if let Some(state_dir) = state_dir {
            KeySource::seed(&tables, state_dir);
        }
        Ok(tables)
    }

    /// The tables for a command that is no replica: it leaves the copies in the state directory alone.
    #[must_use]
    pub fn read_only(tables: Arc<Self>) -> Arc<Self> {
        match Arc::try_unwrap(tables) {
            Ok(tables) => Arc::new(Self { directory: None, ..tables }),
            Err(shared) => shared,
        }
    }

    /// Connects a command that is no replica: reads all tables from the store. The next operation may run on another
    /// runtime.
    ///
    /// # Errors
    /// The store fails, or belongs to another service.
    pub async fn connect(&self) -> Result<(), JoinError> {
        self.store.join().await?;
        self.access.lock().blocked = None;
        for table in self.tables.values() {
            self.compare(table).await?;
        }
        self.store.disconnect();
        Ok(())
    }

    /// Adds entries that were made before the replica joined, if it has no copy of the table yet. The first
    /// comparison puts them into an empty table.
    pub(crate) fn seed(&self, kind: SharedTable, fields: impl IntoIterator<Item = (String, String)>) {
        let table = self.table(kind);
        let mut copy = table.copy.lock();
        if self.access.lock().generation.is_some() || !copy.is_empty() {
            return;
        }
        for (name, value) in fields {
            copy.adopt(&name, CopiedField { version: SEED_VERSION, value: Some(value.into()) });
        }
        table.has_seeds.store(!copy.is_empty(), Ordering::Release);
    }

    fn table(&self, kind: SharedTable) -> &Table {
        &self.tables[kind.as_str()]
    }

    /// A field of the copy.
    #[must_use]
    pub fn get(&self, kind: SharedTable, field: &str) -> CopiedField {
        self.table(kind).copy.lock().get(field)
    }

    /// All fields of the copy that have a value.
    #[must_use]
    pub fn fields(&self, kind: SharedTable) -> Vec<(String, CopiedField)> {
        let copy = self.table(kind).copy.lock();
        let with_value = copy.iter().filter(|(_, field)| field.value.is_some());
        with_value.map(|(name, field)| (name.to_owned(), field.clone())).collect()
    }

    /// A number that is another one after each change of the copy.
    #[must_use]
    pub fn change_count(&self, kind: SharedTable) -> u64 {
        self.table(kind).changes.load(Ordering::Acquire)
    }

    /// Returns whether the copy may be used to let clients in.
    pub(crate) fn admits(&self) -> bool {
        self.access.lock().standing.admits()
    }

    /// Completes a step after each change of a copy, and when changes may be possible again.
    pub(crate) fn watch_changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Sets or removes a field whose version is still `expected`. Returns its version.
    ///
    /// # Errors
    /// See [`TableError`]. If the store failed, the change may have been made.
    pub async fn set(
        &self,
        kind: SharedTable,
        field: &str,
        expected: u64,
        value: Option<String>,
    ) -> Result<u64, TableError> {
        let store = self.joined_store()?;
        let sealed = value.as_deref().map(|value| self.seal(kind, field, value)).transpose()?;
        match store.set_field(kind, field, expected, sealed.as_deref()).await? {
            SetReply::Set { version } => {
                let table = self.table(kind);
                let set = CopiedField { version, value: value.map(Into::into) };
                if table.copy.lock().adopt(field, set) {
                    self.copy_changed(table).await;
                }
                Ok(version)
            }
            SetReply::Changed { .. } => {
                self.compare(self.table(kind)).await?;
                Err(TableError::Changed)
            }
            SetReply::Grace { left } => Err(TableError::Grace(left)),
        }
    }

    /// The store, if the replica has joined and the last heartbeat succeeded.
    pub(super) fn joined_store(&self) -> Result<&Store, TableError> {
        match &self.access.lock().blocked {
            Some(reason) => Err(TableError::Blocked(reason.clone())),
            None => Ok(&self.store),
        }
    }

    /// Reads a table again.
    ///
    /// # Errors
    /// The replica has not joined, or the store fails.
    pub async fn refresh(&self, kind: SharedTable) -> Result<(), TableError> {
        self.joined_store()?;
        Ok(self.compare(self.table(kind)).await?)
    }

    /// Applies the result of a heartbeat, in the background.
    pub(super) fn follow(
        self: &Arc<Self>,
        revisions: &BTreeMap<String, u64>,
        generation: u64,
        grace: Duration,
        runtime: &tokio::runtime::Handle,
    ) {
        let (due, is_back): (BTreeSet<&'static str>, bool) = {
            let mut access = self.access.lock();
            let is_back = access.blocked.take().is_some();
            let is_other = access.generation != Some(generation);
            let is_settling = access.standing != CopyState::Settled;
            let has_changed = |table: &Table| {
                let revision = revisions.get(table.kind.as_str()).copied().unwrap_or(0);
                table.revision.load(Ordering::Acquire) != revision
            };
            let all = is_back || is_other || is_settling;
            let due = self.tables.values().filter(|table| all || has_changed(table));
            (due.map(|table| table.kind.as_str()).collect(), is_back)
        };
        if due.is_empty() {
            return;
        }
        let tables = Arc::clone(self);
        runtime.spawn(async move {
            for name in due {
                if let Err(error) = tables.compare(&tables.tables[name]).await {
                    // The next heartbeat repeats it.
                    tracing::debug!("the shared table `{name}` is not read yet: {error}");
                    return;
                }
            }
            tables.compared(generation, !grace.is_zero()).await;
            if is_back {
                tables.notify();
            }
        });
    }

    /// All tables were compared with the store after a heartbeat.
    async fn compared(&self, generation: u64, in_grace: bool) {
        let is_first = {
            let mut access = self.access.lock();
            let before = access.standing;
            access.standing = before.compared(access.generation, generation, in_grace);
            let is_settled = access.standing == CopyState::Settled;
            let is_other = is_settled && access.generation != Some(generation);
            if is_other {
                access.generation = Some(generation);
            }
            is_other || before != access.standing
        };
        if is_first {
            for table in self.tables.values() {
                self.write_copy(table).await;
            }
            self.notify();
        }
    }

    /// Waits until the tables were read from the store.
    pub(super) async fn until_compared(&self) {
        let mut changed = self.changed.subscribe();
        // The sender lives as long as the tables.
        let _ = changed.wait_for(|_| self.access.lock().standing != CopyState::Alone).await;
    }

    /// The store is unreachable, or the replica has not joined, for this reason. Returns whether changes were possible
    /// before.
    pub fn block(&self, reason: &str) -> bool {
        let mut access = self.access.lock();
        access.standing = access.standing.store_lost();
        access.blocked.replace(reason.to_owned()).is_none()
    }

    /// Adopts newer fields of the store, and writes back what it has lost.
    async fn compare(&self, table: &Table) -> Result<(), StoreError> {
        let _one = table.comparison.lock().await;
        let is_first = table.revision.load(Ordering::Acquire) == u64::MAX;
        let known: Vec<(String, u64)> = if is_first {
            // The first time everything is read, to find values that an older key has sealed.
            Vec::new()
        } else {
            table.copy.lock().iter().map(|(name, field)| (name.to_owned(), field.version)).collect()
        };
        let mut changes = self.store.read_changes(table.kind, known).await?;
        let has_dropped = self.drop_unknown(table, &changes.unknown);
        if table.has_seeds.load(Ordering::Acquire) && changes.stored > 0 {
            let names = table.copy.lock().remove_version(SEED_VERSION);
            let names: Vec<String> =
                names.into_iter().filter(|name| !changes.newer.contains_key(name)).collect();
            if !names.is_empty() {
                tracing::warn!(
                    "the service has entries of its own in the table `{}`, so these of this replica are not used: {}",
                    table.kind.as_str(),
                    names.join(", ")
                );
            }
        }
        if is_first {
            let version_of = |name: &str| changes.newer.get(name).map_or(0, |entry| entry.version);
            changes.lost = table.copy.lock().missing_in(version_of);
        }
        let (has_changed, stale) = self.adopt(table, &changes);
        if !changes.lost.is_empty() {
            let written =
                self.store.put_fields(table.kind, &self.sealed_fields(table, &changes.lost)?).await?;
            if written > 0 {
                let name = table.kind.as_str();
                tracing::info!("{written} entries of the shared table `{name}` were written to the store");
            }
        }
        table.has_seeds.store(false, Ordering::Release);
        table.revision.store(changes.revision, Ordering::Release);
        if has_changed || has_dropped || is_first {
            self.copy_changed(table).await;
        }
        for (name, version) in stale {
            self.seal_again(table, &name, version).await;
        }
        Ok(())
    }

    /// Stops using fields that a newer version of gripfast has written: this one can neither read nor change them, and
    /// its copy is out of date. Returns whether the copy had one.
    fn drop_unknown(&self, table: &Table, names: &[String]) -> bool {
        let names: BTreeSet<String> = names.iter().cloned().collect();
        let mut known = table.unknown.lock();
        for name in names.difference(&known) {
            tracing::warn!(
                "a newer version of gripfast has written the entry `{name}` of the shared table `{}`: this replica does \
                 not use it and does not change it; upgrade this replica",
                table.kind.as_str()
            );
        }
        let mut copy = table.copy.lock();
        let dropped = names.iter().filter(|name| copy.drop_field(name)).count();
        *known = names;
        dropped > 0
    }

    /// Adopts the newer fields. Returns whether there were any, and the fields that an older key has sealed.
    fn adopt(&self, table: &Table, changes: &TableChanges) -> (bool, Vec<(String, u64)>) {
        let (mut has_changed, mut stale) = (false, Vec::new());
        for (name, entry) in &changes.newer {
            let value = match &entry.value {
                None => None,
                Some(sealed) => match self.settings.keys.open(&self.field_name(table.kind, name), sealed) {
                    Some(PlainValue { content, is_current }) => {
                        if !is_current {
                            stale.push((name.clone(), entry.version));
                        }
                        Some(String::from_utf8_lossy(&content).into())
                    }
                    None => {
                        tracing::warn!(
                            "the entry `{name}` of the shared table `{}` was not made with `cluster.key` and is ignored",
                            table.kind.as_str()
                        );
                        continue;
                    }
                },
            };
            has_changed |= table.copy.lock().adopt(name, CopiedField { version: entry.version, value });
        }
        (has_changed, stale)
    }

    fn sealed_fields(
        &self,
        table: &Table,
        names: &[String],
    ) -> Result<BTreeMap<String, FieldEntry>, StoreError> {
        let mut fields = BTreeMap::new();
        for name in names {
            let CopiedField { version, value } = table.copy.lock().get(name);
            let sealed = value.map(|value| self.seal(table.kind, name, &value)).transpose();
            let value = sealed.map_err(|error| StoreError::Refused(error.to_string()))?;
            if version > 0 {
                fields.insert(name.clone(), FieldEntry { version, value });
            }
        }
        Ok(fields)
    }

    /// Seals a value with the first key. Another replica may do so at the same time.
    async fn seal_again(&self, table: &Table, name: &str, version: u64) {
        let CopiedField { version: current, value } = table.copy.lock().get(name);
        let Some(value) = value.filter(|_| current == version) else { return };
        let Ok(sealed) = self.seal(table.kind, name, &value) else { return };
        match self.store.set_field(table.kind, name, version, Some(&sealed)).await {
            Ok(SetReply::Set { version }) => {
                table.copy.lock().adopt(name, CopiedField { version, value: Some(value) });
            }
            // Read again with the next heartbeat, because the revision differs.
            Ok(SetReply::Grace { .. }) => table.revision.store(u64::MAX, Ordering::Release),
            Ok(SetReply::Changed { .. }) | Err(_) => {}
        }
    }

    fn field_name(&self, kind: SharedTable, field: &str) -> String {
        format!("gripfast table 1 {} {} {field}", self.settings.namespace.prefix(), kind.as_str())
    }

    fn seal(&self, kind: SharedTable, field: &str, value: &str) -> Result<String, TableError> {
        if value.len() > MAX_VALUE_BYTES {
            return Err(TableError::TooLarge);
        }
        self.settings.keys.seal(&self.field_name(kind, field), value.as_bytes()).ok_or(TableError::NoEntropy)
    }

    async fn copy_changed(&self, table: &Table) {
        table.changes.fetch_add(1, Ordering::AcqRel);
        self.notify();
        self.write_copy(table).await;
    }

    fn notify(&self) {
        self.changed.send_modify(|steps| *steps = steps.wrapping_add(1));
    }

    /// Writes the copy to the state directory. Without it this replica knows less after a restart without the store.
    async fn write_copy(&self, table: &Table) {
        let Some(directory) = self.directory.clone().filter(|_| !table.is_newer_format) else { return };
        let _one = table.file.lock().await;
        let generation = self.access.lock().generation;
        let fields = table
            .copy
            .lock()
            .iter()
            .map(|(name, field)| {
                (name.to_owned(), (field.version, field.value.as_deref().map(str::to_owned)))
            })
            .collect();
        let stored = StoredCopy { generation, fields };
        let (keys, name) = (self.settings.keys.clone(), copy_name(&self.settings, table.kind));
        let path = copy_path(&directory, table.kind);
        let written = tokio::task::spawn_blocking(move || {
            let sealed = keys.seal(&name, &serde_json::to_vec(&stored)?);
            let sealed = sealed.ok_or_else(|| io::Error::other("no random numbers"))?;
            private_files::create_subdirectory(&directory)?;
            private_files::replace(&path, format!("{COPY_FORMAT}:{sealed}").as_bytes())
        });
        if let Ok(Err(error)) = written.await {
            let table = table.kind.as_str();
            tracing::warn!(
                "cannot write the copy of the shared table `{table}`: {error}; after a restart this replica needs the store"
            );
        }
    }
}

impl std::fmt::Debug for SharedTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedTables").field("directory", &self.directory).finish_non_exhaustive()
    }
}

fn copy_path(directory: &Path, kind: SharedTable) -> PathBuf {
    directory.join(format!("{}.sealed", kind.as_str()))
}

fn copy_name(settings: &ClusterSettings, kind: SharedTable) -> String {
    format!("gripfast copy 1 {} {}", settings.namespace.prefix(), kind.as_str())
}

/// Reads a copy; `None` if there is none.
fn read_copy(
    settings: &ClusterSettings,
    directory: &Path,
    kind: SharedTable,
) -> io::Result<Option<(Option<u64>, TableCopy)>> {
    let path = copy_path(directory, kind);
    let bytes = match private_files::read(&path, MAX_COPY_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8(bytes).unwrap_or_default();
    let (format, sealed) = text.split_once(':').unwrap_or_default();
    if format.parse().is_ok_and(|format: u32| format > COPY_FORMAT) {
        let text = "a newer version of gripfast has written it";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let opened = settings.keys.open(&copy_name(settings, kind), sealed).ok_or_else(|| {
        io::Error::other("it was made with another `cluster.key` or `cluster.namespace`, or is damaged")
    })?;
    let stored: StoredCopy = serde_json::from_slice(&opened.content)?;
    let mut copy = TableCopy::default();
    for (name, (version, value)) in stored.fields {
        copy.adopt(&name, CopiedField { version, value: value.map(Into::into) });
    }
    Ok(Some((stored.generation, copy)))
}

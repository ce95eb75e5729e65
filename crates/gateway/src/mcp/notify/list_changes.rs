//! `list_changed` notifications: one per change, however many servers changed at once, also for clients that had no
//! stream open when it happened.

use gripfast::sync::Mutex;
use gripfast::{CatalogSnapshot, Host, Principal};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Change counter of each list. The versions that a client was last notified of are compared with the current ones to
/// find the pending notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ListVersions {
    pub(crate) tools: u64,
    pub(crate) resources: u64,
    pub(crate) prompts: u64,
}

impl ListVersions {
    /// Version that no list ever has.
    pub(crate) const UNKNOWN: u64 = u64::MAX;

    /// Notifications that lead from these versions to `newer`.
    pub(crate) fn changes_to(self, newer: Self) -> impl Iterator<Item = &'static str> {
        let changed = [
            (self.tools != newer.tools).then_some("notifications/tools/list_changed"),
            (self.resources != newer.resources).then_some("notifications/resources/list_changed"),
            (self.prompts != newer.prompts).then_some("notifications/prompts/list_changed"),
        ];
        changed.into_iter().flatten()
    }

    /// The versions as an SSE event id, from which a stream can be resumed.
    pub(crate) fn to_event_id(self) -> String {
        format!("m-{}-{}-{}", self.tools, self.resources, self.prompts)
    }

    pub(crate) fn from_event_id(id: &str) -> Option<Self> {
        let mut parts = id.strip_prefix("m-")?.split('-').map(|part| part.parse().ok());
        let versions = Self { tools: parts.next()??, resources: parts.next()??, prompts: parts.next()?? };
        parts.next().is_none().then_some(versions)
    }
}

/// Watches the catalog for all clients. Clients of one principal see the same catalog, so they share one channel; it
/// changes when the servers change and when the principal's access changes.
pub(crate) struct ListChangeNotifier {
    channels: Arc<PrincipalChannels>,
    watcher: AbortHandle,
}

/// Channels of all principals.
struct PrincipalChannels {
    host: Host,
    by_principal: Mutex<BTreeMap<Principal, Arc<PrincipalChannel>>>,
}

/// List versions of one principal, and the catalog that they belong to.
struct PrincipalChannel {
    principal: Principal,
    /// First version, random: versions of another channel or process are not in the same range.
    origin: u64,
    versions: watch::Sender<ListVersions>,
    known: Mutex<Arc<CatalogSnapshot>>,
}

impl ListChangeNotifier {
    /// Collects changes of several servers that come together.
    const DEBOUNCE: Duration = Duration::from_millis(50);

    pub(crate) fn new(host: &Host) -> Self {
        let changes = host.catalog_changes();
        let channels = Arc::new(PrincipalChannels { host: host.clone(), by_principal: Mutex::default() });
        let watcher = tokio::spawn(watch_catalog(changes, Arc::clone(&channels))).abort_handle();
        Self { channels, watcher }
    }

    /// Current list versions of a principal.
    pub(crate) fn versions(&self, principal: &Principal) -> ListVersions {
        *self.channels.get_or_create(principal).versions.borrow()
    }

    /// Tests if the principal had these versions in this process.
    pub(crate) fn has_issued(&self, principal: &Principal, versions: ListVersions) -> bool {
        let channel = self.channels.get_or_create(principal);
        let now = *channel.versions.borrow();
        let between = |version: u64, now: u64| (channel.origin..=now).contains(&version);
        between(versions.tools, now.tools)
            && between(versions.resources, now.resources)
            && between(versions.prompts, now.prompts)
    }

    /// Compares with the current catalog at once: a client that is about to get the list needs no notification about
    /// it.
    pub(crate) fn refresh(&self, principal: &Principal) {
        self.channels.get_or_create(principal).refresh(&self.channels.host);
    }

    /// Subscribes to the list versions of a principal.
    pub(crate) fn subscribe(&self, principal: &Principal) -> watch::Receiver<ListVersions> {
        self.channels.get_or_create(principal).versions.subscribe()
    }
}

impl Drop for ListChangeNotifier {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl PrincipalChannels {
    /// Principals that are kept while no client listens for them. After a channel was dropped, clients of its principal
    /// are notified once more.
    const MAX: usize = 4096;

    fn get_or_create(&self, principal: &Principal) -> Arc<PrincipalChannel> {
        let mut channels = self.by_principal.lock();
        if let Some(channel) = channels.get(principal) {
            return Arc::clone(channel);
        }
        if channels.len() >= Self::MAX {
            channels.retain(|_, channel| channel.versions.receiver_count() > 0);
        }
        let channel = Arc::new(PrincipalChannel::new(principal.clone(), &self.host));
        channels.insert(principal.clone(), Arc::clone(&channel));
        channel
    }

    fn refresh_all(&self) {
        let channels: Vec<Arc<PrincipalChannel>> = self.by_principal.lock().values().cloned().collect();
        for channel in channels {
            channel.refresh(&self.host);
        }
    }
}

impl PrincipalChannel {
    fn new(principal: Principal, host: &Host) -> Self {
        // Far from the origin of any other channel, and from `UNKNOWN`.
        let origin = RandomState::new().build_hasher().finish() >> 1;
        let versions = ListVersions { tools: origin, resources: origin, prompts: origin };
        let known = Mutex::new(host.catalog_snapshot_for(&principal));
        Self { principal, origin, versions: watch::Sender::new(versions), known }
    }

    fn refresh(&self, host: &Host) {
        let mut known = self.known.lock();
        let catalog = host.catalog_snapshot_for(&self.principal);
        if Arc::ptr_eq(&known, &catalog) {
            return;
        }
        self.versions.send_if_modified(|versions| {
            let before = *versions;
            advance(versions, &known, &catalog);
            *versions != before
        });
        *known = catalog;
    }
}

async fn watch_catalog(mut changes: watch::Receiver<u64>, channels: Arc<PrincipalChannels>) {
    while changes.changed().await.is_ok() {
        tokio::time::sleep(ListChangeNotifier::DEBOUNCE).await;
        changes.borrow_and_update();
        channels.refresh_all();
    }
}

fn advance(versions: &mut ListVersions, before: &Arc<CatalogSnapshot>, after: &Arc<CatalogSnapshot>) {
    versions.tools += u64::from(before.tools != after.tools || before.legacy_tools != after.legacy_tools);
    versions.resources +=
        u64::from(before.resources != after.resources || before.templates != after.templates);
    versions.prompts += u64::from(before.prompts != after.prompts);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_changed_since_the_last_notification_are_notified() {
        let sent = ListVersions { tools: 3, resources: 1, prompts: 0 };
        let now = ListVersions { tools: 9, resources: 1, prompts: 1 };
        let changes: Vec<_> = sent.changes_to(now).collect();
        assert_eq!(changes, ["notifications/tools/list_changed", "notifications/prompts/list_changed"]);
        assert_eq!(now.changes_to(now).count(), 0);
    }

    #[test]
    fn list_versions_survive_an_event_id_and_invalid_ids_are_refused() {
        let versions = ListVersions { tools: 3, resources: 1, prompts: 7 };
        assert_eq!(ListVersions::from_event_id(&versions.to_event_id()), Some(versions));
        for nonsense in ["", "m-", "m-1-2", "m-1-2-3-4", "m-a-b-c", "s-1-2-3"] {
            assert_eq!(ListVersions::from_event_id(nonsense), None, "{nonsense}");
        }
    }
}

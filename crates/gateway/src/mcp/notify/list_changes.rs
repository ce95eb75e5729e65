//! `list_changed` notifications: one per change, however many servers changed at once, also for clients that had no
//! stream open when it happened.

use crate::mcp::tool_search;
use gripfast::sync::Mutex;
use gripfast::wire::Era;
use gripfast::{CatalogSnapshot, Host, Principal, RenderedList};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Digest of each list. The versions that a client was last notified of are compared with the current ones to find the
/// pending notifications. They mean the same in every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ListVersions {
    pub(crate) tools: u64,
    pub(crate) resources: u64,
    pub(crate) prompts: u64,
}

impl ListVersions {
    /// Version that no list has.
    pub(crate) const UNKNOWN: u64 = u64::MAX;

    /// Versions of the lists in `catalog`.
    fn of(catalog: &CatalogSnapshot) -> Self {
        let legacy_tools = catalog.legacy_tools.as_ref().map(|_| catalog.listed_tools(Era::Legacy));
        let tools =
            both(catalog.listed_tools(Era::Modern).digest(), legacy_tools.map_or(0, RenderedList::digest));
        let search = tool_search::definitions(catalog, Era::Modern);
        Self {
            tools: if search.is_empty() { tools } else { both(tools, search.digest()) },
            resources: both(catalog.resources.digest(), catalog.templates.digest()),
            prompts: catalog.prompts.digest(),
        }
    }

    /// Versions for a client that has loaded these tools besides.
    fn with_loaded(self, loaded: &RenderedList) -> Self {
        Self { tools: both(self.tools, loaded.digest()), ..self }
    }

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
        format!("m-{:016x}-{:016x}-{:016x}", self.tools, self.resources, self.prompts)
    }

    pub(crate) fn from_event_id(id: &str) -> Option<Self> {
        let digest = |part: &str| u64::from_str_radix(part, 16).ok().filter(|_| part.len() == 16);
        let mut parts = id.strip_prefix("m-")?.split('-').map(digest);
        let versions = Self { tools: parts.next()??, resources: parts.next()??, prompts: parts.next()?? };
        parts.next().is_none().then_some(versions)
    }
}

fn both(one: u64, other: u64) -> u64 {
    one.rotate_left(1) ^ other
}

/// Catalog of one principal and the versions of its lists.
#[derive(Debug)]
pub(crate) struct PrincipalCatalog {
    versions: ListVersions,
    catalog: Arc<CatalogSnapshot>,
}

impl PrincipalCatalog {
    fn new(catalog: Arc<CatalogSnapshot>) -> Self {
        Self { versions: ListVersions::of(&catalog), catalog }
    }

    /// List versions of a client that has loaded these tools.
    pub(crate) fn versions_with(&self, loaded: &[String]) -> ListVersions {
        if loaded.is_empty() {
            return self.versions;
        }
        let loaded = self.catalog.listed_tools_with(Era::Legacy, loaded);
        loaded.map_or(self.versions, |loaded| self.versions.with_loaded(&loaded))
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

/// Catalog of one principal. It changes with any of its items, also with those that are in no list: a client may have
/// loaded them.
struct PrincipalChannel {
    principal: Principal,
    known: watch::Sender<PrincipalCatalog>,
    /// Held while `known` is replaced, so that the latest catalog is the last one.
    refreshing: Mutex<()>,
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
        self.client_versions(principal, &[])
    }

    /// Current list versions of one client: those of its principal, and the tools that it has loaded.
    pub(crate) fn client_versions(&self, principal: &Principal, loaded: &[String]) -> ListVersions {
        self.channels.get_or_create(principal).known.borrow().versions_with(loaded)
    }

    /// Compares with the current catalog at once: a client that is about to get the list needs no notification about
    /// it.
    pub(crate) fn refresh(&self, principal: &Principal) {
        self.channels.get_or_create(principal).refresh(&self.channels.host);
    }

    /// Subscribes to the catalog of a principal.
    pub(crate) fn subscribe(&self, principal: &Principal) -> watch::Receiver<PrincipalCatalog> {
        self.channels.get_or_create(principal).known.subscribe()
    }
}

impl Drop for ListChangeNotifier {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl PrincipalChannels {
    /// Principals that are kept while no client listens for them.
    const MAX: usize = 4096;

    fn get_or_create(&self, principal: &Principal) -> Arc<PrincipalChannel> {
        let mut channels = self.by_principal.lock();
        if let Some(channel) = channels.get(principal) {
            return Arc::clone(channel);
        }
        if channels.len() >= Self::MAX {
            channels.retain(|_, channel| channel.known.receiver_count() > 0);
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
        let known = watch::Sender::new(PrincipalCatalog::new(host.catalog_snapshot_for(&principal)));
        Self { principal, known, refreshing: Mutex::default() }
    }

    fn refresh(&self, host: &Host) {
        let _turn = self.refreshing.lock();
        let catalog = host.catalog_snapshot_for(&self.principal);
        if !Arc::ptr_eq(&self.known.borrow().catalog, &catalog) {
            self.known.send_replace(PrincipalCatalog::new(catalog));
        }
    }
}

async fn watch_catalog(mut changes: watch::Receiver<u64>, channels: Arc<PrincipalChannels>) {
    while changes.changed().await.is_ok() {
        tokio::time::sleep(ListChangeNotifier::DEBOUNCE).await;
        changes.borrow_and_update();
        channels.refresh_all();
    }
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
        for nonsense in
            ["", "m-", "m-1-2-3", &format!("{}-0", versions.to_event_id()), &versions.to_event_id()[2..]]
        {
            assert_eq!(ListVersions::from_event_id(nonsense), None, "{nonsense}");
        }
    }
}

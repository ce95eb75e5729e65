//! Views of the merged catalog per set of client policies. Views are filtered from the snapshot without client
//! policies, so that a name means the same to all clients; clients with the same policies share one view.

use super::CatalogCache;
use super::snapshot::CatalogSnapshot;
use crate::client::Principal;
use crate::host::Host;
use crate::policy::{Audience, ItemKind, policy_target};
use crate::sync::Mutex;
use gripfast_core::catalog::merge::ListKind;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The cached views, by policy indexes.
#[derive(Debug, Default)]
pub(super) struct Views(Mutex<BTreeMap<Vec<usize>, View>>);

#[derive(Debug)]
struct View {
    /// Revision of the snapshot that the view was filtered from.
    revision: u64,
    /// The policies of the view. A view filtered while the policies were replaced is not valid for the new ones.
    audience: Audience,
    snapshot: Arc<CatalogSnapshot>,
}

impl Views {
    /// Maximum number of cached views. One is needed per distinct combination of client policies, so a few.
    const MAX_VIEWS: usize = 64;
}

impl Host {
    /// The merged catalog as clients of this principal see it.
    pub fn catalog_snapshot_for(&self, principal: &Principal) -> Arc<CatalogSnapshot> {
        let snapshot = self.catalog_snapshot();
        let audience = self.audience(Some(principal));
        if audience.is_unrestricted() {
            return snapshot;
        }
        self.inner.catalog_cache.view(&snapshot, &audience)
    }
}

impl CatalogCache {
    fn view(&self, snapshot: &CatalogSnapshot, audience: &Audience) -> Arc<CatalogSnapshot> {
        let mut views = self.views.0.lock();
        let before = views.get(audience.indexes()).filter(|view| view.audience.same_as(audience));
        if let Some(view) = before.filter(|view| view.revision == snapshot.revision) {
            return Arc::clone(&view.snapshot);
        }
        let mut filtered = filter_for(snapshot, audience);
        let filtered = match before {
            Some(before) if before.snapshot.has_same_content(&filtered) => Arc::clone(&before.snapshot),
            Some(_) | None => {
                filtered.revision = self.revisions.fetch_add(1, Ordering::Relaxed) + 1;
                Arc::new(filtered)
            }
        };
        if views.len() >= Views::MAX_VIEWS && !views.contains_key(audience.indexes()) {
            views.pop_first();
        }
        let view =
            View { revision: snapshot.revision, audience: audience.clone(), snapshot: Arc::clone(&filtered) };
        views.insert(audience.indexes().to_vec(), view);
        filtered
    }

    /// Removes all views after the client policies have changed.
    pub(crate) fn clear_views(&self) {
        self.views.0.lock().clear();
    }
}

fn filter_for(snapshot: &CatalogSnapshot, audience: &Audience) -> CatalogSnapshot {
    snapshot.filtered(&snapshot.merged.view(|offer, server, item| {
        let kind = match offer {
            ListKind::Tool => ItemKind::Tool,
            ListKind::Resource | ListKind::Template => ItemKind::Resource,
            ListKind::Prompt => ItemKind::Prompt,
        };
        audience.can_see(&policy_target(server, kind, &item.key, item.hints))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{ClientLists, ClientPolicy, Policy};

    fn audience() -> Audience {
        let policies = vec![ClientPolicy { clients: "*".to_owned(), policy: Policy::default() }];
        Arc::new(ClientLists::new(policies)).for_principal(Some(&Principal::local()))
    }

    /// G01
    #[test]
    fn g01_a_view_of_replaced_policies_is_not_used_for_the_new_policies() {
        let (cache, snapshot) = (CatalogCache::default(), CatalogSnapshot::default());
        let (old, new) = (audience(), audience());
        let cut = cache.view(&snapshot, &old);
        assert!(Arc::ptr_eq(&cut, &cache.view(&snapshot, &old)));
        assert!(!Arc::ptr_eq(&cut, &cache.view(&snapshot, &new)));
    }
}

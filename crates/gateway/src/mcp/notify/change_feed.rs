//! Changes that one client is notified of: of lists, and of the resources and tasks that it is subscribed to. Every
//! channel and stream to a client reads them here; it decides when to send, and what counts as arrived.

use super::delivered::DeliveredVersions;
use super::list_changes::{ListVersions, PrincipalCatalog};
use super::subscriptions::Subscriptions;
use crate::mcp::Gateway;
use crate::mcp::client::Client;
use crate::mcp::loaded_tools::LoadedTools;
use bytes::Bytes;
use futures_util::future::select_all;
use gripfast::wire::envelope;
use std::sync::Arc;
use tokio::sync::watch;

/// Changes for one client, as one channel or stream sees them.
pub(crate) struct ChangeFeed {
    catalog: watch::Receiver<PrincipalCatalog>,
    /// Tools that the client has loaded.
    loaded: watch::Receiver<Vec<String>>,
    /// Keeps `loaded` open: the feed may outlive the client value of the request that opened it.
    _loaded_by: Arc<LoadedTools>,
    subscriptions: Vec<Arc<Subscriptions>>,
}

/// Changes that were not sent before.
pub(crate) struct PendingChanges {
    /// Their notifications: lists first, then updates.
    pub(crate) messages: Vec<Bytes>,
    /// List versions that the notifications lead to.
    pub(crate) versions: ListVersions,
    /// Number of all updates so far.
    pub(crate) updates: u64,
}

impl ChangeFeed {
    /// Changes of the lists of `client` from now on, and updates of these subscriptions.
    pub(crate) fn new(gateway: &Gateway, client: &Client, subscriptions: Vec<Arc<Subscriptions>>) -> Self {
        let catalog = gateway.list_changes.subscribe(client.host_client.principal());
        let (loaded, loaded_by) = (client.loaded.subscribe(), Arc::clone(&client.loaded));
        Self { catalog, loaded, _loaded_by: loaded_by, subscriptions }
    }

    /// Current list versions.
    pub(crate) fn versions(&self) -> ListVersions {
        self.catalog.borrow().versions_with(&self.loaded.borrow())
    }

    /// Changes that were not sent, of the lists whose notification is wanted. Marks them as sent.
    pub(crate) fn take(
        &mut self,
        delivered: &mut DeliveredVersions,
        is_wanted: impl Fn(&str) -> bool,
    ) -> PendingChanges {
        let versions = self.catalog.borrow_and_update().versions_with(&self.loaded.borrow_and_update());
        let lists = delivered.mark_sent(versions).changes_to(versions).filter(|method| is_wanted(method));
        let mut messages: Vec<Bytes> =
            lists.map(|method| envelope::notification(method, None).into()).collect();
        let mut updates = 0;
        for subscriptions in &self.subscriptions {
            let (changed, count) = subscriptions.take_updates();
            messages.extend(changed);
            updates += count;
        }
        PendingChanges { messages, versions, updates }
    }

    /// Waits until there may be a change that was not sent; `None` when the gateway ends. Cancel safe.
    pub(crate) async fn changed(&mut self) -> Option<()> {
        let updates =
            select_all(self.subscriptions.iter().map(|subscriptions| Box::pin(subscriptions.changed())));
        tokio::select! {
            changed = self.catalog.changed() => changed.ok(),
            changed = self.loaded.changed() => changed.ok(),
            _ = updates => Some(()),
        }
    }
}

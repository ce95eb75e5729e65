//! Items that clients request by a name that the server's policy hides. Clients are told that the item is unknown;
//! the operator sees that it was denied, and why.

use crate::host::{Host, HostEntry};
use crate::policy::{ItemKind, policy_target};
use gripfast_core::catalog::Item;
use gripfast_core::catalog::names;
use std::sync::Arc;

impl Host {
    /// Finds the server that hides the item with this public name, and the server's own name for it.
    pub fn find_hidden(&self, kind: ItemKind, public: &str) -> Option<(String, String)> {
        self.entries().into_iter().filter(|entry| !entry.rules.is_unrestricted()).find_map(|entry| {
            let key = entry.find_hidden_item(kind, public)?;
            Some((entry.name.clone(), key))
        })
    }
}

impl HostEntry {
    fn find_hidden_item(&self, kind: ItemKind, public: &str) -> Option<String> {
        let catalog = Arc::clone(&self.upstream().ok()?.listing.borrow().catalog);
        let items = match kind {
            ItemKind::Tool => &catalog.tools,
            ItemKind::Resource => &catalog.resources,
            ItemKind::Prompt => &catalog.prompts,
        };
        let prefix = self.prefix();
        let is_meant = |item: &Item| match kind {
            ItemKind::Resource => item.key == public,
            ItemKind::Tool | ItemKind::Prompt => {
                [prefix, &self.name].iter().any(|prefix| names::public_name(prefix, &item.key) == public)
            }
        };
        let hidden = |item: &&Item| {
            is_meant(item) && !self.rules.is_visible(&policy_target(&self.name, kind, &item.key, item.hints))
        };
        items.iter().find(hidden).map(|item| item.key.clone())
    }
}

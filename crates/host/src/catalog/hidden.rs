//! What clients ask for by a name that would lead somewhere if the lists of its server did not hide it. They are
//! told that it is unknown; the operator is told that it was denied, and why.

use crate::host::{Entry, Host};
use crate::policy::{Kind, subject};
use gripfast_core::catalog::Item;
use gripfast_core::catalog::names;
use std::sync::Arc;

impl Host {
    /// The server that hides what clients would call `public`, and its own name for it.
    pub fn hidden(&self, kind: Kind, public: &str) -> Option<(String, String)> {
        self.entries().into_iter().filter(|entry| !entry.rules.are_open()).find_map(|entry| {
            let key = entry.hides(kind, public)?;
            Some((entry.name.clone(), key))
        })
    }
}

impl Entry {
    fn hides(&self, kind: Kind, public: &str) -> Option<String> {
        let catalog = Arc::clone(&self.upstream().ok()?.listing.borrow().catalog);
        let items = match kind {
            Kind::Tool => &catalog.tools,
            Kind::Resource => &catalog.resources,
            Kind::Prompt => &catalog.prompts,
        };
        let prefix = self.prefix.as_deref().unwrap_or(&self.name);
        let is_meant = |item: &Item| match kind {
            Kind::Resource => item.key == public,
            Kind::Tool | Kind::Prompt => {
                [prefix, &self.name].iter().any(|prefix| names::public(prefix, &item.key) == public)
            }
        };
        let hidden = |item: &&Item| {
            is_meant(item) && !self.rules.show(&subject(&self.name, kind, &item.key, item.hints))
        };
        items.iter().find(hidden).map(|item| item.key.clone())
    }
}

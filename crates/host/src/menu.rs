//! All servers' catalogs as one menu, rendered once and served many times.
//!
//! Each item is the server's own bytes with its public name in place of its own, and a note in `_meta` of
//! where it comes from. The menu is made anew when a catalog has changed and somebody asks.

use crate::host::{Entry, Host};
use crate::upstream::Origin;
use gripfast_core::catalog::merge::{Menu, PublicList, Source};
use gripfast_core::catalog::{Catalog, Item};
use gripfast_wire::RawValue;
use gripfast_wire::patch::{Object, Patch, patch_payload};
use gripfast_wire::results::List;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Rings when the menu may have changed.
#[derive(Debug, Clone)]
pub(crate) struct Bell(Arc<watch::Sender<u64>>);

impl Bell {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn ring(&self) {
        self.0.send_modify(|rung| *rung += 1);
    }

    pub(crate) fn rung(&self) -> u64 {
        *self.0.borrow()
    }

    pub(crate) fn listen(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// The menu, rendered.
#[derive(Debug, Default)]
pub struct Served {
    /// Whose everything is.
    pub menu: Menu,
    /// The items of `tools/list`, as they are written between the brackets.
    pub tools: Rendered,
    /// The items of `resources/list`.
    pub resources: Rendered,
    /// The items of `resources/templates/list`.
    pub templates: Rendered,
    /// The items of `prompts/list`.
    pub prompts: Rendered,
    /// Grows with every menu that differs from the one before.
    pub revision: u64,
}

/// One list, rendered item by item.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    bytes: Vec<u8>,
    /// Where each item ends in `bytes`.
    ends: Vec<usize>,
}

impl Rendered {
    /// How many items there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The items from `from` on, at most `most` of them, separated by commas; and where the next page
    /// begins, if there is one.
    pub fn page(&self, from: usize, most: usize) -> (&[u8], Option<usize>) {
        let to = self.len().min(from.saturating_add(most));
        let from = from.min(to);
        if from == to {
            return (b"", None);
        }
        // Items stand side by side with one comma between.
        let begin = if from == 0 { 0 } else { self.ends[from - 1] + 1 };
        (&self.bytes[begin..self.ends[to - 1]], (to < self.len()).then_some(to))
    }

    fn push(&mut self, item: &RawValue) {
        if !self.bytes.is_empty() {
            self.bytes.push(b',');
        }
        self.bytes.extend_from_slice(item.get().as_bytes());
        self.ends.push(self.bytes.len());
    }
}

/// The last menu that was made, and for which ring of the bell.
#[derive(Debug, Default)]
pub(crate) struct Kitchen {
    made: Mutex<Option<(u64, Arc<Served>)>>,
    revisions: AtomicU64,
}

impl Host {
    /// Everything that all servers offer, under public names.
    pub fn menu(&self) -> Arc<Served> {
        let rung = self.bell().rung();
        let mut made = self.kitchen().made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, served)) = &*made
            && *at == rung
        {
            return Arc::clone(served);
        }
        let mut served = render(Menu::merge(self.sources()));
        match &*made {
            Some((_, before)) if same(before, &served) => {
                let before = Arc::clone(before);
                *made = Some((rung, Arc::clone(&before)));
                before
            }
            Some(_) | None => {
                served.revision = self.kitchen().revisions.fetch_add(1, Ordering::Relaxed) + 1;
                let served = Arc::new(served);
                *made = Some((rung, Arc::clone(&served)));
                served
            }
        }
    }

    /// Tells when the menu may have changed. Whoever is told asks for [`Host::menu`], whose revision tells
    /// whether it did.
    pub fn menu_changes(&self) -> watch::Receiver<u64> {
        self.bell().listen()
    }

    /// Waits until every server that is started by itself has been listed once, or cannot be for now; at
    /// most for `patience`.
    pub async fn settled(&self, patience: Duration) {
        let unknown = self.entries().into_iter().filter(|entry| entry.awaits_first_listing());
        let listing = unknown.map(|entry| async move {
            // Whatever comes of it: the others are not held up by this one.
            let _ = self.catalog(&entry.name, patience).await;
        });
        futures_util::future::join_all(listing).await;
    }

    fn sources(&self) -> Vec<Source> {
        let mut sources = Vec::new();
        for entry in self.entries() {
            let Ok(upstream) = entry.upstream() else { continue };
            let catalog = Arc::clone(&upstream.listing.borrow().catalog);
            sources.push(Source {
                server: entry.name.clone(),
                prefix: entry.prefix.clone().unwrap_or_else(|| entry.name.clone()),
                catalog: entry.visible(catalog),
            });
        }
        sources
    }
}

impl Entry {
    fn awaits_first_listing(&self) -> bool {
        !self.lazy
            && self.upstream().is_ok_and(|upstream| upstream.listing.borrow().origin == Origin::Nothing)
    }
}

fn same(before: &Served, after: &Served) -> bool {
    before.tools == after.tools
        && before.resources == after.resources
        && before.templates == after.templates
        && before.prompts == after.prompts
}

fn render(menu: Menu) -> Served {
    let all = |list: List, public: &PublicList, items: fn(&Catalog) -> &Vec<Item>| {
        let mut rendered = Rendered::default();
        for entry in &public.entries {
            let source = &menu.sources[entry.source];
            rendered.push(&render_item(
                list,
                &entry.public,
                &source.server,
                &items(&source.catalog)[entry.item],
            ));
        }
        rendered
    };
    let tools = all(List::Tools, &menu.tools, |catalog| &catalog.tools);
    let resources = all(List::Resources, &menu.resources, |catalog| &catalog.resources);
    let templates = all(List::ResourceTemplates, &menu.templates, |catalog| &catalog.templates);
    let prompts = all(List::Prompts, &menu.prompts, |catalog| &catalog.prompts);
    Served { menu, tools, resources, templates, prompts, revision: 0 }
}

/// One item under its public name, everything else as the server wrote it.
fn render_item(list: List, public: &str, server: &str, item: &Item) -> Box<RawValue> {
    let origin = json!({ "server": server, list.key(): item.key }).to_string();
    let origin = RawValue::from_string(origin).expect("a JSON value prints as JSON");
    let meta = Patch::new().set_owned("gripfast/origin", origin);
    let mut members = Patch::new();
    if public != item.key {
        members = members.set_text(list.key(), public);
    }
    // An item whose `_meta` is no object keeps it: better without a note than another's data changed.
    patch_payload(Some(&item.raw), &members, &meta).unwrap_or_else(|_| match Object::parse(&item.raw) {
        Ok(object) => members.apply(&object),
        Err(_) => item.raw.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(items: &[&str]) -> Rendered {
        let mut rendered = Rendered::default();
        for item in items {
            rendered.push(&RawValue::from_string((*item).to_owned()).unwrap());
        }
        rendered
    }

    #[test]
    fn pages_cover_everything_once_in_order() {
        let all = rendered(&["1", "22", "333", "4444", "55555"]);
        let (first, next) = all.page(0, 2);
        assert_eq!((first, next), (b"1,22".as_slice(), Some(2)));
        let (second, next) = all.page(2, 2);
        assert_eq!((second, next), (b"333,4444".as_slice(), Some(4)));
        assert_eq!(all.page(4, 2), (b"55555".as_slice(), None));
        assert_eq!(all.page(0, usize::MAX).0, b"1,22,333,4444,55555");
        assert_eq!(all.page(99, 2), (b"".as_slice(), None));
        assert_eq!(rendered(&[]).page(0, 10), (b"".as_slice(), None));
    }

    #[test]
    fn an_item_keeps_every_byte_but_its_name_and_a_note_of_its_origin() {
        let written = r#"{ "name" : "echo",  "n": 1.0e+5, "inputSchema":{"type":"object" }}"#;
        let item = Item {
            key: "echo".to_owned(),
            hints: Default::default(),
            raw: RawValue::from_string(written.to_owned()).unwrap(),
        };
        let served = render_item(List::Tools, "demo__echo", "demo", &item);
        assert!(
            served
                .get()
                .starts_with(r#"{ "name" : "demo__echo",  "n": 1.0e+5, "inputSchema":{"type":"object" }"#)
        );
        assert!(served.get().contains(r#""gripfast/origin":{"#));
    }
}

//! Rendered form of the merged catalog: each item in its server's own bytes, under its public name, with its origin
//! in `_meta`. Legacy clients get tools of modern servers without features that their era lacks.

use super::exposure::SnapshotExposure;
use gripfast_core::catalog::merge::{CatalogView, MergedCatalog, PublicList};
use gripfast_core::catalog::{Catalog, Item};
use gripfast_wire::patch::{Object, Patch, patch_payload};
use gripfast_wire::results::List;
use gripfast_wire::{Era, Json, JsonText, apps, schema, tasks};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// The merged catalog, rendered for clients.
#[derive(Debug, Default)]
pub struct CatalogSnapshot {
    /// The merged catalog that routes public names to servers.
    pub merged: MergedCatalog,
    /// The items of `tools/list`, as comma-separated JSON.
    pub tools: RenderedList,
    /// The items of `resources/list`.
    pub resources: RenderedList,
    /// The items of `resources/templates/list`.
    pub templates: RenderedList,
    /// The items of `prompts/list`.
    pub prompts: RenderedList,
    /// The items of `tools/list` for legacy clients, if they differ.
    pub legacy_tools: Option<RenderedList>,
    /// Public names of the tools in `legacy_tools` whose output is wrapped.
    wrapped_output: BTreeSet<String>,
    /// Public names of the tools that can only be called as tasks.
    tasks_only: BTreeSet<String>,
    /// The tools that are in the list of clients.
    pub(super) exposure: SnapshotExposure,
    /// Increases with every snapshot whose content differs.
    pub revision: u64,
}

impl CatalogSnapshot {
    /// The tools for clients of this era.
    pub fn tools_for(&self, era: Era) -> &RenderedList {
        match (era, &self.legacy_tools) {
            (Era::Legacy, Some(tools)) => tools,
            (Era::Legacy | Era::Modern, _) => &self.tools,
        }
    }

    /// Returns true if the output schema of this tool was wrapped for this era: an object with the output as its only
    /// member `result`, because the output may not be an object itself.
    pub fn wraps_output_for(&self, era: Era, tool: &str) -> bool {
        era == Era::Legacy && self.wrapped_output.contains(tool)
    }

    /// Returns true if the tool can only be called as a task.
    pub fn requires_task(&self, tool: &str) -> bool {
        self.tasks_only.contains(tool)
    }

    /// The snapshot reduced to the items of a view.
    pub(super) fn filtered(&self, shown: &CatalogView) -> Self {
        Self {
            merged: self.merged.filtered(shown),
            tools: self.tools.filtered(&shown.tools),
            resources: self.resources.filtered(&shown.resources),
            templates: self.templates.filtered(&shown.templates),
            prompts: self.prompts.filtered(&shown.prompts),
            legacy_tools: self.legacy_tools.as_ref().map(|tools| tools.filtered(&shown.tools)),
            wrapped_output: self.wrapped_output.clone(),
            tasks_only: self.tasks_only.clone(),
            exposure: self.exposure.filtered(&shown.tools),
            revision: self.revision,
        }
    }

    /// Returns true if both snapshots look the same to clients.
    pub(super) fn has_same_content(&self, other: &Self) -> bool {
        self.tools == other.tools
            && self.legacy_tools == other.legacy_tools
            && self.resources == other.resources
            && self.templates == other.templates
            && self.prompts == other.prompts
            && self.exposure == other.exposure
    }
}

/// A rendered list.
#[derive(Debug, Default)]
pub struct RenderedList {
    text: String,
    /// End offset of each item in `text`.
    ends: Vec<usize>,
    /// Computed on request: lists that are filtered again or not served need none.
    digest: OnceLock<u64>,
}

impl PartialEq for RenderedList {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.ends == other.ends
    }
}

impl Eq for RenderedList {}

impl RenderedList {
    /// A list of these items, each in JSON.
    pub fn of(items: impl IntoIterator<Item = String>) -> Self {
        let mut rendered = Self::default();
        for item in items {
            rendered.push(&item);
        }
        rendered
    }

    /// Start of the SHA-256 digest of the items. Lists with the same items have the same digest in every process.
    pub fn digest(&self) -> u64 {
        let compute = || {
            let digest: [u8; 32] = Sha256::digest(self.text.as_bytes()).into();
            digest.first_chunk().map_or(0, |start| u64::from_be_bytes(*start))
        };
        *self.digest.get_or_init(compute)
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if the list has no items.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// At most `most` items from index `from` on, separated by commas, and the index of the next page, if there is
    /// one.
    pub fn page(&self, from: usize, most: usize) -> (&str, Option<usize>) {
        let to = self.len().min(from.saturating_add(most));
        let from = from.min(to);
        if from == to {
            return ("", None);
        }
        // Items are separated by exactly one comma.
        let begin = if from == 0 { 0 } else { self.ends[from - 1] + 1 };
        (&self.text[begin..self.ends[to - 1]], (to < self.len()).then_some(to))
    }

    pub(super) fn filtered(&self, places: &[usize]) -> Self {
        let mut only = Self::default();
        for at in places {
            only.push(self.page(*at, 1).0);
        }
        only
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|end| end + 1));
        begins.zip(&self.ends).map(|(begin, end)| &self.text[begin..*end])
    }

    fn push(&mut self, item: &str) {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(item);
        self.ends.push(self.text.len());
    }
}

/// Origins in the `_meta` of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemOrigins {
    /// Each item names its server.
    Added,
    /// Items are exactly as the server wrote them, for another replica.
    Omitted,
}

/// Renders a merged catalog whose sources speak these eras.
pub(super) fn render(merged: MergedCatalog, eras: &[Era], origins: ItemOrigins) -> CatalogSnapshot {
    let all = |list: List, public: &PublicList, items: fn(&Catalog) -> &Vec<Item>| {
        let mut rendered = RenderedList::default();
        for entry in &public.entries {
            let source = &merged.sources[entry.source];
            let item = &items(&source.catalog)[entry.item];
            let mut meta = Patch::new();
            if let (List::Tools, Some(own)) = (list, apps::resource_of(&item.raw)) {
                let public = merged.public_uri(entry.source, &own);
                if public != own {
                    meta = apps::rename_resource(&item.raw, &own, &public);
                }
            }
            let item = match origins {
                ItemOrigins::Added => render_item(list, &entry.public, &source.server, item, meta),
                ItemOrigins::Omitted => item.raw.clone(),
            };
            rendered.push(item.get());
        }
        rendered
    };
    let tools = all(List::Tools, &merged.tools, |catalog| &catalog.tools);
    let resources = all(List::Resources, &merged.resources, |catalog| &catalog.resources);
    let templates = all(List::ResourceTemplates, &merged.templates, |catalog| &catalog.templates);
    let prompts = all(List::Prompts, &merged.prompts, |catalog| &catalog.prompts);
    let (legacy_tools, wrapped) = render_legacy_tools(&merged, &tools, eras);
    let tasks_only = tasks_only(&merged);
    CatalogSnapshot {
        merged,
        tools,
        resources,
        templates,
        prompts,
        legacy_tools,
        wrapped_output: wrapped,
        tasks_only,
        exposure: SnapshotExposure::default(),
        revision: 0,
    }
}

fn tasks_only(merged: &MergedCatalog) -> BTreeSet<String> {
    let raw = |source: usize, item: usize| &merged.sources[source].catalog.tools[item].raw;
    let only =
        merged.tools.entries.iter().filter(|entry| tasks::requires_task(raw(entry.source, entry.item)));
    only.map(|entry| entry.public.clone()).collect()
}

/// The tools for legacy clients, and the names of those that differ; `None` if none do.
fn render_legacy_tools(
    merged: &MergedCatalog,
    tools: &RenderedList,
    eras: &[Era],
) -> (Option<RenderedList>, BTreeSet<String>) {
    let mut older = RenderedList::default();
    let mut wrapped = BTreeSet::new();
    for (entry, item) in merged.tools.entries.iter().zip(tools.iter()) {
        let raw = &merged.sources[entry.source].catalog.tools[entry.item].raw;
        // Tools of legacy servers are passed on unchanged.
        match with_wrapped_output(raw, item).filter(|_| eras[entry.source] == Era::Modern) {
            Some(tool) => {
                wrapped.insert(entry.public.clone());
                older.push(tool.get());
            }
            None => older.push(item),
        }
    }
    ((!wrapped.is_empty()).then_some(older), wrapped)
}

/// The rendered `item` with its output schema wrapped in an object; `None` if it needs no change.
fn with_wrapped_output(raw: &Json, item: &str) -> Option<JsonText> {
    let tool = Object::parse(raw).ok()?;
    let output = tool.get("outputSchema").filter(|output| !schema::is_object_schema(output))?;
    let patch = match schema::wrap_schema(output) {
        Ok(wrapped) => Patch::new().set_owned("outputSchema", wrapped),
        // No output schema is better than one that the output does not match.
        Err(schema::Unreadable) => Patch::new().remove("outputSchema"),
    };
    Some(patch.apply(&Object::parse_slice(item.as_bytes()).ok()?))
}

/// One item under its public name, with `meta` changed; everything else as the server wrote it.
fn render_item(list: List, public: &str, server: &str, item: &Item, meta: Patch<'_>) -> JsonText {
    let origin = json!({ "server": server, list.item_key(): item.key }).to_string();
    let origin = JsonText::parse(origin).expect("a JSON value prints as JSON");
    let meta = meta.set_owned("gripfast/origin", origin);
    let mut members = Patch::new();
    if public != item.key {
        members = members.set_text(list.item_key(), public);
    }
    // An item whose `_meta` is not an object keeps it and gets no origin, so that no data of the server is lost.
    patch_payload(Some(&item.raw), &members, &meta).unwrap_or_else(|_| match Object::parse(&item.raw) {
        Ok(object) => members.apply(&object),
        Err(_) => item.raw.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast_core::catalog::merge::CatalogSource;

    fn rendered(items: &[&str]) -> RenderedList {
        let mut rendered = RenderedList::default();
        for item in items {
            rendered.push(item);
        }
        rendered
    }

    #[test]
    fn pages_cover_everything_once_in_order() {
        let all = rendered(&["1", "22", "333", "4444", "55555"]);
        let (first, next) = all.page(0, 2);
        assert_eq!((first, next), ("1,22", Some(2)));
        let (second, next) = all.page(2, 2);
        assert_eq!((second, next), ("333,4444", Some(4)));
        assert_eq!(all.page(4, 2), ("55555", None));
        assert_eq!(all.page(0, usize::MAX).0, "1,22,333,4444,55555");
        assert_eq!(all.page(99, 2), ("", None));
        assert_eq!(rendered(&[]).page(0, 10), ("", None));
    }

    #[test]
    fn an_item_keeps_every_byte_except_its_name_and_origin() {
        let written = r#"{ "name" : "echo",  "n": 1.0e+5, "inputSchema":{"type":"object" }}"#;
        let item = Item {
            key: "echo".to_owned(),
            hints: Default::default(),
            raw: JsonText::parse(written.to_owned()).unwrap(),
        };
        let served = render_item(List::Tools, "demo__echo", "demo", &item, Patch::new());
        assert!(
            served
                .get()
                .starts_with(r#"{ "name" : "demo__echo",  "n": 1.0e+5, "inputSchema":{"type":"object" }"#)
        );
        assert!(served.get().contains(r#""gripfast/origin":{"#));
    }

    #[test]
    fn items_can_be_iterated_one_by_one() {
        assert_eq!(rendered(&["1", "22", "3,3"]).iter().collect::<Vec<_>>(), ["1", "22", "3,3"]);
        assert_eq!(rendered(&[]).iter().count(), 0);
    }

    #[test]
    fn a_digest_depends_on_the_items_and_their_order_only() {
        let list = rendered(&["1", "22"]);
        assert_eq!(list.digest(), 0xab6d_fecf_bbc3_803a, "the start of `printf 1,22 | sha256sum`");
        assert_eq!(list.digest(), rendered(&["1", "22"]).digest());
        for other in [&["22", "1"][..], &["1"], &["1", "22", "3"], &[]] {
            assert_ne!(rendered(other).digest(), list.digest(), "{other:?}");
        }
        assert_eq!(list, rendered(&["1", "22"]), "with or without a computed digest");
    }

    const LIST_OF_TEXT: &str = r#"{"name":"t", "outputSchema":{ "type":"array" }, "n":1.0e+5}"#;

    fn served(tools: &[&str], era: Era) -> CatalogSnapshot {
        let item = |tool: &&str| Item {
            key: "t".to_owned(),
            hints: Default::default(),
            raw: JsonText::parse((*tool).to_owned()).unwrap(),
        };
        let catalog = Catalog { tools: tools.iter().map(item).collect(), ..Catalog::default() };
        let (server, prefix) = ("s".to_owned(), "s".to_owned());
        let source = CatalogSource {
            server,
            prefix,
            catalog: catalog.into(),
            linked: Vec::new(),
            held: Default::default(),
        };
        render(MergedCatalog::merge(vec![source], &[]), &[era], ItemOrigins::Added)
    }

    #[test]
    fn a_view_for_another_replica_has_the_bytes_of_the_server() {
        let raw = r#"{ "name":"t", "_meta":{"a":1.0}, "n":1.0e+5 }"#;
        let whole = served(&[raw], Era::Legacy);
        assert!(whole.tools.page(0, 9).0.contains("gripfast/origin"));
        let viewed = render(whole.merged, &[Era::Legacy], ItemOrigins::Omitted);
        assert_eq!(viewed.tools.page(0, 9).0, raw);
    }

    #[test]
    fn an_output_that_is_not_an_object_is_wrapped_only_for_legacy_clients() {
        let modern = served(&[LIST_OF_TEXT], Era::Modern);
        let wrapped = r#"{"type":"object","properties":{"result":{ "type":"array" }},"required":["result"]}"#;
        let legacy = modern.tools_for(Era::Legacy).page(0, 9).0;
        assert!(legacy.contains(&format!(r#""outputSchema":{wrapped}, "n":1.0e+5"#)), "{legacy}");
        assert!(modern.tools_for(Era::Modern).page(0, 9).0.contains(r#""outputSchema":{ "type":"array" }"#));
        assert!(
            modern.wraps_output_for(Era::Legacy, "s__t") && !modern.wraps_output_for(Era::Modern, "s__t")
        );
        let older = served(&[LIST_OF_TEXT], Era::Legacy);
        assert_eq!(older.tools_for(Era::Legacy), &older.tools);
        assert!(!older.wraps_output_for(Era::Legacy, "s__t"));
        assert!(!modern.has_same_content(&older), "the same tool renders differently for another era");
    }

    #[test]
    fn a_task_only_tool_is_known_by_its_public_name() {
        let only = served(&[r#"{"name":"t","execution":{"taskSupport":"required"}}"#], Era::Legacy);
        assert!(only.requires_task("s__t") && !only.requires_task("t"));
        let shown = CatalogView { tools: vec![0], ..CatalogView::default() };
        assert!(only.filtered(&shown).requires_task("s__t"));
        let either = served(&[r#"{"name":"t","execution":{"taskSupport":"optional"}}"#], Era::Legacy);
        assert!(!either.requires_task("s__t"));
    }

    #[test]
    fn an_output_schema_that_cannot_be_wrapped_is_removed_for_legacy_clients() {
        let deep = format!("{}true{}", r#"{"not":"#.repeat(100), "}".repeat(100));
        let served = served(&[&format!(r#"{{"name":"t","outputSchema":{deep}}}"#)], Era::Modern);
        assert!(!served.tools_for(Era::Legacy).page(0, 9).0.contains("outputSchema"));
        assert!(served.wraps_output_for(Era::Legacy, "s__t"));
    }
}

//! The menu as clients read it: each item in its server's own bytes, under its public name, with a note of its
//! origin. Where a modern server's tool says more than the legacy era has words for, legacy clients get the tool
//! in the older form.

use gripfast_core::catalog::merge::{Menu, PublicList, Shown};
use gripfast_core::catalog::{Catalog, Item};
use gripfast_wire::patch::{Object, Patch, patch_payload};
use gripfast_wire::results::List;
use gripfast_wire::{Era, RawValue, apps, schema, tasks};
use serde_json::json;
use std::collections::BTreeSet;

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
    /// The items of `tools/list` for legacy clients, if they differ.
    pub legacy_tools: Option<Rendered>,
    /// The tools among them whose output is wrapped, by public name.
    wrapped: BTreeSet<String>,
    /// The tools that can only be called as tasks, by public name.
    tasks_only: BTreeSet<String>,
    /// Grows with every menu that differs from the one before.
    pub revision: u64,
}

impl Served {
    /// The tools as clients of this era get them.
    pub fn tools_for(&self, era: Era) -> &Rendered {
        match (era, &self.legacy_tools) {
            (Era::Legacy, Some(tools)) => tools,
            (Era::Legacy | Era::Modern, _) => &self.tools,
        }
    }

    /// Whether clients of this era were told that the output of this tool is an object with the output as its
    /// only member `result`, because it need not be an object itself.
    pub fn wraps_output_for(&self, era: Era, tool: &str) -> bool {
        era == Era::Legacy && self.wrapped.contains(tool)
    }

    /// Whether this tool can only be called as a task.
    pub fn is_only_a_task(&self, tool: &str) -> bool {
        self.tasks_only.contains(tool)
    }

    /// The same without what is not shown.
    pub(super) fn only(&self, shown: &Shown) -> Self {
        Self {
            menu: self.menu.only(shown),
            tools: self.tools.only(&shown.tools),
            resources: self.resources.only(&shown.resources),
            templates: self.templates.only(&shown.templates),
            prompts: self.prompts.only(&shown.prompts),
            legacy_tools: self.legacy_tools.as_ref().map(|tools| tools.only(&shown.tools)),
            wrapped: self.wrapped.clone(),
            tasks_only: self.tasks_only.clone(),
            revision: self.revision,
        }
    }

    /// Whether clients see the same in both.
    pub(super) fn reads_like(&self, other: &Self) -> bool {
        self.tools == other.tools
            && self.legacy_tools == other.legacy_tools
            && self.resources == other.resources
            && self.templates == other.templates
            && self.prompts == other.prompts
    }
}

/// One list, rendered item by item.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    text: String,
    /// Where each item ends in `text`.
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
    pub fn page(&self, from: usize, most: usize) -> (&str, Option<usize>) {
        let to = self.len().min(from.saturating_add(most));
        let from = from.min(to);
        if from == to {
            return ("", None);
        }
        // Items stand side by side with one comma between.
        let begin = if from == 0 { 0 } else { self.ends[from - 1] + 1 };
        (&self.text[begin..self.ends[to - 1]], (to < self.len()).then_some(to))
    }

    fn only(&self, places: &[usize]) -> Self {
        let mut only = Self::default();
        for at in places {
            only.push(self.page(*at, 1).0);
        }
        only
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
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

/// Renders a menu whose sources speak these eras.
pub(super) fn render(menu: Menu, eras: &[Era]) -> Served {
    let all = |list: List, public: &PublicList, items: fn(&Catalog) -> &Vec<Item>| {
        let mut rendered = Rendered::default();
        for entry in &public.entries {
            let source = &menu.sources[entry.source];
            let item = &items(&source.catalog)[entry.item];
            let mut meta = Patch::new();
            if let (List::Tools, Some(own)) = (list, apps::resource_of(&item.raw)) {
                let public = menu.public_uri(entry.source, &own);
                if public != own {
                    meta = apps::renamed(&item.raw, &own, &public);
                }
            }
            rendered.push(render_item(list, &entry.public, &source.server, item, meta).get());
        }
        rendered
    };
    let tools = all(List::Tools, &menu.tools, |catalog| &catalog.tools);
    let resources = all(List::Resources, &menu.resources, |catalog| &catalog.resources);
    let templates = all(List::ResourceTemplates, &menu.templates, |catalog| &catalog.templates);
    let prompts = all(List::Prompts, &menu.prompts, |catalog| &catalog.prompts);
    let (legacy_tools, wrapped) = for_legacy(&menu, &tools, eras);
    let tasks_only = tasks_only(&menu);
    Served { menu, tools, resources, templates, prompts, legacy_tools, wrapped, tasks_only, revision: 0 }
}

fn tasks_only(menu: &Menu) -> BTreeSet<String> {
    let raw = |source: usize, item: usize| &menu.sources[source].catalog.tools[item].raw;
    let only =
        menu.tools.entries.iter().filter(|entry| tasks::are_required_by(raw(entry.source, entry.item)));
    only.map(|entry| entry.public.clone()).collect()
}

/// The tools in the older form, and the names of those that it changes; nothing if it changes none.
fn for_legacy(menu: &Menu, tools: &Rendered, eras: &[Era]) -> (Option<Rendered>, BTreeSet<String>) {
    let mut older = Rendered::default();
    let mut wrapped = BTreeSet::new();
    for (entry, item) in menu.tools.entries.iter().zip(tools.iter()) {
        let raw = &menu.sources[entry.source].catalog.tools[entry.item].raw;
        // What a legacy server says is in the client's words already, however odd.
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

/// The rendered `item` of a tool with its output described as the legacy era can take it; `None` if it is.
fn with_wrapped_output(raw: &RawValue, item: &str) -> Option<Box<RawValue>> {
    let tool = Object::parse(raw).ok()?;
    let output = tool.get("outputSchema").filter(|output| !schema::is_of_object(output))?;
    let patch = match schema::wrapped(output) {
        Ok(wrapped) => Patch::new().set_owned("outputSchema", wrapped),
        // Better no promise about the output than one that cannot be kept.
        Err(schema::Unreadable) => Patch::new().remove("outputSchema"),
    };
    Some(patch.apply(&Object::parse_slice(item.as_bytes()).ok()?))
}

/// One item under its public name, with `meta` changed; everything else as the server wrote it.
fn render_item(list: List, public: &str, server: &str, item: &Item, meta: Patch<'_>) -> Box<RawValue> {
    let origin = json!({ "server": server, list.key(): item.key }).to_string();
    let origin = RawValue::from_string(origin).expect("a JSON value prints as JSON");
    let meta = meta.set_owned("gripfast/origin", origin);
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
    use gripfast_core::catalog::merge::Source;

    fn rendered(items: &[&str]) -> Rendered {
        let mut rendered = Rendered::default();
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
    fn an_item_keeps_every_byte_but_its_name_and_a_note_of_its_origin() {
        let written = r#"{ "name" : "echo",  "n": 1.0e+5, "inputSchema":{"type":"object" }}"#;
        let item = Item {
            key: "echo".to_owned(),
            hints: Default::default(),
            raw: RawValue::from_string(written.to_owned()).unwrap(),
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
    fn items_come_back_one_by_one() {
        assert_eq!(rendered(&["1", "22", "3,3"]).iter().collect::<Vec<_>>(), ["1", "22", "3,3"]);
        assert_eq!(rendered(&[]).iter().count(), 0);
    }

    const LIST_OF_TEXT: &str = r#"{"name":"t", "outputSchema":{ "type":"array" }, "n":1.0e+5}"#;

    fn served(tools: &[&str], era: Era) -> Served {
        let item = |tool: &&str| Item {
            key: "t".to_owned(),
            hints: Default::default(),
            raw: RawValue::from_string((*tool).to_owned()).unwrap(),
        };
        let catalog = Catalog { tools: tools.iter().map(item).collect(), ..Catalog::default() };
        let (server, prefix) = ("s".to_owned(), "s".to_owned());
        let source =
            Source { server, prefix, catalog: catalog.into(), linked: Vec::new(), held: Default::default() };
        render(Menu::merge(vec![source], &[]), &[era])
    }

    #[test]
    fn an_output_that_is_no_object_is_wrapped_for_legacy_clients_of_modern_servers_only() {
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
        assert!(!modern.reads_like(&older), "the same tool under another era reads differently");
    }

    #[test]
    fn a_tool_that_can_only_be_called_as_a_task_is_known_by_its_public_name() {
        let only = served(&[r#"{"name":"t","execution":{"taskSupport":"required"}}"#], Era::Legacy);
        assert!(only.is_only_a_task("s__t") && !only.is_only_a_task("t"));
        let shown = Shown { tools: vec![0], ..Shown::default() };
        assert!(only.only(&shown).is_only_a_task("s__t"));
        let either = served(&[r#"{"name":"t","execution":{"taskSupport":"optional"}}"#], Era::Legacy);
        assert!(!either.is_only_a_task("s__t"));
    }

    #[test]
    fn an_output_that_cannot_be_rewritten_is_not_described_to_legacy_clients() {
        let deep = format!("{}true{}", r#"{"not":"#.repeat(100), "}".repeat(100));
        let served = served(&[&format!(r#"{{"name":"t","outputSchema":{deep}}}"#)], Era::Modern);
        assert!(!served.tools_for(Era::Legacy).page(0, 9).0.contains("outputSchema"));
        assert!(served.wraps_output_for(Era::Legacy, "s__t"));
    }
}

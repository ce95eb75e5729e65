//! Catalog of one upstream: tools, resources, templates and prompts in the server's own bytes and order, and the
//! differences between two listings.

pub mod holders;
pub mod merge;
pub mod names;

use crate::failure::recovery::ToolHints;
use crate::json_text::JsonText;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One listing of one upstream.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Catalog {
    /// `tools/list`, keyed by name.
    pub tools: Vec<Item>,
    /// `resources/list`, keyed by URI.
    pub resources: Vec<Item>,
    /// `resources/templates/list`, keyed by URI template.
    pub templates: Vec<Item>,
    /// `prompts/list`, keyed by name.
    pub prompts: Vec<Item>,
}

/// One listed item.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Item {
    /// Its key within its list.
    pub key: String,
    /// The hints of a tool; empty for other items.
    #[serde(default)]
    pub hints: ToolHints,
    /// The item as the server wrote it.
    pub raw: JsonText,
}

/// The differences between two listings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    /// Differences of the tools.
    pub tools: Changes,
    /// Differences of resources and templates, for which clients get one notification.
    pub resources: Changes,
    /// Differences of the prompts.
    pub prompts: Changes,
}

/// The differences between two lists, by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Keys that are new.
    pub added: Vec<String>,
    /// Keys that are gone.
    pub removed: Vec<String>,
    /// Keys whose item changed.
    pub changed: Vec<String>,
    /// The same items in another order.
    pub reordered: bool,
}

impl Catalog {
    /// The tool with this name.
    pub fn tool(&self, name: &str) -> Option<&Item> {
        self.tools.iter().find(|tool| tool.key == name)
    }

    /// Returns whether both have the same items in the same order, byte for byte.
    pub fn is_identical(&self, other: &Self) -> bool {
        let same = |ours: &[Item], theirs: &[Item]| {
            let mut pairs = ours.iter().zip(theirs);
            ours.len() == theirs.len()
                && pairs.all(|(one, other)| one.key == other.key && one.raw.get() == other.raw.get())
        };
        same(&self.tools, &other.tools)
            && same(&self.resources, &other.resources)
            && same(&self.templates, &other.templates)
            && same(&self.prompts, &other.prompts)
    }

    /// Differences of `newer` compared with this listing.
    pub fn diff(&self, newer: &Self) -> Diff {
        let mut resources = changes(&self.resources, &newer.resources);
        resources.merge(changes(&self.templates, &newer.templates));
        Diff {
            tools: changes(&self.tools, &newer.tools),
            resources,
            prompts: changes(&self.prompts, &newer.prompts),
        }
    }
}

impl Diff {
    /// Returns whether there are no differences.
    pub fn is_empty(&self) -> bool {
        [&self.tools, &self.resources, &self.prompts].into_iter().all(Changes::is_empty)
    }

    /// The numbers of added, removed and changed items.
    pub fn counts(&self) -> (usize, usize, usize) {
        let lists = [&self.tools, &self.resources, &self.prompts];
        let sum = |count: fn(&Changes) -> usize| lists.into_iter().map(count).sum();
        (sum(|c| c.added.len()), sum(|c| c.removed.len()), sum(|c| c.changed.len()))
    }
}

impl Changes {
    /// Returns whether there are no differences.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty() && !self.reordered
    }

    fn merge(&mut self, other: Self) {
        self.added.extend(other.added);
        self.removed.extend(other.removed);
        self.changed.extend(other.changed);
        self.reordered |= other.reordered;
    }
}

fn changes(older: &[Item], newer: &[Item]) -> Changes {
    let known: BTreeMap<&str, &str> = older.iter().map(|item| (item.key.as_str(), item.raw.get())).collect();
    let mut left = known.clone();
    let mut changes = Changes::default();
    for item in newer {
        left.remove(item.key.as_str());
        match known.get(item.key.as_str()) {
            None => changes.added.push(item.key.clone()),
            Some(raw) if *raw != item.raw.get() => changes.changed.push(item.key.clone()),
            Some(_) => {}
        }
    }
    changes.removed = left.into_keys().map(str::to_owned).collect();
    let same_items = changes.added.is_empty() && changes.removed.is_empty();
    changes.reordered = same_items && older.iter().map(|i| &i.key).ne(newer.iter().map(|i| &i.key));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(list: &[(&str, &str)]) -> Vec<Item> {
        list.iter()
            .map(|(key, raw)| Item {
                key: (*key).to_owned(),
                hints: ToolHints::default(),
                raw: JsonText::parse((*raw).to_owned()).unwrap(),
            })
            .collect()
    }

    #[test]
    fn b05_a_diff_names_added_removed_and_changed_items() {
        let older = Catalog { tools: items(&[("a", "1"), ("b", "2"), ("c", "3")]), ..Catalog::default() };
        let newer = Catalog { tools: items(&[("b", "2"), ("c", "33"), ("d", "4")]), ..Catalog::default() };
        let diff = older.diff(&newer);
        assert_eq!(diff.tools.added, ["d"]);
        assert_eq!(diff.tools.removed, ["a"]);
        assert_eq!(diff.tools.changed, ["c"]);
        assert_eq!(diff.counts(), (1, 1, 1));
        assert!(older.diff(&older.clone()).is_empty());
    }

    #[test]
    fn a_changed_order_counts_as_a_difference() {
        let older = Catalog { prompts: items(&[("a", "1"), ("b", "2")]), ..Catalog::default() };
        let newer = Catalog { prompts: items(&[("b", "2"), ("a", "1")]), ..Catalog::default() };
        assert!(older.diff(&newer).prompts.reordered);
    }

    #[test]
    fn b06_a_stored_listing_round_trips_byte_for_byte() {
        let spelled = r#"{"name":"a",  "n":1.0e+5,"é":"\u00e9"}"#;
        let catalog = Catalog { tools: items(&[("a", spelled)]), ..Catalog::default() };
        let stored = serde_json::to_string(&catalog).unwrap();
        let back: Catalog = serde_json::from_str(&stored).unwrap();
        assert_eq!(back.tools[0].raw.get(), spelled);
    }
}

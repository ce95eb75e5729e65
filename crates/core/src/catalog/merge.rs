//! Many catalogs as one: which public name belongs to which server, in an order that does not depend on
//! who came up first.

use super::names;
use super::{Catalog, Item};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One server's part, in the order of the config.
#[derive(Debug, Clone)]
pub struct Source {
    /// The server's name.
    pub server: String,
    /// The prefix of its tools and prompts; empty for none.
    pub prefix: String,
    /// What it offers, as far as it may be seen.
    pub catalog: Arc<Catalog>,
    /// URIs that its tools name, whether or not they are listed.
    pub linked: Vec<String>,
}

/// Everything that all servers offer, under public names.
#[derive(Debug, Clone, Default)]
pub struct Menu {
    /// The servers, as they were given.
    pub sources: Vec<Source>,
    /// All tools.
    pub tools: PublicList,
    /// All resources.
    pub resources: PublicList,
    /// All resource templates.
    pub templates: PublicList,
    /// All prompts.
    pub prompts: PublicList,
    /// Names of tools and prompts that had to give way to another server's. URIs that two servers have name their
    /// server as a rule, which is nothing to tell.
    pub renamed: Vec<Renamed>,
    /// Which of the sources has a URI that tools name and nobody lists: the first one that names it.
    linked: BTreeMap<String, usize>,
}

/// One merged list.
#[derive(Debug, Clone, Default)]
pub struct PublicList {
    /// In the order of the servers, and within one in its own.
    pub entries: Vec<Entry>,
    by_name: BTreeMap<String, usize>,
}

/// One offered thing and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What clients call it.
    pub public: String,
    /// Which of the sources it belongs to.
    pub source: usize,
    /// Which item of the source's list it is.
    pub item: usize,
}

/// A name that had to give way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    /// Whose it is.
    pub server: String,
    /// What it would have been called.
    pub wanted: String,
    /// What it is called.
    pub public: String,
}

/// Where a public name leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination<'a> {
    /// The server.
    pub server: &'a str,
    /// The server's own name or URI for it.
    pub key: &'a str,
}

/// One of the lists of a menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// A tool.
    Tool,
    /// A resource.
    Resource,
    /// A template of resources.
    Template,
    /// A prompt.
    Prompt,
}

/// What of a menu somebody is shown: places in each of its lists, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// Of the tools.
    pub tools: Vec<usize>,
    /// Of the resources.
    pub resources: Vec<usize>,
    /// Of the resource templates.
    pub templates: Vec<usize>,
    /// Of the prompts.
    pub prompts: Vec<usize>,
}

impl Menu {
    /// Merges the sources. The earlier server keeps a name that two want.
    pub fn merge(sources: Vec<Source>) -> Self {
        let mut menu = Self::default();
        for (at, source) in sources.iter().enumerate() {
            let catalog = &source.catalog;
            let named = |item: &Item| {
                let wanted = names::public(&source.prefix, &item.key);
                let second = names::public(&source.server, &item.key);
                vec![wanted, second, names::distinguished(&source.server, &item.key)]
            };
            let addressed =
                |item: &Item| vec![item.key.clone(), names::shared_uri(&source.server, &item.key)];
            menu.tools.add(at, source, &catalog.tools, named, &mut menu.renamed);
            menu.prompts.add(at, source, &catalog.prompts, named, &mut menu.renamed);
            let mut addresses = Vec::new();
            menu.resources.add(at, source, &catalog.resources, addressed, &mut addresses);
            menu.templates.add(at, source, &catalog.templates, addressed, &mut addresses);
        }
        for (at, source) in sources.iter().enumerate() {
            let unlisted = source.linked.iter().filter(|uri| !menu.resources.by_name.contains_key(*uri));
            for uri in unlisted {
                menu.linked.entry(uri.clone()).or_insert(at);
            }
        }
        menu.sources = sources;
        menu
    }

    /// What clients call the resource that one of the sources calls `uri`.
    pub fn public_uri<'a>(&self, source: usize, uri: &'a str) -> Cow<'a, str> {
        let listed = self.resources.by_name.get(uri).map(|at| self.resources.entries[*at].source);
        match listed.or_else(|| self.linked.get(uri).copied()) {
            Some(owner) if owner != source => names::shared_uri(&self.sources[source].server, uri).into(),
            Some(_) | None => uri.into(),
        }
    }

    /// What of it `shows` lets be seen, asked with the server's name and the server's own item.
    pub fn shown(&self, shows: impl Fn(Offer, &str, &Item) -> bool) -> Shown {
        let of = |offer, list: &PublicList, items: fn(&Catalog) -> &Vec<Item>| {
            let seen = list.entries.iter().enumerate().filter(|(_, entry)| {
                let source = &self.sources[entry.source];
                shows(offer, &source.server, &items(&source.catalog)[entry.item])
            });
            seen.map(|(at, _)| at).collect()
        };
        Shown {
            tools: of(Offer::Tool, &self.tools, |catalog| &catalog.tools),
            resources: of(Offer::Resource, &self.resources, |catalog| &catalog.resources),
            templates: of(Offer::Template, &self.templates, |catalog| &catalog.templates),
            prompts: of(Offer::Prompt, &self.prompts, |catalog| &catalog.prompts),
        }
    }

    /// The servers that have something on it.
    pub fn servers(&self) -> BTreeSet<&str> {
        let lists = [&self.tools, &self.resources, &self.templates, &self.prompts];
        let entries = lists.into_iter().flat_map(|list| &list.entries);
        let sources: BTreeSet<usize> = entries.map(|entry| entry.source).collect();
        sources.into_iter().map(|source| self.sources[source].server.as_str()).collect()
    }

    /// The same menu without what is not shown. Everything keeps its name, so that one name means one thing
    /// to everybody.
    #[must_use]
    pub fn only(&self, shown: &Shown) -> Self {
        Self {
            sources: self.sources.clone(),
            tools: self.tools.only(&shown.tools),
            resources: self.resources.only(&shown.resources),
            templates: self.templates.only(&shown.templates),
            prompts: self.prompts.only(&shown.prompts),
            renamed: self.renamed.clone(),
            linked: self.linked.clone(),
        }
    }

    /// The tool that clients call by this name.
    pub fn tool(&self, public: &str) -> Option<(Destination<'_>, &Item)> {
        self.find(&self.tools, public, |catalog| &catalog.tools)
    }

    /// The prompt that clients call by this name.
    pub fn prompt(&self, public: &str) -> Option<(Destination<'_>, &Item)> {
        self.find(&self.prompts, public, |catalog| &catalog.prompts)
    }

    /// Who serves a URI, and under which URI: a listed one, one that names its server, one that a tool names,
    /// or one that fits a template.
    pub fn resource<'a>(&'a self, uri: &'a str) -> Option<Destination<'a>> {
        let listed = self.find(&self.resources, uri, |catalog| &catalog.resources);
        if let Some((destination, _)) = listed {
            return Some(destination);
        }
        let named = self.sources.iter().find_map(|source| {
            let key = names::own_uri(&source.server, uri)?;
            Some(Destination { server: &source.server, key })
        });
        let linked = || {
            let source = &self.sources[*self.linked.get(uri)?];
            Some(Destination { server: &source.server, key: uri })
        };
        named.or_else(linked).or_else(|| self.by_template(uri))
    }

    /// The only server that lists resources beneath a URI, which is then a directory of it.
    pub fn directory<'a>(&'a self, uri: &'a str) -> Option<Destination<'a>> {
        let beneath = |entry: &&Entry| {
            let rest = entry.public.strip_prefix(uri);
            rest.is_some_and(|rest| uri.ends_with('/') || rest.starts_with('/'))
        };
        let mut owners = self.resources.entries.iter().filter(beneath).map(|entry| entry.source);
        let first = owners.next()?;
        owners
            .all(|owner| owner == first)
            .then(|| Destination { server: &self.sources[first].server, key: uri })
    }

    /// Who completes arguments for a URI: the template of this very text, or whoever serves it.
    pub fn template_or_resource<'a>(&'a self, uri: &'a str) -> Option<Destination<'a>> {
        let template = self.find(&self.templates, uri, |catalog| &catalog.templates);
        template.map(|(destination, _)| destination).or_else(|| self.resource(uri))
    }

    fn by_template<'a>(&'a self, uri: &'a str) -> Option<Destination<'a>> {
        self.templates.entries.iter().find_map(|entry| {
            let source = &self.sources[entry.source];
            let template = &source.catalog.templates[entry.item].key;
            fits(template, uri).then_some(Destination { server: &source.server, key: uri })
        })
    }

    fn find<'a>(
        &'a self,
        list: &PublicList,
        public: &str,
        items: impl Fn(&'a Catalog) -> &'a Vec<Item>,
    ) -> Option<(Destination<'a>, &'a Item)> {
        let entry = &list.entries[*list.by_name.get(public)?];
        let source = &self.sources[entry.source];
        let item = &items(&source.catalog)[entry.item];
        Some((Destination { server: &source.server, key: &item.key }, item))
    }
}

impl PublicList {
    fn only(&self, places: &[usize]) -> Self {
        let entries: Vec<Entry> = places.iter().map(|at| self.entries[*at].clone()).collect();
        let by_name = entries.iter().enumerate().map(|(at, entry)| (entry.public.clone(), at)).collect();
        Self { entries, by_name }
    }

    /// Adds a source's items, each under the first of its candidate names that is free.
    fn add(
        &mut self,
        source_at: usize,
        source: &Source,
        items: &[Item],
        candidates: impl Fn(&Item) -> Vec<String>,
        renamed: &mut Vec<Renamed>,
    ) {
        for (item_at, item) in items.iter().enumerate() {
            let candidates = candidates(item);
            let Some(public) = candidates.iter().find(|name| !self.by_name.contains_key(*name)) else {
                // Even the distinguished name is taken: it is the very same item again.
                continue;
            };
            if *public != candidates[0] {
                renamed.push(Renamed {
                    server: source.server.clone(),
                    wanted: candidates[0].clone(),
                    public: public.clone(),
                });
            }
            self.by_name.insert(public.clone(), self.entries.len());
            self.entries.push(Entry { public: public.clone(), source: source_at, item: item_at });
        }
    }
}

/// Whether `uri` could come from `template`: its literal parts occur in order, the first at the beginning
/// and the last at the end. Which variables they enclose is the server's business.
fn fits(template: &str, uri: &str) -> bool {
    let mut literals = template.split('{').enumerate().map(|(at, part)| match at {
        0 => part,
        _ => part.split_once('}').map_or("", |(_, literal)| literal),
    });
    let Some(mut rest) = literals.next().and_then(|first| uri.strip_prefix(first)) else { return false };
    if !template.contains('{') {
        return rest.is_empty();
    }
    let literals: Vec<&str> = literals.collect();
    let Some((last, middle)) = literals.split_last() else { return false };
    for literal in middle {
        match rest.find(literal) {
            Some(at) => rest = &rest[at + literal.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn items(keys: &[&str]) -> Vec<Item> {
        let raw = |key: &str| RawValue::from_string(format!("{{\"name\":\"{key}\"}}")).unwrap();
        keys.iter()
            .map(|key| Item { key: (*key).to_owned(), hints: Default::default(), raw: raw(key) })
            .collect()
    }

    fn source(server: &str, prefix: &str, tools: &[&str], uris: &[&str]) -> Source {
        let catalog = Catalog { tools: items(tools), resources: items(uris), ..Catalog::default() };
        Source {
            server: server.to_owned(),
            prefix: prefix.to_owned(),
            catalog: Arc::new(catalog),
            linked: Vec::new(),
        }
    }

    fn names(list: &PublicList) -> Vec<&str> {
        list.entries.iter().map(|entry| entry.public.as_str()).collect()
    }

    #[test]
    fn tools_are_listed_in_config_order_under_their_servers_prefix() {
        let menu = Menu::merge(vec![source("b", "b", &["y", "x"], &[]), source("a", "a", &["x"], &[])]);
        assert_eq!(names(&menu.tools), ["b__y", "b__x", "a__x"]);
        let (destination, _) = menu.tool("a__x").unwrap();
        assert_eq!(destination, Destination { server: "a", key: "x" });
    }

    #[test]
    fn where_two_unprefixed_names_collide_the_later_one_gets_its_prefix_and_that_is_told() {
        let menu = Menu::merge(vec![source("one", "", &["x"], &[]), source("two", "", &["x", "y"], &[])]);
        assert_eq!(names(&menu.tools), ["x", "two__x", "y"]);
        let told = Renamed { server: "two".into(), wanted: "x".into(), public: "two__x".into() };
        assert_eq!(menu.renamed, [told]);
        assert_eq!(menu.tool("two__x").unwrap().0, Destination { server: "two", key: "x" });
    }

    #[test]
    fn g01_what_is_not_shown_is_gone_and_nothing_else_changes_its_name_for_it() {
        let menu =
            Menu::merge(vec![source("one", "", &["x"], &["a:1"]), source("two", "", &["x", "y"], &[])]);
        let shown = menu
            .shown(|offer, server, item| offer != Offer::Resource && !(server == "one" && item.key == "x"));
        let only = menu.only(&shown);
        assert_eq!((names(&only.tools), names(&only.resources)), (vec!["two__x", "y"], vec![]));
        assert!(only.tool("x").is_none() && only.resource("a:1").is_none());
        assert_eq!(only.tool("two__x").unwrap().0, Destination { server: "two", key: "x" });
    }

    #[test]
    fn two_servers_with_the_same_prefix_keep_all_their_tools() {
        let menu = Menu::merge(vec![source("one", "p", &["x"], &[]), source("two", "p", &["x"], &[])]);
        assert_eq!(names(&menu.tools), ["p__x", "two__x"]);
    }

    #[test]
    fn a_uri_that_two_servers_share_names_its_server_for_the_later_one() {
        let menu = Menu::merge(vec![
            source("one", "one", &[], &["file:///a"]),
            source("two", "two", &[], &["file:///a"]),
        ]);
        assert_eq!(names(&menu.resources), ["file:///a", "two+file:///a"]);
        assert_eq!(menu.resource("file:///a"), Some(Destination { server: "one", key: "file:///a" }));
        assert_eq!(menu.resource("two+file:///a"), Some(Destination { server: "two", key: "file:///a" }));
        assert_eq!(menu.resource("file:///b"), None);
    }

    #[test]
    fn a_uri_that_only_tools_name_belongs_to_the_first_of_their_servers_and_names_the_others() {
        let linking = |server: &str, listed: &[&str], linked: &[&str]| Source {
            linked: linked.iter().map(|uri| (*uri).to_owned()).collect(),
            ..source(server, server, &[], listed)
        };
        let menu = Menu::merge(vec![
            linking("one", &[], &["ui://a", "ui://b"]),
            linking("two", &["ui://b"], &["ui://a", "ui://b"]),
        ]);
        let to = |server: &'static str, key: &'static str| Some(Destination { server, key });
        assert_eq!(
            (menu.public_uri(0, "ui://a"), menu.resource("ui://a")),
            ("ui://a".into(), to("one", "ui://a"))
        );
        assert_eq!(menu.public_uri(1, "ui://a"), "ui://two+ui://a");
        assert_eq!(menu.resource("ui://two+ui://a"), to("two", "ui://a"));
        // What is listed is not taken away by what is merely named.
        assert_eq!(
            (menu.public_uri(1, "ui://b"), menu.resource("ui://b")),
            ("ui://b".into(), to("two", "ui://b"))
        );
        assert_eq!(menu.public_uri(0, "ui://b"), "ui://one+ui://b");
        assert_eq!(menu.public_uri(0, "ui://c"), "ui://c");
    }

    #[test]
    fn a_directory_belongs_to_the_only_server_that_lists_something_in_it() {
        let menu = Menu::merge(vec![
            source(
                "one",
                "one",
                &[],
                &["skill://desk/SKILL.md", "skill://desk/more/x.md", "skill://shared/a"],
            ),
            source("two", "two", &[], &["skill://desktop/SKILL.md", "skill://shared/b"]),
        ]);
        let owner = |uri| menu.directory(uri).map(|to| (to.server, to.key));
        assert_eq!(owner("skill://desk"), Some(("one", "skill://desk")));
        assert_eq!(owner("skill://desk/more/"), Some(("one", "skill://desk/more/")));
        assert_eq!(owner("skill://desktop"), Some(("two", "skill://desktop")));
        assert_eq!(
            (owner("skill://shared"), owner("skill://none"), owner("skill://desk/mor")),
            (None, None, None)
        );
    }

    #[test]
    fn an_unlisted_uri_goes_to_the_server_whose_template_it_fits() {
        let mut templated = source("one", "one", &[], &[]);
        let catalog = Catalog {
            templates: items(&["demo://echo/{text}", "db://{table}/rows/{id}.json"]),
            ..Catalog::default()
        };
        templated.catalog = Arc::new(catalog);
        let menu = Menu::merge(vec![templated]);
        assert!(menu.resource("demo://echo/hello").is_some());
        assert!(menu.resource("db://users/rows/7.json").is_some());
        assert!(menu.resource("db://users/rows/7.xml").is_none());
        assert!(menu.resource("demo://other/hello").is_none());
    }
}

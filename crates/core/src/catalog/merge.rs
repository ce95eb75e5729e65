//! Many catalogs as one: which public name belongs to which server. The holder of a name keeps it; config order decides
//! about names that no server holds yet.

use super::holders::{HeldNames, Holders, Owner};
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
    /// The names that it holds.
    pub held: Arc<HeldNames>,
}

/// A server that offers nothing for now, being switched off or unusable. It keeps the names that it holds.
#[derive(Debug, Clone)]
pub struct Absent {
    /// The server's name.
    pub server: String,
    /// The prefix of its tools and prompts; empty for none.
    pub prefix: String,
    /// The names that it holds.
    pub held: Arc<HeldNames>,
}

/// A name that a server goes by and does not hold yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Which of the sources offers it.
    pub source: usize,
    /// In which list.
    pub offer: Offer,
    /// The public name or URI.
    pub name: String,
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
    /// Names and URIs that had to give way to another server's.
    pub renamed: Vec<Renamed>,
    /// Names that servers go by and do not hold yet.
    pub claims: Vec<Claim>,
    /// Which of the sources has a URI that tools name and nobody lists: the first one that names it.
    linked: BTreeMap<String, usize>,
    /// URIs that a source lists or names and may not go by: they have its own name in front.
    set_apart: BTreeMap<usize, BTreeSet<String>>,
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
    /// Since when its server holds it, in milliseconds since the Unix epoch.
    pub since: Option<u64>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

impl Offer {
    /// All lists.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Resource, Self::Template, Self::Prompt];
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
    /// Merges the sources, of which a name belongs to the one that holds it, or else to the first that wants it. A server
    /// that may not have a name goes by one with its own name in front.
    pub fn merge(sources: Vec<Source>, absent: &[Absent]) -> Self {
        let mut menu = Self::default();
        let owners = sources
            .iter()
            .map(|source| Owner { server: &source.server, prefix: &source.prefix, held: &source.held })
            .chain(absent.iter().map(|absent| Owner {
                server: &absent.server,
                prefix: &absent.prefix,
                held: &absent.held,
            }));
        let holders = Holders::new(owners);
        for (at, source) in sources.iter().enumerate() {
            let catalog = &source.catalog;
            let named = |item: &Item| {
                let wanted = names::public(&source.prefix, &item.key);
                let second = names::public(&source.server, &item.key);
                vec![wanted, second, names::distinguished(&source.server, &item.key)]
            };
            let addressed =
                |item: &Item| vec![item.key.clone(), names::shared_uri(&source.server, &item.key)];
            let mut adding = Adding {
                at,
                source,
                holders: &holders,
                renamed: &mut menu.renamed,
                claims: &mut menu.claims,
                set_apart: menu.set_apart.entry(at).or_default(),
            };
            menu.tools.add(Offer::Tool, &catalog.tools, named, &mut adding);
            menu.prompts.add(Offer::Prompt, &catalog.prompts, named, &mut adding);
            menu.resources.add(Offer::Resource, &catalog.resources, addressed, &mut adding);
            menu.templates.add(Offer::Template, &catalog.templates, addressed, &mut adding);
        }
        for (at, source) in sources.iter().enumerate() {
            let unlisted = source.linked.iter().filter(|uri| !menu.resources.by_name.contains_key(*uri));
            for uri in unlisted {
                if !holders.may_have(at, Offer::Resource, uri) {
                    menu.set_apart.entry(at).or_default().insert(uri.clone());
                } else if !menu.linked.contains_key(uri) {
                    menu.linked.insert(uri.clone(), at);
                    if holders.holder(Offer::Resource, uri).is_none() && holders.is_open(Offer::Resource, uri)
                    {
                        menu.claims.push(Claim { source: at, offer: Offer::Resource, name: uri.clone() });
                    }
                }
            }
        }
        menu.sources = sources;
        menu
    }

    /// What clients call the resource that one of the sources calls `uri`.
    pub fn public_uri<'a>(&self, source: usize, uri: &'a str) -> Cow<'a, str> {
        if self.set_apart.get(&source).is_some_and(|apart| apart.contains(uri)) {
            return names::shared_uri(&self.sources[source].server, uri).into();
        }
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
            claims: Vec::new(),
            linked: self.linked.clone(),
            set_apart: self.set_apart.clone(),
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

    /// Of several templates that a URI fits, the one that was offered first counts.
    fn by_template<'a>(&'a self, uri: &'a str) -> Option<Destination<'a>> {
        let fitting = self
            .templates
            .entries
            .iter()
            .filter(|entry| fits(&self.sources[entry.source].catalog.templates[entry.item].key, uri));
        let first = fitting.min_by_key(|entry| entry.since.unwrap_or(u64::MAX))?;
        Some(Destination { server: &self.sources[first.source].server, key: uri })
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

    /// Adds a source's items, each under the first of its candidate names that it may have and that is free.
    fn add(
        &mut self,
        offer: Offer,
        items: &[Item],
        candidates: impl Fn(&Item) -> Vec<String>,
        adding: &mut Adding<'_>,
    ) {
        let Adding { at, source, holders, .. } = *adding;
        for (item_at, item) in items.iter().enumerate() {
            let candidates = candidates(item);
            let is_free =
                |name: &&String| !self.by_name.contains_key(*name) && holders.may_have(at, offer, name);
            let Some(public) = candidates.iter().find(is_free) else {
                // Even the distinguished name is taken: it is the very same item again.
                continue;
            };
            if *public != candidates[0] {
                adding.renamed.push(Renamed {
                    server: source.server.clone(),
                    wanted: candidates[0].clone(),
                    public: public.clone(),
                });
                if offer == Offer::Resource {
                    adding.set_apart.insert(item.key.clone());
                }
            }
            let since = source.held.since(offer, public);
            if since.is_none() && holders.is_open(offer, public) {
                adding.claims.push(Claim { source: at, offer, name: public.clone() });
            }
            self.by_name.insert(public.clone(), self.entries.len());
            self.entries.push(Entry { public: public.clone(), source: at, item: item_at, since });
        }
    }
}

/// What is added to the lists of a menu, and what comes of it.
struct Adding<'a> {
    at: usize,
    source: &'a Source,
    holders: &'a Holders<'a>,
    renamed: &'a mut Vec<Renamed>,
    claims: &'a mut Vec<Claim>,
    set_apart: &'a mut BTreeSet<String>,
}

/// Whether `uri` could come from `template`: its literal parts occur in order, the first at the beginning
/// and the last at the end. Which variables they enclose is the server's business.
pub(super) fn fits(template: &str, uri: &str) -> bool {
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
            held: Arc::default(),
        }
    }

    fn merge(sources: Vec<Source>) -> Menu {
        Menu::merge(sources, &[])
    }

    /// The sources with what a menu of them made them hold.
    fn holding(sources: &[Source], now: u64) -> Vec<Source> {
        let menu = merge(sources.to_vec());
        let mut sources = sources.to_vec();
        for Claim { source, offer, name } in menu.claims {
            assert!(Arc::make_mut(&mut sources[source].held).hold(offer, &name, now));
        }
        sources
    }

    fn names(list: &PublicList) -> Vec<&str> {
        list.entries.iter().map(|entry| entry.public.as_str()).collect()
    }

    #[test]
    fn tools_are_listed_in_config_order_under_their_servers_prefix() {
        let menu = merge(vec![source("b", "b", &["y", "x"], &[]), source("a", "a", &["x"], &[])]);
        assert_eq!(names(&menu.tools), ["b__y", "b__x", "a__x"]);
        let (destination, _) = menu.tool("a__x").unwrap();
        assert_eq!(destination, Destination { server: "a", key: "x" });
    }

    #[test]
    fn where_two_unprefixed_names_collide_the_later_one_gets_its_prefix_and_that_is_told() {
        let menu = merge(vec![source("one", "", &["x"], &[]), source("two", "", &["x", "y"], &[])]);
        assert_eq!(names(&menu.tools), ["x", "two__x", "y"]);
        let told = Renamed { server: "two".into(), wanted: "x".into(), public: "two__x".into() };
        assert_eq!(menu.renamed, [told]);
        assert_eq!(menu.tool("two__x").unwrap().0, Destination { server: "two", key: "x" });
    }

    #[test]
    fn g01_what_is_not_shown_is_gone_and_nothing_else_changes_its_name_for_it() {
        let menu = merge(vec![source("one", "", &["x"], &["a:1"]), source("two", "", &["x", "y"], &[])]);
        let shown = menu
            .shown(|offer, server, item| offer != Offer::Resource && !(server == "one" && item.key == "x"));
        let only = menu.only(&shown);
        assert_eq!((names(&only.tools), names(&only.resources)), (vec!["two__x", "y"], vec![]));
        assert!(only.tool("x").is_none() && only.resource("a:1").is_none());
        assert_eq!(only.tool("two__x").unwrap().0, Destination { server: "two", key: "x" });
    }

    #[test]
    fn two_servers_with_the_same_prefix_keep_all_their_tools() {
        let menu = merge(vec![source("one", "p", &["x"], &[]), source("two", "p", &["x"], &[])]);
        assert_eq!(names(&menu.tools), ["p__x", "two__x"]);
    }

    #[test]
    fn a_uri_that_two_servers_share_names_its_server_for_the_later_one() {
        let menu =
            merge(vec![source("one", "one", &[], &["file:///a"]), source("two", "two", &[], &["file:///a"])]);
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
        let menu = merge(vec![
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
        let menu = merge(vec![
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
        let menu = merge(vec![templated]);
        assert!(menu.resource("demo://echo/hello").is_some());
        assert!(menu.resource("db://users/rows/7.json").is_some());
        assert!(menu.resource("db://users/rows/7.xml").is_none());
        assert!(menu.resource("demo://other/hello").is_none());
    }

    /// An earlier server took over another server's name at run time.
    #[test]
    fn g01_the_holder_of_a_name_or_uri_keeps_it_from_an_earlier_server() {
        let before = holding(&[source("one", "", &["a"], &[]), source("two", "", &["x"], &["file:///a"])], 1);
        let mut after = before.clone();
        after[0].catalog = source("one", "", &["a", "x"], &["file:///a"]).catalog;
        let menu = merge(after.clone());
        assert_eq!(menu.tool("x").unwrap().0.server, "two");
        assert_eq!(menu.resource("file:///a").unwrap().server, "two");
        assert_eq!(names(&menu.tools), ["a", "one__x", "x"]);
        assert_eq!(names(&menu.resources), ["one+file:///a", "file:///a"]);
        let renamed: Vec<&str> = menu.renamed.iter().map(|one| one.public.as_str()).collect();
        assert_eq!(renamed, ["one__x", "one+file:///a"]);
        assert_eq!(menu.claims, []);
        // Nor is it free while its holder is away, or offers it no more.
        after[1].catalog = Arc::default();
        assert_eq!(names(&merge(after.clone()).tools), ["a", "one__x"]);
        let two = after.pop().unwrap();
        let absent = Absent { server: two.server, prefix: two.prefix, held: two.held };
        let menu = Menu::merge(after.clone(), &[absent]);
        assert_eq!(names(&menu.tools), ["a", "one__x"]);
        assert_eq!(menu.public_uri(0, "file:///a"), "one+file:///a", "as it is listed");
        assert_eq!(names(&merge(after).tools), ["a", "x"], "a server that is gone holds nothing");
    }

    #[test]
    fn config_order_decides_about_what_is_offered_first_at_the_same_time() {
        let sources = holding(&[source("one", "", &["x"], &["a:1"]), source("two", "", &["x"], &["a:1"])], 1);
        let mut reordered = sources.clone();
        reordered.reverse();
        for menu in [merge(sources), merge(reordered)] {
            assert_eq!(menu.tool("x").unwrap().0.server, "one");
            assert_eq!(menu.resource("a:1").unwrap().server, "one");
        }
    }

    /// A server without prefix offered `two__x`, and was called in the place of `x` of `two`.
    #[test]
    fn g01_a_name_that_is_written_as_another_servers_is_not_given_away() {
        let menu = merge(vec![
            source("one", "", &["two__x", "t__x", "gone__x"], &["two+a:1", "ui://two+ui://p"]),
            source("two", "t", &["x"], &["a:1"]),
            source("git", "git", &["hub__x"], &[]),
            source("git__hub", "git__hub", &["x"], &[]),
        ]);
        let owner = |name: &str| menu.tool(name).unwrap().0.server.to_owned();
        assert_eq!(owner("t__x"), "two");
        assert_eq!(owner("git__hub__x"), "git__hub");
        assert!(menu.tool("two__x").is_none());
        assert_eq!(
            (owner("one__two__x"), owner("one__t__x"), owner("gone__x")),
            ("one".into(), "one".into(), "one".into())
        );
        assert_eq!(menu.resource("two+a:1"), Some(Destination { server: "two", key: "a:1" }));
        assert_eq!(menu.resource("one+two+a:1").unwrap().key, "two+a:1");
        assert_eq!(menu.resource("ui://two+ui://p").unwrap().server, "two");
        let absent = Absent { server: "off".into(), prefix: "off".into(), held: Arc::default() };
        let menu = Menu::merge(vec![source("one", "", &["off__x"], &[])], &[absent]);
        assert_eq!(names(&menu.tools), ["one__off__x"], "also of one that is switched off");
    }

    #[test]
    fn g01_what_a_template_serves_is_not_taken_over_by_a_later_template_listing_or_link() {
        let with = |server: &str, templates: &[&str], uris: &[&str]| Source {
            catalog: Arc::new(Catalog {
                templates: items(templates),
                resources: items(uris),
                ..Catalog::default()
            }),
            ..source(server, server, &[], &[])
        };
        let before = holding(&[with("one", &[], &[]), with("two", &["db://{table}"], &[])], 1);
        let mut after = before.clone();
        after[0].catalog = with("one", &["db://{x}", "{any}"], &["db://users"]).catalog;
        after[0].linked = vec!["db://links".to_owned()];
        let after = holding(&after, 2);
        for uri in ["db://users", "db://links", "db://others"] {
            assert_eq!(merge(after.clone()).resource(uri).unwrap().server, "two", "{uri}");
        }
        assert_eq!(merge(after.clone()).resource("one+db://users").unwrap().server, "one");
        assert_eq!(merge(after.clone()).public_uri(0, "db://links"), "one+db://links");
        assert_eq!(merge(after).resource("x://y").unwrap().server, "one");
    }

    #[test]
    fn held_names_are_bounded_and_the_earlier_time_counts() {
        let mut held = HeldNames::default();
        for number in 0..HeldNames::MOST + 5 {
            held.hold(Offer::Resource, &number.to_string(), 7);
        }
        assert_eq!(held.since(Offer::Resource, &HeldNames::MOST.to_string()), None);
        let mut others = HeldNames::default();
        others.hold(Offer::Resource, "1", 3);
        others.hold(Offer::Tool, "x", 9);
        held.adopt(&others);
        assert_eq!((held.since(Offer::Resource, "1"), held.since(Offer::Tool, "x")), (Some(3), Some(9)));
    }
}

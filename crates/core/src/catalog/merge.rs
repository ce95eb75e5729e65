//! Merges the catalogs of all servers and assigns public names. The holder of a name keeps it; config order decides
//! about names that no server holds yet.

use super::holders::{HeldNames, NameHolders, NameOwner};
use super::names;
use super::{Catalog, Item};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The catalog of one server, in config order.
#[derive(Debug, Clone)]
pub struct CatalogSource {
    /// The server's name.
    pub server: String,
    /// The prefix of its tools and prompts; empty if it has none.
    pub prefix: String,
    /// Its items, as far as the policy shows them.
    pub catalog: Arc<Catalog>,
    /// URIs that its tools refer to, listed or not.
    pub linked: Vec<String>,
    /// The names that it holds.
    pub held: Arc<HeldNames>,
}

/// A server that offers nothing now because it is disabled or unusable. It keeps the names that it holds.
#[derive(Debug, Clone)]
pub struct AbsentServer {
    /// The server's name.
    pub server: String,
    /// The prefix of its tools and prompts; empty if it has none.
    pub prefix: String,
    /// The names that it holds.
    pub held: Arc<HeldNames>,
}

/// A name that a server uses and does not hold yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameClaim {
    /// Index of the source.
    pub source: usize,
    /// The list it is in.
    pub kind: ListKind,
    /// The public name or URI.
    pub name: String,
}

/// The items of all servers under public names.
#[derive(Debug, Clone, Default)]
pub struct MergedCatalog {
    /// The servers, in config order.
    pub sources: Vec<CatalogSource>,
    /// All tools.
    pub tools: PublicList,
    /// All resources.
    pub resources: PublicList,
    /// All resource templates.
    pub templates: PublicList,
    /// All prompts.
    pub prompts: PublicList,
    /// Names and URIs that were changed because of a conflict with another server.
    pub renamed: Vec<Renamed>,
    /// Names that servers use and do not hold yet.
    pub claims: Vec<NameClaim>,
    /// The source of a URI that tools refer to and no server lists: the first source that refers to it.
    linked: BTreeMap<String, usize>,
    /// URIs that a source may not use as they are: their public form has the server's name in front.
    prefixed_uris: BTreeMap<usize, BTreeSet<String>>,
}

/// One merged list.
#[derive(Debug, Clone, Default)]
pub struct PublicList {
    /// In the order of the servers, and of each server's own list.
    pub entries: Vec<MergedItem>,
    by_name: BTreeMap<String, usize>,
}

/// One merged item and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedItem {
    /// The public name.
    pub public: String,
    /// Index of the source.
    pub source: usize,
    /// Index in the source's list.
    pub item: usize,
    /// The time since which its server holds the name, in milliseconds since the Unix epoch.
    pub since: Option<u64>,
}

/// A name that was changed because of a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    /// The server.
    pub server: String,
    /// The name without the conflict.
    pub wanted: String,
    /// The public name.
    pub public: String,
}

/// The server and key that a public name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination<'a> {
    /// The server.
    pub server: &'a str,
    /// The server's own name or URI of the item.
    pub key: &'a str,
}

/// A list of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListKind {
    /// A tool.
    Tool,
    /// A resource.
    Resource,
    /// A resource template.
    Template,
    /// A prompt.
    Prompt,
}

impl ListKind {
    /// All lists.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Resource, Self::Template, Self::Prompt];
}

/// The part of a merged catalog that a client sees: indices into each list, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogView {
    /// Of the tools.
    pub tools: Vec<usize>,
    /// Of the resources.
    pub resources: Vec<usize>,
    /// Of the resource templates.
    pub templates: Vec<usize>,
    /// Of the prompts.
    pub prompts: Vec<usize>,
}

impl MergedCatalog {
    /// Merges the sources. A name belongs to the server that holds it, or else to the first that wants it. Another
    /// server that wants it gets its own name in front.
    pub fn merge(sources: Vec<CatalogSource>, absent: &[AbsentServer]) -> Self {
        Self::merge_without(sources, absent, &[])
    }

    /// [`MergedCatalog::merge`], where no tool gets one of the `withheld` public names: it gets its server's name in
    /// front, also if its server held the name before.
    pub fn merge_without(sources: Vec<CatalogSource>, absent: &[AbsentServer], withheld: &[&str]) -> Self {
        let mut merged = Self::default();
        let owners = sources
            .iter()
            .map(|source| NameOwner { server: &source.server, prefix: &source.prefix, held: &source.held })
            .chain(absent.iter().map(|absent| NameOwner {
                server: &absent.server,
                prefix: &absent.prefix,
                held: &absent.held,
            }));
        let holders = NameHolders::new(owners, withheld);
        for (at, source) in sources.iter().enumerate() {
            let catalog = &source.catalog;
            let named = |item: &Item| {
                let wanted = names::public_name(&source.prefix, &item.key);
                let second = names::public_name(&source.server, &item.key);
                vec![wanted, second, names::disambiguated(&source.server, &item.key)]
            };
            let addressed =
                |item: &Item| vec![item.key.clone(), names::prefixed_uri(&source.server, &item.key)];
            let mut adding = MergeBuilder {
                at,
                source,
                holders: &holders,
                renamed: &mut merged.renamed,
                claims: &mut merged.claims,
                prefixed_uris: merged.prefixed_uris.entry(at).or_default(),
            };
            merged.tools.add(ListKind::Tool, &catalog.tools, named, &mut adding);
            merged.prompts.add(ListKind::Prompt, &catalog.prompts, named, &mut adding);
            merged.resources.add(ListKind::Resource, &catalog.resources, addressed, &mut adding);
            merged.templates.add(ListKind::Template, &catalog.templates, addressed, &mut adding);
        }
        for (at, source) in sources.iter().enumerate() {
            let unlisted = source.linked.iter().filter(|uri| !merged.resources.by_name.contains_key(*uri));
            for uri in unlisted {
                if !holders.may_use(at, ListKind::Resource, uri) {
                    merged.prefixed_uris.entry(at).or_default().insert(uri.clone());
                } else if !merged.linked.contains_key(uri) {
                    merged.linked.insert(uri.clone(), at);
                    if holders.holder(ListKind::Resource, uri).is_none()
                        && holders.is_unreserved(ListKind::Resource, uri)
                    {
                        merged.claims.push(NameClaim {
                            source: at,
                            kind: ListKind::Resource,
                            name: uri.clone(),
                        });
                    }
                }
            }
        }
        merged.sources = sources;
        merged
    }

    /// The public URI of the resource that this source calls `uri`.
    pub fn public_uri<'a>(&self, source: usize, uri: &'a str) -> Cow<'a, str> {
        if self.prefixed_uris.get(&source).is_some_and(|apart| apart.contains(uri)) {
            return names::prefixed_uri(&self.sources[source].server, uri).into();
        }
        let listed = self.resources.by_name.get(uri).map(|at| self.resources.entries[*at].source);
        match listed.or_else(|| self.linked.get(uri).copied()) {
            Some(owner) if owner != source => names::prefixed_uri(&self.sources[source].server, uri).into(),
            Some(_) | None => uri.into(),
        }
    }

    /// The items for which `shows` returns true. It gets the server's name and the server's own item.
    pub fn view(&self, shows: impl Fn(ListKind, &str, &Item) -> bool) -> CatalogView {
        let of = |offer, list: &PublicList, items: fn(&Catalog) -> &Vec<Item>| {
            let seen = list.entries.iter().enumerate().filter(|(_, entry)| {
                let source = &self.sources[entry.source];
                shows(offer, &source.server, &items(&source.catalog)[entry.item])
            });
            seen.map(|(at, _)| at).collect()
        };
        CatalogView {
            tools: of(ListKind::Tool, &self.tools, |catalog| &catalog.tools),
            resources: of(ListKind::Resource, &self.resources, |catalog| &catalog.resources),
            templates: of(ListKind::Template, &self.templates, |catalog| &catalog.templates),
            prompts: of(ListKind::Prompt, &self.prompts, |catalog| &catalog.prompts),
        }
    }

    /// The servers that have at least one item.
    pub fn servers(&self) -> BTreeSet<&str> {
        let lists = [&self.tools, &self.resources, &self.templates, &self.prompts];
        let entries = lists.into_iter().flat_map(|list| &list.entries);
        let sources: BTreeSet<usize> = entries.map(|entry| entry.source).collect();
        sources.into_iter().map(|source| self.sources[source].server.as_str()).collect()
    }

    /// The same catalog without the items that are not in the view. Items keep their public names, so that a name means
    /// the same item for all clients.
    #[must_use]
    pub fn filtered(&self, shown: &CatalogView) -> Self {
        Self {
            sources: self.sources.clone(),
            tools: self.tools.filtered(&shown.tools),
            resources: self.resources.filtered(&shown.resources),
            templates: self.templates.filtered(&shown.templates),
            prompts: self.prompts.filtered(&shown.prompts),
            renamed: self.renamed.clone(),
            claims: Vec::new(),
            linked: self.linked.clone(),
            prefixed_uris: self.prefixed_uris.clone(),
        }
    }

    /// The tool with this public name.
    pub fn tool(&self, public: &str) -> Option<(Destination<'_>, &Item)> {
        self.find(&self.tools, public, |catalog| &catalog.tools)
    }

    /// The prompt with this public name.
    pub fn prompt(&self, public: &str) -> Option<(Destination<'_>, &Item)> {
        self.find(&self.prompts, public, |catalog| &catalog.prompts)
    }

    /// The server and key of a URI: a listed URI, one that has a server's name in front, one that a tool refers to, or
    /// one that matches a template.
    pub fn resource<'a>(&'a self, uri: &'a str) -> Option<Destination<'a>> {
        let listed = self.find(&self.resources, uri, |catalog| &catalog.resources);
        if let Some((destination, _)) = listed {
            return Some(destination);
        }
        let named = self.sources.iter().find_map(|source| {
            let key = names::original_uri(&source.server, uri)?;
            Some(Destination { server: &source.server, key })
        });
        let linked = || {
            let source = &self.sources[*self.linked.get(uri)?];
            Some(Destination { server: &source.server, key: uri })
        };
        named.or_else(linked).or_else(|| self.by_template(uri))
    }

    /// The only server that lists resources beneath this URI, which makes the URI a directory of that server.
    pub fn directory<'a>(&'a self, uri: &'a str) -> Option<Destination<'a>> {
        let beneath = |entry: &&MergedItem| {
            let rest = entry.public.strip_prefix(uri);
            rest.is_some_and(|rest| uri.ends_with('/') || rest.starts_with('/'))
        };
        let mut owners = self.resources.entries.iter().filter(beneath).map(|entry| entry.source);
        let first = owners.next()?;
        owners
            .all(|owner| owner == first)
            .then(|| Destination { server: &self.sources[first].server, key: uri })
    }

    /// The server that completes arguments for a URI: the one with exactly this template, or the one that serves the
    /// URI.
    pub fn template_or_resource<'a>(&'a self, uri: &'a str) -> Option<Destination<'a>> {
        let template = self.find(&self.templates, uri, |catalog| &catalog.templates);
        template.map(|(destination, _)| destination).or_else(|| self.resource(uri))
    }

    /// If several templates match a URI, the one that was offered first wins.
    fn by_template<'a>(&'a self, uri: &'a str) -> Option<Destination<'a>> {
        let fitting = self.templates.entries.iter().filter(|entry| {
            template_matches(&self.sources[entry.source].catalog.templates[entry.item].key, uri)
        });
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
    /// Place of the item with this public name.
    pub fn position(&self, public: &str) -> Option<usize> {
        self.by_name.get(public).copied()
    }

    fn filtered(&self, places: &[usize]) -> Self {
        let entries: Vec<MergedItem> = places.iter().map(|at| self.entries[*at].clone()).collect();
        let by_name = entries.iter().enumerate().map(|(at, entry)| (entry.public.clone(), at)).collect();
        Self { entries, by_name }
    }

    /// Adds a source's items, each under the first candidate name that the server may use and that is free.
    fn add(
        &mut self,
        offer: ListKind,
        items: &[Item],
        candidates: impl Fn(&Item) -> Vec<String>,
        adding: &mut MergeBuilder<'_>,
    ) {
        let MergeBuilder { at, source, holders, .. } = *adding;
        for (item_at, item) in items.iter().enumerate() {
            let candidates = candidates(item);
            let is_free =
                |name: &&String| !self.by_name.contains_key(*name) && holders.may_use(at, offer, name);
            let Some(public) = candidates.iter().find(is_free) else {
                // Even the disambiguated name is taken: it is the same item again.
                continue;
            };
            if *public != candidates[0] {
                adding.renamed.push(Renamed {
                    server: source.server.clone(),
                    wanted: candidates[0].clone(),
                    public: public.clone(),
                });
                if offer == ListKind::Resource {
                    adding.prefixed_uris.insert(item.key.clone());
                }
            }
            let since = source.held.since(offer, public);
            if since.is_none() && holders.is_unreserved(offer, public) {
                adding.claims.push(NameClaim { source: at, kind: offer, name: public.clone() });
            }
            self.by_name.insert(public.clone(), self.entries.len());
            self.entries.push(MergedItem { public: public.clone(), source: at, item: item_at, since });
        }
    }
}

/// The state of merging one source.
struct MergeBuilder<'a> {
    at: usize,
    source: &'a CatalogSource,
    holders: &'a NameHolders<'a>,
    renamed: &'a mut Vec<Renamed>,
    claims: &'a mut Vec<NameClaim>,
    prefixed_uris: &'a mut BTreeSet<String>,
}

/// Returns whether `uri` can come from `template`: its literal parts occur in order, the first at the start and the
/// last at the end. The values of the variables are not checked.
pub(super) fn template_matches(template: &str, uri: &str) -> bool {
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
    use crate::json_text::JsonText;

    fn items(keys: &[&str]) -> Vec<Item> {
        let raw = |key: &str| JsonText::parse(format!("{{\"name\":\"{key}\"}}")).unwrap();
        keys.iter()
            .map(|key| Item { key: (*key).to_owned(), hints: Default::default(), raw: raw(key) })
            .collect()
    }

    fn source(server: &str, prefix: &str, tools: &[&str], uris: &[&str]) -> CatalogSource {
        let catalog = Catalog { tools: items(tools), resources: items(uris), ..Catalog::default() };
        CatalogSource {
            server: server.to_owned(),
            prefix: prefix.to_owned(),
            catalog: Arc::new(catalog),
            linked: Vec::new(),
            held: Arc::default(),
        }
    }

    #[test]
    fn a_withheld_name_is_given_to_no_server_even_if_it_held_the_name() {
        let mut held = HeldNames::default();
        held.insert(ListKind::Tool, "call_tool", 1);
        let bare = CatalogSource { held: Arc::new(held), ..source("a", "", &["call_tool", "other"], &[]) };
        let merged = MergedCatalog::merge_without(vec![bare.clone()], &[], &["call_tool"]);
        let public: Vec<&str> = merged.tools.entries.iter().map(|entry| entry.public.as_str()).collect();
        assert_eq!(public, ["a__call_tool", "other"]);
        assert_eq!(merged.renamed[0].wanted, "call_tool", "status and an event name it");
        let merged = MergedCatalog::merge(vec![bare], &[]);
        assert!(merged.tool("call_tool").is_some(), "the name is free again without the search tools");
    }

    fn merge(sources: Vec<CatalogSource>) -> MergedCatalog {
        MergedCatalog::merge(sources, &[])
    }

    /// The sources with the names that merging them made them hold.
    fn holding(sources: &[CatalogSource], now: u64) -> Vec<CatalogSource> {
        let merged = merge(sources.to_vec());
        let mut sources = sources.to_vec();
        for NameClaim { source, kind: offer, name } in merged.claims {
            assert!(Arc::make_mut(&mut sources[source].held).insert(offer, &name, now));
        }
        sources
    }

    fn names(list: &PublicList) -> Vec<&str> {
        list.entries.iter().map(|entry| entry.public.as_str()).collect()
    }

    #[test]
    fn tools_are_listed_in_config_order_with_their_servers_prefix() {
        let merged = merge(vec![source("b", "b", &["y", "x"], &[]), source("a", "a", &["x"], &[])]);
        assert_eq!(names(&merged.tools), ["b__y", "b__x", "a__x"]);
        let (destination, _) = merged.tool("a__x").unwrap();
        assert_eq!(destination, Destination { server: "a", key: "x" });
    }

    #[test]
    fn the_later_of_two_colliding_names_gets_a_prefix_and_is_reported() {
        let merged = merge(vec![source("one", "", &["x"], &[]), source("two", "", &["x", "y"], &[])]);
        assert_eq!(names(&merged.tools), ["x", "two__x", "y"]);
        let told = Renamed { server: "two".into(), wanted: "x".into(), public: "two__x".into() };
        assert_eq!(merged.renamed, [told]);
        assert_eq!(merged.tool("two__x").unwrap().0, Destination { server: "two", key: "x" });
    }

    #[test]
    fn g01_hidden_items_do_not_change_the_names_of_others() {
        let merged = merge(vec![source("one", "", &["x"], &["a:1"]), source("two", "", &["x", "y"], &[])]);
        let shown = merged
            .view(|offer, server, item| offer != ListKind::Resource && !(server == "one" && item.key == "x"));
        let only = merged.filtered(&shown);
        assert_eq!((names(&only.tools), names(&only.resources)), (vec!["two__x", "y"], vec![]));
        assert!(only.tool("x").is_none() && only.resource("a:1").is_none());
        assert_eq!(only.tool("two__x").unwrap().0, Destination { server: "two", key: "x" });
    }

    #[test]
    fn two_servers_with_the_same_prefix_keep_all_their_tools() {
        let merged = merge(vec![source("one", "p", &["x"], &[]), source("two", "p", &["x"], &[])]);
        assert_eq!(names(&merged.tools), ["p__x", "two__x"]);
    }

    #[test]
    fn a_uri_shared_by_two_servers_is_prefixed_for_the_later_one() {
        let merged =
            merge(vec![source("one", "one", &[], &["file:///a"]), source("two", "two", &[], &["file:///a"])]);
        assert_eq!(names(&merged.resources), ["file:///a", "two+file:///a"]);
        assert_eq!(merged.resource("file:///a"), Some(Destination { server: "one", key: "file:///a" }));
        assert_eq!(merged.resource("two+file:///a"), Some(Destination { server: "two", key: "file:///a" }));
        assert_eq!(merged.resource("file:///b"), None);
    }

    #[test]
    fn an_unlisted_uri_of_tools_belongs_to_their_first_server() {
        let linking = |server: &str, listed: &[&str], linked: &[&str]| CatalogSource {
            linked: linked.iter().map(|uri| (*uri).to_owned()).collect(),
            ..source(server, server, &[], listed)
        };
        let merged = merge(vec![
            linking("one", &[], &["ui://a", "ui://b"]),
            linking("two", &["ui://b"], &["ui://a", "ui://b"]),
        ]);
        let to = |server: &'static str, key: &'static str| Some(Destination { server, key });
        assert_eq!(
            (merged.public_uri(0, "ui://a"), merged.resource("ui://a")),
            ("ui://a".into(), to("one", "ui://a"))
        );
        assert_eq!(merged.public_uri(1, "ui://a"), "ui://two+ui://a");
        assert_eq!(merged.resource("ui://two+ui://a"), to("two", "ui://a"));
        // A listed URI keeps its server even if tools of another refer to it.
        assert_eq!(
            (merged.public_uri(1, "ui://b"), merged.resource("ui://b")),
            ("ui://b".into(), to("two", "ui://b"))
        );
        assert_eq!(merged.public_uri(0, "ui://b"), "ui://one+ui://b");
        assert_eq!(merged.public_uri(0, "ui://c"), "ui://c");
    }

    #[test]
    fn a_directory_belongs_to_the_only_server_that_lists_something_in_it() {
        let merged = merge(vec![
            source(
                "one",
                "one",
                &[],
                &["skill://desk/SKILL.md", "skill://desk/more/x.md", "skill://shared/a"],
            ),
            source("two", "two", &[], &["skill://desktop/SKILL.md", "skill://shared/b"]),
        ]);
        let owner = |uri| merged.directory(uri).map(|to| (to.server, to.key));
        assert_eq!(owner("skill://desk"), Some(("one", "skill://desk")));
        assert_eq!(owner("skill://desk/more/"), Some(("one", "skill://desk/more/")));
        assert_eq!(owner("skill://desktop"), Some(("two", "skill://desktop")));
        assert_eq!(
            (owner("skill://shared"), owner("skill://none"), owner("skill://desk/mor")),
            (None, None, None)
        );
    }

    #[test]
    fn an_unlisted_uri_goes_to_the_server_with_a_matching_template() {
        let mut templated = source("one", "one", &[], &[]);
        let catalog = Catalog {
            templates: items(&["demo://echo/{text}", "db://{table}/rows/{id}.json"]),
            ..Catalog::default()
        };
        templated.catalog = Arc::new(catalog);
        let merged = merge(vec![templated]);
        assert!(merged.resource("demo://echo/hello").is_some());
        assert!(merged.resource("db://users/rows/7.json").is_some());
        assert!(merged.resource("db://users/rows/7.xml").is_none());
        assert!(merged.resource("demo://other/hello").is_none());
    }

    /// Regression: an earlier server took over another server's name at run time.
    #[test]
    fn g01_the_holder_of_a_name_or_uri_keeps_it_from_an_earlier_server() {
        let before = holding(&[source("one", "", &["a"], &[]), source("two", "", &["x"], &["file:///a"])], 1);
        let mut after = before.clone();
        after[0].catalog = source("one", "", &["a", "x"], &["file:///a"]).catalog;
        let merged = merge(after.clone());
        assert_eq!(merged.tool("x").unwrap().0.server, "two");
        assert_eq!(merged.resource("file:///a").unwrap().server, "two");
        assert_eq!(names(&merged.tools), ["a", "one__x", "x"]);
        assert_eq!(names(&merged.resources), ["one+file:///a", "file:///a"]);
        let renamed: Vec<&str> = merged.renamed.iter().map(|one| one.public.as_str()).collect();
        assert_eq!(renamed, ["one__x", "one+file:///a"]);
        assert_eq!(merged.claims, []);
        // The name is not free either while its holder is absent, or does not offer it any more.
        after[1].catalog = Arc::default();
        assert_eq!(names(&merge(after.clone()).tools), ["a", "one__x"]);
        let two = after.pop().unwrap();
        let absent = AbsentServer { server: two.server, prefix: two.prefix, held: two.held };
        let merged = MergedCatalog::merge(after.clone(), &[absent]);
        assert_eq!(names(&merged.tools), ["a", "one__x"]);
        assert_eq!(merged.public_uri(0, "file:///a"), "one+file:///a", "as it is listed");
        assert_eq!(names(&merge(after).tools), ["a", "x"], "a server that is gone holds nothing");
    }

    #[test]
    fn config_order_decides_between_new_names_of_the_same_listing() {
        let sources = holding(&[source("one", "", &["x"], &["a:1"]), source("two", "", &["x"], &["a:1"])], 1);
        let mut reordered = sources.clone();
        reordered.reverse();
        for merged in [merge(sources), merge(reordered)] {
            assert_eq!(merged.tool("x").unwrap().0.server, "one");
            assert_eq!(merged.resource("a:1").unwrap().server, "one");
        }
    }

    /// Regression: a server without prefix offered `two__x`, and was called in place of `x` of `two`.
    #[test]
    fn g01_a_name_with_another_servers_prefix_is_not_assigned() {
        let merged = merge(vec![
            source("one", "", &["two__x", "t__x", "gone__x"], &["two+a:1", "ui://two+ui://p"]),
            source("two", "t", &["x"], &["a:1"]),
            source("git", "git", &["hub__x"], &[]),
            source("git__hub", "git__hub", &["x"], &[]),
        ]);
        let owner = |name: &str| merged.tool(name).unwrap().0.server.to_owned();
        assert_eq!(owner("t__x"), "two");
        assert_eq!(owner("git__hub__x"), "git__hub");
        assert!(merged.tool("two__x").is_none());
        assert_eq!(
            (owner("one__two__x"), owner("one__t__x"), owner("gone__x")),
            ("one".into(), "one".into(), "one".into())
        );
        assert_eq!(merged.resource("two+a:1"), Some(Destination { server: "two", key: "a:1" }));
        assert_eq!(merged.resource("one+two+a:1").unwrap().key, "two+a:1");
        assert_eq!(merged.resource("ui://two+ui://p").unwrap().server, "two");
        let absent = AbsentServer { server: "off".into(), prefix: "off".into(), held: Arc::default() };
        let merged = MergedCatalog::merge(vec![source("one", "", &["off__x"], &[])], &[absent]);
        assert_eq!(names(&merged.tools), ["one__off__x"], "also of one that is switched off");
    }

    #[test]
    fn g01_a_template_keeps_its_uris_from_later_templates_and_listings() {
        let with = |server: &str, templates: &[&str], uris: &[&str]| CatalogSource {
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
    fn held_names_are_bounded_and_the_earlier_time_wins() {
        let mut held = HeldNames::default();
        for number in 0..HeldNames::MAX_NAMES + 5 {
            held.insert(ListKind::Resource, &number.to_string(), 7);
        }
        assert_eq!(held.since(ListKind::Resource, &HeldNames::MAX_NAMES.to_string()), None);
        let mut others = HeldNames::default();
        others.insert(ListKind::Resource, "1", 3);
        others.insert(ListKind::Tool, "x", 9);
        held.merge(&others);
        assert_eq!(
            (held.since(ListKind::Resource, "1"), held.since(ListKind::Tool, "x")),
            (Some(3), Some(9))
        );
    }
}

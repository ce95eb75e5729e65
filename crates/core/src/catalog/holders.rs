//! Holders of public names: a server that offered a name or URI first keeps it, and names with a server's prefix are
//! reserved for it. Merging and the order of the lists are in [`super::merge`].

use super::merge::{ListKind, template_matches};
use super::names;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Names and URIs that a server holds, each with the time at which it was first offered, in milliseconds since the Unix
/// epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldNames {
    tools: BTreeMap<String, u64>,
    prompts: BTreeMap<String, u64>,
    resources: BTreeMap<String, u64>,
    templates: BTreeMap<String, u64>,
}

impl HeldNames {
    /// Names that are remembered per list. Beyond this, config order decides, as at the first listing.
    pub const MAX_NAMES: usize = 10_000;

    /// The time since which the server holds a name of a list.
    pub fn since(&self, offer: ListKind, name: &str) -> Option<u64> {
        self.of(offer).get(name).copied()
    }

    /// Records that a name is offered. Returns whether it is new.
    pub fn insert(&mut self, offer: ListKind, name: &str, now: u64) -> bool {
        let list = self.of_mut(offer);
        let is_news = !list.contains_key(name) && list.len() < Self::MAX_NAMES;
        if is_news {
            list.insert(name.to_owned(), now);
        }
        is_news
    }

    /// Merges names that another process has stored. The earlier time wins.
    pub fn merge(&mut self, others: &Self) {
        for offer in ListKind::ALL {
            let list = self.of_mut(offer);
            for (name, since) in others.of(offer) {
                let room = list.len() < Self::MAX_NAMES;
                match list.get_mut(name) {
                    Some(known) => *known = (*since).min(*known),
                    None if room => {
                        list.insert(name.clone(), *since);
                    }
                    None => {}
                }
            }
        }
    }

    fn of(&self, offer: ListKind) -> &BTreeMap<String, u64> {
        match offer {
            ListKind::Tool => &self.tools,
            ListKind::Prompt => &self.prompts,
            ListKind::Resource => &self.resources,
            ListKind::Template => &self.templates,
        }
    }

    fn of_mut(&mut self, offer: ListKind) -> &mut BTreeMap<String, u64> {
        match offer {
            ListKind::Tool => &mut self.tools,
            ListKind::Prompt => &mut self.prompts,
            ListKind::Resource => &mut self.resources,
            ListKind::Template => &mut self.templates,
        }
    }
}

/// A server that may hold names, whether or not it offers anything now.
pub(super) struct NameOwner<'a> {
    pub(super) server: &'a str,
    pub(super) prefix: &'a str,
    pub(super) held: &'a HeldNames,
}

/// The holder of each name, among all servers of a config.
pub(super) struct NameHolders<'a> {
    /// In config order.
    servers: Vec<&'a str>,
    /// Name prefixes that belong to servers: `SERVER__` and `PREFIX__`.
    heads: Vec<(String, usize)>,
    /// The holder of a name, by list: the server that had it first.
    held: [BTreeMap<&'a str, (u64, usize)>; 4],
    /// Tool names that no server may use.
    withheld: &'a [&'a str],
}

/// Servers that a name is reserved for by its prefix.
enum Reserved {
    ToNone,
    To(Vec<usize>),
}

impl<'a> NameHolders<'a> {
    pub(super) fn new(owners: impl IntoIterator<Item = NameOwner<'a>>, withheld: &'a [&'a str]) -> Self {
        let mut holders = Self { servers: Vec::new(), heads: Vec::new(), held: Default::default(), withheld };
        for (at, owner) in owners.into_iter().enumerate() {
            holders.servers.push(owner.server);
            let prefixes = [owner.server, owner.prefix];
            let heads = prefixes.into_iter().filter(|prefix| !prefix.is_empty()).map(names::name_prefix);
            holders.heads.extend(heads.map(|head| (head, at)));
            for offer in ListKind::ALL {
                for (name, since) in owner.held.of(offer) {
                    let first = holders.held[offer as usize].entry(name).or_insert((*since, at));
                    *first = (*first).min((*since, at));
                }
            }
        }
        holders
    }

    /// Returns whether the server at this index may use a public name.
    pub(super) fn may_use(&self, at: usize, offer: ListKind, name: &str) -> bool {
        if offer == ListKind::Tool && self.withheld.contains(&name) {
            return false;
        }
        match self.reserved(offer, name) {
            Reserved::To(owners) if !owners.contains(&at) => return false,
            Reserved::To(owners) if owners.len() == 1 => return true,
            Reserved::To(_) | Reserved::ToNone => {}
        }
        match self.held[offer as usize].get(name) {
            Some((_, holder)) => *holder == at,
            None => offer != ListKind::Resource || self.template_of(name).is_none_or(|holder| holder == at),
        }
    }

    /// Returns whether the holder of a name has to be recorded. Names with a server's own prefix belong to it anyway.
    pub(super) fn is_unreserved(&self, offer: ListKind, name: &str) -> bool {
        !matches!(self.reserved(offer, name), Reserved::To(owners) if owners.len() == 1)
    }

    /// The server that holds a name.
    pub(super) fn holder(&self, offer: ListKind, name: &str) -> Option<usize> {
        self.held[offer as usize].get(name).map(|(_, holder)| *holder)
    }

    /// The server that was the first to offer a template that matches a URI.
    fn template_of(&self, uri: &str) -> Option<usize> {
        let templates = self.held[ListKind::Template as usize].iter();
        let fitting = templates.filter(|(template, _)| template_matches(template, uri));
        fitting.map(|(_, holder)| *holder).min().map(|(_, holder)| holder)
    }

    /// The longest prefix wins: with servers `git` and `git__hub`, `git__hub__x` belongs to the second.
    fn reserved(&self, offer: ListKind, name: &str) -> Reserved {
        let matching: Vec<(usize, usize)> = match offer {
            ListKind::Tool | ListKind::Prompt => {
                let heads = self.heads.iter().filter(|(head, _)| name.starts_with(head.as_str()));
                heads.map(|(head, at)| (head.len(), *at)).collect()
            }
            ListKind::Resource | ListKind::Template => {
                let servers = self.servers.iter().enumerate();
                let named = servers.filter(|(_, server)| names::original_uri(server, name).is_some());
                named.map(|(at, server)| (server.len(), at)).collect()
            }
        };
        let Some(longest) = matching.iter().map(|(length, _)| *length).max() else {
            return Reserved::ToNone;
        };
        let mut owners: Vec<usize> =
            matching.into_iter().filter(|(length, _)| *length == longest).map(|(_, at)| at).collect();
        owners.dedup();
        Reserved::To(owners)
    }
}

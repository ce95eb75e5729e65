//! Holders of public names: which server had a name or a URI first and keeps it, and which names belong to a server
//! whatever others offer. Who is listed first is not decided here.

use super::merge::{Offer, fits};
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
    /// Names of a list that are remembered. Beyond it config order decides, as at the first listing.
    pub const MOST: usize = 10_000;

    /// Since when a name of a list is held.
    pub fn since(&self, offer: Offer, name: &str) -> Option<u64> {
        self.of(offer).get(name).copied()
    }

    /// Takes note that a name is offered. Answers whether that was news.
    pub fn hold(&mut self, offer: Offer, name: &str, now: u64) -> bool {
        let list = self.of_mut(offer);
        let is_news = !list.contains_key(name) && list.len() < Self::MOST;
        if is_news {
            list.insert(name.to_owned(), now);
        }
        is_news
    }

    /// Takes over what another process has written down. The earlier time counts.
    pub fn adopt(&mut self, others: &Self) {
        for offer in Offer::ALL {
            let list = self.of_mut(offer);
            for (name, since) in others.of(offer) {
                let room = list.len() < Self::MOST;
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

    fn of(&self, offer: Offer) -> &BTreeMap<String, u64> {
        match offer {
            Offer::Tool => &self.tools,
            Offer::Prompt => &self.prompts,
            Offer::Resource => &self.resources,
            Offer::Template => &self.templates,
        }
    }

    fn of_mut(&mut self, offer: Offer) -> &mut BTreeMap<String, u64> {
        match offer {
            Offer::Tool => &mut self.tools,
            Offer::Prompt => &mut self.prompts,
            Offer::Resource => &mut self.resources,
            Offer::Template => &mut self.templates,
        }
    }
}

/// A server that may hold names, whether or not it offers anything at the moment.
pub(super) struct Owner<'a> {
    pub(super) server: &'a str,
    pub(super) prefix: &'a str,
    pub(super) held: &'a HeldNames,
}

/// Who holds what, among all servers of a config.
pub(super) struct Holders<'a> {
    /// In the order of the config.
    servers: Vec<&'a str>,
    /// The beginnings of names that belong to servers: `SERVER__` and `PREFIX__`.
    heads: Vec<(String, usize)>,
    /// The holder of a name, by list: the one that had it first.
    held: [BTreeMap<&'a str, (u64, usize)>; 4],
}

/// Whether a name is reserved, by the way it is written.
enum Reserved {
    ToNone,
    To(Vec<usize>),
}

impl<'a> Holders<'a> {
    pub(super) fn new(owners: impl IntoIterator<Item = Owner<'a>>) -> Self {
        let mut holders = Self { servers: Vec::new(), heads: Vec::new(), held: Default::default() };
        for (at, owner) in owners.into_iter().enumerate() {
            holders.servers.push(owner.server);
            let prefixes = [owner.server, owner.prefix];
            let heads = prefixes.into_iter().filter(|prefix| !prefix.is_empty()).map(names::head);
            holders.heads.extend(heads.map(|head| (head, at)));
            for offer in Offer::ALL {
                for (name, since) in owner.held.of(offer) {
                    let first = holders.held[offer as usize].entry(name).or_insert((*since, at));
                    *first = (*first).min((*since, at));
                }
            }
        }
        holders
    }

    /// Whether the server at this place may go by a name that it did not choose for itself alone.
    pub(super) fn may_have(&self, at: usize, offer: Offer, name: &str) -> bool {
        match self.reserved(offer, name) {
            Reserved::To(owners) if !owners.contains(&at) => return false,
            Reserved::To(owners) if owners.len() == 1 => return true,
            Reserved::To(_) | Reserved::ToNone => {}
        }
        match self.held[offer as usize].get(name) {
            Some((_, holder)) => *holder == at,
            None => offer != Offer::Resource || self.template_of(name).is_none_or(|holder| holder == at),
        }
    }

    /// Whether it is worth remembering who has a name: those that are written as its own are a server's anyway.
    pub(super) fn is_open(&self, offer: Offer, name: &str) -> bool {
        !matches!(self.reserved(offer, name), Reserved::To(owners) if owners.len() == 1)
    }

    /// The server that holds a name.
    pub(super) fn holder(&self, offer: Offer, name: &str) -> Option<usize> {
        self.held[offer as usize].get(name).map(|(_, holder)| *holder)
    }

    /// The server whose template a URI came from first.
    fn template_of(&self, uri: &str) -> Option<usize> {
        let templates = self.held[Offer::Template as usize].iter();
        let fitting = templates.filter(|(template, _)| fits(template, uri));
        fitting.map(|(_, holder)| *holder).min().map(|(_, holder)| holder)
    }

    /// The longest beginning counts: with servers `git` and `git__hub`, `git__hub__x` is of the second.
    fn reserved(&self, offer: Offer, name: &str) -> Reserved {
        let matching: Vec<(usize, usize)> = match offer {
            Offer::Tool | Offer::Prompt => {
                let heads = self.heads.iter().filter(|(head, _)| name.starts_with(head.as_str()));
                heads.map(|(head, at)| (head.len(), *at)).collect()
            }
            Offer::Resource | Offer::Template => {
                let servers = self.servers.iter().enumerate();
                let named = servers.filter(|(_, server)| names::own_uri(server, name).is_some());
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

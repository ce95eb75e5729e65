//! Who follows which resource, and what the present session knows of it. Counted, so that the first follower
//! begins and the last one ends; bounded, so that nobody's appetite fills our memory.

use super::{Knows, Verdict};
use crate::time::Mono;
use std::collections::BTreeMap;

/// The followed resources of one upstream.
#[derive(Debug, Default)]
pub(super) struct Following {
    resources: BTreeMap<String, Resource>,
    followers: usize,
}

#[derive(Debug)]
struct Resource {
    followers: u32,
    knows: Knows,
    /// Whether it was ever told of, in this session or in another one.
    ever: bool,
}

/// Too much is followed at one upstream already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many resources of it are followed already")]
pub struct Full;

impl Following {
    /// Resources of one upstream, and followers of all of them together.
    const MOST_RESOURCES: usize = 10_000;
    const MOST_FOLLOWERS: usize = 100_000;
    /// Resources in one errand, so that a long list is not all or nothing.
    const AT_ONCE: usize = 64;

    pub(super) fn add(&mut self, uri: &str) -> Result<(), Full> {
        if self.followers >= Self::MOST_FOLLOWERS {
            return Err(Full);
        }
        let another = self.resources.len() < Self::MOST_RESOURCES;
        match self.resources.get_mut(uri) {
            Some(resource) => {
                resource.followers += 1;
                // Whoever asks deserves an answer of today.
                match resource.knows {
                    Knows::Declined(_) | Knows::Missed { .. } => resource.knows = Knows::No,
                    Knows::No | Knows::Yes => {}
                }
            }
            None if !another => return Err(Full),
            None => {
                let resource = Resource { followers: 1, knows: Knows::No, ever: false };
                self.resources.insert(uri.to_owned(), resource);
            }
        }
        self.followers += 1;
        Ok(())
    }

    /// `told`: the server may be hearing of it at this moment, so its entry stays until that is over.
    pub(super) fn remove(&mut self, uri: &str, told: bool) {
        let Some(resource) = self.resources.get_mut(uri).filter(|resource| resource.followers > 0) else {
            return;
        };
        resource.followers -= 1;
        self.followers -= 1;
        if resource.followers == 0 && resource.knows != Knows::Yes && !told {
            self.resources.remove(uri);
        }
    }

    /// Everything that somebody follows, and what the session knows of it.
    pub(super) fn followed(&self) -> impl Iterator<Item = (&str, &Knows)> {
        let followed = self.resources.iter().filter(|(_, resource)| resource.followers > 0);
        followed.map(|(uri, resource)| (uri.as_str(), &resource.knows))
    }

    pub(super) fn is_known(&self, uri: &str) -> bool {
        self.resources.get(uri).is_some_and(|resource| resource.knows == Knows::Yes)
    }

    pub(super) fn concerned(&self, uri: &str) -> Vec<&str> {
        // Ends of the parts of a URI, with and without the separator; and the whole of it.
        let parts = uri.match_indices(['/', '?', '#']).flat_map(|(at, _)| [at, at + 1]);
        let mut ends: Vec<usize> = parts.chain([uri.len()]).collect();
        ends.dedup();
        let followed = ends.into_iter().filter_map(|end| self.resources.get_key_value(&uri[..end]));
        followed.filter(|(_, resource)| resource.followers > 0).map(|(uri, _)| uri.as_str()).collect()
    }

    /// Nothing is known any more, and what nobody follows need not be ended.
    pub(super) fn forget_session(&mut self) {
        self.resources.retain(|_, resource| resource.followers > 0);
        for resource in self.resources.values_mut() {
            resource.knows = Knows::No;
        }
    }

    /// Some of those that are to begin, and of those that are to end.
    pub(super) fn due_each(&self, now: Mono) -> Option<(Vec<String>, Vec<String>)> {
        let begin = self.resources.iter().filter(|(_, resource)| resource.begins(now));
        let end = self.resources.iter().filter(|(_, resource)| resource.ends());
        let some = |uri: (&String, &Resource)| uri.0.clone();
        let begin: Vec<_> = begin.take(Self::AT_ONCE).map(some).collect();
        let end: Vec<_> = end.take(Self::AT_ONCE).map(some).collect();
        (!begin.is_empty() || !end.is_empty()).then_some((begin, end))
    }

    pub(super) fn is_due(&self, now: Mono) -> bool {
        self.resources.values().any(|resource| resource.begins(now) || resource.ends())
    }

    /// All that are followed, without those that the server declined.
    pub(super) fn wanted(&self) -> Vec<String> {
        let wanted = self
            .resources
            .iter()
            .filter(|(_, resource)| resource.followers > 0 && !matches!(resource.knows, Knows::Declined(_)));
        wanted.map(|(uri, _)| uri.clone()).collect()
    }

    pub(super) fn retry_at(&self) -> Option<Mono> {
        let followed = self.resources.values().filter(|resource| resource.followers > 0);
        followed.filter_map(|resource| resource.knows.retry_at()).min()
    }

    /// These are not told of any more. Whoever has begun to follow one of them meanwhile has it told again.
    pub(super) fn ended(&mut self, uris: &[String]) {
        for uri in uris {
            if let Some(resource) = self.resources.get_mut(uri) {
                resource.knows = Knows::No;
            }
        }
    }

    /// A new stream is in the place of the old one: what it was not asked for is not told of any more.
    pub(super) fn replaced(&mut self, asked: &[(String, Verdict)]) {
        let asked: std::collections::BTreeSet<&str> = asked.iter().map(|(uri, _)| uri.as_str()).collect();
        for (uri, resource) in &mut self.resources {
            if resource.knows == Knows::Yes && !asked.contains(uri.as_str()) {
                resource.knows = Knows::No;
            }
        }
    }

    /// Answers with those whose followers may have missed something meanwhile.
    pub(super) fn learn(&mut self, now: Mono, verdicts: Vec<(String, Verdict)>) -> Vec<String> {
        let mut again = Vec::new();
        for (uri, verdict) in verdicts {
            let Some(resource) = self.resources.get_mut(&uri) else { continue };
            let known = resource.knows == Knows::Yes;
            resource.knows.learn(now, verdict);
            match resource.knows {
                Knows::Yes | Knows::Declined(_) if resource.ever && !known => again.push(uri),
                Knows::Yes => resource.ever = true,
                Knows::No | Knows::Declined(_) | Knows::Missed { .. } => {}
            }
        }
        again
    }

    /// What told of resources is gone.
    pub(super) fn lost(&mut self, instead: &Knows) {
        for resource in self.resources.values_mut().filter(|resource| resource.knows == Knows::Yes) {
            resource.knows = instead.clone();
        }
        self.sweep();
    }

    /// Entries that nobody follows and that the server need not be told of.
    pub(super) fn sweep(&mut self) {
        self.resources.retain(|_, resource| resource.followers > 0 || resource.knows == Knows::Yes);
    }
}

impl Resource {
    fn begins(&self, now: Mono) -> bool {
        self.followers > 0 && self.knows.is_due(now)
    }

    fn ends(&self) -> bool {
        self.followers == 0 && self.knows == Knows::Yes
    }
}

//! Who follows what, and what the present session knows of it. Counted, so that the first follower
//! begins and the last one ends; bounded, so that nobody's appetite fills our memory.

use super::{Knows, Subject, Verdict, Way};
use crate::time::Mono;
use std::collections::{BTreeMap, BTreeSet};

/// What is followed at one upstream.
#[derive(Debug, Default)]
pub(super) struct Following {
    subjects: BTreeMap<Subject, Followed>,
    followers: usize,
}

#[derive(Debug)]
struct Followed {
    followers: u32,
    knows: Knows,
    /// Whether it was ever told of, in this session or in another one.
    ever: bool,
}

/// Too much is followed at one upstream already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too much of it is followed already")]
pub struct Full;

impl Following {
    /// Resources and tasks of one upstream, and followers of all of them together.
    pub(super) const MOST_SUBJECTS: usize = 10_000;
    pub(super) const MOST_FOLLOWERS: usize = 100_000;
    /// Resources in one errand, so that a long list is not all or nothing.
    const AT_ONCE: usize = 64;

    pub(super) fn add(&mut self, subject: &Subject) -> Result<(), Full> {
        if self.followers >= Self::MOST_FOLLOWERS {
            return Err(Full);
        }
        let another = self.subjects.len() < Self::MOST_SUBJECTS;
        match self.subjects.get_mut(subject) {
            Some(followed) => {
                followed.followers += 1;
                // Whoever asks deserves an answer of today.
                match followed.knows {
                    Knows::Declined(_) | Knows::Missed { .. } => followed.knows = Knows::No,
                    Knows::No | Knows::Yes => {}
                }
            }
            None if !another => return Err(Full),
            None => {
                let followed = Followed { followers: 1, knows: Knows::No, ever: false };
                self.subjects.insert(subject.clone(), followed);
            }
        }
        self.followers += 1;
        Ok(())
    }

    /// `told`: the server may be hearing of it at this moment, so its entry stays until that is over.
    pub(super) fn remove(&mut self, subject: &Subject, told: bool) {
        let Some(followed) = self.subjects.get_mut(subject).filter(|followed| followed.followers > 0) else {
            return;
        };
        followed.followers -= 1;
        self.followers -= 1;
        if followed.followers == 0 && followed.knows != Knows::Yes && !told {
            self.subjects.remove(subject);
        }
    }

    /// Everything that somebody follows, and what the session knows of it.
    pub(super) fn followed(&self) -> impl Iterator<Item = (&Subject, &Knows)> {
        let those = self.subjects.iter().filter(|(_, followed)| followed.followers > 0);
        those.map(|(subject, followed)| (subject, &followed.knows))
    }

    pub(super) fn is_known(&self, subject: &Subject) -> bool {
        self.subjects.get(subject).is_some_and(|followed| followed.knows == Knows::Yes)
    }

    pub(super) fn concerned(&self, uri: &str) -> Vec<&Subject> {
        // Ends of the parts of a URI, with and without the separator; and the whole of it.
        let parts = uri.match_indices(['/', '?', '#']).flat_map(|(at, _)| [at, at + 1]);
        let mut ends: Vec<usize> = parts.chain([uri.len()]).collect();
        ends.dedup();
        let parts = ends.into_iter().map(|end| Subject::Resource(uri[..end].to_owned()));
        let known = parts.filter_map(|part| self.subjects.get_key_value(&part));
        known.filter(|(_, followed)| followed.followers > 0).map(|(subject, _)| subject).collect()
    }

    /// Nothing is known any more, and what nobody follows need not be ended.
    pub(super) fn forget_session(&mut self) {
        self.subjects.retain(|_, followed| followed.followers > 0);
        for followed in self.subjects.values_mut() {
            followed.knows = Knows::No;
        }
    }

    /// Some of those that are to begin, and of those that are to end.
    pub(super) fn due_each(&self, now: Mono, way: Way) -> Option<(Vec<Subject>, Vec<Subject>)> {
        let begin = self.told_of(way).filter(|(_, followed)| followed.begins(now));
        let end = self.told_of(way).filter(|(_, followed)| followed.ends());
        let some = |(subject, _): (&Subject, &Followed)| subject.clone();
        let begin: Vec<_> = begin.take(Self::AT_ONCE).map(some).collect();
        let end: Vec<_> = end.take(Self::AT_ONCE).map(some).collect();
        (!begin.is_empty() || !end.is_empty()).then_some((begin, end))
    }

    pub(super) fn has_to_begin(&self, now: Mono, way: Way) -> bool {
        self.told_of(way).any(|(_, followed)| followed.begins(now))
    }

    pub(super) fn has_to_end(&self, way: Way) -> bool {
        self.told_of(way).any(|(_, followed)| followed.ends())
    }

    /// All that are followed, without those that the server declined.
    pub(super) fn wanted(&self, way: Way) -> Vec<Subject> {
        let wanted = self
            .told_of(way)
            .filter(|(_, followed)| followed.followers > 0 && !matches!(followed.knows, Knows::Declined(_)));
        wanted.map(|(subject, _)| subject.clone()).collect()
    }

    pub(super) fn retry_at(&self, way: Way) -> Option<Mono> {
        let those = self.told_of(way).filter(|(_, followed)| followed.followers > 0);
        those.filter_map(|(_, followed)| followed.knows.retry_at()).min()
    }

    /// These are not told of any more. Whoever has begun to follow one of them meanwhile has it told again.
    pub(super) fn ended(&mut self, subjects: &[Subject]) {
        for subject in subjects {
            if let Some(followed) = self.subjects.get_mut(subject) {
                followed.knows = Knows::No;
            }
        }
    }

    /// A new stream is in the place of the old one: what it was not asked for is not told of any more.
    pub(super) fn replaced(&mut self, asked: &[(Subject, Verdict)]) {
        let asked: BTreeSet<&Subject> = asked.iter().map(|(subject, _)| subject).collect();
        for (subject, followed) in &mut self.subjects {
            if followed.knows == Knows::Yes && !asked.contains(subject) {
                followed.knows = Knows::No;
            }
        }
    }

    /// Answers with those whose followers may have missed something meanwhile.
    pub(super) fn learn(&mut self, now: Mono, verdicts: Vec<(Subject, Verdict)>) -> Vec<Subject> {
        let mut again = Vec::new();
        for (subject, verdict) in verdicts {
            let Some(followed) = self.subjects.get_mut(&subject) else { continue };
            let known = followed.knows == Knows::Yes;
            followed.knows.learn(now, verdict);
            match followed.knows {
                Knows::Yes | Knows::Declined(_) if followed.ever && !known => again.push(subject),
                Knows::Yes => followed.ever = true,
                Knows::No | Knows::Declined(_) | Knows::Missed { .. } => {}
            }
        }
        again
    }

    /// What told of them is gone. `told`: as in [`Self::remove`].
    pub(super) fn lost(&mut self, instead: &Knows, told: bool) {
        for followed in self.subjects.values_mut().filter(|followed| followed.knows == Knows::Yes) {
            followed.knows = instead.clone();
        }
        if !told {
            self.sweep();
        }
    }

    /// What a server that is told in this way can tell of.
    fn told_of(&self, way: Way) -> impl Iterator<Item = (&Subject, &Followed)> {
        self.subjects.iter().filter(move |(subject, _)| way.tells_of(subject))
    }

    /// Entries that nobody follows and that the server need not be told of.
    pub(super) fn sweep(&mut self) {
        self.subjects.retain(|_, followed| followed.followers > 0 || followed.knows == Knows::Yes);
    }
}

impl Followed {
    fn begins(&self, now: Mono) -> bool {
        self.followers > 0 && self.knows.is_due(now)
    }

    fn ends(&self) -> bool {
        self.followers == 0 && self.knows == Knows::Yes
    }
}

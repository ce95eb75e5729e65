//! Principals of one upstream: the slots in use and the waiting calls of each, the fair choice of the next call, and
//! the principals of recent calls.

use crate::ids::PrincipalName;
use crate::time::Mono;
use std::collections::VecDeque;
use std::time::Duration;

/// The principals with calls in flight or waiting at one upstream.
#[derive(Debug)]
pub(super) struct Principals {
    /// The first entry is [`PrincipalName::LOCAL`], and stays. An entry without references can be reused for the next
    /// principal.
    entries: Vec<Entry>,
    next_place: u64,
}

/// Index of an entry, valid while a ticket or queue place refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PrincipalIndex(usize);

impl PrincipalIndex {
    /// All local clients.
    pub(super) const LOCAL: Self = Self(0);
}

#[derive(Debug)]
struct Entry {
    name: PrincipalName,
    /// Number of tickets and queue places that refer to this entry.
    users: u32,
    /// Calls on the present link.
    calls: u32,
    /// Those of them that wait for a person, and need no slot.
    paused: u32,
    /// Oldest first.
    places: VecDeque<WaitingCall>,
}

/// A call that waits for a slot or a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingCall {
    pub(super) number: u64,
    /// True if it waits for a slot, false if for a link.
    pub(super) for_slot: bool,
    /// True if it woke a parked upstream, and waits for the result of the attempt.
    pub(super) woke: bool,
}

/// The principals whose calls the server may be working on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum BusyPrincipals {
    #[default]
    None,
    Only(PrincipalName),
    Several,
}

impl BusyPrincipals {
    pub(super) fn add(&mut self, name: &PrincipalName) {
        match self {
            Self::None => *self = Self::Only(name.clone()),
            Self::Only(known) if known == name => {}
            Self::Only(_) | Self::Several => *self = Self::Several,
        }
    }
}

impl Entry {
    fn new(name: PrincipalName) -> Self {
        Self { name, users: 0, calls: 0, paused: 0, places: VecDeque::new() }
    }

    fn slots(&self) -> u32 {
        self.calls.saturating_sub(self.paused)
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.places.binary_search_by_key(&number, |place| place.number).ok()
    }
}

impl Principals {
    pub(super) fn new() -> Self {
        Self { entries: vec![Entry::new(PrincipalName::new(PrincipalName::LOCAL))], next_place: 0 }
    }

    /// The entry of this principal, which is added if there is none.
    pub(super) fn index_of(&mut self, name: &PrincipalName) -> PrincipalIndex {
        if let Some(at) = self.entries.iter().position(|entry| entry.name.is_same(name)) {
            return PrincipalIndex(at);
        }
        let entry = Entry::new(name.clone());
        match self.entries.iter().skip(1).position(|entry| entry.users == 0) {
            Some(free) => {
                self.entries[free + 1] = entry;
                PrincipalIndex(free + 1)
            }
            None => {
                self.entries.push(entry);
                PrincipalIndex(self.entries.len() - 1)
            }
        }
    }

    pub(super) fn name(&self, of: PrincipalIndex) -> &PrincipalName {
        &self.entries[of.0].name
    }

    /// Counts a call of this principal on the present link.
    pub(super) fn begin(&mut self, of: PrincipalIndex) {
        let entry = &mut self.entries[of.0];
        entry.users += 1;
        entry.calls += 1;
    }

    /// Counts the end of a call of this principal.
    pub(super) fn end(&mut self, of: PrincipalIndex, on_present_link: bool) {
        let entry = &mut self.entries[of.0];
        entry.users -= 1;
        entry.calls -= u32::from(on_present_link);
        self.shrink();
    }

    /// Counts a call that waits for a person.
    pub(super) fn pause(&mut self, of: PrincipalIndex, on_present_link: bool) {
        let entry = &mut self.entries[of.0];
        entry.users += 1;
        entry.paused += u32::from(on_present_link);
    }

    /// Counts a call that continues.
    pub(super) fn resume(&mut self, of: PrincipalIndex, on_present_link: bool) {
        let entry = &mut self.entries[of.0];
        entry.users -= 1;
        entry.paused -= u32::from(on_present_link);
        self.shrink();
    }

    /// Starts a new link, which has no calls.
    pub(super) fn begin_link(&mut self) {
        for entry in &mut self.entries {
            (entry.calls, entry.paused) = (0, 0);
        }
    }

    /// Adds a waiting call of this principal. Returns its number.
    pub(super) fn wait(&mut self, of: PrincipalIndex, for_slot: bool, woke: bool) -> u64 {
        let number = self.next_place;
        self.next_place += 1;
        let entry = &mut self.entries[of.0];
        entry.users += 1;
        entry.places.push_back(WaitingCall { number, for_slot, woke });
        number
    }

    /// The waiting call with this number, unless it was displaced.
    pub(super) fn waiting(&mut self, of: PrincipalIndex, number: u64) -> Option<&mut WaitingCall> {
        let entry = &mut self.entries[of.0];
        entry.position(number).map(|at| &mut entry.places[at])
    }

    /// Removes a waiting call. Returns it, unless it was displaced before.
    pub(super) fn leave(&mut self, of: PrincipalIndex, number: u64) -> Option<WaitingCall> {
        let entry = &mut self.entries[of.0];
        entry.users -= 1;
        let left = entry.position(number).and_then(|at| entry.places.remove(at));
        self.shrink();
        left
    }

    /// Makes room in a full queue for a call of this principal: the newest call of the principal with the most waiting
    /// calls loses its place. Returns `None` if that principal would then have fewer places than the new one.
    pub(super) fn make_room(&mut self, of: PrincipalIndex) -> Option<WaitingCall> {
        let has = self.entries[of.0].places.len();
        let newest = |entry: &Entry| entry.places.back().map(|place| place.number);
        let most = self.entries.iter_mut().max_by_key(|entry| (entry.places.len(), newest(entry)))?;
        if has + 1 < most.places.len() { most.places.pop_back() } else { None }
    }

    /// The waiting call that gets the next free slot: of the principal with the fewest slots in use; among several, the
    /// call that has waited longest.
    pub(super) fn next_for_slot(&self) -> Option<u64> {
        let waiting =
            self.entries.iter().filter_map(|entry| Some((entry.slots(), entry.places.front()?.number)));
        waiting.min().map(|(_, number)| number)
    }

    /// The call that has waited longest of those that match.
    pub(super) fn first(&self, wanted: impl Fn(&WaitingCall) -> bool) -> Option<u64> {
        let of_each = self.entries.iter().filter_map(|entry| entry.places.iter().find(|place| wanted(place)));
        of_each.map(|place| place.number).min()
    }

    /// The principals with calls on the present link.
    pub(super) fn in_flight(&self) -> BusyPrincipals {
        let mut at_work = BusyPrincipals::None;
        self.entries.iter().filter(|entry| entry.calls > 0).for_each(|entry| at_work.add(&entry.name));
        at_work
    }

    fn shrink(&mut self) {
        while self.entries.len() > 1 && self.entries.last().is_some_and(|entry| entry.users == 0) {
            self.entries.pop();
        }
    }
}

/// The last two distinct principals that did something, and when.
#[derive(Debug, Clone, Default)]
pub(super) struct RecentPrincipals {
    last: Option<(PrincipalName, Mono)>,
    /// The latest principal other than `last`.
    other: Option<(PrincipalName, Mono)>,
}

impl RecentPrincipals {
    pub(super) fn record(&mut self, now: Mono, name: &PrincipalName) {
        match &mut self.last {
            Some((last, at)) if last.is_same(name) => *at = now,
            last => self.other = last.replace((name.clone(), now)),
        }
    }

    /// Returns whether a principal other than this one did it within the duration that ends now.
    pub(super) fn has_other(&self, now: Mono, name: &PrincipalName, within: Duration) -> bool {
        let other = self.last.as_ref().filter(|(last, _)| last != name).or(self.other.as_ref());
        other.is_some_and(|(_, at)| now - *at < within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(of: &str) -> PrincipalName {
        PrincipalName::new(of)
    }

    #[test]
    fn the_table_has_only_principals_in_use() {
        let mut principals = Principals::new();
        for round in 0..1000 {
            let who = principals.index_of(&name(&format!("client-{round}")));
            principals.begin(who);
            let place = principals.wait(who, true, false);
            principals.end(who, true);
            assert!(principals.leave(who, place).is_some());
        }
        assert_eq!(principals.entries.len(), 1);
    }

    #[test]
    fn the_last_two_distinct_principals_are_remembered() {
        let at = |seconds| Mono::from_origin(Duration::from_secs(seconds));
        let (a, b, minute) = (name("a"), name("b"), Duration::from_secs(60));
        let mut recent = RecentPrincipals::default();
        recent.record(at(0), &a);
        assert!(!recent.has_other(at(0), &a, minute) && recent.has_other(at(0), &b, minute));
        recent.record(at(1), &b);
        (2..100).for_each(|second| recent.record(at(second), &a));
        assert!(recent.has_other(at(60), &a, minute));
        assert!(!recent.has_other(at(61), &a, minute), "b was there a minute ago");
        assert!(recent.has_other(at(100), &b, minute));
        assert!(recent.has_other(at(100), &name("c"), minute));
    }
}

//! The principals of one upstream: the slots that each has in use, its calls that wait, and whose turn is next. Also
//! which principals used it lately.

use crate::ids::PrincipalName;
use crate::time::Mono;
use std::collections::VecDeque;
use std::time::Duration;

/// The principals with calls in flight or waiting at one upstream.
#[derive(Debug)]
pub(super) struct Principals {
    /// The first entry is [`PrincipalName::LOCAL`], and stays. An entry without users is free for the next principal.
    entries: Vec<Entry>,
    next_place: u64,
}

/// An entry of the table, for as long as a ticket or a place refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PrincipalIndex(usize);

impl PrincipalIndex {
    /// Everybody on this machine.
    pub(super) const LOCAL: Self = Self(0);
}

#[derive(Debug)]
struct Entry {
    name: PrincipalName,
    /// Tickets and places that refer to this entry.
    users: u32,
    /// Calls on the present link.
    calls: u32,
    /// Those of them that wait for a person, and need no slot.
    paused: u32,
    /// The oldest is first.
    places: VecDeque<WaitingCall>,
}

/// A call that waits for a slot or a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingCall {
    pub(super) number: u64,
    /// It waits for a slot, and not for a link.
    pub(super) for_slot: bool,
    /// It has woken a parked upstream, and is held until that was tried.
    pub(super) woke: bool,
}

/// The principals whose calls the server may be at work on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum AtWorkFor {
    #[default]
    Nobody,
    Only(PrincipalName),
    Several,
}

impl AtWorkFor {
    pub(super) fn add(&mut self, name: &PrincipalName) {
        match self {
            Self::Nobody => *self = Self::Only(name.clone()),
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

    /// The entry of this principal, made if there is none.
    pub(super) fn index_of(&mut self, name: &PrincipalName) -> PrincipalIndex {
        if let Some(at) = self.entries.iter().position(|entry| entry.name.is(name)) {
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

    /// A call of this principal goes to the present link.
    pub(super) fn begin(&mut self, of: PrincipalIndex) {
        let entry = &mut self.entries[of.0];
        entry.users += 1;
        entry.calls += 1;
    }

    /// A call of this principal ended.
    pub(super) fn end(&mut self, of: PrincipalIndex, on_present_link: bool) {
        let entry = &mut self.entries[of.0];
        entry.users -= 1;
        entry.calls -= u32::from(on_present_link);
        self.shrink();
    }

    /// A call waits for a person.
    pub(super) fn pause(&mut self, of: PrincipalIndex, on_present_link: bool) {
        let entry = &mut self.entries[of.0];
        entry.users += 1;
        entry.paused += u32::from(on_present_link);
    }

    /// It goes on.
    pub(super) fn resume(&mut self, of: PrincipalIndex, on_present_link: bool) {
        let entry = &mut self.entries[of.0];
        entry.users -= 1;
        entry.paused -= u32::from(on_present_link);
        self.shrink();
    }

    /// There is a new link, and no call on it.
    pub(super) fn begin_link(&mut self) {
        for entry in &mut self.entries {
            (entry.calls, entry.paused) = (0, 0);
        }
    }

    /// A call of this principal waits from now on. Answers its number.
    pub(super) fn wait(&mut self, of: PrincipalIndex, for_slot: bool, woke: bool) -> u64 {
        let number = self.next_place;
        self.next_place += 1;
        let entry = &mut self.entries[of.0];
        entry.users += 1;
        entry.places.push_back(WaitingCall { number, for_slot, woke });
        number
    }

    /// The waiting call of this number, unless it had to make room.
    pub(super) fn waiting(&mut self, of: PrincipalIndex, number: u64) -> Option<&mut WaitingCall> {
        let entry = &mut self.entries[of.0];
        entry.position(number).map(|at| &mut entry.places[at])
    }

    /// A call waits no more. Answers what it waited for, unless it had made room before.
    pub(super) fn leave(&mut self, of: PrincipalIndex, number: u64) -> Option<WaitingCall> {
        let entry = &mut self.entries[of.0];
        entry.users -= 1;
        let left = entry.position(number).and_then(|at| entry.places.remove(at));
        self.shrink();
        left
    }

    /// Makes room in a full queue for a call of this principal: the newest call of the principal with the most places
    /// loses its place. Nothing is won if that principal would then have fewer places than the new one.
    pub(super) fn make_room(&mut self, of: PrincipalIndex) -> Option<WaitingCall> {
        let has = self.entries[of.0].places.len();
        let newest = |entry: &Entry| entry.places.back().map(|place| place.number);
        let most = self.entries.iter_mut().max_by_key(|entry| (entry.places.len(), newest(entry)))?;
        if has + 1 < most.places.len() { most.places.pop_back() } else { None }
    }

    /// The waiting call that gets the next free slot: of the principal with the fewest slots in use; of several such the
    /// one that has waited longest.
    pub(super) fn next_for_slot(&self) -> Option<u64> {
        let waiting =
            self.entries.iter().filter_map(|entry| Some((entry.slots(), entry.places.front()?.number)));
        waiting.min().map(|(_, number)| number)
    }

    /// The call that has waited longest of those that are wanted.
    pub(super) fn first(&self, wanted: impl Fn(&WaitingCall) -> bool) -> Option<u64> {
        let of_each = self.entries.iter().filter_map(|entry| entry.places.iter().find(|place| wanted(place)));
        of_each.map(|place| place.number).min()
    }

    /// The principals with calls on the present link.
    pub(super) fn in_flight(&self) -> AtWorkFor {
        let mut at_work = AtWorkFor::Nobody;
        self.entries.iter().filter(|entry| entry.calls > 0).for_each(|entry| at_work.add(&entry.name));
        at_work
    }

    fn shrink(&mut self) {
        while self.entries.len() > 1 && self.entries.last().is_some_and(|entry| entry.users == 0) {
            self.entries.pop();
        }
    }
}

/// The last two principals that did something, and when.
#[derive(Debug, Clone, Default)]
pub(super) struct RecentPrincipals {
    last: Option<(PrincipalName, Mono)>,
    /// The last one that is another than `last`.
    other: Option<(PrincipalName, Mono)>,
}

impl RecentPrincipals {
    pub(super) fn note(&mut self, now: Mono, name: &PrincipalName) {
        match &mut self.last {
            Some((last, at)) if last.is(name) => *at = now,
            last => self.other = last.replace((name.clone(), now)),
        }
    }

    /// Whether another principal than this one did it within the span that ends now.
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
    fn the_table_holds_no_more_than_those_who_use_it() {
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
    fn the_last_two_principals_are_remembered_however_often_one_of_them_comes() {
        let at = |seconds| Mono::at(Duration::from_secs(seconds));
        let (a, b, minute) = (name("a"), name("b"), Duration::from_secs(60));
        let mut recent = RecentPrincipals::default();
        recent.note(at(0), &a);
        assert!(!recent.has_other(at(0), &a, minute) && recent.has_other(at(0), &b, minute));
        recent.note(at(1), &b);
        (2..100).for_each(|second| recent.note(at(second), &a));
        assert!(recent.has_other(at(60), &a, minute));
        assert!(!recent.has_other(at(61), &a, minute), "b was there a minute ago");
        assert!(recent.has_other(at(100), &b, minute));
        assert!(recent.has_other(at(100), &name("c"), minute));
    }
}

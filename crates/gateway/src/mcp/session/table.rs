//! The legacy sessions in memory, and who makes room when there are too many. A client that has more than
//! its share makes room itself; when all together have too many, the one with the most does. What is in use
//! stays. Time is an argument.

use super::clock::Now;
use super::session::Session;
use crate::shares::{Exhausted, Peer};
use std::collections::HashMap;
use std::sync::Arc;

/// The sessions in memory.
pub(super) struct Roster {
    each: usize,
    all: usize,
    sessions: HashMap<Arc<str>, Arc<Session>>,
    /// How many each client has; only who has any is in here.
    counts: HashMap<Peer, usize>,
}

/// A session that is in, and those that made room for it. Their ids still open.
pub(super) struct Enrolled {
    pub(super) session: Arc<Session>,
    pub(super) gone: Vec<Arc<Session>>,
}

impl Roster {
    /// When there are too many, this part of them makes room at once, so that looking for them is rare.
    const PART: usize = 16;

    /// At most `each` sessions of one client and `all` of all.
    pub(super) fn new(each: usize, all: usize) -> Self {
        Self { each, all, sessions: HashMap::new(), counts: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn get(&self, id: &str) -> Option<&Arc<Session>> {
        self.sessions.get(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.sessions.values()
    }

    /// Takes a session in; one with the same id that is in already stays instead.
    pub(super) fn enrol(&mut self, session: Session, now: Now) -> Result<Enrolled, Exhausted> {
        if let Some(known) = self.sessions.get(&session.id) {
            return Ok(Enrolled { session: Arc::clone(known), gone: Vec::new() });
        }
        let mut gone = Vec::new();
        if self.count(&session.peer) >= self.each {
            gone = self.make_room(&session.peer, now);
            if gone.is_empty() {
                return Err(Exhausted::ByClient);
            }
        } else if self.len() >= self.all {
            let most = self.counts.iter().max_by_key(|(_, count)| **count).map(|(peer, _)| peer.clone());
            gone = most.map(|peer| self.make_room(&peer, now)).unwrap_or_default();
            if gone.is_empty() {
                return Err(Exhausted::ByAll);
            }
        }
        let session = Arc::new(session);
        *self.counts.entry(session.peer.clone()).or_default() += 1;
        self.sessions.insert(Arc::clone(&session.id), Arc::clone(&session));
        Ok(Enrolled { session, gone })
    }

    pub(super) fn strike(&mut self, id: &str) -> Option<Arc<Session>> {
        let session = self.sessions.remove(id)?;
        if let Some(count) = self.counts.get_mut(&session.peer) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&session.peer);
            }
        }
        Some(session)
    }

    /// Strikes every session that is over.
    pub(super) fn strike_all(&mut self, over: impl Fn(&Session) -> bool) -> Vec<Arc<Session>> {
        let ids: Vec<Arc<str>> =
            self.iter().filter(|session| over(session)).map(|session| Arc::clone(&session.id)).collect();
        ids.iter().filter_map(|id| self.strike(id)).collect()
    }

    fn count(&self, peer: &Peer) -> usize {
        self.counts.get(peer).copied().unwrap_or_default()
    }

    /// Strikes a part of the client's sessions that nobody uses, those that were unused for longest.
    fn make_room(&mut self, peer: &Peer, now: Now) -> Vec<Arc<Session>> {
        let mut idle: Vec<(u64, Arc<str>)> = self
            .iter()
            .filter(|session| session.peer == *peer && session.idle_for(now).is_some())
            .map(|session| (session.used(), Arc::clone(&session.id)))
            .collect();
        let part = (self.count(peer) / Self::PART + 1).min(idle.len());
        if part > 0 {
            idle.select_nth_unstable(part - 1);
        }
        idle[..part].iter().filter_map(|(_, id)| self.strike(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::downstream::clock::Clock;
    use crate::downstream::herald::Marks;
    use crate::downstream::pass::Pass;
    use crate::downstream::questions::Abilities;
    use crate::downstream::session::Common;
    use crate::shares::Shares;
    use gripfast::Host;
    use gripfast::wire::ProtocolVersion;
    use std::time::Duration;

    fn peer(last: u8) -> Peer {
        Peer::at([192, 0, 2, last].into())
    }

    fn at(seconds: u64) -> Now {
        Now { mono: Duration::from_secs(seconds), wall: Duration::from_secs(seconds) }
    }

    fn session(id: &str, peer: Peer, now: Now) -> Session {
        let version = ProtocolVersion::LATEST_LEGACY;
        let pass = Pass::new(&version, Abilities::default(), now.wall, Duration::from_secs(60)).unwrap();
        let host = Host::builder().build();
        let common = Arc::new(Common::new(Clock::new(), host, &Shares::new(0, 0), Arc::default()));
        Session::new(id.into(), pass, peer, Marks::default(), &common, now)
    }

    fn ids(sessions: &[Arc<Session>]) -> Vec<&str> {
        sessions.iter().map(|session| &*session.id).collect()
    }

    #[tokio::test]
    async fn a_client_with_too_many_makes_room_itself_by_what_it_used_longest_ago() {
        let mut roster = Roster::new(2, 100);
        roster.enrol(session("theirs", peer(2), at(0)), at(0)).unwrap();
        let one = roster.enrol(session("one", peer(1), at(1)), at(1)).unwrap().session;
        roster.enrol(session("two", peer(1), at(2)), at(2)).unwrap();
        one.touch(at(3).mono);
        let gone = roster.enrol(session("three", peer(1), at(4)), at(4)).unwrap().gone;
        assert_eq!(ids(&gone), ["two"]);
        assert!(roster.get("theirs").is_some() && roster.get("one").is_some());
    }

    #[tokio::test]
    async fn when_all_together_have_too_many_the_one_with_the_most_makes_room() {
        let mut roster = Roster::new(10, 4);
        roster.enrol(session("mine", peer(1), at(0)), at(0)).unwrap();
        for (number, id) in ["a", "b", "c"].into_iter().enumerate() {
            let now = at(1 + number as u64);
            roster.enrol(session(id, peer(2), now), now).unwrap();
        }
        let gone = roster.enrol(session("new", peer(3), at(9)), at(9)).unwrap().gone;
        assert_eq!(ids(&gone), ["a"]);
        assert_eq!(roster.len(), 4);
    }

    #[tokio::test]
    async fn where_all_are_in_use_nobody_is_let_in() {
        let mut roster = Roster::new(2, 3);
        let mut used = Vec::new();
        for (id, last) in [("a", 1), ("b", 1), ("c", 2)] {
            used.push(roster.enrol(session(id, peer(last), at(0)), at(0)).unwrap().session.in_use());
        }
        let refused = |roster: &mut Roster, last| roster.enrol(session("d", peer(last), at(1)), at(1)).err();
        assert_eq!(refused(&mut roster, 1), Some(Exhausted::ByClient));
        assert_eq!(refused(&mut roster, 2), Some(Exhausted::ByAll));
        used.remove(0);
        assert_eq!(refused(&mut roster, 1), None);
        roster.strike_all(|_| true);
        assert!(roster.counts.is_empty(), "nobody is remembered");
    }
}

//! Table of the legacy sessions in memory, with eviction. A client above its own limit loses its longest unused
//! sessions; above the total limit the client with the most sessions does. Sessions in use stay. Time is an argument.

use super::state::Session;
use crate::server::quota::{Peer, QuotaExceeded};
use gripfast::Now;
use std::collections::HashMap;
use std::sync::Arc;

/// Legacy sessions in memory.
pub(crate) struct SessionTable {
    max_per_client: usize,
    max_total: usize,
    /// The gateway makes the ids, so a client cannot choose ids that collide, and a fast hash is enough.
    sessions: HashMap<Arc<str>, Arc<Session>, foldhash::fast::RandomState>,
    /// Number of sessions of each client that has any.
    counts: HashMap<Peer, usize>,
}

/// An inserted session, and the sessions evicted for it. The ids of evicted sessions stay valid.
pub(crate) struct InsertedSession {
    pub(crate) session: Arc<Session>,
    pub(crate) evicted: Vec<Arc<Session>>,
}

impl SessionTable {
    /// One in this many sessions of a client is evicted at once, so that the search for idle sessions is rare.
    const PART: usize = 16;

    /// Creates a table for at most `max_per_client` sessions of one client and `max_total` altogether.
    pub(crate) fn new(max_per_client: usize, max_total: usize) -> Self {
        Self { max_per_client, max_total, sessions: HashMap::default(), counts: HashMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Arc<Session>> {
        self.sessions.get(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.sessions.values()
    }

    /// Inserts a session, unless one with the same id exists, which is then returned.
    pub(crate) fn insert(&mut self, session: Session, now: Now) -> Result<InsertedSession, QuotaExceeded> {
        if let Some(known) = self.sessions.get(&session.id) {
            return Ok(InsertedSession { session: Arc::clone(known), evicted: Vec::new() });
        }
        let mut evicted = Vec::new();
        if self.count(&session.peer) >= self.max_per_client {
            evicted = self.make_room(&session.peer, now);
            if evicted.is_empty() {
                return Err(QuotaExceeded::ByClient);
            }
        } else if self.len() >= self.max_total {
            let most = self.counts.iter().max_by_key(|(_, count)| **count).map(|(peer, _)| peer.clone());
            evicted = most.map(|peer| self.make_room(&peer, now)).unwrap_or_default();
            if evicted.is_empty() {
                return Err(QuotaExceeded::ByAll);
            }
        }
        let session = Arc::new(session);
        *self.counts.entry(session.peer.clone()).or_default() += 1;
        self.sessions.insert(Arc::clone(&session.id), Arc::clone(&session));
        Ok(InsertedSession { session, evicted })
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Arc<Session>> {
        let session = self.sessions.remove(id)?;
        if let Some(count) = self.counts.get_mut(&session.peer) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&session.peer);
            }
        }
        Some(session)
    }

    /// Removes all sessions that match.
    pub(crate) fn remove_if(&mut self, matches: impl Fn(&Session) -> bool) -> Vec<Arc<Session>> {
        let ids: Vec<Arc<str>> =
            self.iter().filter(|session| matches(session)).map(|session| Arc::clone(&session.id)).collect();
        ids.iter().filter_map(|id| self.remove(id)).collect()
    }

    fn count(&self, peer: &Peer) -> usize {
        self.counts.get(peer).copied().unwrap_or_default()
    }

    /// Removes a part of the client's idle sessions, the longest unused first.
    fn make_room(&mut self, peer: &Peer, now: Now) -> Vec<Arc<Session>> {
        let mut idle: Vec<(u64, Arc<str>)> = self
            .iter()
            .filter(|session| session.peer == *peer && session.idle_for(now).is_some())
            .map(|session| (session.last_used(), Arc::clone(&session.id)))
            .collect();
        let part = (self.count(peer) / Self::PART + 1).min(idle.len());
        if part > 0 {
            idle.select_nth_unstable(part - 1);
        }
        idle[..part].iter().filter_map(|(_, id)| self.remove(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::elicitation::ElicitationSupport;
    use crate::mcp::notify::list_changes::ListVersions;
    use crate::mcp::session::claims::SessionClaims;
    use crate::mcp::session::state::SharedState;
    use crate::server::quota::Quota;
    use gripfast::Host;
    use gripfast::wire::ProtocolVersion;
    use gripfast::{Clock, Mono, Wall};
    use std::time::Duration;

    fn peer(last: u8) -> Peer {
        Peer::from_address([192, 0, 2, last].into())
    }

    fn at(seconds: u64) -> Now {
        let since = Duration::from_secs(seconds);
        Now { mono: Mono::from_origin(since), wall: Wall::from_unix_epoch(since) }
    }

    fn session(id: &str, peer: Peer, now: Now) -> Session {
        let version = ProtocolVersion::LATEST_LEGACY;
        let claims = SessionClaims::new(
            &version,
            ElicitationSupport::default(),
            now.wall.since_epoch(),
            Duration::from_secs(60),
        )
        .unwrap();
        let host = Host::builder().build();
        let shared = Arc::new(SharedState::new(Clock::new(), host, &Quota::new(0, 0), Arc::default()));
        Session::new(id.into(), claims, peer, ListVersions::default(), &shared, now)
    }

    fn ids(sessions: &[Arc<Session>]) -> Vec<&str> {
        sessions.iter().map(|session| &*session.id).collect()
    }

    #[tokio::test]
    async fn a_client_above_its_limit_loses_its_longest_unused_session() {
        let mut table = SessionTable::new(2, 100);
        table.insert(session("theirs", peer(2), at(0)), at(0)).unwrap();
        let one = table.insert(session("one", peer(1), at(1)), at(1)).unwrap().session;
        table.insert(session("two", peer(1), at(2)), at(2)).unwrap();
        one.touch(at(3).mono);
        let evicted = table.insert(session("three", peer(1), at(4)), at(4)).unwrap().evicted;
        assert_eq!(ids(&evicted), ["two"]);
        assert!(table.get("theirs").is_some() && table.get("one").is_some());
    }

    #[tokio::test]
    async fn above_the_total_limit_the_client_with_the_most_loses_a_session() {
        let mut table = SessionTable::new(10, 4);
        table.insert(session("mine", peer(1), at(0)), at(0)).unwrap();
        for (number, id) in ["a", "b", "c"].into_iter().enumerate() {
            let now = at(1 + number as u64);
            table.insert(session(id, peer(2), now), now).unwrap();
        }
        let evicted = table.insert(session("new", peer(3), at(9)), at(9)).unwrap().evicted;
        assert_eq!(ids(&evicted), ["a"]);
        assert_eq!(table.len(), 4);
    }

    #[tokio::test]
    async fn no_session_is_inserted_while_all_are_in_use() {
        let mut table = SessionTable::new(2, 3);
        let mut used = Vec::new();
        for (id, last) in [("a", 1), ("b", 1), ("c", 2)] {
            used.push(table.insert(session(id, peer(last), at(0)), at(0)).unwrap().session.in_use());
        }
        let refused =
            |table: &mut SessionTable, last| table.insert(session("d", peer(last), at(1)), at(1)).err();
        assert_eq!(refused(&mut table, 1), Some(QuotaExceeded::ByClient));
        assert_eq!(refused(&mut table, 2), Some(QuotaExceeded::ByAll));
        used.remove(0);
        assert_eq!(refused(&mut table, 1), None);
        table.remove_if(|_| true);
        assert!(table.counts.is_empty(), "no count is left");
    }
}

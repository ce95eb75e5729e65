//! Table of open connections: limits their number, and selects the one to close for a new one.
//!
//! A connection is known once its client has authenticated or, without authentication, has sent a complete request.
//! Until then it may be closed at any time: the oldest unknown connection makes room for a new one. A quarter of the
//! connections, in total and per client, is reserved for known ones.

use super::quota::{Peer, QuotaExceeded};
use gripfast::sync::Mutex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Open connections of a listener.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionTable(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    per_client: Limit,
    total: Limit,
    table: Mutex<Table>,
}

/// Maximum number of connections, and how many of them may be unknown.
#[derive(Debug, Clone, Copy)]
struct Limit {
    max: usize,
    max_unknown: usize,
}

impl Limit {
    fn with_reserve(max: usize) -> Self {
        Self { max, max_unknown: max - max / 4 }
    }

    fn without_reserve(max: usize) -> Self {
        Self { max, max_unknown: max }
    }

    fn is_reached(self, known: usize, unknown: usize) -> bool {
        known + unknown >= self.max || unknown >= self.max_unknown
    }
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    known: usize,
    unknown: usize,
    /// Clients with connections.
    clients: BTreeMap<Peer, ClientConnections>,
    /// The same clients by the number of their unknown connections, if they have any. Among equals, the client with the
    /// oldest connection comes last.
    by_unknown: BTreeSet<(usize, Reverse<u64>, Peer)>,
    /// Number of known connections per authenticated client, independent of its address.
    known_as: BTreeMap<Peer, usize>,
}

#[derive(Debug, Default)]
struct ClientConnections {
    known: usize,
    /// By age, with the token that closes them.
    unknown: BTreeMap<u64, CancellationToken>,
}

impl ConnectionTable {
    /// Creates a table for at most `per_client` connections of one client and `total` altogether. A quarter of each is
    /// for known connections.
    pub(crate) fn new(per_client: usize, total: usize) -> Self {
        Self::of(Limit::with_reserve(per_client), Limit::with_reserve(total))
    }

    /// The same without the reserve, for TLS handshakes, which are never known.
    pub(crate) fn of_unknown(per_client: usize, total: usize) -> Self {
        Self::of(Limit::without_reserve(per_client), Limit::without_reserve(total))
    }

    fn of(per_client: Limit, total: Limit) -> Self {
        Self(Arc::new(Inner { per_client, total, table: Mutex::default() }))
    }

    /// Admits a connection of `peer`, which keeps its slot until the returned value is dropped. If a limit is reached,
    /// the oldest unknown connection is closed: of this client if it is at its own limit, otherwise of the client with
    /// the most unknown ones. `close` is cancelled when this connection is closed that way.
    ///
    /// # Errors
    /// A limit is reached, and all connections are known.
    pub(crate) fn admit(
        &self,
        peer: &Peer,
        close: CancellationToken,
    ) -> Result<ConnectionSlot, QuotaExceeded> {
        let mut table = self.0.table.lock();
        let (known, unknown) =
            table.clients.get(peer).map_or((0, 0), |client| (client.known, client.unknown.len()));
        if self.0.per_client.is_reached(known, unknown) && !table.evict(peer) {
            return Err(QuotaExceeded::ByClient);
        }
        if self.0.total.is_reached(table.known, table.unknown) && !table.evict_of_largest() {
            return Err(QuotaExceeded::ByAll);
        }
        let id = table.next;
        table.next += 1;
        table.change(peer, |client| {
            client.unknown.insert(id, close);
        });
        drop(table);
        let phase = watch::Sender::new(Phase::Idle);
        let (inner, peer) = (Arc::clone(&self.0), peer.clone());
        Ok(ConnectionSlot {
            inner,
            peer,
            id,
            known: AtomicBool::new(false),
            known_as: OnceLock::new(),
            phase,
        })
    }

    /// Closes an unknown connection, because the process has no file descriptors left.
    pub(crate) fn make_room(&self) -> bool {
        self.0.table.lock().evict_of_largest()
    }

    /// Number of connections admitted so far.
    #[cfg(test)]
    pub(crate) fn admitted(&self) -> u64 {
        self.0.table.lock().next
    }

    /// Number of open connections.
    pub(crate) fn len(&self) -> usize {
        let table = self.0.table.lock();
        table.known + table.unknown
    }
}

impl Table {
    /// Changes the connections of one client, and updates the counts.
    fn change<T>(&mut self, peer: &Peer, change: impl FnOnce(&mut ClientConnections) -> T) -> T {
        let client = self.clients.entry(peer.clone()).or_default();
        let oldest =
            |client: &ClientConnections| Reverse(client.unknown.keys().next().copied().unwrap_or_default());
        let (known, unknown, before) = (client.known, client.unknown.len(), oldest(client));
        let changed = change(client);
        let (known_now, unknown_now, after) = (client.known, client.unknown.len(), oldest(client));
        self.known = self.known - known + known_now;
        self.unknown = self.unknown - unknown + unknown_now;
        if (unknown, before) != (unknown_now, after) {
            self.by_unknown.remove(&(unknown, before, peer.clone()));
            if unknown_now > 0 {
                self.by_unknown.insert((unknown_now, after, peer.clone()));
            }
        }
        if (known_now, unknown_now) == (0, 0) {
            self.clients.remove(peer);
        }
        changed
    }

    /// Closes the oldest unknown connection of a client, if it has one.
    fn evict(&mut self, peer: &Peer) -> bool {
        let Some((_, oldest)) = self.change(peer, |client| client.unknown.pop_first()) else { return false };
        oldest.cancel();
        true
    }

    fn evict_of_largest(&mut self) -> bool {
        let largest = self.by_unknown.last().map(|(_, _, peer)| peer.clone());
        largest.is_some_and(|peer| self.evict(&peer))
    }
}

/// Slot of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    inner: Arc<Inner>,
    peer: Peer,
    id: u64,
    known: AtomicBool,
    /// Client that the connection is known as.
    known_as: OnceLock<Peer>,
    phase: watch::Sender<Phase>,
}

/// Phase of an unknown connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for the head of a request.
    Idle,
    /// A request is being read or answered.
    Busy,
    /// Known: no time limit applies.
    Known,
}

/// The head of a request did not arrive in time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeadTimeout;

impl ConnectionSlot {
    /// Tests if the client has authenticated or, without authentication, has sent a complete request.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// Marks the connection as known by its address. A connection that was closed to make room stays closed.
    pub(crate) fn mark_known(&self) {
        self.mark_known_as(&self.peer);
    }

    /// Marks the connection as known as `client`, which may have as many as one address. Further ones stay unknown:
    /// they are served, but may be closed to make room.
    pub(crate) fn mark_known_as(&self, client: &Peer) {
        if self.is_known() {
            return;
        }
        let mut table = self.inner.table.lock();
        if table.known_as.get(client).is_some_and(|held| *held >= self.inner.per_client.max) {
            return;
        }
        let is_open = table.change(&self.peer, |client| {
            let is_open = client.unknown.remove(&self.id).is_some();
            client.known += usize::from(is_open);
            is_open
        });
        if is_open && self.known_as.set(client.clone()).is_ok() {
            *table.known_as.entry(client.clone()).or_default() += 1;
        }
        self.known.store(is_open, Ordering::Release);
        drop(table);
        if is_open {
            self.phase.send_replace(Phase::Known);
        }
    }

    /// Starts a request, which lasts until the guard is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> RequestGuard {
        self.enter(Phase::Busy);
        RequestGuard(Arc::clone(self))
    }

    /// Waits until the connection is known.
    ///
    /// # Errors
    /// It is unknown and had no request for `limit`.
    pub(crate) async fn until_known(&self, limit: Duration) -> Result<(), HeadTimeout> {
        let mut phase = self.phase.subscribe();
        loop {
            let now = *phase.borrow_and_update();
            let changed = match now {
                Phase::Known => return Ok(()),
                Phase::Busy => phase.changed().await,
                Phase::Idle => tokio::time::timeout(limit, phase.changed()).await.map_err(|_| HeadTimeout)?,
            };
            changed.expect("the sender is ours");
        }
    }

    fn enter(&self, next: Phase) {
        self.phase.send_if_modified(|phase| match *phase {
            Phase::Known => false,
            Phase::Idle | Phase::Busy => {
                *phase = next;
                true
            }
        });
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let is_known = self.is_known();
        let mut table = self.inner.table.lock();
        if let Some(client) = self.known_as.get()
            && let Some(held) = table.known_as.get_mut(client)
        {
            *held -= 1;
            if *held == 0 {
                table.known_as.remove(client);
            }
        }
        table.change(&self.peer, |client| match is_known {
            true => client.known -= 1,
            // A connection that was evicted is not in the table any more.
            false => drop(client.unknown.remove(&self.id)),
        });
    }
}

/// Guard for a request of an unknown connection.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ConnectionSlot>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::from_address([192, 0, 2, last].into())
    }

    struct Open {
        slot: ConnectionSlot,
        close: CancellationToken,
    }

    fn open(table: &ConnectionTable, peer: &Peer) -> Result<Open, QuotaExceeded> {
        let close = CancellationToken::new();
        Ok(Open { slot: table.admit(peer, close.clone())?, close })
    }

    fn closed(connections: &[Open]) -> Vec<usize> {
        (0..connections.len()).filter(|index| connections[*index].close.is_cancelled()).collect()
    }

    #[test]
    fn a_quarter_is_reserved_and_the_oldest_unknown_connection_makes_room() {
        let table = ConnectionTable::new(8, 8);
        let mut unknown: Vec<Open> = (0..6).map(|_| open(&table, &peer(1)).unwrap()).collect();
        assert_eq!((closed(&unknown), table.len()), (vec![], 6));
        unknown.push(open(&table, &peer(1)).unwrap());
        assert_eq!((closed(&unknown), table.len()), (vec![0], 6), "two are reserved");
        for known in &unknown[1..3] {
            known.slot.mark_known();
        }
        unknown.push(open(&table, &peer(1)).unwrap());
        unknown.push(open(&table, &peer(1)).unwrap());
        assert_eq!((closed(&unknown), table.len()), (vec![0], 8), "known ones use the reserve");
        unknown.push(open(&table, &peer(1)).unwrap());
        assert_eq!((closed(&unknown), table.len()), (vec![0, 3], 8), "known ones stay");
    }

    #[test]
    fn among_equal_clients_the_oldest_connection_makes_room() {
        let table = ConnectionTable::new(8, 4);
        let unknown: Vec<Open> = [1, 9, 3].map(|last| open(&table, &peer(last)).unwrap()).into();
        let _new = [open(&table, &peer(200)).unwrap(), open(&table, &peer(2)).unwrap()];
        assert_eq!(closed(&unknown), [0, 1], "whatever their addresses are");
    }

    #[test]
    fn known_connections_of_a_client_are_limited_across_addresses() {
        let table = ConnectionTable::new(2, 8);
        let owner = Peer::Principal(gripfast::Principal::new("owner"));
        let mut held: Vec<Open> = (1..=4).map(|last| open(&table, &peer(last)).unwrap()).collect();
        held.iter().for_each(|open| open.slot.mark_known_as(&owner));
        assert_eq!(held.iter().filter(|open| open.slot.is_known()).count(), 2);
        let others: Vec<Open> = (5..=8).map(|last| open(&table, &peer(last)).unwrap()).collect();
        assert_eq!((closed(&held), closed(&others)), (vec![], vec![]));
        let _newest = open(&table, &peer(9)).unwrap();
        assert_eq!(closed(&held), [2], "its further ones make room");
        held.remove(0);
        held[2].slot.mark_known_as(&owner);
        assert!(held[2].slot.is_known(), "one has ended");
    }

    #[test]
    fn without_unknown_connections_there_is_no_room_until_one_ends() {
        let table = ConnectionTable::new(2, 3);
        let mut known: Vec<Open> = [1, 1, 2].map(|last| open(&table, &peer(last)).unwrap()).into();
        known.iter().for_each(|open| open.slot.mark_known());
        assert_eq!(open(&table, &peer(1)).err(), Some(QuotaExceeded::ByClient));
        assert_eq!(open(&table, &peer(3)).err(), Some(QuotaExceeded::ByAll));
        assert!(!table.make_room());
        known.pop();
        assert!(open(&table, &peer(3)).is_ok());
        drop(known);
        assert_eq!((table.len(), table.0.table.lock().clients.len()), (0, 0), "no entry is left");
    }

    #[test]
    fn the_client_with_the_most_unknown_connections_makes_room_for_others() {
        let table = ConnectionTable::new(100, 8);
        let few = open(&table, &peer(1)).unwrap();
        let many: Vec<Open> = (0..5).map(|_| open(&table, &peer(2)).unwrap()).collect();
        let newcomer = open(&table, &peer(3)).unwrap();
        assert!(!few.close.is_cancelled() && !newcomer.close.is_cancelled());
        assert_eq!(closed(&many), [0]);
    }

    #[test]
    fn an_evicted_connection_stays_closed_and_is_released_once() {
        let table = ConnectionTable::new(1, 1);
        let first = open(&table, &peer(1)).unwrap();
        let second = open(&table, &peer(1)).unwrap();
        assert!(first.close.is_cancelled());
        first.slot.mark_known();
        assert!(!first.slot.is_known());
        drop(first);
        assert_eq!(table.len(), 1);
        drop(second);
        assert_eq!(table.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_head_timeout_applies_to_unknown_connections_only() {
        let table = ConnectionTable::new(9, 9);
        let limit = Duration::from_secs(5);
        let idle = Arc::new(open(&table, &peer(1)).unwrap().slot);
        let begun = tokio::time::Instant::now();
        let request = idle.begin_request();
        let ends = async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            drop(request);
        };
        let (ended, ()) = tokio::join!(idle.until_known(limit), ends);
        assert_eq!((ended, begun.elapsed()), (Err(HeadTimeout), Duration::from_secs(35)));
        idle.mark_known();
        assert_eq!(idle.until_known(limit).await, Ok(()));
    }
}

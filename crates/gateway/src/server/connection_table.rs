//! The table of open connections: how many there may be, and which one is closed to make room for a new one.
//!
//! A connection is known once its client has authenticated or, where nobody has to, has sent a complete request. Until
//! then it can be closed at any moment: the oldest makes room for a newcomer. A quarter of all connections, and of
//! those of each client, is reserved for known ones.

use crate::shares::{Exhausted, Peer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The open connections of a listener.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionTable(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    each: Limit,
    all: Limit,
    table: Mutex<Table>,
}

/// How many connections there may be, and how many of them may be unknown.
#[derive(Debug, Clone, Copy)]
struct Limit {
    most: usize,
    most_unknown: usize,
}

impl Limit {
    fn with_reserve(most: usize) -> Self {
        Self { most, most_unknown: most - most / 4 }
    }

    fn without_reserve(most: usize) -> Self {
        Self { most, most_unknown: most }
    }

    fn is_reached(self, known: usize, unknown: usize) -> bool {
        known + unknown >= self.most || unknown >= self.most_unknown
    }
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    known: usize,
    unknown: usize,
    /// Clients with connections.
    clients: BTreeMap<Peer, OfClient>,
    /// The same clients by the number of their unknown connections, if they have any; of equals, the one whose oldest
    /// is the oldest comes last.
    by_unknown: BTreeSet<(usize, Reverse<u64>, Peer)>,
    /// Known connections by the client that they are known as, wherever it connects from.
    known_as: BTreeMap<Peer, usize>,
}

#[derive(Debug, Default)]
struct OfClient {
    known: usize,
    /// By age, with what closes them.
    unknown: BTreeMap<u64, CancellationToken>,
}

impl ConnectionTable {
    /// At most `each` of one client, and `all` of all clients. A quarter of each is for known connections.
    pub(crate) fn new(each: usize, all: usize) -> Self {
        Self::of(Limit::with_reserve(each), Limit::with_reserve(all))
    }

    /// The same for what no client is known in.
    pub(crate) fn of_unknown(each: usize, all: usize) -> Self {
        Self::of(Limit::without_reserve(each), Limit::without_reserve(all))
    }

    fn of(each: Limit, all: Limit) -> Self {
        Self(Arc::new(Inner { each, all, table: Mutex::default() }))
    }

    /// Lets a connection of `peer` in, which has its slot for as long as the answer lives. Where there is no room, the
    /// oldest unknown connection is closed: of this client if it has as many as one may have, or else of the client
    /// that has the most unknown ones. `close` is cancelled if this one is closed so.
    ///
    /// # Errors
    /// There is no room, and all connections are known.
    pub(crate) fn admit(&self, peer: &Peer, close: CancellationToken) -> Result<Slot, Exhausted> {
        let mut table = self.0.lock();
        let (known, unknown) =
            table.clients.get(peer).map_or((0, 0), |client| (client.known, client.unknown.len()));
        if self.0.each.is_reached(known, unknown) && !table.evict(peer) {
            return Err(Exhausted::ByClient);
        }
        if self.0.all.is_reached(table.known, table.unknown) && !table.evict_of_largest() {
            return Err(Exhausted::ByAll);
        }
        let id = table.next;
        table.next += 1;
        table.change(peer, |client| {
            client.unknown.insert(id, close);
        });
        drop(table);
        let phase = watch::Sender::new(Phase::Idle);
        let (of, peer) = (Arc::clone(&self.0), peer.clone());
        Ok(Slot { of, peer, id, known: AtomicBool::new(false), known_as: OnceLock::new(), phase })
    }

    /// Closes an unknown connection, because the process has no room for another one.
    pub(crate) fn make_room(&self) -> bool {
        self.0.lock().evict_of_largest()
    }

    /// How many were let in so far.
    #[cfg(test)]
    pub(crate) fn admitted(&self) -> u64 {
        self.0.lock().next
    }

    /// How many there are.
    pub(crate) fn taken(&self) -> usize {
        let table = self.0.lock();
        table.known + table.unknown
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Changes what one client has, and counts again.
    fn change<T>(&mut self, peer: &Peer, change: impl FnOnce(&mut OfClient) -> T) -> T {
        let client = self.clients.entry(peer.clone()).or_default();
        let oldest = |client: &OfClient| Reverse(client.unknown.keys().next().copied().unwrap_or_default());
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

/// The slot of one connection.
#[derive(Debug)]
pub(crate) struct Slot {
    of: Arc<Inner>,
    peer: Peer,
    id: u64,
    known: AtomicBool,
    /// The client that it is known as.
    known_as: OnceLock<Peer>,
    phase: watch::Sender<Phase>,
}

/// What an unknown connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// There is no request: it waits for the head of one.
    Idle,
    /// A request is being read or answered.
    Busy,
    /// It is known, and may do what it likes.
    Known,
}

/// The head of a request did not come in time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooSlow;

impl Slot {
    /// Whether the client has authenticated or, where nobody has to, has sent a complete request.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// From now on the connection is known by its address. One that has been closed to make room stays closed.
    pub(crate) fn mark_known(&self) {
        self.mark_known_as(&self.peer);
    }

    /// From now on the connection is known as one of `client`, which may have as many as one address may. Further ones stay
    /// unknown: they are served, and make room.
    pub(crate) fn mark_known_as(&self, client: &Peer) {
        if self.is_known() {
            return;
        }
        let mut table = self.of.lock();
        if table.known_as.get(client).is_some_and(|held| *held >= self.of.each.most) {
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

    /// A request has begun. It ends with the answer.
    pub(crate) fn begin_request(self: &Arc<Self>) -> RequestGuard {
        self.enter(Phase::Busy);
        RequestGuard(Arc::clone(self))
    }

    /// Waits until the connection is known.
    ///
    /// # Errors
    /// It is unknown and has had no request for as long as `limit`.
    pub(crate) async fn until_known(&self, limit: Duration) -> Result<(), TooSlow> {
        let mut phase = self.phase.subscribe();
        loop {
            let now = *phase.borrow_and_update();
            let changed = match now {
                Phase::Known => return Ok(()),
                Phase::Busy => phase.changed().await,
                Phase::Idle => tokio::time::timeout(limit, phase.changed()).await.map_err(|_| TooSlow)?,
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

impl Drop for Slot {
    fn drop(&mut self) {
        let is_known = self.is_known();
        let mut table = self.of.lock();
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
            // One that made room is not in here any more.
            false => drop(client.unknown.remove(&self.id)),
        });
    }
}

/// A request of an unknown connection, until it is answered.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<Slot>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::at([192, 0, 2, last].into())
    }

    struct Open {
        slot: Slot,
        close: CancellationToken,
    }

    fn open(table: &ConnectionTable, peer: &Peer) -> Result<Open, Exhausted> {
        let close = CancellationToken::new();
        Ok(Open { slot: table.admit(peer, close.clone())?, close })
    }

    fn closed(connections: &[Open]) -> Vec<usize> {
        (0..connections.len()).filter(|index| connections[*index].close.is_cancelled()).collect()
    }

    #[test]
    fn unknown_connections_leave_a_quarter_free_and_the_oldest_makes_room() {
        let table = ConnectionTable::new(8, 8);
        let mut unknown: Vec<Open> = (0..6).map(|_| open(&table, &peer(1)).unwrap()).collect();
        assert_eq!((closed(&unknown), table.taken()), (vec![], 6));
        unknown.push(open(&table, &peer(1)).unwrap());
        assert_eq!((closed(&unknown), table.taken()), (vec![0], 6), "two are reserved");
        for known in &unknown[1..3] {
            known.slot.mark_known();
        }
        unknown.push(open(&table, &peer(1)).unwrap());
        unknown.push(open(&table, &peer(1)).unwrap());
        assert_eq!((closed(&unknown), table.taken()), (vec![0], 8), "known ones use the reserve");
        unknown.push(open(&table, &peer(1)).unwrap());
        assert_eq!((closed(&unknown), table.taken()), (vec![0, 3], 8), "known ones stay");
    }

    #[test]
    fn of_clients_with_as_many_the_oldest_connection_makes_room() {
        let table = ConnectionTable::new(8, 4);
        let unknown: Vec<Open> = [1, 9, 3].map(|last| open(&table, &peer(last)).unwrap()).into();
        let _new = [open(&table, &peer(200)).unwrap(), open(&table, &peer(2)).unwrap()];
        assert_eq!(closed(&unknown), [0, 1], "whatever their addresses are");
    }

    #[test]
    fn a_client_is_known_on_as_many_connections_as_one_may_have_wherever_it_connects_from() {
        let table = ConnectionTable::new(2, 8);
        let owner = Peer::Is(gripfast::Principal::named("owner"));
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
    fn where_all_are_known_there_is_no_room_until_one_ends() {
        let table = ConnectionTable::new(2, 3);
        let mut known: Vec<Open> = [1, 1, 2].map(|last| open(&table, &peer(last)).unwrap()).into();
        known.iter().for_each(|open| open.slot.mark_known());
        assert_eq!(open(&table, &peer(1)).err(), Some(Exhausted::ByClient));
        assert_eq!(open(&table, &peer(3)).err(), Some(Exhausted::ByAll));
        assert!(!table.make_room());
        known.pop();
        assert!(open(&table, &peer(3)).is_ok());
        drop(known);
        assert_eq!((table.taken(), table.0.lock().clients.len()), (0, 0), "nobody is remembered");
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
    fn a_connection_that_made_room_stays_closed_and_gives_nothing_back_twice() {
        let table = ConnectionTable::new(1, 1);
        let first = open(&table, &peer(1)).unwrap();
        let second = open(&table, &peer(1)).unwrap();
        assert!(first.close.is_cancelled());
        first.slot.mark_known();
        assert!(!first.slot.is_known());
        drop(first);
        assert_eq!(table.taken(), 1);
        drop(second);
        assert_eq!(table.taken(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_connection_has_the_limit_for_each_head_and_a_known_one_has_no_limit() {
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
        assert_eq!((ended, begun.elapsed()), (Err(TooSlow), Duration::from_secs(35)));
        idle.mark_known();
        assert_eq!(idle.until_known(limit).await, Ok(()));
    }
}

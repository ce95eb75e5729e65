//! Routing of client sessions at one replica: serve a request here, forward it to the owner, take the session over, or
//! refuse.
//!
//! The router keeps no entry for a session that its own replica opened and still owns. It knows the sessions that moved:
//! those that it took over, those that others took over from it, and owners that it learned while forwarding. A
//! [`RoutedRequest`] carries the progress of one request, so that it is sent at most once.

mod request;

pub use request::{
    Arrival, Decision, ForwardEnd, RoutedRequest, TakeoverCause, TakeoverReply, UnavailableReason,
};

use super::heartbeat::{HeartbeatReply, LiveReplica};
use super::place::{BootId, OwnerEpoch, Place, ReplicaName, SessionId, SessionOwner, StoreTime};
use super::term::{LeaseNow, LeaseSpec};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The routing knowledge of one replica.
#[derive(Debug)]
pub struct Router {
    me: Place,
    spec: LeaseSpec,
    stage: Stage,
    store: StoreView,
    /// Time at which the last heartbeat ended. A replica whose heartbeats end in time was not stopped.
    last_report: Option<LeaseNow>,
    /// The replica was stopped for a lease, and the store has not been asked since: no heartbeat has succeeded, and no
    /// lookup has failed.
    returned: bool,
    /// Time at which the own record was made, as the last heartbeat said.
    record_since: Option<StoreTime>,
    replicas: BTreeMap<BootId, KnownReplica>,
    grace: Option<GracePeriod>,
    /// Sessions with another owner than their origin, as far as this replica knows.
    moved: BTreeMap<SessionId, SessionOwner>,
    /// Owners that were learned while forwarding, oldest first. They are forgotten when there are too many.
    learned: VecDeque<SessionId>,
    /// Own sessions that others took over, oldest first. If there are too many, the store is asked about the oldest.
    given_away: VecDeque<SessionId>,
    /// Number of the last session that this replica opened.
    last_opened: u64,
    /// Own sessions up to this number may have been taken over without this replica knowing: its record was missing
    /// after they were opened.
    in_doubt_up_to: u64,
    /// Sessions in doubt that were looked up since.
    confirmed: BTreeSet<SessionId>,
    /// Sessions whose takeover by this replica is in flight.
    taking: BTreeSet<SessionId>,
    /// Epoch of the last takeover by this replica.
    last_takeover: OwnerEpoch,
    put_back: PutBack,
    /// Sessions that others took over, for [`Self::poll_taken`].
    taken: VecDeque<SessionId>,
}

/// Whether the store lacks records of this replica's takeovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PutBack {
    NotNeeded,
    /// The store lost writes: it was emptied, or a failover lost the last ones.
    Due,
}

/// Stage of the replica's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    /// The replica shuts down and has released its sessions.
    Released,
}

/// Reachability of the store by the last heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreView {
    /// None has succeeded, or the last one failed.
    Unreachable,
    /// The last one succeeded; it was sent at this time.
    Reachable { sent: LeaseNow },
}

#[derive(Debug, Clone, Copy)]
struct GracePeriod {
    since: LeaseNow,
    length: Duration,
}

/// A replica with a record in the store.
#[derive(Debug, Clone)]
struct KnownReplica {
    live: LiveReplica,
    /// Time at which its record was read, if that was not by a heartbeat.
    read: Option<LeaseNow>,
}

/// Consequences of a heartbeat's reply for sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoutingChanges {
    /// Sessions that this replica took over and whose records the store may have lost: write each record back unless
    /// the store has a higher epoch, and report the results with [`Router::put_back_ended`]. It is repeated with each
    /// heartbeat until then.
    pub put_back: Vec<(SessionId, OwnerEpoch)>,
    /// Epoch of the last takeover by this replica. The store keeps it as [`HeartbeatReply::last_takeover`] after the
    /// last record was written back.
    pub last_takeover: OwnerEpoch,
}

/// Liveness of another replica, from the last heartbeat's reply.
enum Liveness {
    Live,
    /// The store has no record of it.
    Gone,
    /// The store is unreachable, so the last known record counts.
    LastKnown,
    /// Neither a record nor a reachable store.
    Unknown,
}

impl Router {
    /// Takeovers in flight at a time. Beyond it the client waits: after the loss of a replica with 10,000 sessions, all
    /// of them come at once.
    pub const MAX_TAKEOVERS: usize = 256;
    /// Owners that were learned while forwarding and are remembered.
    const MAX_LEARNED: usize = 10_000;
    /// Own sessions that others took over and are remembered: more than a replica has at a time.
    const MAX_GIVEN_AWAY: usize = 50_000;

    /// A router that has not heard of the store yet.
    pub const fn new(me: Place, spec: LeaseSpec) -> Self {
        Self {
            me,
            spec,
            stage: Stage::Serving,
            store: StoreView::Unreachable,
            last_report: None,
            returned: false,
            record_since: None,
            replicas: BTreeMap::new(),
            grace: None,
            moved: BTreeMap::new(),
            learned: VecDeque::new(),
            given_away: VecDeque::new(),
            last_opened: 0,
            in_doubt_up_to: 0,
            confirmed: BTreeSet::new(),
            taking: BTreeSet::new(),
            last_takeover: OwnerEpoch::FIRST,
            put_back: PutBack::NotNeeded,
            taken: VecDeque::new(),
        }
    }

    /// Records that this replica opened a session.
    pub fn session_opened(&mut self, session: &SessionId) {
        self.last_opened = self.last_opened.max(session.number);
    }

    /// Applies the reply to a heartbeat that was sent at `sent`.
    pub fn heartbeat_succeeded(
        &mut self,
        now: LeaseNow,
        sent: LeaseNow,
        reply: &HeartbeatReply,
    ) -> RoutingChanges {
        self.store = StoreView::Reachable { sent };
        self.last_report = Some(now);
        self.returned = false;
        // The last known replicas stay for the time of an outage, and of the grace period after it: the store may have
        // been emptied, and replicas report one after the other. A record that was read after this heartbeat was sent is
        // newer than its reply.
        if reply.grace_left.is_zero() {
            self.replicas.retain(|_, known| known.read.is_some_and(|read| sent.since(read).is_zero()));
        }
        let heard = |live: &LiveReplica| (live.place.boot, KnownReplica { live: live.clone(), read: None });
        self.replicas.extend(reply.replicas.iter().map(heard));
        self.set_grace(now, reply.grace_left);
        let was_missing = self.record_since.replace(reply.record_since) != Some(reply.record_since);
        if was_missing {
            self.in_doubt_up_to = self.last_opened;
            self.confirmed.clear();
        }
        // A new record knows no takeover.
        if reply.last_takeover < self.last_takeover {
            self.put_back = PutBack::Due;
        }
        let mut changes = RoutingChanges { last_takeover: self.last_takeover, ..RoutingChanges::default() };
        if self.put_back == PutBack::Due {
            let own = self.moved.iter().filter(|(_, owner)| owner.place == self.me);
            changes.put_back = own.map(|(session, owner)| (session.clone(), owner.epoch)).collect();
            if changes.put_back.is_empty() {
                self.put_back = PutBack::NotNeeded;
            }
        }
        for (session, owner) in &reply.taken {
            self.learn(session, owner);
        }
        changes
    }

    /// Records that a heartbeat failed.
    pub fn heartbeat_failed(&mut self, now: LeaseNow) {
        self.returned |= self.is_report_overdue(now);
        self.last_report = Some(now);
        self.store = StoreView::Unreachable;
    }

    /// Returns whether no heartbeat has ended for one lease: the process was stopped. While the store is unreachable,
    /// heartbeats fail in time.
    fn is_report_overdue(&self, now: LeaseNow) -> bool {
        self.last_report.is_some_and(|last| now.since(last) >= self.spec.lease)
    }

    /// Records that the store has a record of a replica, which was read between two heartbeats: it has just started.
    pub fn replica_read(&mut self, now: LeaseNow, live: LiveReplica) {
        let boot = live.place.boot;
        self.replicas.entry(boot).or_insert(KnownReplica { live, read: Some(now) });
    }

    /// Boots of all replicas that count as alive.
    pub fn live_boots(&self) -> BTreeSet<BootId> {
        self.replicas.keys().copied().collect()
    }

    /// Records that all records were written back: the records that the store has now.
    pub fn put_back_ended(&mut self, current: &[(SessionId, SessionOwner)]) {
        self.put_back = PutBack::NotNeeded;
        for (session, owner) in current {
            self.learn(session, owner);
        }
    }

    /// The next session that another replica took over from this one. Its GET streams end, and nothing more is admitted;
    /// calls that were already sent finish. The shell asks after each report.
    pub fn poll_taken(&mut self) -> Option<SessionId> {
        self.taken.pop_front()
    }

    /// Releases all sessions at the end of a shutdown: forwarded requests are answered with 421 and no owner, so that
    /// the forwarder takes over at once.
    pub fn release(&mut self) {
        self.stage = Stage::Released;
    }

    /// Forgets takeovers by this replica whose session is no longer in its memory: it was idle for too long, was ended, or
    /// never opened. If such a session is used again, the store or the replica before names the owner.
    pub fn retain_open(&mut self, is_open: impl Fn(&SessionId) -> bool) {
        let me = &self.me;
        self.moved.retain(|session, owner| owner.place != *me || is_open(session));
        self.confirmed.retain(is_open);
    }

    /// Returns whether [`Self::retain_open`] may have something to forget.
    pub fn remembers_sessions(&self) -> bool {
        !self.moved.is_empty() || !self.confirmed.is_empty()
    }

    /// Forgets a session that has ended.
    pub fn forget(&mut self, session: &SessionId) {
        self.moved.remove(session);
        self.confirmed.remove(session);
    }

    /// Returns whether this replica owns the session, as far as it knows.
    pub fn owns(&self, session: &SessionId) -> bool {
        self.owner_of(session).place == self.me
    }

    /// The owner of a session, as far as this replica knows.
    pub fn owner_of(&self, session: &SessionId) -> SessionOwner {
        let moved = self.moved.get(session).cloned();
        moved.unwrap_or_else(|| SessionOwner { place: session.origin.clone(), epoch: OwnerEpoch::FIRST })
    }

    /// The record of a replica, to connect to it.
    pub fn replica(&self, boot: BootId) -> Option<&LiveReplica> {
        self.replicas.get(&boot).map(|known| &known.live)
    }

    /// Replicas that may run the dedicated instances of a client without a session: the first one does, the next one if
    /// that is gone, and so on. All replicas order them alike, and a replica that joins or leaves changes the order of no
    /// two others.
    pub fn homes(&self, client: &str) -> Vec<BootId> {
        let weight = |name: &ReplicaName| {
            let digest = Sha256::new().chain_update(name.as_str()).chain_update([0]).chain_update(client);
            digest.finalize()
        };
        let others = self.replicas.values().map(|known| &known.live.place).filter(|place| **place != self.me);
        let me = (self.stage == Stage::Serving).then_some(&self.me);
        let mut ranked: Vec<_> = others.chain(me).map(|place| (weight(&place.name), place.boot)).collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, boot)| boot).collect()
    }

    /// Returns whether this replica still starts instances for requests that others forward to it.
    pub fn admits(&self) -> bool {
        self.stage == Stage::Serving
    }

    /// Learns of an owner. Returns whether this is new: a lower epoch changes nothing.
    fn learn(&mut self, session: &SessionId, owner: &SessionOwner) -> bool {
        if owner.epoch <= self.owner_of(session).epoch {
            return false;
        }
        if self.owns(session) && owner.place != self.me {
            self.taken.push_back(session.clone());
        }
        if owner.place == self.me {
            // Also a takeover whose reply was lost.
            self.last_takeover = self.last_takeover.max(owner.epoch);
        }
        self.moved.insert(session.clone(), owner.clone());
        self.confirmed.remove(session);
        if owner.place == self.me {
            return true;
        }
        if session.origin == self.me {
            self.given_away.push_back(session.clone());
            while self.given_away.len() > Self::MAX_GIVEN_AWAY {
                self.doubt_oldest();
            }
        } else {
            self.learned.push_back(session.clone());
            while self.learned.len() > Self::MAX_LEARNED {
                self.forget_oldest();
            }
        }
        true
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.learned.pop_front() else { return };
        if !self.owns(&oldest) {
            self.moved.remove(&oldest);
        }
    }

    /// Forgets the new owner of an own session, and asks the store before it is served here.
    fn doubt_oldest(&mut self) {
        let Some(oldest) = self.given_away.pop_front() else { return };
        if !self.owns(&oldest) {
            self.moved.remove(&oldest);
            self.in_doubt_up_to = self.in_doubt_up_to.max(oldest.number);
        }
    }

    fn set_grace(&mut self, now: LeaseNow, left: Duration) {
        self.grace = (!left.is_zero()).then_some(GracePeriod { since: now, length: left });
    }

    fn grace_left(&self, now: LeaseNow) -> Duration {
        self.grace.map_or(Duration::ZERO, |grace| grace.length.saturating_sub(now.since(grace.since)))
    }

    fn liveness(&self, now: LeaseNow, boot: BootId) -> Liveness {
        let is_known = self.replicas.contains_key(&boot);
        let is_current = match self.store {
            StoreView::Reachable { sent } => now.since(sent) < self.spec.lease,
            StoreView::Unreachable => false,
        };
        match (is_current, is_known) {
            (true, true) => Liveness::Live,
            (true, false) => Liveness::Gone,
            (false, true) => Liveness::LastKnown,
            (false, false) => Liveness::Unknown,
        }
    }

    /// Returns whether this replica must ask the store before it serves a session of its own. While the store is
    /// unreachable it serves without. A replica that was stopped asks first, also if its first heartbeat fails.
    fn must_confirm(&self, now: LeaseNow, session: &SessionId) -> bool {
        if self.returned || self.is_report_overdue(now) {
            return true;
        }
        match self.store {
            StoreView::Unreachable => false,
            // The process was stopped, or the heartbeat thread is late: the record may have ended.
            StoreView::Reachable { sent } if now.since(sent) >= self.spec.lease => true,
            StoreView::Reachable { .. } => self.is_in_doubt(session) && !self.confirmed.contains(session),
        }
    }

    /// Remembers that the store was asked about an own session. If a later owner writes its record back only now, after
    /// the store was emptied, the store reports that to this replica.
    fn confirm(&mut self, session: &SessionId) {
        if self.is_in_doubt(session) {
            self.confirmed.insert(session.clone());
        }
    }

    /// Sessions that this replica took over are not in doubt: their records are written back.
    fn is_in_doubt(&self, session: &SessionId) -> bool {
        session.origin == self.me && session.number <= self.in_doubt_up_to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(boot: u64) -> Place {
        Place { name: ReplicaName::new("a").expect("a name"), boot: BootId::from_number(boot) }
    }

    fn session(origin: u64, number: u64) -> SessionId {
        SessionId { origin: place(origin), number }
    }

    fn owner(boot: u64) -> SessionOwner {
        SessionOwner { place: place(boot), epoch: OwnerEpoch::from_number(7) }
    }

    #[test]
    fn takeovers_are_forgotten_with_their_sessions() {
        let mut router = Router::new(place(1), LeaseSpec::default());
        for number in 1..=100_000 {
            router.learn(&session(2, number), &owner(1));
        }
        router.learn(&session(1, 1), &owner(3));
        router.retain_open(|session| session.number == 5);
        assert!(router.owns(&session(2, 5)), "its session is open");
        assert_eq!(router.owner_of(&session(2, 6)).place, place(2));
        assert_eq!(router.owner_of(&session(1, 1)), owner(3), "it must not be served here again");
        assert_eq!(router.moved.len(), 2);
    }

    /// It would open the session without what the store has about it.
    #[test]
    fn a_forwarded_request_waits_while_the_session_is_taken_over_here() {
        let mut router = Router::new(place(1), LeaseSpec::default());
        let now = LeaseNow::default();
        router.store = StoreView::Reachable { sent: now };
        let mut first = RoutedRequest::new(session(2, 1), Arrival::Direct);
        assert_eq!(router.decide(now, &first), Decision::LookUp);
        router.looked_up(&mut first, Ok(None));
        assert!(matches!(router.decide(now, &first), Decision::TakeOver { .. }));
        // Another replica has found the new owner in the store.
        let epoch = OwnerEpoch::from_number(7);
        let arrival = Arrival::Forwarded { to: BootId::from_number(1), epoch };
        let second = RoutedRequest::new(session(2, 1), arrival);
        assert_eq!(router.decide(now, &second), Decision::AwaitTakeover);
        let taken = TakeoverReply::Taken { epoch, previous: OwnerEpoch::FIRST };
        router.takeover_ended(now, &mut first, Ok(taken));
        assert_eq!(router.decide(now, &second), Decision::Serve { epoch });
    }

    #[test]
    fn the_memory_of_sessions_that_others_took_over_is_bounded() {
        let mut router = Router::new(place(1), LeaseSpec::default());
        let now = LeaseNow::default();
        router.store = StoreView::Reachable { sent: now };
        let count = 120_000;
        for number in 1..=count {
            router.session_opened(&session(1, number));
            router.learn(&session(1, number), &owner(2));
            router.learn(&session(3, number), &owner(2));
        }
        assert!(router.moved.len() <= Router::MAX_GIVEN_AWAY + Router::MAX_LEARNED, "{}", router.moved.len());
        assert_eq!(router.owner_of(&session(1, count)), owner(2));
        assert!(!router.serves(now, &session(1, 1)), "the store is asked first");
        let mut request = RoutedRequest::new(session(1, 1), Arrival::Direct);
        assert_eq!(router.decide(now, &request), Decision::LookUp);
        router.looked_up(&mut request, Ok(Some(owner(2))));
        assert_eq!(router.owner_of(&session(1, 1)), owner(2));
        router.session_opened(&session(1, count + 1));
        assert!(router.serves(now, &session(1, count + 1)));
    }
}

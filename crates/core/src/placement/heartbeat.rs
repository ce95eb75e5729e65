//! Heartbeat of one replica: when to send the next one, whether the store is reachable, and when a heartbeat starts a
//! grace period. The shell sends and reports; the reply goes on to the router and to the exclusive leases.

use super::address::ReplicaAddress;
use super::place::{OwnerEpoch, Place, SessionId, SessionOwner, StoreTime};
use super::term::{LeaseNow, LeaseSpec};
use std::time::Duration;

/// The reply of the store to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// Time at which the replica's record was made. It changes if the record was missing: the replica was away for a
    /// lease, or the store was emptied. A state of the one heartbeat that made the record would be lost with its reply.
    pub record_since: StoreTime,
    /// Epoch of the last takeover by this boot that the store knows; zero if there is none. It is lower than the
    /// replica's own if the store lost writes.
    pub last_takeover: OwnerEpoch,
    /// The exclusive leases of the heartbeat that the replica no longer holds.
    pub lost: Vec<String>,
    /// Sessions that other replicas took over from this one. The store repeats them until the next heartbeat
    /// acknowledges them, because a reply may be lost.
    pub taken: Vec<(SessionId, SessionOwner)>,
    /// All replicas with a live record, this one included.
    pub replicas: Vec<LiveReplica>,
    /// Rest of the grace period; zero if there is none.
    pub grace_left: Duration,
    /// The clock of the store.
    pub store_time: StoreTime,
}

/// A replica with a live record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveReplica {
    /// Its name and boot.
    pub place: Place,
    /// Its address for forwarded requests.
    pub address: ReplicaAddress,
}

/// Reachability of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreState {
    /// No heartbeat has ended yet.
    Unknown,
    /// The last heartbeat succeeded.
    Ok,
    /// The last heartbeat failed.
    Unreachable,
}

impl StoreState {
    /// The name in status, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Ok => "ok",
            Self::Unreachable => "unreachable",
        }
    }
}

/// The schedule of heartbeats.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    spec: LeaseSpec,
    /// Number of the last heartbeat.
    number: u64,
    last_sent: Option<LeaseNow>,
    in_flight: bool,
    state: StoreState,
}

/// A heartbeat to send. Its reply counts only while no later one was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatTicket {
    number: u64,
    /// The time before the heartbeat was sent: leases count from it.
    pub sent: LeaseNow,
}

impl Heartbeat {
    /// A schedule whose first heartbeat is due at once.
    pub const fn new(spec: LeaseSpec) -> Self {
        Self { spec, number: 0, last_sent: None, in_flight: false, state: StoreState::Unknown }
    }

    /// The pause until [`Self::poll`] has something to do.
    pub fn poll_timeout(&self, now: LeaseNow) -> Duration {
        let Some(sent) = self.last_sent else { return Duration::ZERO };
        self.spec.heartbeat().saturating_sub(now.since(sent))
    }

    /// Starts the next heartbeat if it is due. One that is still in flight has then failed: it may take as long as the
    /// pause between two.
    pub fn poll(&mut self, now: LeaseNow) -> Option<HeartbeatTicket> {
        if !self.poll_timeout(now).is_zero() {
            return None;
        }
        if self.in_flight {
            self.state = StoreState::Unreachable;
        }
        self.number += 1;
        self.last_sent = Some(now);
        self.in_flight = true;
        Some(HeartbeatTicket { number: self.number, sent: now })
    }

    /// Records the end of a heartbeat. Returns whether its reply counts.
    pub fn ended(&mut self, ticket: HeartbeatTicket, result: Result<(), StoreUnreachable>) -> bool {
        if !self.in_flight || ticket.number != self.number {
            return false;
        }
        self.in_flight = false;
        self.state = match result {
            Ok(()) => StoreState::Ok,
            Err(StoreUnreachable) => StoreState::Unreachable,
        };
        result.is_ok()
    }

    /// Reachability of the store.
    pub const fn state(&self) -> StoreState {
        self.state
    }
}

/// The store did not answer, or not in time. The operation may have been performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreUnreachable;

/// Decides whether a heartbeat starts a grace period: no replica had one for a lease, so the store was away and not the
/// replicas. `last` is the last heartbeat that the store knows; an emptied store knows none.
///
/// The heartbeat script of the `cluster` crate makes the same decision inside the store.
pub fn starts_grace(last: Option<StoreTime>, now: StoreTime, spec: LeaseSpec) -> bool {
    last.is_none_or(|last| now.since(last) >= spec.lease)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Wall;

    fn at(millis: u64) -> LeaseNow {
        let time = Duration::from_millis(millis);
        LeaseNow { boottime: time, wall: Wall::from_unix_epoch(Duration::from_secs(1_800_000_000) + time) }
    }

    #[test]
    fn a_heartbeat_is_sent_every_fifth_of_a_lease() {
        let mut heartbeat = Heartbeat::new(LeaseSpec::default());
        let ticket = heartbeat.poll(at(0)).expect("the first is due at once");
        assert_eq!(heartbeat.state(), StoreState::Unknown);
        assert!(heartbeat.ended(ticket, Ok(())));
        assert_eq!(heartbeat.state(), StoreState::Ok);
        assert_eq!(heartbeat.poll(at(1_999)), None);
        assert_eq!(heartbeat.poll_timeout(at(1_500)), Duration::from_millis(500));
        assert!(heartbeat.poll(at(2_000)).is_some());
    }

    #[test]
    fn a_heartbeat_without_reply_has_failed_when_the_next_is_due() {
        let mut heartbeat = Heartbeat::new(LeaseSpec::default());
        let slow = heartbeat.poll(at(0)).expect("due");
        let next = heartbeat.poll(at(2_000)).expect("due");
        assert_eq!(heartbeat.state(), StoreState::Unreachable);
        assert!(!heartbeat.ended(slow, Ok(())), "a late reply does not count");
        assert_eq!(heartbeat.state(), StoreState::Unreachable);
        assert!(heartbeat.ended(next, Ok(())));
        assert_eq!(heartbeat.state(), StoreState::Ok);
    }

    #[test]
    fn a_failed_heartbeat_says_that_the_store_is_unreachable() {
        let mut heartbeat = Heartbeat::new(LeaseSpec::default());
        let ticket = heartbeat.poll(at(0)).expect("due");
        assert!(!heartbeat.ended(ticket, Err(StoreUnreachable)));
        assert_eq!(heartbeat.state(), StoreState::Unreachable);
    }

    #[test]
    fn a_store_without_heartbeats_for_one_lease_starts_a_grace_period() {
        let spec = LeaseSpec::default();
        let time = |seconds: u64| StoreTime::from_micros(seconds * 1_000_000);
        assert!(starts_grace(None, time(5), spec), "an emptied store knows no heartbeat");
        assert!(!starts_grace(Some(time(100)), time(109), spec));
        assert!(starts_grace(Some(time(100)), time(110), spec));
        assert!(!starts_grace(Some(time(100)), time(90), spec), "the clock of the store went back");
    }
}

//! A model of the store: what its scripts decide, without the store. The tests of the `cluster` crate show that the
//! scripts do the same.

#![allow(dead_code, reason = "each test binary uses its own part")]

use gripfast_core::placement::exclusive::ClaimReply;
use gripfast_core::placement::heartbeat::{HeartbeatReply, LiveReplica, starts_grace};
use gripfast_core::placement::place::{BootId, OwnerEpoch, Place, SessionId, SessionOwner, StoreTime};
use gripfast_core::placement::routing::{TakeoverCause, TakeoverReply};
use gripfast_core::placement::term::LeaseSpec;
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything that the store keeps.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreContent {
    last_heartbeat: Option<StoreTime>,
    grace_until: StoreTime,
    replicas: BTreeMap<BootId, Record>,
    leases: BTreeMap<String, Lease>,
    /// The highest epoch of each lease. It has no lifetime.
    epochs: BTreeMap<String, OwnerEpoch>,
    moved: BTreeMap<SessionId, SessionOwner>,
    taken: BTreeMap<BootId, Notices>,
}

#[derive(Debug, Clone)]
struct Record {
    live: LiveReplica,
    since: StoreTime,
    ends: StoreTime,
    last_takeover: OwnerEpoch,
}

/// Takeovers of which a replica has to learn. They end ten leases after the last one.
#[derive(Debug, Clone, Default)]
struct Notices {
    owners: BTreeMap<SessionId, SessionOwner>,
    ends: StoreTime,
}

#[derive(Debug, Clone)]
struct Lease {
    holder: Place,
    epoch: OwnerEpoch,
    ends: StoreTime,
}

pub(crate) struct StoreModel {
    spec: LeaseSpec,
    pub(crate) data: StoreContent,
}

impl StoreModel {
    pub(crate) fn new(spec: LeaseSpec) -> Self {
        Self { spec, data: StoreContent::default() }
    }

    /// The epoch of the present holder.
    pub(crate) fn current_epoch(&self, name: &str) -> Option<OwnerEpoch> {
        self.data.leases.get(name).map(|lease| lease.epoch)
    }

    /// The record of a live replica.
    pub(crate) fn record(&mut self, now: StoreTime, boot: BootId) -> Option<LiveReplica> {
        self.expire(now);
        self.data.replicas.get(&boot).map(|record| record.live.clone())
    }

    pub(crate) fn heartbeat(
        &mut self,
        now: StoreTime,
        me: &LiveReplica,
        leases: &[(String, OwnerEpoch)],
        acknowledged: &[(SessionId, SessionOwner)],
    ) -> HeartbeatReply {
        self.expire(now);
        if starts_grace(self.data.last_heartbeat, now, self.spec) {
            self.data.grace_until = after(now, self.spec.grace());
        }
        self.data.last_heartbeat = Some(now);
        let ends = after(now, self.spec.lease);
        let boot = me.place.boot;
        let known = self.data.replicas.get(&boot).map(|record| (record.since, record.last_takeover));
        let (since, last_takeover) = known.unwrap_or((now, OwnerEpoch::FIRST));
        self.data.replicas.insert(boot, Record { live: me.clone(), since, ends, last_takeover });
        let notices = &mut self.data.taken.entry(boot).or_default().owners;
        for (session, owner) in acknowledged {
            if notices.get(session) == Some(owner) {
                notices.remove(session);
            }
        }
        let mut lost = Vec::new();
        for (name, epoch) in leases {
            let highest = self.data.epochs.get(name).copied().unwrap_or_default();
            let is_ours = match self.data.leases.get(name) {
                Some(lease) => lease.holder == me.place && lease.epoch == *epoch,
                // The store lost it, or it has just ended and no replica has claimed it since.
                None => highest <= *epoch,
            };
            if is_ours {
                let lease = Lease { holder: me.place.clone(), epoch: *epoch, ends };
                self.data.leases.insert(name.clone(), lease);
                self.data.epochs.insert(name.clone(), *epoch);
            } else {
                lost.push(name.clone());
            }
        }
        HeartbeatReply {
            record_since: since,
            last_takeover,
            lost,
            taken: self.data.taken[&boot].owners.clone().into_iter().collect(),
            replicas: self.data.replicas.values().map(|record| record.live.clone()).collect(),
            grace_left: self.data.grace_until.since(now),
            store_time: now,
        }
    }

    pub(crate) fn claim(&mut self, now: StoreTime, me: &Place, name: &str, above: OwnerEpoch) -> ClaimReply {
        self.expire(now);
        let grace = self.grace(now);
        if !grace.is_zero() {
            return ClaimReply::Grace { left: grace };
        }
        let ends = after(now, self.spec.lease);
        match self.data.leases.get_mut(name) {
            // A claim whose reply was lost.
            Some(lease) if lease.holder == *me => {
                lease.ends = ends;
                ClaimReply::Claimed { epoch: lease.epoch }
            }
            Some(lease) => ClaimReply::Taken { left: lease.ends.since(now) },
            None => {
                let highest = self.data.epochs.get(name).copied().unwrap_or_default();
                let epoch = highest.max(above).succeed(now);
                self.data.epochs.insert(name.to_owned(), epoch);
                self.data.leases.insert(name.to_owned(), Lease { holder: me.clone(), epoch, ends });
                ClaimReply::Claimed { epoch }
            }
        }
    }

    pub(crate) fn release(&mut self, me: &Place, name: &str, epoch: OwnerEpoch) {
        let is_ours = |lease: &Lease| lease.holder == *me && lease.epoch == epoch;
        if self.data.leases.get(name).is_some_and(is_ours) {
            self.data.leases.remove(name);
        }
        // A late heartbeat must not bring it back.
        let highest = self.data.epochs.entry(name.to_owned()).or_default();
        *highest = (*highest).max(OwnerEpoch::from_number(epoch.number() + 1));
    }

    pub(crate) fn look_up(&self, session: &SessionId) -> Option<SessionOwner> {
        self.data.moved.get(session).cloned()
    }

    pub(crate) fn take_over(
        &mut self,
        now: StoreTime,
        me: &Place,
        session: &SessionId,
        from: &SessionOwner,
        cause: TakeoverCause,
    ) -> TakeoverReply {
        self.expire(now);
        let grace = self.grace(now);
        if !grace.is_zero() {
            return TakeoverReply::Grace { left: grace };
        }
        let current = self.data.moved.get(session);
        if let Some(current) = current.filter(|current| current.epoch > from.epoch) {
            return TakeoverReply::Owned(current.clone());
        }
        if cause == TakeoverCause::RecordEnded && self.data.replicas.contains_key(&from.place.boot) {
            return TakeoverReply::OwnerIsLive;
        }
        let known = self.data.moved.get(session).map_or(&session.origin, |owner| &owner.place).clone();
        let owner = SessionOwner { place: me.clone(), epoch: from.epoch.succeed(now) };
        self.data.moved.insert(session.clone(), owner.clone());
        self.notify(now, from.place.boot, session, &owner);
        if known.boot != from.place.boot {
            // The store lost the takeovers in between, so the owner that it knows may serve the session again.
            self.notify(now, known.boot, session, &owner);
        }
        let record = self.data.replicas.get_mut(&me.boot);
        let previous = record.map(|record| {
            let previous = record.last_takeover;
            record.last_takeover = previous.max(owner.epoch);
            previous
        });
        TakeoverReply::Taken { epoch: owner.epoch, previous: previous.unwrap_or_default() }
    }

    pub(crate) fn put_back(
        &mut self,
        now: StoreTime,
        me: &Place,
        records: &[(SessionId, OwnerEpoch)],
        last_takeover: OwnerEpoch,
    ) -> Vec<(SessionId, SessionOwner)> {
        let mut current = Vec::new();
        for (session, epoch) in records {
            let own = SessionOwner { place: me.clone(), epoch: *epoch };
            let origin = SessionOwner { place: session.origin.clone(), epoch: OwnerEpoch::FIRST };
            let stored = self.data.moved.get(session).cloned().unwrap_or(origin);
            if stored.epoch >= own.epoch {
                current.push((session.clone(), stored));
                continue;
            }
            self.data.moved.insert(session.clone(), own.clone());
            // The notice of this takeover may be lost too.
            if stored.place != *me {
                self.notify(now, stored.place.boot, session, &own);
            }
            current.push((session.clone(), own));
        }
        if let Some(record) = self.data.replicas.get_mut(&me.boot) {
            record.last_takeover = record.last_takeover.max(last_takeover);
        }
        current
    }

    pub(crate) fn end_grace(&mut self) {
        self.data.grace_until = StoreTime::default();
    }

    /// Removes the record of a replica that shuts down.
    pub(crate) fn leave(&mut self, me: &Place) {
        self.data.replicas.remove(&me.boot);
    }

    fn grace(&self, now: StoreTime) -> Duration {
        if starts_grace(self.data.last_heartbeat, now, self.spec) {
            return self.spec.grace();
        }
        self.data.grace_until.since(now)
    }

    fn notify(&mut self, now: StoreTime, boot: BootId, session: &SessionId, owner: &SessionOwner) {
        let notices = self.data.taken.entry(boot).or_default();
        notices.owners.insert(session.clone(), owner.clone());
        notices.ends = after(now, self.spec.lease * 10);
    }

    fn expire(&mut self, now: StoreTime) {
        self.data.taken.retain(|_, notices| notices.ends > now);
        self.data.replicas.retain(|_, record| record.ends > now);
        self.data.leases.retain(|_, lease| lease.ends > now);
    }
}

fn after(now: StoreTime, span: Duration) -> StoreTime {
    StoreTime::from_micros(now.as_micros() + u64::try_from(span.as_micros()).expect("it is short"))
}

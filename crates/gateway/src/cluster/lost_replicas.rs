//! Replicas that were lost: their record in the store ended, and they had not left the service. Only for operators;
//! `core::placement` decides who may take over.

use gripfast::placement::place::{BootId, ReplicaName};
use gripfast_cluster::record::ReplicaRecord;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Time for which a lost replica is listed, unless one with its name starts.
const RETENTION: Duration = Duration::from_secs(24 * 3600);
/// Lost replicas that are listed.
const MAX: usize = 64;

/// A replica that was lost.
#[derive(Debug, Clone)]
pub(crate) struct LostReplica {
    /// Its last record.
    pub(crate) record: ReplicaRecord,
    /// Time at which its record was missing.
    pub(crate) at: Instant,
}

/// The lost replicas, as far as this one has noticed.
#[derive(Debug, Default)]
pub(super) struct LostReplicas {
    known: BTreeMap<BootId, ReplicaRecord>,
    lost: VecDeque<LostReplica>,
}

impl LostReplicas {
    /// Follows the records of a heartbeat. Returns those that have ended since. In a grace period a record may be
    /// missing because the store lost it, so that none counts as ended yet.
    pub(super) fn follow(&mut self, live: &[ReplicaRecord], is_grace: bool) -> Vec<ReplicaRecord> {
        self.lost.retain(|lost| live.iter().all(|record| record.place.name != lost.record.place.name));
        let before = std::mem::take(&mut self.known);
        self.known = live.iter().map(|record| (record.place.boot, record.clone())).collect();
        let missing =
            before.into_iter().filter(|(boot, _)| live.iter().all(|record| record.place.boot != *boot));
        if is_grace {
            let missing: Vec<_> = missing.collect();
            self.known.extend(missing);
            return Vec::new();
        }
        missing.map(|(_, record)| record).collect()
    }

    /// Lists a replica as lost, unless it was started again.
    pub(super) fn add(&mut self, record: ReplicaRecord, now: Instant) {
        if self.is_known(&record.place.name) {
            return;
        }
        self.lost.retain(|lost| lost.record.place.name != record.place.name);
        self.lost.push_back(LostReplica { record, at: now });
        if self.lost.len() > MAX {
            self.lost.pop_front();
        }
    }

    /// The lost replicas.
    pub(super) fn list(&mut self, now: Instant) -> Vec<LostReplica> {
        self.lost.retain(|lost| now.saturating_duration_since(lost.at) < RETENTION);
        self.lost.iter().cloned().collect()
    }

    fn is_known(&self, name: &ReplicaName) -> bool {
        self.known.values().any(|record| record.place.name == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::placement::address::ReplicaAddress;
    use gripfast::placement::place::Place;

    fn record(name: &str, boot: u64) -> ReplicaRecord {
        ReplicaRecord {
            place: Place { name: ReplicaName::new(name).unwrap(), boot: BootId::from_number(boot) },
            address: ReplicaAddress::parse("http://10.0.0.7:7332").unwrap(),
            version: String::new(),
            config_hash: String::new(),
            sessions: 0,
            forwards_per_second: 0.0,
            store_latency: None,
        }
    }

    fn names(lost: &mut LostReplicas, now: Instant) -> Vec<String> {
        lost.list(now).iter().map(|lost| lost.record.place.name.to_string()).collect()
    }

    #[test]
    fn a_replica_is_lost_until_it_is_started_again() {
        let (now, mut lost) = (Instant::now(), LostReplicas::default());
        assert_eq!(lost.follow(&[record("a", 1), record("b", 2)], false), []);
        let ended = lost.follow(&[record("a", 1)], false);
        assert_eq!(ended, [record("b", 2)]);
        lost.add(ended[0].clone(), now);
        assert_eq!(lost.follow(&[record("a", 1)], false), [], "once");
        assert_eq!(names(&mut lost, now), ["b"]);
        lost.follow(&[record("a", 1), record("b", 3)], false);
        assert_eq!(names(&mut lost, now), [""; 0]);
        lost.add(record("b", 2), now);
        assert_eq!(names(&mut lost, now), [""; 0], "it was back before the store had answered");
    }

    #[test]
    fn a_replica_is_not_lost_because_the_store_was_emptied() {
        let mut lost = LostReplicas::default();
        lost.follow(&[record("a", 1), record("b", 2), record("c", 3)], false);
        assert_eq!(lost.follow(&[record("a", 1)], true), []);
        assert_eq!(lost.follow(&[record("a", 1), record("b", 2)], false), [record("c", 3)]);
    }

    #[test]
    fn lost_replicas_are_forgotten_after_a_day_and_beyond_64() {
        let (now, mut lost) = (Instant::now(), LostReplicas::default());
        (0..70).for_each(|number| lost.add(record(&format!("r{number}"), number), now));
        assert_eq!(names(&mut lost, now).len(), 64);
        assert_eq!(names(&mut lost, now)[0], "r6", "the oldest is dropped");
        assert_eq!(names(&mut lost, now + RETENTION), [""; 0]);
    }
}

//! Subscriptions of one upstream and their status in the present session. They are counted, so that the first
//! subscriber subscribes and the last one unsubscribes, and bounded in memory.

use super::{SubscribeMethod, SubscriptionTarget, SyncStatus, SyncVerdict};
use crate::time::Mono;
use std::collections::{BTreeMap, BTreeSet};

/// The subscriptions of one upstream.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    targets: BTreeMap<SubscriptionTarget, TargetState>,
    subscribers: usize,
}

#[derive(Debug)]
struct TargetState {
    subscribers: u32,
    status: SyncStatus,
    /// True if it was ever subscribed, in this session or an earlier one.
    ever_synced: bool,
}

/// The limit of subscriptions of one upstream is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many subscriptions")]
pub struct QuotaExceeded;

impl Subscriptions {
    /// Maximum number of resources and tasks of one upstream, and of all subscriptions to them.
    pub(super) const MAX_TARGETS: usize = 10_000;
    pub(super) const MAX_SUBSCRIPTIONS: usize = 100_000;
    /// Maximum number of resources in one action, so that a long list does not succeed or fail as a whole.
    const MAX_PER_ACTION: usize = 64;

    pub(super) fn add(&mut self, target: &SubscriptionTarget) -> Result<(), QuotaExceeded> {
        if self.subscribers >= Self::MAX_SUBSCRIPTIONS {
            return Err(QuotaExceeded);
        }
        let another = self.targets.len() < Self::MAX_TARGETS;
        match self.targets.get_mut(target) {
            Some(entry) => {
                entry.subscribers += 1;
                // A new subscriber is worth another attempt.
                match entry.status {
                    SyncStatus::Declined(_) | SyncStatus::Failed { .. } => entry.status = SyncStatus::Pending,
                    SyncStatus::Pending | SyncStatus::Synced => {}
                }
            }
            None if !another => return Err(QuotaExceeded),
            None => {
                let entry = TargetState { subscribers: 1, status: SyncStatus::Pending, ever_synced: false };
                self.targets.insert(target.clone(), entry);
            }
        }
        self.subscribers += 1;
        Ok(())
    }

    /// `in_progress`: an action in progress may be sending it to the server, so its entry stays until that has ended.
    pub(super) fn remove(&mut self, target: &SubscriptionTarget, in_progress: bool) {
        let Some(entry) = self.targets.get_mut(target).filter(|entry| entry.subscribers > 0) else {
            return;
        };
        entry.subscribers -= 1;
        self.subscribers -= 1;
        if entry.subscribers == 0 && entry.status != SyncStatus::Synced && !in_progress {
            self.targets.remove(target);
        }
    }

    /// All targets with subscribers, and their status.
    pub(super) fn wanted_targets(&self) -> impl Iterator<Item = (&SubscriptionTarget, &SyncStatus)> {
        let those = self.targets.iter().filter(|(_, entry)| entry.subscribers > 0);
        those.map(|(target, entry)| (target, &entry.status))
    }

    pub(super) fn is_synced(&self, target: &SubscriptionTarget) -> bool {
        self.targets.get(target).is_some_and(|entry| entry.status == SyncStatus::Synced)
    }

    pub(super) fn matching(&self, uri: &str) -> Vec<&SubscriptionTarget> {
        // The ends of the parts of a URI, with and without the separator, and the end of the URI.
        let parts = uri.match_indices(['/', '?', '#']).flat_map(|(at, _)| [at, at + 1]);
        let mut ends: Vec<usize> = parts.chain([uri.len()]).collect();
        ends.dedup();
        let parts = ends.into_iter().map(|end| SubscriptionTarget::Resource(uri[..end].to_owned()));
        let known = parts.filter_map(|part| self.targets.get_key_value(&part));
        known.filter(|(_, entry)| entry.subscribers > 0).map(|(target, _)| target).collect()
    }

    /// Resets all statuses at the end of a session, and removes targets without subscribers.
    pub(super) fn forget_session(&mut self) {
        self.targets.retain(|_, entry| entry.subscribers > 0);
        for entry in self.targets.values_mut() {
            entry.status = SyncStatus::Pending;
        }
    }

    /// Some of the targets to subscribe to and to unsubscribe from.
    pub(super) fn due_changes(
        &self,
        now: Mono,
        method: SubscribeMethod,
    ) -> Option<(Vec<SubscriptionTarget>, Vec<SubscriptionTarget>)> {
        let begin = self.covered_by(method).filter(|(_, entry)| entry.needs_subscribe(now));
        let end = self.covered_by(method).filter(|(_, entry)| entry.needs_unsubscribe());
        let some = |(target, _): (&SubscriptionTarget, &TargetState)| target.clone();
        let begin: Vec<_> = begin.take(Self::MAX_PER_ACTION).map(some).collect();
        let end: Vec<_> = end.take(Self::MAX_PER_ACTION).map(some).collect();
        (!begin.is_empty() || !end.is_empty()).then_some((begin, end))
    }

    pub(super) fn has_due_subscribe(&self, now: Mono, method: SubscribeMethod) -> bool {
        self.covered_by(method).any(|(_, entry)| entry.needs_subscribe(now))
    }

    pub(super) fn has_due_unsubscribe(&self, method: SubscribeMethod) -> bool {
        self.covered_by(method).any(|(_, entry)| entry.needs_unsubscribe())
    }

    /// All targets with subscribers, without those that the server declined.
    pub(super) fn wanted(&self, method: SubscribeMethod) -> Vec<SubscriptionTarget> {
        let wanted = self
            .covered_by(method)
            .filter(|(_, entry)| entry.subscribers > 0 && !matches!(entry.status, SyncStatus::Declined(_)));
        wanted.map(|(target, _)| target.clone()).collect()
    }

    pub(super) fn retry_at(&self, method: SubscribeMethod) -> Option<Mono> {
        let those = self.covered_by(method).filter(|(_, entry)| entry.subscribers > 0);
        those.filter_map(|(_, entry)| entry.status.retry_at()).min()
    }

    /// Records that these were unsubscribed. Those with new subscribers are subscribed again.
    pub(super) fn mark_unsubscribed(&mut self, targets: &[SubscriptionTarget]) {
        for target in targets {
            if let Some(entry) = self.targets.get_mut(target) {
                entry.status = SyncStatus::Pending;
            }
        }
    }

    /// Records that a new stream replaced the old one: targets that it does not name are not subscribed any more.
    pub(super) fn stream_replaced(&mut self, asked: &[(SubscriptionTarget, SyncVerdict)]) {
        let asked: BTreeSet<&SubscriptionTarget> = asked.iter().map(|(target, _)| target).collect();
        for (target, entry) in &mut self.targets {
            if entry.status == SyncStatus::Synced && !asked.contains(target) {
                entry.status = SyncStatus::Pending;
            }
        }
    }

    /// Applies the verdicts. Returns the targets of which updates may have been lost.
    pub(super) fn apply(
        &mut self,
        now: Mono,
        verdicts: Vec<(SubscriptionTarget, SyncVerdict)>,
    ) -> Vec<SubscriptionTarget> {
        let mut again = Vec::new();
        for (target, verdict) in verdicts {
            let Some(entry) = self.targets.get_mut(&target) else { continue };
            let known = entry.status == SyncStatus::Synced;
            entry.status.apply(now, verdict);
            match entry.status {
                SyncStatus::Synced | SyncStatus::Declined(_) if entry.ever_synced && !known => {
                    again.push(target)
                }
                SyncStatus::Synced => entry.ever_synced = true,
                SyncStatus::Pending | SyncStatus::Declined(_) | SyncStatus::Failed { .. } => {}
            }
        }
        again
    }

    /// Records the loss of the stream. `in_progress`: as in [`Self::remove`].
    pub(super) fn stream_lost(&mut self, instead: &SyncStatus, in_progress: bool) {
        for entry in self.targets.values_mut().filter(|entry| entry.status == SyncStatus::Synced) {
            entry.status = instead.clone();
        }
        if !in_progress {
            self.sweep();
        }
    }

    /// The targets that this method covers.
    fn covered_by(
        &self,
        method: SubscribeMethod,
    ) -> impl Iterator<Item = (&SubscriptionTarget, &TargetState)> {
        self.targets.iter().filter(move |(target, _)| method.covers(target))
    }

    /// Removes targets without subscribers from which the session need not unsubscribe.
    pub(super) fn sweep(&mut self) {
        self.targets.retain(|_, entry| entry.subscribers > 0 || entry.status == SyncStatus::Synced);
    }
}

impl TargetState {
    fn needs_subscribe(&self, now: Mono) -> bool {
        self.subscribers > 0 && self.status.is_due(now)
    }

    fn needs_unsubscribe(&self) -> bool {
        self.subscribers == 0 && self.status == SyncStatus::Synced
    }
}

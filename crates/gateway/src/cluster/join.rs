//! Joining the service, and following it by heartbeats.

use super::{Member, StoreState};
use gripfast::placement::routing::RoutingChanges;
use gripfast::placement::term::LeaseNow;
use gripfast_cluster::heartbeat::{
    HeartbeatHandler, HeartbeatRequest, HeartbeatSuccess, HeartbeatThread, TakeoverNotices,
};
use gripfast_cluster::marker::{JoinError, ServiceMarker};
use gripfast_cluster::record::ReplicaRecord;
use gripfast_cluster::store::StoreProblem;
use gripfast_cluster::{StoreError, lease_now};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Reason why a gateway cannot join its service.
#[derive(Debug, thiserror::Error)]
pub enum ServiceJoinError {
    /// The store fails, or belongs to another service.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The store is unusable.
    #[error(transparent)]
    Unusable(#[from] StoreProblem),
}

impl ServiceJoinError {
    /// The next step for the operator.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Join(JoinError::ForeignService | JoinError::Store(StoreError::ForeignService)) => {
                "set `cluster.key` to the key of the other replicas, or `cluster.namespace` to a name of its own"
            }
            Self::Join(JoinError::Store(StoreError::Unauthorized(_))) => {
                "write the user and the password into `cluster.store`: redis://USER:PASSWORD@HOST:PORT/0"
            }
            Self::Join(JoinError::Store(StoreError::NewerFormat { .. })) => {
                "upgrade this gateway: a newer version of gripfast uses the store"
            }
            Self::Join(JoinError::Store(_)) => {
                "start the store, or correct `cluster.store`; `gripfast doctor` checks it"
            }
            Self::Unusable(_) => {
                "change the settings of the store, or use another one; `gripfast doctor` checks it"
            }
        }
    }
}

impl Member {
    /// Joins the service, and keeps trying in the background. With `cluster.required` the first failure is an error.
    ///
    /// # Errors
    /// The service is required and cannot be joined.
    pub(crate) async fn join(self: &Arc<Self>) -> Result<(), ServiceJoinError> {
        match self.try_join().await {
            Ok(()) => Ok(()),
            Err(error) if self.settings.required => Err(error),
            Err(error) => {
                self.report_not_joined(&error);
                let member = Arc::downgrade(self);
                let pause = self.settings.lease.heartbeat();
                tokio::spawn(async move {
                    loop {
                        tokio::time::sleep(pause).await;
                        let Some(member) = member.upgrade() else { return };
                        match member.try_join().await {
                            Ok(()) => return,
                            Err(error) => member.report_not_joined(&error),
                        }
                    }
                });
                Ok(())
            }
        }
    }

    async fn try_join(self: &Arc<Self>) -> Result<(), ServiceJoinError> {
        let info = self.store.inspect().await.map_err(JoinError::from)?;
        if let Some(problem) = info.problem() {
            return Err(problem.into());
        }
        if !info.append_only {
            tracing::warn!(
                "the store has no append-only file: after a restart of the store the replicas restore what they know; set \
                 `appendonly yes`"
            );
        }
        self.store.join().await?;
        let handler = Arc::new(FollowHeartbeats { member: Arc::clone(self), runtime: Handle::current() });
        let thread = HeartbeatThread::start(self.store.settings(), handler).map_err(JoinError::from)?;
        *self.heartbeat.lock() = Some(thread);
        let mut state = self.store_state.subscribe();
        let limit = self.settings.lease.heartbeat();
        let first = state.wait_for(|state| !matches!(state, StoreState::NotJoined(_)));
        // A store that is slow now is reported by the heartbeats.
        let _ = tokio::time::timeout(limit, first).await;
        let _ = tokio::time::timeout(limit, self.tables.until_compared()).await;
        tracing::info!(
            replica = %self.place,
            address = %self.address,
            store = %self.settings.store,
            "this gateway is the replica `{}` of its service",
            self.place.name
        );
        tokio::spawn(Arc::clone(self).check_own_address());
        tokio::spawn(follow_changes(Arc::downgrade(self)));
        Ok(())
    }

    fn report_not_joined(&self, error: &ServiceJoinError) {
        self.tables.block(&format!("this replica has not joined its service: {error}"));
        let state = StoreState::NotJoined(error.to_string());
        if self.store_state.send_replace(state.clone()) != state {
            let hint = error.hint();
            tracing::warn!("cannot join the service, and serves alone meanwhile: {error}; {hint}");
        }
    }

    /// The record of this replica for the heartbeat that begins now.
    fn own_record(&self) -> ReplicaRecord {
        let forwards = self.forwards.load(Ordering::Relaxed);
        let (forwards_per_second, store_latency) = {
            let mut figures = self.figures.lock();
            (figures.begin(Instant::now(), forwards), figures.store_latency())
        };
        ReplicaRecord {
            place: self.place.clone(),
            address: self.address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config_hash: self.settings.config_hash.clone(),
            sessions: self.gateway().map_or(0, |gateway| gateway.sessions.count() as u64),
            forwards_per_second,
            store_latency,
        }
    }

    /// Follows the records of the service, and finds out which replicas were lost.
    fn follow_records(self: &Arc<Self>, records: Vec<ReplicaRecord>, is_grace: bool, runtime: &Handle) {
        let ended = self.lost.lock().follow(&records, is_grace);
        *self.records.lock() = records;
        for record in ended {
            let member = Arc::clone(self);
            runtime.spawn(async move {
                // Without the store it cannot be known, and a loss must not be hidden.
                if !member.store.has_left(record.place.boot).await.unwrap_or(false) {
                    member.lost.lock().add(record, Instant::now());
                }
            });
        }
    }

    /// Writes the records of takeovers back that the store has lost.
    async fn put_back(&self, changes: RoutingChanges) {
        match self.store.put_back(&changes.put_back, changes.last_takeover).await {
            Ok(current) => self.with_router(|router| router.put_back_ended(&current)),
            // The next heartbeat repeats it.
            Err(error) => tracing::debug!("records of takeovers are not written back yet: {error}"),
        }
    }
}

/// Longest pause before the notices of changes are subscribed to again.
const RESUBSCRIBE: Duration = Duration::from_secs(1);

/// Reads a shared table as soon as a replica or a command has changed it. Without this the next heartbeat shows it.
async fn follow_changes(member: Weak<Member>) {
    loop {
        let Some(this) = member.upgrade() else { return };
        let (mut state, pause) =
            (this.store_state.subscribe(), this.settings.lease.heartbeat().min(RESUBSCRIBE));
        let subscribed = this.store.subscribe().await;
        drop(this);
        if let Ok(mut notices) = subscribed {
            loop {
                let changed = tokio::select! {
                    changed = notices.next() => changed,
                    // A store that hangs does not end the connection.
                    _ = state.wait_for(|state| *state != StoreState::Reachable) => None,
                };
                let (Some(table), Some(this)) = (changed, member.upgrade()) else { break };
                // If it fails, the next heartbeat repeats it.
                let _ = this.tables.refresh(table).await;
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Applies the results of heartbeats, on their thread.
struct FollowHeartbeats {
    member: Arc<Member>,
    runtime: Handle,
}

impl HeartbeatHandler for FollowHeartbeats {
    fn request(&self, acknowledged: TakeoverNotices) -> HeartbeatRequest {
        let leases = self.member.singletons.renewals();
        HeartbeatRequest { record: self.member.own_record(), leases, acknowledged }
    }

    fn succeeded(&self, sent: LeaseNow, request: &HeartbeatRequest, success: HeartbeatSuccess) {
        let member = &self.member;
        // First, because a process is killed if it takes too long.
        member.singletons.renewed(sent, &request.leases, &success.reply.lost);
        member.figures.lock().succeed(Instant::now());
        let changes =
            member.with_router(|router| router.heartbeat_succeeded(lease_now(), sent, &success.reply));
        member.publish_live();
        let is_grace = !success.reply.grace_left.is_zero();
        member.follow_records(success.records, is_grace, &self.runtime);
        let unreadable = success.unreadable_records;
        if member.unreadable_records.swap(unreadable, Ordering::AcqRel) < unreadable {
            tracing::warn!(
                "{unreadable} replicas have records that this gateway cannot read: they have another `cluster.key`, or a \
                 newer version of gripfast; requests of their sessions get 503 here"
            );
        }
        // A store that was emptied has no marker until a replica makes one.
        match ServiceMarker::read(&success.marker) {
            Ok(marker) => {
                let grace = success.reply.grace_left;
                member.tables.follow(&success.revisions, marker.generation, grace, &self.runtime);
            }
            Err(error @ StoreError::NewerFormat { .. }) => {
                // The same text as at a start. Sessions and calls go on.
                if member.tables.block(&format!("{error}; upgrade this gateway")) {
                    tracing::warn!("the shared tables are not read: {error}; upgrade this gateway");
                }
            }
            Err(_) => {
                let member = Arc::clone(member);
                self.runtime.spawn(async move { member.store.join().await });
            }
        }
        member.singletons.wake();
        member.heartbeats.fetch_add(1, Ordering::AcqRel);
        let before = member.store_state.send_replace(StoreState::Reachable);
        if let StoreState::Unreachable(_) = before {
            tracing::info!("the store is reachable again");
        }
        if !changes.put_back.is_empty() {
            let member = Arc::clone(member);
            self.runtime.spawn(async move { member.put_back(changes).await });
        }
    }

    fn failed(&self, error: &StoreError) {
        let member = &self.member;
        member.with_router(|router| router.heartbeat_failed(lease_now()));
        if *error == StoreError::ForeignService {
            // Nothing is written into the namespace of another service. The heartbeats only look at its marker.
            return member.report_not_joined(&error.clone().into());
        }
        member.tables.block(&error.to_string());
        let before = member.store_state.send_replace(StoreState::Unreachable(error.to_string()));
        if !matches!(before, StoreState::Unreachable(_)) {
            tracing::warn!(
                "{error}; sessions and calls continue, and no session is taken over until it is back"
            );
        }
    }
}

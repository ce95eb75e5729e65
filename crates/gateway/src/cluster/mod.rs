//! One replica of a service: several gateways behind a load balancer that act as one.
//!
//! `core::placement` decides where a request is served; this module performs it. `join` joins the service and follows
//! the heartbeats, `route` takes a request to the replica that must serve it, `forward` sends it there, `listener`
//! receives it, and `sessions` moves client sessions between replicas. `shared_tables` has the pins, logins and API keys
//! of the service, `budgets` counts calls for all of it, and `singletons` runs servers that only one replica may run.
//! `calls` keeps those calls in the store whose outcome another replica may have to show.

mod budgets;
mod calls;
pub mod cluster_settings;
mod diagnosis;
mod forward;
mod host_state;
mod join;
pub(crate) mod listener;
mod lost_replicas;
mod probe;
pub(crate) mod route;
mod sealed_body;
mod sessions;
pub mod shared_tables;
mod singletons;

pub use cluster_settings::{ClusterSettings, ClusterSettingsError};
pub use diagnosis::{ClusterFinding, examine};
pub use join::ServiceJoinError;
pub(crate) use sessions::RemoteSession;
pub use shared_tables::SharedTables;

use crate::mcp::Gateway;
use crate::metrics::ClusterFacts;
use forward::ForwardClient;
use gripfast::placement::address::ReplicaAddress;
use gripfast::placement::heartbeat::LiveReplica;
use gripfast::placement::place::{BootId, Place, SessionId};
use gripfast::placement::routing::Router;
use gripfast::sync::Mutex;
use gripfast_cluster::forward::{ForwardSealer, ForwardVerifier};
use gripfast_cluster::heartbeat::HeartbeatThread;
use gripfast_cluster::record::ReplicaRecord;
use gripfast_cluster::store::{Store, StoreSettings};
use gripfast_cluster::{StoreError, lease_now};
use lost_replicas::{LostReplica, LostReplicas};
use singletons::Singletons;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// This gateway as a replica of a service.
pub struct Member {
    settings: ClusterSettings,
    place: Place,
    address: ReplicaAddress,
    store: Store,
    tables: Arc<SharedTables>,
    router: Mutex<Router>,
    sealer: ForwardSealer,
    verifier: Mutex<ForwardVerifier>,
    client: ForwardClient,
    gateway: OnceLock<Weak<Gateway>>,
    /// Notified when a takeover has ended.
    takeover_ended: Notify,
    store_state: watch::Sender<StoreState>,
    /// Boots with a record in the store, as far as this replica knows.
    live: watch::Sender<BTreeSet<BootId>>,
    records: Mutex<Vec<ReplicaRecord>>,
    lost: Mutex<LostReplicas>,
    figures: Mutex<HeartbeatFigures>,
    /// Records of other replicas that this one cannot read.
    unreadable_records: AtomicUsize,
    /// A client session with a record of a newer version was reported.
    has_reported_newer: AtomicBool,
    heartbeat: Mutex<Option<HeartbeatThread>>,
    forwards: AtomicU64,
    takeovers: AtomicU64,
    singletons: Singletons,
    /// Heartbeats that have succeeded.
    heartbeats: AtomicU64,
    /// Settlements of budgets that were dropped because the store was away for too long.
    dropped_settlements: AtomicU64,
    call_records: tokio::sync::Mutex<calls::CallRecords>,
    /// Calls in flight that were not entered in the store, because there were too many.
    dropped_calls: AtomicU64,
}

/// Figures that the heartbeats of this replica yield.
#[derive(Debug, Default)]
struct HeartbeatFigures {
    /// Start of the last heartbeat, and the forwards until then.
    begun: Option<(Instant, u64)>,
    /// End of the last heartbeat that succeeded, and its round trip.
    succeeded: Option<(Instant, Duration)>,
}

impl HeartbeatFigures {
    /// A heartbeat begins. Returns the forwards per second since the one before, to a tenth.
    fn begin(&mut self, now: Instant, forwards: u64) -> f64 {
        let before = self.begun.replace((now, forwards));
        before.map_or(0.0, |(begun, before)| {
            let seconds = now.saturating_duration_since(begun).as_secs_f64().max(0.001);
            ((forwards - before) as f64 / seconds * 10.0).round() / 10.0
        })
    }

    /// The heartbeat that began last succeeded.
    fn succeed(&mut self, now: Instant) {
        let begun = self.begun.map_or(now, |(begun, _)| begun);
        self.succeeded = Some((now, now.saturating_duration_since(begun)));
    }

    /// Round trip of the last heartbeat that succeeded.
    fn store_latency(&self) -> Option<Duration> {
        self.succeeded.map(|(_, latency)| latency)
    }
}

/// Reachability of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreState {
    /// The gateway has not joined the service yet, for this reason.
    NotJoined(String),
    /// The last heartbeat succeeded.
    Reachable,
    /// The last heartbeat failed, for this reason.
    Unreachable(String),
}

impl Member {
    /// A replica that has not joined yet, whose listener for other replicas is bound to `bound`.
    ///
    /// # Errors
    /// The other replicas could not reach the listener, or no connection to the store is possible.
    pub(crate) fn new(
        settings: ClusterSettings,
        boot: BootId,
        bound: SocketAddr,
        session_idle: Duration,
        tables: Arc<SharedTables>,
    ) -> Result<Arc<Self>, ClusterSettingsError> {
        let address = match &settings.advertise {
            Some(address) => address.clone(),
            None => cluster_settings::advertised(bound)?,
        };
        let place = Place { name: settings.name.clone(), boot };
        let store = Store::new(StoreSettings {
            url: settings.store.clone(),
            namespace: settings.namespace.clone(),
            keys: settings.keys.clone(),
            place: place.clone(),
            spec: settings.lease,
            // The owner renews the record of a session in use, at the latest after a quarter of that time.
            retention: session_idle * 2,
        })?;
        Ok(Arc::new(Self {
            router: Mutex::new(Router::new(place.clone(), settings.lease)),
            sealer: ForwardSealer::new(settings.keys.clone(), boot),
            verifier: Mutex::new(ForwardVerifier::new(settings.keys.clone(), boot)),
            client: ForwardClient::new(),
            gateway: OnceLock::new(),
            takeover_ended: Notify::new(),
            store_state: watch::Sender::new(StoreState::NotJoined("no attempt yet".to_owned())),
            live: watch::Sender::default(),
            records: Mutex::default(),
            lost: Mutex::default(),
            figures: Mutex::default(),
            unreadable_records: AtomicUsize::new(0),
            has_reported_newer: AtomicBool::new(false),
            heartbeat: Mutex::default(),
            forwards: AtomicU64::new(0),
            takeovers: AtomicU64::new(0),
            singletons: Singletons::default(),
            heartbeats: AtomicU64::new(0),
            dropped_settlements: AtomicU64::new(0),
            call_records: tokio::sync::Mutex::default(),
            dropped_calls: AtomicU64::new(0),
            settings,
            place,
            address,
            store,
            tables,
        }))
    }

    /// Sets the gateway, whose sessions this replica owns.
    pub(crate) fn attach(&self, gateway: &Arc<Gateway>) {
        let set = self.gateway.set(Arc::downgrade(gateway));
        debug_assert!(set.is_ok(), "a gateway is one replica");
    }

    /// Shares the budgets and the calls of this gateway with the other replicas.
    pub(crate) fn share_calls(self: &Arc<Self>, gateway: &Gateway) {
        budgets::SharedBudgets::start(self, &gateway.host);
        calls::CallRecords::start(self);
    }

    fn gateway(&self) -> Option<Arc<Gateway>> {
        self.gateway.get()?.upgrade()
    }

    /// This replica.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Reachability of the store.
    pub(crate) fn store_state(&self) -> StoreState {
        self.store_state.borrow().clone()
    }

    /// Records of all live replicas, as of the last heartbeat that succeeded.
    pub(crate) fn records(&self) -> Vec<ReplicaRecord> {
        self.records.lock().clone()
    }

    /// Replicas that were lost.
    pub(crate) fn lost_replicas(&self) -> Vec<LostReplica> {
        self.lost.lock().list(Instant::now())
    }

    /// Time since the last heartbeat that succeeded.
    pub(crate) fn last_contact(&self) -> Option<Duration> {
        self.figures.lock().succeeded.map(|(at, _)| at.elapsed())
    }

    /// Values for the metrics.
    pub(crate) fn facts(&self) -> ClusterFacts {
        ClusterFacts {
            replicas: self.records.lock().len(),
            is_store_reachable: *self.store_state.borrow() == StoreState::Reachable,
            store_latency: self.figures.lock().store_latency(),
            forwards: self.forwards.load(Ordering::Relaxed),
            takeovers: self.takeovers.load(Ordering::Relaxed),
            dropped_settlements: self.dropped_settlements.load(Ordering::Relaxed),
            dropped_calls: self.dropped_calls.load(Ordering::Relaxed),
        }
    }

    /// Uses the router, then ends what other replicas have taken over.
    fn with_router<T>(&self, access: impl FnOnce(&mut Router) -> T) -> T {
        let mut taken = Vec::new();
        let result = {
            let mut router = self.router.lock();
            let result = access(&mut router);
            taken.extend(std::iter::from_fn(|| router.poll_taken()));
            result
        };
        for session in &taken {
            self.session_taken(session);
        }
        result
    }

    /// Another replica owns the session now: nothing more is admitted here.
    fn session_taken(&self, session: &SessionId) {
        tracing::info!(session = %session.number, "another replica has taken over a client session");
        if let Some(gateway) = self.gateway() {
            gateway.sessions.release(session);
        }
    }

    /// The store, if this gateway has joined the service.
    fn joined_store(&self) -> Result<&Store, StoreError> {
        match &*self.store_state.borrow() {
            StoreState::NotJoined(reason) => Err(StoreError::Unreachable(reason.clone())),
            StoreState::Reachable | StoreState::Unreachable(_) => Ok(&self.store),
        }
    }

    /// The record of a live replica.
    fn live_replica(&self, boot: BootId) -> Option<LiveReplica> {
        self.router.lock().replica(boot).cloned()
    }

    /// Returns whether a process of the service is alive, as far as this replica knows.
    pub(crate) fn is_live(&self, boot: BootId) -> bool {
        boot == self.place.boot || self.live_replica(boot).is_some()
    }

    /// The record of a live replica. If no heartbeat has reported it, the store is asked: it may have just started.
    async fn find_replica(&self, boot: BootId) -> Option<LiveReplica> {
        if let Some(known) = self.live_replica(boot) {
            return Some(known);
        }
        // Without the store, or without a valid record, it counts as gone.
        let record = self.joined_store().ok()?.find_replica(boot).await.ok()??;
        self.router.lock().replica_read(lease_now(), record.live());
        self.publish_live();
        self.live_replica(boot)
    }

    /// Publishes which boots are alive, for those that wait for the end of one.
    fn publish_live(&self) {
        self.live.send_if_modified(|live| {
            let now = self.router.lock().live_boots();
            let has_changed = *live != now;
            *live = now;
            has_changed
        });
    }

    /// Waits until a replica has no record any more.
    async fn gone(&self, boot: BootId) {
        let mut live = self.live.subscribe();
        // The sender lives as long as the replica.
        let _ = live.wait_for(|live| !live.contains(&boot)).await;
    }

    /// Records that this replica opened a session.
    pub(crate) fn session_opened(&self, session: &SessionId) {
        self.router.lock().session_opened(session);
    }

    /// Time for the requests on connections that were accepted last.
    pub(crate) const LAST_ARRIVALS: Duration = Duration::from_millis(250);

    /// Gives all sessions away, so that other replicas take them over at once.
    pub(crate) fn release(&self) {
        self.router.lock().release();
    }

    /// Leaves the service. Returns when all other replicas know it: until then they send requests, which are refused
    /// in a way that makes them take over.
    pub(crate) async fn leave(&self) {
        self.release();
        let heartbeat = self.heartbeat.lock().take();
        if let Some(heartbeat) = heartbeat {
            // The calls that have ended must not look lost.
            let limit = self.settings.lease.heartbeat();
            let _ = tokio::time::timeout(limit, self.record_calls()).await;
            // On a thread of its own, because it waits for the store.
            let _ = tokio::task::spawn_blocking(move || heartbeat.leave()).await;
            tokio::time::sleep(self.settings.lease.heartbeat() + Self::LAST_ARRIVALS).await;
        }
    }

    /// Forgets the takeovers of sessions that are no longer in memory. `open` returns those that are.
    pub(crate) fn retain_sessions(&self, open: impl FnOnce() -> BTreeSet<SessionId>) {
        if self.router.lock().remembers_sessions() {
            let open = open();
            self.router.lock().retain_open(|session| open.contains(session));
        }
    }

    /// Forgets a session that has ended.
    fn forget(&self, session: &SessionId) {
        self.router.lock().forget(session);
    }
}

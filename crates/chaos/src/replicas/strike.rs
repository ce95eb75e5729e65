//! Applies the faults of a service and ends them.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::fault::{Partition, ReplicaAction, SessionPlacement};
use super::service::{NAMES, Service, cluster_key};
use super::singleton::WriterLog;
use super::streams::Streams;
use super::{budget, refresh, tables};
use crate::client::{Client, Reply, Route};
use crate::fault::RunLength;
use crate::gateway::{POLL_INTERVAL, START_TIMEOUT};
use crate::load::Load;
use crate::proxy::ProxyMode;
use gripfast_measure::{MeasureError, Result};

/// Load while a fault is active, and after it.
pub(super) const UNDER_FAULT: Duration = Duration::from_millis(500);
/// Calls of each client in a burst.
const BURST: usize = 6;
/// Time limit for all clients to be served again.
pub(super) const RECOVERY_LIMIT: Duration = Duration::from_secs(120);
/// Additional time for one round trip to a slow store, half of it in each direction.
const SLOW_STORE: Duration = Duration::from_millis(200);
/// Time limit for a message on a stream.
const MESSAGE_LIMIT: Duration = Duration::from_secs(10);

/// Times of a strike.
#[derive(Debug, Clone, Copy)]
pub(super) struct StrikeTimes {
    pub(super) struck: Instant,
    /// Time at which all clients were served again; `None` if some were not.
    pub(super) back: Option<Instant>,
}

impl SessionPlacement {
    /// Route of a client before the fault.
    pub(super) fn route(self, client: usize, service: &Service) -> Route {
        let (target, entries) = (service.target, service.urls().len());
        let next = |distance| (target + distance) % entries;
        match self {
            Self::AtTarget => Route { home: target, through: others(target) },
            Self::ThroughTarget => Route { home: next(1), through: vec![target, next(2)] },
            Self::Everywhere => Route { home: client / 2 % entries, through: (0..entries).collect() },
        }
    }
}

/// All replicas but one.
pub(super) fn others(replica: usize) -> Vec<usize> {
    (0..NAMES.len()).filter(|other| *other != replica).collect()
}

/// Sends all following requests through these replicas.
pub(super) fn route_through(load: &Load, through: &[usize]) {
    for client in load.clients() {
        client.set_route(Route { home: through[0], through: through.to_vec() });
    }
}

/// Applies a fault for the `strike`th time, ends it, and waits until all replicas are complete again.
pub(super) async fn apply(
    action: ReplicaAction,
    strike: usize,
    length: RunLength,
    service: &mut Service,
    load: &Load,
    streams: Option<&Streams>,
) -> Result<StrikeTimes> {
    let target = service.target;
    let writers = WriterLog::read(service.path());
    let times = match action {
        ReplicaAction::Kill
        | ReplicaAction::KillHolder
        | ReplicaAction::ReturnName
        | ReplicaAction::EmptyStoreAfterTakeover => {
            let struck = service.kill(target).await?;
            let back = load.wait_until_all_back(RECOVERY_LIMIT).await;
            tokio::time::sleep(UNDER_FAULT).await;
            if action == ReplicaAction::EmptyStoreAfterTakeover {
                service.store.kill();
                service.store.restart()?;
            }
            service.restart(target).await?;
            service.until_complete().await?;
            if action == ReplicaAction::ReturnName {
                route_through(load, &[target]);
            }
            StrikeTimes { struck, back }
        }
        ReplicaAction::Replace => {
            let struck = service.kill(target).await?;
            service.restart(target).await?;
            StrikeTimes { struck, back: load.wait_until_all_back(RECOVERY_LIMIT).await }
        }
        ReplicaAction::KillBetweenBursts => {
            load.pause().await;
            let struck = service.kill(target).await?;
            load.burst(BURST);
            load.pause().await;
            let back = load.wait_until_all_back(RECOVERY_LIMIT).await;
            load.resume();
            service.restart(target).await?;
            StrikeTimes { struck, back }
        }
        ReplicaAction::RollingRestart(_) => {
            let struck = Instant::now();
            restart_in_turn(service, None).await?;
            StrikeTimes { struck, back: load.wait_until_all_back(RECOVERY_LIMIT).await }
        }
        ReplicaAction::RotateKey => {
            let struck = Instant::now();
            let [old, new] = [strike, strike + 1].map(cluster_key);
            for keys in [json!([old, new]), json!([new, old])] {
                restart_in_turn(service, Some(&keys)).await?;
            }
            // The old key has sealed the ids of the sessions so far, which end before it does.
            begin_sessions(load, SessionPlacement::Everywhere, service).await?;
            restart_in_turn(service, Some(&json!(new))).await?;
            StrikeTimes { struck, back: load.wait_until_all_back(RECOVERY_LIMIT).await }
        }
        ReplicaAction::Stop | ReplicaAction::StopHolder => stop(length, service, load, streams).await?,
        ReplicaAction::KillStore(_) => {
            let seconds = Duration::from_secs;
            let outage = length.pick(seconds(2), seconds(2), seconds(60));
            tables::kill_store(outage, strike, service, load).await?
        }
        ReplicaAction::ApproveTool => tables::approve_tool(service).await?,
        ReplicaAction::LoseReservations | ReplicaAction::KillWithReservations => {
            budget::spend(action == ReplicaAction::KillWithReservations, service, load).await?
        }
        ReplicaAction::StopBeforeRefresh => refresh::stop_before_request(service, load).await?,
        ReplicaAction::KillInRefresh => refresh::kill_after_answer(service, load).await?,
        ReplicaAction::SlowStore => {
            let struck = Instant::now();
            let set = |mode| service.store_proxies.iter().for_each(|proxy| proxy.set_mode(mode));
            set(ProxyMode::Delay(SLOW_STORE / 2));
            tokio::time::sleep(longer_than_lease(length, Duration::from_secs(2))).await;
            let back = load.wait_until_all_back(RECOVERY_LIMIT).await;
            set(ProxyMode::PassThrough);
            StrikeTimes { struck, back }
        }
        ReplicaAction::CutFromStore(cut) => {
            let struck = Instant::now();
            service.store_proxies[target].set_mode(cut.mode());
            tokio::time::sleep(longer_than_lease(length, service.lease())).await;
            let back = load.wait_until_all_back(RECOVERY_LIMIT).await;
            service.store_proxies[target].set_mode(ProxyMode::PassThrough);
            StrikeTimes { struck, back }
        }
        ReplicaAction::CutFromReplicas(cut) => {
            let struck = Instant::now();
            service.replica_proxies[target].set_mode(cut.mode());
            tokio::time::sleep(longer_than_lease(length, service.lease())).await;
            service.replica_proxies[target].set_mode(ProxyMode::PassThrough);
            StrikeTimes { struck, back: load.wait_until_all_back(RECOVERY_LIMIT).await }
        }
    };
    service.until_complete().await?;
    if action != ReplicaAction::ReturnName {
        route_through(load, &(0..service.urls().len()).collect::<Vec<_>>());
    }
    tokio::time::sleep(UNDER_FAULT).await;
    if action.has_singleton() {
        service.violations.extend(WriterLog::read(service.path()).violations_since(&writers));
    }
    Ok(times)
}

/// Lets all clients begin new sessions.
pub(super) async fn begin_sessions(
    load: &Load,
    placement: SessionPlacement,
    service: &Service,
) -> Result<()> {
    load.pause().await;
    for (number, client) in load.clients().iter().enumerate() {
        client.set_route(placement.route(number, service));
        if !matches!(client.initialize().await, Reply::Result(_)) {
            return Err(MeasureError::new("the handshake of a new session", &"it failed"));
        }
    }
    load.resume();
    Ok(())
}

/// Polls until a condition holds.
///
/// # Errors
/// It does not within a minute.
pub(super) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) -> Result<()> {
    let began = Instant::now();
    while !holds().await {
        if began.elapsed() > START_TIMEOUT {
            return Err(MeasureError::new("never within a minute", &what));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Ends and starts all replicas, one after the other, with another cluster key if there is one.
async fn restart_in_turn(service: &mut Service, key: Option<&Value>) -> Result<()> {
    for replica in 0..NAMES.len() {
        service.shut_down(replica).await?;
        if let Some(key) = key {
            service.set_cluster_key(replica, key)?;
        }
        service.restart(replica).await?;
        service.until_complete().await?;
    }
    Ok(())
}

/// Stops the replica, and continues it when its sessions have moved.
async fn stop(
    length: RunLength,
    service: &Service,
    load: &Load,
    streams: Option<&Streams>,
) -> Result<StrikeTimes> {
    let ended = streams.map_or(0, Streams::ended);
    let struck = Instant::now();
    service.signal(service.target, Signal::STOP)?;
    let stopped = async {
        tokio::time::sleep(longer_than_lease(length, service.lease())).await;
        let back = load.wait_until_all_back(RECOVERY_LIMIT).await;
        // A stopped process does not end when it is asked to.
        service.signal(service.target, Signal::CONT).map(|()| back)
    };
    let back = stopped.await?;
    if let Some(streams) = streams {
        let complain = |what: &str| Err(MeasureError::new("streams after the owner was stopped", &what));
        if streams.ended() == ended {
            return complain("none has ended");
        }
        if !streams.until_open(MESSAGE_LIMIT).await {
            return complain("a client cannot open one");
        }
        let before = streams.list_changes();
        change_tools(load).await?;
        let missing = streams.without_change_since(&before, MESSAGE_LIMIT).await;
        if missing > 0 {
            return complain(&format!("{missing} clients did not get a message"));
        }
    }
    Ok(StrikeTimes { struck, back })
}

/// Makes the server change its list of tools, which clients get as a message on their streams.
async fn change_tools(load: &Load) -> Result<()> {
    let client: &Client =
        load.clients().first().ok_or_else(|| MeasureError::new("the load", &"no client"))?;
    let name = format!("extra{}", load.elapsed_at(Instant::now()).as_millis());
    match client.call(&load.tools().misbehave, &json!({ "how": "add_tool", "name": name })).await {
        Reply::Result(_) => Ok(()),
        other => Err(MeasureError::new("add_tool", &format!("{other:?}"))),
    }
}

impl Partition {
    fn mode(self) -> ProxyMode {
        match self {
            Self::Refused => ProxyMode::Refuse,
            Self::Dropped => ProxyMode::BlackHole,
        }
    }
}

/// Duration of a fault that outlasts a lease.
fn longer_than_lease(length: RunLength, lease: Duration) -> Duration {
    length.pick(lease * 2, lease * 3, Duration::from_secs(20).max(lease * 2))
}

//! Applies the faults of a service and ends them.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::fault::{Partition, ReplicaAction, SessionPlacement};
use super::service::{NAMES, Service};
use super::streams::Streams;
use crate::client::{Client, Reply, Route};
use crate::fault::RunLength;
use crate::load::Load;
use crate::proxy::ProxyMode;
use gripfast_measure::{MeasureError, Result};

/// Replica that is hit.
pub(super) const TARGET: usize = 0;
/// Load while a fault is active, and after it.
const UNDER_FAULT: Duration = Duration::from_millis(500);
/// Calls of each client in a burst.
const BURST: usize = 6;
/// Time limit for all clients to be served again.
const RECOVERY_LIMIT: Duration = Duration::from_secs(120);
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
    pub(super) fn route(self, client: usize) -> Route {
        match self {
            Self::AtTarget => Route { home: TARGET, through: others() },
            Self::ThroughTarget => Route { home: 1, through: vec![TARGET, 2] },
            Self::Everywhere => Route { home: client / 2 % NAMES.len(), through: everywhere() },
        }
    }
}

fn others() -> Vec<usize> {
    (0..NAMES.len()).filter(|replica| *replica != TARGET).collect()
}

fn everywhere() -> Vec<usize> {
    (0..NAMES.len()).collect()
}

/// Sends all following requests through these replicas.
fn route_through(load: &Load, through: &[usize]) {
    for client in load.clients() {
        client.set_route(Route { home: through[0], through: through.to_vec() });
    }
}

/// Applies a fault, ends it, and waits until all replicas are complete again.
pub(super) async fn apply(
    action: ReplicaAction,
    length: RunLength,
    service: &mut Service,
    load: &Load,
    streams: Option<&Streams>,
) -> Result<StrikeTimes> {
    let times = match action {
        ReplicaAction::Kill | ReplicaAction::ReturnName | ReplicaAction::EmptyStoreAfterTakeover => {
            let struck = service.kill(TARGET).await?;
            let back = load.wait_until_all_back(RECOVERY_LIMIT).await;
            tokio::time::sleep(UNDER_FAULT).await;
            if action == ReplicaAction::EmptyStoreAfterTakeover {
                service.store.kill();
                service.store.restart()?;
            }
            service.restart(TARGET).await?;
            service.until_complete().await?;
            if action == ReplicaAction::ReturnName {
                route_through(load, &[TARGET]);
            }
            StrikeTimes { struck, back }
        }
        ReplicaAction::Replace => {
            let struck = service.kill(TARGET).await?;
            service.restart(TARGET).await?;
            StrikeTimes { struck, back: load.wait_until_all_back(RECOVERY_LIMIT).await }
        }
        ReplicaAction::KillBetweenBursts => {
            load.pause().await;
            let struck = service.kill(TARGET).await?;
            load.burst(BURST);
            load.pause().await;
            let back = load.wait_until_all_back(RECOVERY_LIMIT).await;
            load.resume();
            service.restart(TARGET).await?;
            StrikeTimes { struck, back }
        }
        ReplicaAction::RollingRestart => {
            let struck = Instant::now();
            for replica in everywhere() {
                service.shut_down(replica).await?;
                service.restart(replica).await?;
                service.until_complete().await?;
            }
            StrikeTimes { struck, back: load.wait_until_all_back(RECOVERY_LIMIT).await }
        }
        ReplicaAction::Stop => stop(length, service, load, streams).await?,
        ReplicaAction::KillStore(_) => {
            let struck = Instant::now();
            service.store.kill();
            let seconds = Duration::from_secs;
            tokio::time::sleep(length.pick(seconds(2), seconds(2), seconds(60))).await;
            service.store.restart()?;
            service.until_complete().await?;
            StrikeTimes { struck, back: load.wait_until_all_back(RECOVERY_LIMIT).await }
        }
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
            service.store_proxies[TARGET].set_mode(cut.mode());
            tokio::time::sleep(longer_than_lease(length, service.lease())).await;
            let back = load.wait_until_all_back(RECOVERY_LIMIT).await;
            service.store_proxies[TARGET].set_mode(ProxyMode::PassThrough);
            StrikeTimes { struck, back }
        }
        ReplicaAction::CutFromReplicas(cut) => {
            let struck = Instant::now();
            service.replica_proxies[TARGET].set_mode(cut.mode());
            tokio::time::sleep(longer_than_lease(length, service.lease())).await;
            service.replica_proxies[TARGET].set_mode(ProxyMode::PassThrough);
            StrikeTimes { struck, back: load.wait_until_all_back(RECOVERY_LIMIT).await }
        }
    };
    service.until_complete().await?;
    if action != ReplicaAction::ReturnName {
        route_through(load, &everywhere());
    }
    tokio::time::sleep(UNDER_FAULT).await;
    Ok(times)
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
    service.signal(TARGET, Signal::STOP)?;
    let stopped = async {
        tokio::time::sleep(longer_than_lease(length, service.lease())).await;
        let back = load.wait_until_all_back(RECOVERY_LIMIT).await;
        // A stopped process does not end when it is asked to.
        service.signal(TARGET, Signal::CONT).map(|()| back)
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

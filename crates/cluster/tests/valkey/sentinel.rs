//! A store behind Sentinel: found by the name of its service, and found again after a failover.

use crate::{place, settings};
use gripfast_cluster::StoreError;
use gripfast_cluster::store::Store;
use gripfast_core::placement::place::{OwnerEpoch, SessionId};
use gripfast_testkit::store_server::{RunningStore, StoreServer};
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_store_behind_sentinel_is_found_again_after_a_failover() {
    if !StoreServer::Valkey.require() {
        return;
    }
    let deadline = Instant::now() + Duration::from_secs(90);
    let mut primary = RunningStore::start_with(StoreServer::Valkey, &["--repl-diskless-sync-delay", "0"]);
    let port = primary.port().to_string();
    let replica = RunningStore::start_with(StoreServer::Valkey, &["--replicaof", "127.0.0.1", &port]);
    let direct = Store::new(settings(&primary.url(), 1)).expect("settings");
    while direct.inspect().await.expect("the store runs").replicas == 0 {
        assert!(Instant::now() < deadline, "the replica does not connect");
    }
    let sentinel = RunningStore::start_sentinel(StoreServer::Valkey, &primary, "main");
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
    let store = Store::new(settings(&url, 1)).expect("settings");
    let marker = store.join().await.expect("the sentinel knows the primary");
    let session = SessionId { origin: place(1), number: 7 };
    let epoch = OwnerEpoch::from_number(5);
    store.put_back(&[(session.clone(), epoch)], epoch).await.expect("the store runs");
    // The sentinel fails over only to a replica that it has seen, and the replica must have the record.
    let behind = Store::new(settings(&replica.url(), 1)).expect("settings");
    while behind.look_up(&session).await.ok().flatten().is_none() || !lists_replica(&sentinel, &replica) {
        assert!(Instant::now() < deadline, "the sentinel does not see the replica");
    }
    primary.kill();
    loop {
        match store.join().await {
            Ok(found) => {
                assert_eq!(found, marker, "the same data");
                break;
            }
            Err(error) => assert!(Instant::now() < deadline, "no failover: {error}"),
        }
    }
    let owner = store.look_up(&session).await.expect("the replica is the store now");
    assert_eq!(owner.map(|owner| owner.epoch), Some(epoch));
    let error = Store::new(settings(&url.replace("main", "other"), 1)).expect("settings").inspect().await;
    assert!(matches!(error, Err(StoreError::Unreachable(_))), "an unknown service: {error:?}");
}

fn lists_replica(sentinel: &RunningStore, replica: &RunningStore) -> bool {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", sentinel.port())).expect("a URL");
    let mut connection = client.get_connection().expect("the sentinel runs");
    let listed: Vec<Vec<String>> =
        redis::cmd("SENTINEL").arg("REPLICAS").arg("main").query(&mut connection).expect("it knows main");
    listed.iter().any(|fields| fields.contains(&replica.port().to_string()))
}

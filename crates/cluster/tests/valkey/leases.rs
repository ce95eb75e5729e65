//! Exclusive leases.

use crate::Service;
use gripfast_cluster::StoreError;
use gripfast_core::placement::exclusive::ClaimReply;
use gripfast_core::placement::place::OwnerEpoch;
use gripfast_testkit::store_server::{RunningStore, StoreServer};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

const NAME: &str = "server/sqlite";

async fn claimed(service: &Service, boot: u64, above: u64) -> OwnerEpoch {
    match service.store(boot).claim(NAME, OwnerEpoch::from_number(above)).await.expect("the store runs") {
        ClaimReply::Claimed { epoch } => epoch,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_lease_has_one_holder_until_it_is_released() {
    let Some(service) = Service::settled().await else { return };
    let first = claimed(&service, 1, 0).await;
    assert_eq!(claimed(&service, 1, 0).await, first, "a repeated claim keeps its epoch");
    let other = service.store(2).claim(NAME, OwnerEpoch::FIRST).await.expect("the store runs");
    assert!(matches!(other, ClaimReply::Taken { left } if left > Duration::from_secs(9)), "{other:?}");
    service.store(2).release(NAME, first).await.expect("the store runs");
    let other = service.store(2).claim(NAME, OwnerEpoch::FIRST).await.expect("the store runs");
    assert!(matches!(other, ClaimReply::Taken { .. }), "only the holder releases: {other:?}");
    service.store(1).release(NAME, first).await.expect("the store runs");
    assert!(claimed(&service, 2, 0).await > first);
}

#[tokio::test]
async fn no_replica_claims_during_a_grace_period_or_before_the_first_heartbeat() {
    let Some(service) = Service::start() else { return };
    let grace = Duration::from_secs(12);
    let reply = service.store(1).claim(NAME, OwnerEpoch::FIRST).await;
    assert_eq!(reply, Ok(ClaimReply::Grace { left: grace }), "an emptied store looks like this");
    service.beat(1, &[]).await;
    let reply = service.store(1).claim(NAME, OwnerEpoch::FIRST).await;
    assert!(matches!(reply, Ok(ClaimReply::Grace { left }) if left <= grace), "{reply:?}");
}

#[tokio::test]
async fn a_heartbeat_renews_a_lease_and_reports_a_lost_one() {
    let Some(service) = Service::settled().await else { return };
    let epoch = claimed(&service, 1, 0).await;
    let () = service.raw(&["PEXPIRE", "{test}:lease:server/sqlite", "5000"]);
    assert!(service.beat(1, &[(NAME, epoch)]).await.reply.lost.is_empty());
    let left: u64 = service.raw(&["PTTL", "{test}:lease:server/sqlite"]);
    assert!(left > 9_000, "{left}");
    assert_eq!(service.beat(2, &[(NAME, epoch)]).await.reply.lost, [NAME], "it is not the holder");
    let earlier = OwnerEpoch::from_number(epoch.number() - 1);
    assert_eq!(service.beat(1, &[(NAME, earlier)]).await.reply.lost, [NAME], "an earlier ownership");
    let () = service.raw(&["DEL", "{test}:lease:server/sqlite"]);
    let later = claimed(&service, 2, 0).await;
    assert!(later > epoch);
    assert_eq!(service.beat(1, &[(NAME, epoch)]).await.reply.lost, [NAME], "another holder");
}

#[tokio::test]
async fn a_heartbeat_writes_a_lease_back_that_the_store_lost() {
    let Some(service) = Service::settled().await else { return };
    let epoch = claimed(&service, 1, 0).await;
    let () = service.raw(&["FLUSHALL"]);
    assert!(service.beat(1, &[(NAME, epoch)]).await.reply.lost.is_empty());
    service.end_grace();
    let other = service.store(2).claim(NAME, OwnerEpoch::FIRST).await.expect("the store runs");
    assert!(matches!(other, ClaimReply::Taken { .. }), "{other:?}");
}

#[tokio::test]
async fn a_late_heartbeat_does_not_bring_a_released_lease_back() {
    let Some(service) = Service::settled().await else { return };
    let epoch = claimed(&service, 1, 0).await;
    service.store(1).release(NAME, epoch).await.expect("the store runs");
    assert_eq!(service.beat(1, &[(NAME, epoch)]).await.reply.lost, [NAME]);
    assert!(claimed(&service, 2, 0).await > epoch);
}

#[tokio::test]
async fn an_epoch_is_above_all_that_replica_and_store_know() {
    let Some(service) = Service::settled().await else { return };
    let ahead = 8_000_000_000_000_000;
    assert_eq!(claimed(&service, 1, ahead).await.number(), ahead + 1);
    let () = service.raw(&["DEL", "{test}:lease:server/sqlite"]);
    assert_eq!(claimed(&service, 2, 0).await.number(), ahead + 2, "the store remembers it without the lease");
}

#[tokio::test]
async fn a_lease_of_a_newer_format_is_not_overwritten() {
    let Some(service) = Service::settled().await else { return };
    let () = service.raw(&["SET", "{test}:lease:server/sqlite", "7:whatever"]);
    let reply = service.store(1).claim(NAME, OwnerEpoch::FIRST).await;
    assert_eq!(reply, Err(StoreError::NewerFormat { found: 7, known: 1 }));
    let beat = service.beat(1, &[(NAME, OwnerEpoch::from_number(3))]).await;
    assert_eq!(beat.reply.lost, [NAME], "another replica has it, and this one goes on");
    let stored: String = service.raw(&["GET", "{test}:lease:server/sqlite"]);
    assert_eq!(stored, "7:whatever");
}

#[tokio::test]
async fn a_lease_may_have_a_lifetime_of_its_own() {
    let Some(service) = Service::settled().await else { return };
    let lifetime = Duration::from_secs(40);
    let reply = service.store(1).claim_for("login/github", OwnerEpoch::FIRST, lifetime).await;
    assert!(matches!(reply, Ok(ClaimReply::Claimed { .. })), "{reply:?}");
    let left: u64 = service.raw(&["PTTL", "{test}:lease:login/github"]);
    assert!((39_000..=40_000).contains(&left), "{left}");
}

/// With a replica of the store, a claim counts once that replica has it, and is given back if it does not answer.
#[tokio::test]
async fn a_claim_waits_for_a_replica_of_the_store() {
    let Some(service) = Service::settled().await else { return };
    let () = service.raw(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    let primary = service.server.port().to_string();
    let replica = RunningStore::start_with(StoreServer::Valkey, &["--replicaof", "127.0.0.1", &primary]);
    let store = service.store(1);
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.inspect().await.expect("the store runs").replicas == 0 {
        assert!(Instant::now() < deadline, "the replica does not connect");
    }
    // The replica may still load the data that it was sent.
    let epoch = loop {
        match store.claim(NAME, OwnerEpoch::FIRST).await {
            Ok(ClaimReply::Claimed { epoch }) => break epoch,
            other => assert_eq!(other, Err(StoreError::NotReplicated)),
        }
        assert!(Instant::now() < deadline, "the replica confirms nothing");
    };
    let client = redis::Client::open(replica.url()).expect("a URL");
    let mut connection = client.get_connection().expect("the replica runs");
    let stored: String =
        redis::cmd("GET").arg("{test}:lease:server/sqlite").query(&mut connection).expect("it has the lease");
    assert_eq!(stored, format!("1:{}:{}", epoch.number(), crate::place(1)));
    let pid = replica.pid().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).expect("it runs");
    kill_process(pid, Signal::STOP).expect("it runs");
    let reply = store.claim("server/other", OwnerEpoch::FIRST).await;
    assert_eq!(reply, Err(StoreError::NotReplicated));
    let left: bool = service.raw(&["EXISTS", "{test}:lease:server/other"]);
    assert!(!left, "it was given back");
}

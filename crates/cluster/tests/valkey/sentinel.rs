//! A store behind Sentinel: found by the name of its service, and found again after a failover with everything that a
//! replica of the store has confirmed.

use crate::{place, record, settings};
use gripfast_cluster::StoreError;
use gripfast_cluster::heartbeat::{HeartbeatRequest, TakeoverNotices};
use gripfast_cluster::store::Store;
use gripfast_core::placement::exclusive::ClaimReply;
use gripfast_core::placement::place::{OwnerEpoch, SessionId};
use gripfast_testkit::store_server::{StoreGroup, StoreServer};
use gripfast_testkit::wait::until_async;
use rustix::process::{Pid, Signal, kill_process};

const NAME: &str = "server:notes";

#[tokio::test]
async fn a_valkey_behind_sentinel_is_found_again_after_a_failover() {
    if StoreServer::Valkey.require() {
        fails_over(StoreGroup::start(StoreServer::Valkey, 1)).await;
    }
}

#[tokio::test]
async fn a_redis_behind_three_sentinels_is_found_again_after_a_failover() {
    if StoreServer::Redis.require() {
        fails_over(StoreGroup::start(StoreServer::Redis, 3)).await;
    }
}

async fn beat(store: &Store, boot: u64, leases: Vec<(String, OwnerEpoch)>) -> Option<Vec<String>> {
    let request = HeartbeatRequest { record: record(boot), leases, acknowledged: TakeoverNotices::default() };
    Some(store.heartbeat(&request).await.ok()?.reply.lost)
}

async fn fails_over(mut group: StoreGroup) {
    let url = group.url();
    let [one, two] = [1, 2].map(|boot| Store::new(settings(&url, boot)).expect("settings"));
    let marker = one.join().await.expect("the sentinel knows the primary");
    for (store, boot) in [(&one, 1), (&two, 2)] {
        beat(store, boot, Vec::new()).await.expect("the store runs");
    }
    let _ = group.primary.command("DEL {test}:grace");
    let session = SessionId { origin: place(1), number: 7 };
    let epoch = OwnerEpoch::from_number(5);
    one.put_back(&[(session.clone(), epoch)], epoch).await.expect("the store runs");
    // The last thing that the primary does: it grants a lease, and its replica confirms that.
    let mut held = None;
    until_async("the replica of the store confirms the claim", async || {
        match one.claim(NAME, OwnerEpoch::FIRST).await {
            Ok(ClaimReply::Claimed { epoch }) => held = Some(epoch),
            other => assert_eq!(other, Err(StoreError::NotReplicated)),
        }
        held.is_some()
    })
    .await;
    let held = held.expect("it was claimed");
    group.primary.kill();
    until_async("the replica is the store", async || one.join().await == Ok(marker.clone())).await;
    let owner = one.look_up(&session).await.expect("the replica is the store now");
    assert_eq!(owner.map(|owner| owner.epoch), Some(epoch));
    let holder = two.lease_holder(NAME).await.expect("the store runs").expect("a lease that was confirmed");
    assert_eq!((holder.place, holder.epoch), (place(1), held));
    assert_eq!(beat(&one, 1, vec![(NAME.to_owned(), held)]).await, Some(Vec::new()), "it is still ours");
    let _ = group.replica.command("DEL {test}:grace");
    let other = two.claim(NAME, OwnerEpoch::FIRST).await;
    assert!(matches!(other, Ok(ClaimReply::Taken { .. })), "{other:?}");
    one.release(NAME, held).await.expect("the store runs");
    let next = two.claim(NAME, OwnerEpoch::FIRST).await;
    assert!(matches!(next, Ok(ClaimReply::Claimed { epoch }) if epoch > held), "{next:?}");
    let error = Store::new(settings(&url.replace("main", "other"), 1)).expect("settings").inspect().await;
    assert!(matches!(error, Err(StoreError::Unreachable(_))), "an unknown service: {error:?}");
}

/// A claim that only the primary has is given back before it is used. So the claim after the failover is the only one.
#[tokio::test]
async fn a_claim_that_a_failover_of_redis_would_lose_is_not_used() {
    if !StoreServer::Redis.require() {
        return;
    }
    let mut group = StoreGroup::start(StoreServer::Redis, 1);
    let url = group.url();
    let [one, two] = [1, 2].map(|boot| Store::new(settings(&url, boot)).expect("settings"));
    one.join().await.expect("the sentinel knows the primary");
    beat(&one, 1, Vec::new()).await.expect("the store runs");
    let _ = group.primary.command("DEL {test}:grace");
    let _ = group.primary.command("WAIT 1 5000");
    let pid = group.replica.pid().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).expect("it runs");
    kill_process(pid, Signal::STOP).expect("it runs");
    assert_eq!(one.claim(NAME, OwnerEpoch::FIRST).await, Err(StoreError::NotReplicated));
    group.primary.kill();
    kill_process(pid, Signal::CONT).expect("it runs");
    until_async("the replica is the store", async || beat(&two, 2, Vec::new()).await.is_some()).await;
    let _ = group.replica.command("DEL {test}:grace");
    let next = two.claim(NAME, OwnerEpoch::FIRST).await;
    assert!(matches!(next, Ok(ClaimReply::Claimed { .. })), "{next:?}");
}

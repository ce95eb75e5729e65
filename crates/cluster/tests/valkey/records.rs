//! Heartbeats, replica records and the service marker.

use crate::{KEY, Service, place, record, settings};
use gripfast_cluster::StoreError;
use gripfast_cluster::keys::ClusterKeys;
use gripfast_cluster::marker::{JoinError, ServiceMarker, StoreAge};
use gripfast_cluster::record::ReplicaRecord;
use gripfast_cluster::store::{Store, StoreSettings};
use gripfast_core::placement::place::{BootId, OwnerEpoch};
use std::time::Duration;

#[tokio::test]
async fn a_heartbeat_makes_and_renews_the_record_and_lists_live_replicas() {
    let Some(service) = Service::start() else { return };
    let first = service.beat(1, &[]).await;
    let since = first.reply.record_since;
    assert_eq!(since, first.reply.store_time);
    assert_eq!(first.records, [record(1)]);
    assert_eq!(service.beat(1, &[]).await.reply.record_since, since, "it was there all the time");
    let second = service.beat(2, &[]).await;
    let mut places: Vec<_> = second.reply.replicas.iter().map(|live| live.place.clone()).collect();
    places.sort();
    assert_eq!(places, [place(1), place(2)]);
    let lifetime: u64 = service.raw(&["PTTL", "{test}:replica:0000000000000001"]);
    assert!((9_000..=10_000).contains(&lifetime), "{lifetime}");
    service.end_record(1);
    assert_eq!(service.beat(2, &[]).await.records, [record(2)]);
    assert!(service.beat(1, &[]).await.reply.record_since > since, "it was missing");
    assert!(service.beat(1, &[]).await.reply.record_since > since, "also for a replica without that reply");
}

#[tokio::test]
async fn the_first_heartbeat_after_a_lease_without_any_starts_a_grace_period() {
    let Some(service) = Service::start() else { return };
    let grace = Duration::from_secs(12);
    assert_eq!(service.beat(1, &[]).await.reply.grace_left, grace, "an empty store");
    assert!(service.beat(2, &[]).await.reply.grace_left > Duration::from_secs(11), "it goes on for others");
    service.end_grace();
    let reply = service.beat(1, &[]).await.reply;
    assert_eq!(reply.grace_left, Duration::ZERO);
    let long_ago = reply.store_time.as_micros() - 10_000_000;
    let () = service.raw(&["SET", "{test}:last", &long_ago.to_string()]);
    assert_eq!(service.beat(1, &[]).await.reply.grace_left, grace, "an outage of one lease");
}

#[tokio::test]
async fn a_forged_record_is_not_listed() {
    let Some(service) = Service::settled().await else { return };
    let other_keys = ClusterKeys::new(["another key of thirty-two characters"]).expect("a key");
    let forged = ReplicaRecord { place: place(6), ..record(6) }.seal(&other_keys);
    let boot = BootId::from_number(6).to_string();
    let () = service.raw(&["HSET", &format!("{{test}}:replica:{boot}"), "record", &forged]);
    let () = service.raw(&["SADD", "{test}:replicas", &boot]);
    let success = service.beat(1, &[]).await;
    assert_eq!(success.records.len(), 2);
    assert_eq!(success.unreadable_records, 1);
}

#[tokio::test]
async fn the_marker_tells_an_emptied_store_and_a_foreign_namespace() {
    let Some(service) = Service::start() else { return };
    let marker = service.store(1).join().await.expect("an empty store");
    assert_eq!(marker.age(None), StoreAge::Known);
    let again = service.store(2).join().await.expect("the same key");
    assert_eq!(again, marker);
    assert_eq!(again.age(Some(marker.generation)), StoreAge::Known);
    let seen = service.beat(1, &[]).await.marker;
    assert_eq!(ServiceMarker::read(&seen), Ok(marker.clone()), "each heartbeat returns it");
    let mut foreign = settings(&service.server.url(), 3);
    foreign.keys = ClusterKeys::new(["another key of thirty-two characters"]).expect("a key");
    let foreign = Store::new(foreign).expect("settings");
    assert_eq!(foreign.join().await, Err(JoinError::ForeignService));
    let () = service.raw(&["FLUSHALL"]);
    assert_eq!(service.beat(1, &[]).await.marker, "");
    let emptied = service.store(1).join().await.expect("an empty store");
    assert_eq!(emptied.age(Some(marker.generation)), StoreAge::Emptied);
}

#[tokio::test]
async fn a_replaced_key_takes_over_the_marker() {
    let Some(service) = Service::start() else { return };
    let marker = service.store(1).join().await.expect("an empty store");
    let newer = "a newer key of thirty-two characters!!";
    let with_keys = |boot: u64, keys: &[&str]| {
        let mut settings = settings(&service.server.url(), boot);
        settings.keys = ClusterKeys::new(keys.iter().copied()).expect("keys");
        Store::new(settings).expect("settings")
    };
    assert_eq!(with_keys(2, &[newer]).join().await, Err(JoinError::ForeignService));
    let rotated = with_keys(2, &[newer, KEY]).join().await.expect("it has the old key too");
    assert_eq!(rotated.generation, marker.generation);
    assert!(with_keys(3, &[newer]).join().await.is_ok(), "the old key is no longer needed");
    assert!(with_keys(4, &[KEY, newer]).join().await.is_ok());
}

#[tokio::test]
async fn a_marker_of_a_newer_format_is_not_touched() {
    let Some(service) = Service::start() else { return };
    let () = service.raw(&["SET", "{test}:service", "2:anything"]);
    let error = service.store(1).join().await.expect_err("it is newer");
    let text = "a value in the store has format 2, and this version knows formats up to 1";
    assert_eq!(error.to_string(), text);
    let stored: String = service.raw(&["GET", "{test}:service"]);
    assert_eq!(stored, "2:anything");
}

/// The store was emptied, and a service with another key was first to make a marker.
#[tokio::test]
async fn a_heartbeat_writes_nothing_into_the_namespace_of_another_service() {
    let Some(service) = Service::settled().await else { return };
    service.store(1).join().await.expect("the store runs");
    let epoch = OwnerEpoch::from_number(5);
    assert!(service.try_beat(1, &[("server/sqlite", epoch)]).await.is_ok());
    let () = service.raw(&["FLUSHALL"]);
    let keys = ClusterKeys::new(["another key of thirty-two characters!"]).expect("a key");
    let other = Store::new(StoreSettings { keys, ..service.settings(9) }).expect("settings");
    other.join().await.expect("the namespace is free");
    let before: Vec<String> = service.raw(&["KEYS", "*"]);
    assert_eq!(before, ["{test}:service"]);
    let beat = service.try_beat(1, &[("server/sqlite", epoch)]).await;
    assert_eq!(beat.expect_err("it is another service"), StoreError::ForeignService);
    assert_eq!(service.raw::<Vec<String>>(&["KEYS", "*"]), before);
}

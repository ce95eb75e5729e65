//! Shared tables, budgets, session memory and calls.

use crate::{Service, place};
use gripfast_cluster::StoreError;
use gripfast_cluster::budgets::{BudgetReply, BudgetSpan, Settlement, SharedBudget};
use gripfast_cluster::calls::{CallBatch, LostCall};
use gripfast_cluster::sessions::{SessionMemory, StoredSession};
use gripfast_cluster::store::{Store, StoreSettings};
use gripfast_cluster::tables::{FieldEntry, SetReply, SharedTable};
use gripfast_core::placement::exclusive::ClaimReply;
use gripfast_core::placement::place::{BootId, OwnerEpoch, SessionId, SessionOwner};
use gripfast_core::placement::term::LeaseSpec;
use gripfast_testkit::wait::within;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

async fn set(service: &Service, field: &str, expected: u64, value: Option<&str>) -> SetReply {
    let store = service.store(1);
    store.set_field(SharedTable::ApiKeys, field, expected, value).await.expect("the store runs")
}

fn version(reply: SetReply) -> u64 {
    match reply {
        SetReply::Set { version } => version,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_field_is_set_only_if_its_version_is_the_expected_one() {
    let Some(service) = Service::settled().await else { return };
    let first = version(set(&service, "ci", 0, Some("hash")).await);
    assert_eq!(set(&service, "ci", 0, Some("other")).await, SetReply::Changed { version: first });
    let second = version(set(&service, "ci", first, Some("hash 2")).await);
    assert!(second > first);
    let table = service.store(2).read_table(SharedTable::ApiKeys).await.expect("the store runs");
    assert_eq!(table["ci"], FieldEntry { version: second, value: Some("hash 2".to_owned()) });
    assert!(service.store(2).read_table(SharedTable::Pins).await.expect("the store runs").is_empty());
}

#[tokio::test]
async fn every_heartbeat_returns_the_revisions_of_the_tables() {
    let Some(service) = Service::settled().await else { return };
    assert!(service.beat(1, &[]).await.revisions.is_empty());
    let first = version(set(&service, "ci", 0, Some("hash")).await);
    let revision = service.beat(2, &[]).await.revisions["api_keys"];
    version(set(&service, "ci", first, None).await);
    assert!(service.beat(2, &[]).await.revisions["api_keys"] > revision);
}

#[tokio::test]
async fn a_removed_field_stays_removed_when_an_older_copy_is_written_back() {
    let Some(service) = Service::settled().await else { return };
    let first = version(set(&service, "ci", 0, Some("hash")).await);
    let old_copy = service.store(2).read_table(SharedTable::ApiKeys).await.expect("the store runs");
    let removed = version(set(&service, "ci", first, None).await);
    let new_copy = service.store(1).read_table(SharedTable::ApiKeys).await.expect("the store runs");
    assert_eq!(new_copy["ci"], FieldEntry { version: removed, value: None });
    let () = service.raw(&["FLUSHALL"]);
    service.beat(1, &[]).await;
    // The replica with the older copy is first.
    let put = |boot: u64, copy| {
        let store = service.store(boot);
        async move { store.put_fields(SharedTable::ApiKeys, &copy).await.expect("the store runs") }
    };
    assert_eq!(put(2, old_copy.clone()).await, 1);
    assert_eq!(put(1, new_copy.clone()).await, 1);
    assert_eq!(put(2, old_copy).await, 0);
    let table = service.store(3).read_table(SharedTable::ApiKeys).await.expect("the store runs");
    assert_eq!(table, new_copy);
}

#[tokio::test]
async fn a_copy_is_compared_with_the_store_in_both_directions() {
    let Some(service) = Service::settled().await else { return };
    let first = version(set(&service, "ci", 0, Some("hash")).await);
    let second = version(set(&service, "laptop", 0, Some("hash")).await);
    let () = service.raw(&["HSET", "{test}:table:api_keys", "newer", "2:5:something"]);
    let revision = service.beat(1, &[]).await.revisions["api_keys"];
    let store = service.store(2);
    let compare = async |known: &[(&str, u64)]| {
        let known: Vec<_> = known.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect();
        store.read_changes(SharedTable::ApiKeys, known).await.expect("the store runs")
    };
    let all = compare(&[]).await;
    let newer: Vec<_> = all.newer.iter().map(|(name, entry)| (name.as_str(), entry.version)).collect();
    assert_eq!(newer, [("ci", first), ("laptop", second)], "a field of a newer format is left out");
    assert_eq!(all.unknown, ["newer"]);
    assert_eq!((all.lost.len(), all.stored, all.revision), (0, 3, revision));
    let same = compare(&[("ci", first), ("laptop", second)]).await;
    assert_eq!((same.newer.len(), same.lost.len()), (0, 0));
    // The store has an older version of one field, and has lost another one.
    let behind = compare(&[("ci", first + 1), ("laptop", second), ("gone", 7)]).await;
    assert_eq!((behind.newer.len(), behind.lost), (0, vec!["ci".to_owned(), "gone".to_owned()]));
}

#[tokio::test]
async fn nothing_is_changed_during_a_grace_period() {
    let Some(service) = Service::start() else { return };
    let reply = set(&service, "ci", 0, Some("hash")).await;
    assert_eq!(reply, SetReply::Grace { left: Duration::from_secs(10) });
}

/// A heartbeat of such a lease is 2000.2 ms.
#[tokio::test]
async fn a_lease_that_is_no_multiple_of_five_milliseconds_is_possible() {
    let Some(service) = Service::start() else { return };
    let spec = LeaseSpec { lease: Duration::from_millis(10_001) };
    let store = Store::new(StoreSettings { spec, ..service.settings(1) }).expect("settings");
    let reply = store.set_field(SharedTable::ApiKeys, "ci", 0, Some("hash")).await;
    assert_eq!(reply, Ok(SetReply::Grace { left: Duration::from_secs(10) + Duration::from_millis(1) }));
    let reply = store.claim("login", OwnerEpoch::FIRST).await;
    assert_eq!(reply, Ok(ClaimReply::Grace { left: Duration::from_millis(12_001) }));
}

/// A login that was renewed in an outage is written before another replica may renew it.
#[tokio::test]
async fn a_field_can_be_set_one_heartbeat_before_a_lease_can_be_claimed() {
    let Some(service) = Service::start() else { return };
    service.beat(1, &[]).await;
    let (seconds, micros): (u64, u64) = service.raw(&["TIME"]);
    let end = seconds * 1_000_000 + micros + 1_900_000;
    let () = service.raw(&["SET", "{test}:grace", &end.to_string()]);
    let claim = service.store(1).claim("login", OwnerEpoch::from_number(0)).await;
    assert!(matches!(claim, Ok(ClaimReply::Grace { .. })), "{claim:?}");
    let reply = set(&service, "ci", 0, Some("hash")).await;
    assert!(matches!(reply, SetReply::Set { .. }), "{reply:?}");
}

#[tokio::test]
async fn a_field_of_a_newer_format_is_kept() {
    let Some(service) = Service::settled().await else { return };
    let () = service.raw(&["HSET", "{test}:table:pins", "tool", "2:5:something"]);
    let store = service.store(1);
    assert!(store.read_table(SharedTable::Pins).await.expect("the store runs").is_empty());
    let reply = store.set_field(SharedTable::Pins, "tool", 0, Some("x")).await;
    assert_eq!(reply, Err(StoreError::NewerFormat { found: 2, known: 1 }));
    let copy = [("tool".to_owned(), FieldEntry { version: 9, value: Some("x".to_owned()) })].into();
    assert_eq!(store.put_fields(SharedTable::Pins, &copy).await, Ok(0));
    let stored: String = service.raw(&["HGET", "{test}:table:pins", "tool"]);
    assert_eq!(stored, "2:5:something");
}

fn budget(name: &str, limit: u64, span: BudgetSpan) -> SharedBudget {
    SharedBudget { name: name.to_owned(), limit, span }
}

async fn reserve(service: &Service, boot: u64, id: &str, budgets: &[SharedBudget]) -> BudgetReply {
    service.store(boot).reserve(id, budgets, HOUR).await.expect("the store runs")
}

async fn settle(service: &Service, boot: u64, id: &str, settlement: Settlement) {
    service.store(boot).settle(&[(id.to_owned(), settlement)]).await.expect("the store runs");
}

#[tokio::test]
async fn a_budget_is_never_exceeded_by_three_replicas_at_once() {
    let Some(service) = Service::settled().await else { return };
    let budgets = [budget("alice", 50, BudgetSpan::Sliding(HOUR))];
    let stores = [service.store(1), service.store(2), service.store(3)];
    let mut running = Vec::new();
    for (boot, store) in stores.into_iter().enumerate() {
        let budgets = budgets.clone();
        running.push(tokio::spawn(async move {
            let mut reserved = 0;
            for call in 0..40 {
                let reply = store.reserve(&format!("{boot}-{call}"), &budgets, HOUR).await;
                reserved += u32::from(reply.expect("the store runs") == BudgetReply::Reserved);
            }
            reserved
        }));
    }
    let mut reserved = 0;
    for task in running {
        reserved += task.await.expect("it does not panic");
    }
    assert_eq!(reserved, 50);
    let refused = reserve(&service, 1, "one more", &budgets).await;
    let BudgetReply::Refused { budget, retry_after } = refused else { panic!("{refused:?}") };
    assert_eq!(budget, 0);
    assert!(retry_after > Duration::from_secs(3_540) && retry_after <= HOUR * 61 / 60, "{retry_after:?}");
}

#[tokio::test]
async fn a_retried_reservation_counts_once_and_a_refund_gives_it_back() {
    let Some(service) = Service::settled().await else { return };
    let budgets = [budget("alice", 1, BudgetSpan::Sliding(HOUR))];
    assert_eq!(reserve(&service, 1, "a", &budgets).await, BudgetReply::Reserved);
    assert_eq!(reserve(&service, 1, "a", &budgets).await, BudgetReply::Reserved);
    assert!(matches!(reserve(&service, 1, "b", &budgets).await, BudgetReply::Refused { .. }));
    settle(&service, 1, "a", Settlement::Refund).await;
    settle(&service, 1, "a", Settlement::Refund).await;
    assert_eq!(reserve(&service, 1, "b", &budgets).await, BudgetReply::Reserved);
    assert!(matches!(reserve(&service, 1, "c", &budgets).await, BudgetReply::Refused { .. }), "once");
    settle(&service, 1, "b", Settlement::Keep).await;
    assert!(matches!(reserve(&service, 1, "c", &budgets).await, BudgetReply::Refused { .. }), "it was used");
}

#[tokio::test]
async fn the_calls_in_flight_of_a_lost_replica_do_not_count() {
    let Some(service) = Service::settled().await else { return };
    let budgets = [budget("alice", 2, BudgetSpan::InFlight)];
    assert_eq!(reserve(&service, 1, "a", &budgets).await, BudgetReply::Reserved);
    assert_eq!(reserve(&service, 2, "b", &budgets).await, BudgetReply::Reserved);
    assert!(matches!(reserve(&service, 2, "c", &budgets).await, BudgetReply::Refused { .. }));
    service.end_record(1);
    assert_eq!(reserve(&service, 2, "c", &budgets).await, BudgetReply::Reserved);
    settle(&service, 2, "c", Settlement::Keep).await;
    assert_eq!(reserve(&service, 2, "d", &budgets).await, BudgetReply::Reserved);
    assert!(matches!(reserve(&service, 2, "e", &budgets).await, BudgetReply::Refused { .. }));
}

#[tokio::test]
async fn a_unit_in_flight_whose_settlement_is_lost_is_free_after_its_lifetime() {
    let Some(service) = Service::settled().await else { return };
    let budgets = [budget("alice", 1, BudgetSpan::InFlight)];
    assert_eq!(reserve(&service, 1, "a", &budgets).await, BudgetReply::Reserved);
    assert!(matches!(reserve(&service, 1, "b", &budgets).await, BudgetReply::Refused { .. }));
    let entry: String = service.raw(&["HGET", "{test}:in_flight:1:alice", "a"]);
    let (boot, ends) = entry.split_once(' ').expect("boot and end");
    let ended = ends.parse::<u64>().expect("a time") - 3_600_000_000;
    let () = service.raw(&["HSET", "{test}:in_flight:1:alice", "a", &format!("{boot} {ended}")]);
    assert_eq!(reserve(&service, 1, "b", &budgets).await, BudgetReply::Reserved);
}

#[tokio::test]
async fn a_reservation_that_arrives_after_its_settlement_does_not_count() {
    let Some(service) = Service::settled().await else { return };
    let budgets = [budget("alice", 1, BudgetSpan::InFlight)];
    settle(&service, 1, "late", Settlement::Refund).await;
    assert_eq!(reserve(&service, 1, "late", &budgets).await, BudgetReply::Reserved);
    assert_eq!(reserve(&service, 1, "next", &budgets).await, BudgetReply::Reserved, "nothing is held");
}

#[tokio::test]
async fn the_use_of_all_budgets_is_read_from_the_store() {
    let Some(service) = Service::settled().await else { return };
    let budgets =
        [budget("[\"all\"]", 10, BudgetSpan::Sliding(HOUR)), budget("x:y", 2, BudgetSpan::InFlight)];
    assert_eq!(reserve(&service, 1, "a", &budgets).await, BudgetReply::Reserved);
    assert_eq!(reserve(&service, 2, "b", &budgets).await, BudgetReply::Reserved);
    let read = async || {
        let mut found = service.store(3).budget_use(100).await.expect("the store runs");
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found.into_iter().map(|found| (found.name, found.span, found.used)).collect::<Vec<_>>()
    };
    let all = ("[\"all\"]".to_owned(), BudgetSpan::Sliding(HOUR), 2);
    assert_eq!(read().await, [all.clone(), ("x:y".to_owned(), BudgetSpan::InFlight, 2)]);
    service.end_record(1);
    assert_eq!(read().await, [all.clone(), ("x:y".to_owned(), BudgetSpan::InFlight, 1)]);
    settle(&service, 2, "b", Settlement::Keep).await;
    assert_eq!(read().await, [all]);
}

#[tokio::test]
async fn a_refused_budget_leaves_the_others_of_the_call_untouched() {
    let Some(service) = Service::settled().await else { return };
    let plenty = budget("all", 10, BudgetSpan::Sliding(HOUR));
    let spent = budget("alice", 0, BudgetSpan::Sliding(HOUR));
    assert!(matches!(
        reserve(&service, 1, "a", &[plenty.clone(), spent]).await,
        BudgetReply::Refused { budget: 1, .. }
    ));
    let used: Option<u64> = service.raw(&["HLEN", "{test}:sliding:3600000:all"]);
    assert_eq!(used, Some(0));
    assert_eq!(reserve(&service, 1, "a", &[plenty]).await, BudgetReply::Reserved, "the id was not used");
}

/// The bucket of a call began up to a 60th of the window before the call. So the call counts until 60 whole buckets have
/// passed after its own: up to a 60th late, and never early.
#[tokio::test]
async fn calls_leave_a_sliding_window_up_to_a_60th_late_and_never_early() {
    let Some(service) = Service::settled().await else { return };
    let budgets = [budget("alice", 1, BudgetSpan::Sliding(HOUR))];
    let key = "{test}:sliding:3600000:alice";
    let current = || {
        let (seconds, _): (u64, u64) = service.raw(&["TIME"]);
        seconds / 60
    };
    // Reserves with one call in a bucket of this age. Again if the minute changed meanwhile.
    let reserve_after = async |age: u64| {
        for attempt in 0..3 {
            let now = current();
            let () = service.raw(&["DEL", key]);
            let () = service.raw(&["HSET", key, &(now - age).to_string(), "1"]);
            let reply = reserve(&service, 1, &format!("{age}-{attempt}"), &budgets).await;
            if current() == now {
                return reply;
            }
        }
        panic!("a reservation takes a minute")
    };
    let refused = reserve_after(60).await;
    let BudgetReply::Refused { retry_after, .. } = refused else { panic!("{refused:?}") };
    assert!(retry_after <= HOUR / 60, "the rest of the bucket: {retry_after:?}");
    let refused = reserve_after(0).await;
    let BudgetReply::Refused { retry_after, .. } = refused else { panic!("{refused:?}") };
    assert!(retry_after >= HOUR && retry_after <= HOUR * 61 / 60, "{retry_after:?}");
    assert_eq!(reserve_after(61).await, BudgetReply::Reserved);
    let shown: u64 = service.raw(&["ZCARD", "{test}:counters"]);
    let shown_until: f64 = service.raw(&["ZSCORE", "{test}:counters", "sliding:3600000:alice"]);
    let (seconds, _): (u64, u64) = service.raw(&["TIME"]);
    assert_eq!(shown, 1);
    assert!(
        shown_until >= (seconds + 3_600) as f64 * 1e6,
        "the use is shown until the call leaves the window"
    );
}

#[tokio::test]
async fn a_fixed_window_starts_with_its_first_call() {
    let Some(service) = Service::settled().await else { return };
    let budgets = [budget("paid", 2, BudgetSpan::Fixed(HOUR))];
    assert_eq!(reserve(&service, 1, "a", &budgets).await, BudgetReply::Reserved);
    assert_eq!(reserve(&service, 2, "b", &budgets).await, BudgetReply::Reserved);
    let refused = reserve(&service, 1, "c", &budgets).await;
    let BudgetReply::Refused { retry_after, .. } = refused else { panic!("{refused:?}") };
    assert!(retry_after > HOUR - Duration::from_secs(60) && retry_after <= HOUR, "{retry_after:?}");
    settle(&service, 2, "b", Settlement::Refund).await;
    assert_eq!(reserve(&service, 1, "c", &budgets).await, BudgetReply::Reserved);
    // The window ends by time. A refund of a call in it does not count in the next one.
    let () = service.raw(&["DEL", "{test}:fixed:3600000:paid"]);
    assert_eq!(reserve(&service, 1, "d", &budgets).await, BudgetReply::Reserved);
    settle(&service, 1, "a", Settlement::Refund).await;
    assert_eq!(reserve(&service, 1, "e", &budgets).await, BudgetReply::Reserved);
    assert!(matches!(reserve(&service, 1, "f", &budgets).await, BudgetReply::Refused { .. }));
}

#[tokio::test]
async fn owner_and_memory_of_a_session_are_read_together() {
    let Some(service) = Service::settled().await else { return };
    let session = SessionId { origin: place(1), number: 7 };
    let store = service.store(2);
    let nothing = StoredSession { owner: None, memory: SessionMemory::None };
    assert_eq!(store.open_session(&session).await, Ok(nothing));
    service.store(1).keep_session(&session, "level=debug", HOUR).await.expect("the store runs");
    let epoch = OwnerEpoch::from_number(5);
    store.put_back(&[(session.clone(), epoch)], epoch).await.expect("the store runs");
    let owner = Some(SessionOwner { place: place(2), epoch });
    let kept = SessionMemory::Kept("level=debug".to_owned());
    let stored = store.open_session(&session).await;
    assert_eq!(stored, Ok(StoredSession { owner: owner.clone(), memory: kept }));
    store.end_session(&session, HOUR).await.expect("the store runs");
    let stored = service.store(1).open_session(&session).await;
    assert_eq!(stored, Ok(StoredSession { owner, memory: SessionMemory::Ended }));
    let left: u64 = service.raw(&["PTTL", "{test}:session:replica-1/0000000000000001/7"]);
    assert!((3_599_000..=3_600_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_late_memory_does_not_undo_the_end_of_a_session() {
    let Some(service) = Service::settled().await else { return };
    let session = SessionId { origin: place(1), number: 7 };
    let (old, new) = (service.store(1), service.store(2));
    old.keep_session(&session, "level=debug", HOUR).await.expect("the store runs");
    new.end_session(&session, HOUR).await.expect("the store runs");
    old.keep_session(&session, "level=debug", HOUR).await.expect("no error: the session has ended");
    let ended = StoredSession { owner: None, memory: SessionMemory::Ended };
    assert_eq!(new.open_session(&session).await, Ok(ended));
    new.end_session(&session, HOUR * 2).await.expect("the store runs");
    let left: u64 = service.raw(&["PTTL", "{test}:session:replica-1/0000000000000001/7"]);
    assert!(left > 3_600_000, "an end may be repeated: {left}");
}

#[tokio::test]
async fn the_open_calls_of_a_lost_replica_are_found() {
    let Some(service) = Service::settled().await else { return };
    let started = |id: &str| (id.to_owned(), format!("row of {id}"));
    let batch = CallBatch { started: vec![started("a"), started("b")], ended: Vec::new() };
    service.store(1).enter_calls(&batch, HOUR).await.expect("the store runs");
    let batch = CallBatch { started: vec![started("c")], ended: vec!["a".to_owned()] };
    service.store(1).enter_calls(&batch, HOUR).await.expect("the store runs");
    assert_eq!(service.store(2).lost_calls(10).await, Ok(Vec::new()), "replica 1 is alive");
    service.end_record(1);
    let mut lost = service.store(2).lost_calls(10).await.expect("the store runs");
    lost.sort_by(|one, other| one.id.cmp(&other.id));
    let call =
        |id: &str| LostCall { boot: BootId::from_number(1), id: id.to_owned(), row: format!("row of {id}") };
    assert_eq!(lost, [call("b"), call("c")]);
    let batch = CallBatch { started: Vec::new(), ended: vec!["b".to_owned(), "c".to_owned()] };
    service.store(1).enter_calls(&batch, HOUR).await.expect("the store runs");
    assert_eq!(service.store(2).lost_calls(10).await, Ok(Vec::new()));
}

#[tokio::test]
async fn the_memory_of_a_session_of_a_newer_format_is_not_overwritten() {
    let Some(service) = Service::settled().await else { return };
    let session = SessionId { origin: place(1), number: 7 };
    let key = "{test}:session:replica-1/0000000000000001/7";
    let () = service.raw(&["SET", key, "2:whatever"]);
    let newer = StoreError::NewerFormat { found: 2, known: 1 };
    let store = service.store(1);
    assert_eq!(store.keep_session(&session, "level=debug", HOUR).await, Err(newer.clone()));
    assert_eq!(store.end_session(&session, HOUR).await, Err(newer.clone()));
    assert_eq!(store.open_session(&session).await, Err(newer));
    assert_eq!(service.raw::<String>(&["GET", key]), "2:whatever");
}

#[tokio::test]
async fn a_changed_table_is_announced_at_once() {
    let Some(service) = Service::settled().await else { return };
    let mut notices = service.store(2).subscribe().await.expect("the store runs");
    let store = service.store(1);
    // A newer version may have further tables.
    let _: u64 = service.raw(&["PUBLISH", "{test}:changes", "tables-of-tomorrow"]);
    store.set_field(SharedTable::ApiKeys, "laptop", 0, Some("x")).await.expect("the store runs");
    assert_eq!(within("a notice", notices.next()).await, Some(SharedTable::ApiKeys));
    let fields = [("notes".to_owned(), FieldEntry { version: 5, value: None })].into();
    store.put_fields(SharedTable::Pins, &fields).await.expect("the store runs");
    assert_eq!(within("a notice", notices.next()).await, Some(SharedTable::Pins));
    let _: u64 = service.raw(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(within("its end", notices.next()).await, None);
}

//! Records of sessions that moved.

use crate::{Service, place};
use gripfast_cluster::StoreError;
use gripfast_core::placement::place::{OwnerEpoch, SessionId, SessionOwner};
use gripfast_core::placement::routing::{TakeoverCause, TakeoverReply};
use std::time::Duration;

fn session(number: u64) -> SessionId {
    SessionId { origin: place(1), number }
}

fn first_owner() -> SessionOwner {
    SessionOwner { place: place(1), epoch: OwnerEpoch::FIRST }
}

async fn take(service: &Service, boot: u64, from: &SessionOwner, cause: TakeoverCause) -> TakeoverReply {
    service.store(boot).take_over(&session(7), from, cause).await.expect("the store runs")
}

fn epoch_of(reply: &TakeoverReply) -> OwnerEpoch {
    match reply {
        TakeoverReply::Taken { epoch, .. } => *epoch,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_takeover_is_recorded_and_the_old_owner_is_told() {
    let Some(service) = Service::settled().await else { return };
    assert_eq!(service.store(2).look_up(&session(7)).await, Ok(None));
    let reply = take(&service, 2, &first_owner(), TakeoverCause::Refused).await;
    let owner = SessionOwner { place: place(2), epoch: epoch_of(&reply) };
    assert!(matches!(reply, TakeoverReply::Taken { previous, .. } if previous == OwnerEpoch::FIRST));
    assert_eq!(service.store(3).look_up(&session(7)).await, Ok(Some(owner.clone())));
    assert_eq!(service.beat(1, &[]).await.reply.taken, [(session(7), owner.clone())]);
    let told = service.beat(1, &[]).await;
    assert_eq!(told.reply.taken, [(session(7), owner.clone())], "the first reply may have been lost");
    assert_eq!(service.beat_after(1, &told).await.reply.taken, [], "it is acknowledged");
    assert_eq!(service.beat(2, &[]).await.reply.last_takeover, owner.epoch);
    let left: u64 = service.raw(&["PTTL", "{test}:moved:replica-1/0000000000000001/7"]);
    assert!((3_599_000..=3_600_000).contains(&left), "{left}");
}

#[tokio::test]
async fn two_takeovers_at_once_have_one_winner() {
    let Some(service) = Service::settled().await else { return };
    let owner = first_owner();
    let (two, three) = (service.store(2), service.store(3));
    let session = session(7);
    let (one, other) = tokio::join!(
        two.take_over(&session, &owner, TakeoverCause::Refused),
        three.take_over(&session, &owner, TakeoverCause::Refused),
    );
    let replies = [one.expect("the store runs"), other.expect("the store runs")];
    let won = replies.iter().filter(|reply| matches!(reply, TakeoverReply::Taken { .. })).count();
    let lost = replies.iter().filter(|reply| matches!(reply, TakeoverReply::Owned(_))).count();
    assert_eq!((won, lost), (1, 1), "{replies:?}");
}

#[tokio::test]
async fn a_live_record_refuses_a_takeover_unless_the_connection_was_refused() {
    let Some(service) = Service::settled().await else { return };
    let reply = take(&service, 2, &first_owner(), TakeoverCause::RecordEnded).await;
    assert_eq!(reply, TakeoverReply::OwnerIsLive);
    service.end_record(1);
    epoch_of(&take(&service, 2, &first_owner(), TakeoverCause::RecordEnded).await);
}

#[tokio::test]
async fn nothing_is_taken_over_during_a_grace_period() {
    let Some(service) = Service::start() else { return };
    let reply = take(&service, 2, &first_owner(), TakeoverCause::Refused).await;
    assert_eq!(reply, TakeoverReply::Grace { left: Duration::from_secs(12) });
}

#[tokio::test]
async fn a_later_takeover_has_a_higher_epoch_and_its_previous_one() {
    let Some(service) = Service::settled().await else { return };
    let first = epoch_of(&take(&service, 2, &first_owner(), TakeoverCause::Refused).await);
    let owner = SessionOwner { place: place(2), epoch: first };
    let second = epoch_of(&take(&service, 1, &owner, TakeoverCause::Refused).await);
    assert!(second > first);
    assert_eq!(service.beat(2, &[]).await.reply.taken.len(), 1, "the owner before is told");
    let third = SessionOwner { place: place(1), epoch: second };
    let reply = take(&service, 2, &third, TakeoverCause::Refused).await;
    assert!(matches!(reply, TakeoverReply::Taken { previous, .. } if previous == first), "{reply:?}");
}

#[tokio::test]
async fn records_are_written_back_to_an_emptied_store_and_the_highest_wins() {
    let Some(service) = Service::settled().await else { return };
    let epoch = epoch_of(&take(&service, 2, &first_owner(), TakeoverCause::Refused).await);
    let () = service.raw(&["FLUSHALL"]);
    service.beat(1, &[]).await;
    assert_eq!(service.beat(2, &[]).await.reply.last_takeover, OwnerEpoch::FIRST, "the loss shows");
    let owner = SessionOwner { place: place(2), epoch };
    let current = service.store(2).put_back(&[(session(7), epoch)], epoch).await.expect("the store runs");
    assert_eq!(current, [(session(7), owner.clone())]);
    assert_eq!(service.beat(2, &[]).await.reply.last_takeover, epoch);
    assert_eq!(service.beat(1, &[]).await.reply.taken, [(session(7), owner.clone())], "the origin is told");
    let lower = OwnerEpoch::from_number(epoch.number() - 5);
    let current = service.store(3).put_back(&[(session(7), lower)], lower).await.expect("the store runs");
    assert_eq!(current, [(session(7), owner)], "a lower epoch changes nothing");
    let higher = OwnerEpoch::from_number(epoch.number() + 5);
    service.store(3).put_back(&[(session(7), higher)], higher).await.expect("the store runs");
    let told = service.beat(2, &[]).await.reply.taken;
    assert_eq!(told, [(session(7), SessionOwner { place: place(3), epoch: higher })], "the loser is told");
}

#[tokio::test]
async fn a_record_of_a_newer_format_is_neither_read_nor_overwritten() {
    let Some(service) = Service::settled().await else { return };
    let () = service.raw(&["SET", "{test}:moved:replica-1/0000000000000001/7", "2:new form"]);
    let newer = StoreError::NewerFormat { found: 2, known: 1 };
    let store = service.store(2);
    assert_eq!(store.look_up(&session(7)).await, Err(newer.clone()));
    let reply = store.take_over(&session(7), &first_owner(), TakeoverCause::Refused).await;
    assert_eq!(reply, Err(newer.clone()));
    let epoch = OwnerEpoch::from_number(9);
    assert_eq!(store.put_back(&[(session(7), epoch)], epoch).await, Err(newer));
}

/// Sizing: 100,000 sessions that were taken over, with the notices to their old owner.
#[tokio::test]
async fn a_moved_session_takes_at_most_600_bytes_of_the_store() {
    let Some(service) = Service::settled().await else { return };
    let used = || -> u64 {
        let info: String = service.raw(&["INFO", "memory"]);
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("it is there");
        line.trim().parse().expect("a number")
    };
    let before = used();
    let count = 100_000;
    let epoch = OwnerEpoch::from_number(1_800_000_000_000_000);
    let records: Vec<_> = (1..=count).map(|number| (session(number), epoch)).collect();
    service.store(2).put_back(&records, epoch).await.expect("the store runs");
    let each = (used() - before) / count;
    println!("{each} bytes per moved session");
    assert!(each <= 600, "{each} bytes");
}

//! Sessions: served by their owner, taken over after its loss, and never split for long.

use crate::service_simulation::{ServiceSimulation, Wire};
use crate::{MS, SEC};
use gripfast_core::placement::heartbeat::{HeartbeatReply, StoreUnreachable};
use gripfast_core::placement::place::{BootId, OwnerEpoch, SessionId, SessionOwner, StoreTime};
use gripfast_core::placement::routing::{
    Arrival, Decision, ForwardEnd, RoutedRequest, Router, TakeoverReply, UnavailableReason,
};
use gripfast_core::placement::term::LeaseNow;
use std::time::Duration;

/// A settled service and a session of replica 0.
fn opened() -> (ServiceSimulation, SessionId) {
    let mut service = ServiceSimulation::settled();
    let session = service.open_session(0).expect("replica 0 runs");
    (service, session)
}

fn reason(decision: Option<Decision>) -> Option<UnavailableReason> {
    match decision {
        Some(Decision::Unavailable { reason, .. }) => Some(reason),
        _ => None,
    }
}

#[test]
fn a_request_at_another_replica_is_forwarded_to_the_owner() {
    let (mut service, session) = opened();
    assert_eq!(service.serve(&session, 0), Some(0));
    assert_eq!(service.serve(&session, 1), Some(0));
    assert_eq!(service.serve(&session, 2), Some(0));
    assert_eq!(service.takeovers, []);
}

/// The check that a request at its owner passes instead of a decision. The random histories compare it with the decisions.
#[test]
fn only_the_owner_serves_at_once_and_not_after_a_pause() {
    let (mut service, session) = opened();
    let serves = |service: &ServiceSimulation| {
        [0, 1, 2].map(|index| service.nodes[index].router.serves(service.now_of(index), &session))
    };
    assert_eq!(serves(&service), [true, false, false]);
    service.pause(0);
    service.advance(service.spec.lease + service.spec.heartbeat() * 2);
    assert_eq!(service.serve(&session, 1), Some(1));
    assert_eq!(serves(&service), [false, true, false], "the first owner must ask the store");
}

#[test]
fn a_refused_connection_lets_the_session_be_taken_over_at_once() {
    let (mut service, session) = opened();
    service.kill(0);
    assert_eq!(service.serve(&session, 1), Some(1), "its record is still alive");
    assert_eq!(service.serve(&session, 2), Some(1), "the next one goes to the new owner");
    assert_eq!(service.takeovers.len(), 1);
}

#[test]
fn two_takeovers_at_once_have_one_winner() {
    let (mut service, session) = opened();
    service.kill(0);
    let requests: Vec<u64> = (1..3).map(|index| service.request(&session, index).expect("it runs")).collect();
    service.advance(SEC);
    let served: Vec<usize> = requests.iter().map(|request| service.runs[request][0]).collect();
    assert_eq!(served[0], served[1]);
    assert_eq!(service.takeovers.len(), 1);
}

#[test]
fn many_requests_of_one_session_cause_one_takeover() {
    let (mut service, session) = opened();
    service.kill(0);
    let requests: Vec<u64> = (0..20).map(|_| service.request(&session, 1).expect("it runs")).collect();
    service.advance(SEC);
    assert!(requests.iter().all(|request| service.runs.get(request) == Some(&vec![1])));
    assert_eq!(service.takeovers.len(), 1);
}

/// Another request of the session looked the new owner up while this one tried to take over.
#[test]
fn a_lost_takeover_forwards_to_an_owner_that_is_known_by_now() {
    let (mut service, session) = opened();
    let [me, dead, new] = [1, 0, 2].map(|index| service.nodes[index].place.clone());
    let now = service.now_of(1);
    let router = &mut service.nodes[1].router;
    let mut request = RoutedRequest::new(session.clone(), Arrival::Direct);
    let Decision::Forward { to, .. } = router.decide(now, &request) else { panic!("{me} is not the owner") };
    assert_eq!(to, dead);
    router.forward_ended(&mut request, dead.boot, ForwardEnd::Refused);
    router.looked_up(&mut request, Ok(None));
    assert!(matches!(router.decide(now, &request), Decision::TakeOver { .. }));
    let epoch = OwnerEpoch::from_number(7);
    let owner = SessionOwner { place: new.clone(), epoch };
    let mut other = RoutedRequest::new(session, Arrival::Direct);
    router.looked_up(&mut other, Ok(Some(owner.clone())));
    router.takeover_ended(now, &mut request, Ok(TakeoverReply::Owned(owner)));
    assert_eq!(router.decide(now, &request), Decision::Forward { to: new, epoch });
}

#[test]
fn at_most_256_takeovers_are_in_flight() {
    let mut service = ServiceSimulation::settled();
    let sessions: Vec<SessionId> = (0..300).map(|_| service.open_session(0).expect("it runs")).collect();
    service.kill(0);
    let requests: Vec<u64> =
        sessions.iter().map(|session| service.request(session, 1).expect("it runs")).collect();
    service.advance(SEC);
    let refused: Vec<_> = requests.iter().filter(|request| !service.runs.contains_key(request)).collect();
    assert_eq!(refused.len(), 300 - 256);
    assert!(
        refused
            .iter()
            .all(|request| { reason(service.ends.get(request).cloned()) == Some(UnavailableReason::Busy) })
    );
}

#[test]
fn a_paused_owner_is_replaced_after_its_lease_and_forwards_when_it_is_back() {
    let (mut service, session) = opened();
    service.pause(0);
    service.advance(service.spec.lease + service.spec.heartbeat());
    assert_eq!(service.serve(&session, 1), Some(1));
    service.advance(8 * SEC);
    service.resume(0);
    assert_eq!(service.serve(&session, 0), Some(1), "its first request asks the store");
    service.advance(service.spec.heartbeat() * 2);
    assert_eq!(service.serve(&session, 0), Some(1));
    assert_eq!(service.nodes[0].streams_ended, [session], "its GET streams were ended");
}

/// A connection may be refused for other reasons than death. The owner learns of the takeover by its next heartbeat.
#[test]
fn a_live_owner_learns_of_a_takeover_by_its_next_heartbeat() {
    let (mut service, session) = opened();
    service.peer_wires.insert((0, 1), Wire::Refused);
    assert_eq!(service.serve(&session, 1), Some(1));
    service.advance(service.spec.heartbeat() + 100 * MS);
    service.peer_wires.clear();
    assert_eq!(service.nodes[0].streams_ended, std::slice::from_ref(&session));
    assert_eq!(service.serve(&session, 0), Some(1));
    assert_eq!(service.serve(&session, 2), Some(1), "a 421 names the new owner");
}

#[test]
fn a_dropped_connection_is_not_a_reason_to_take_over() {
    let (mut service, session) = opened();
    service.peer_wires.insert((0, 1), Wire::Dropped);
    let request = service.request(&session, 1).expect("it runs");
    service.advance(6 * SEC);
    assert_eq!(reason(service.ends.get(&request).cloned()), Some(UnavailableReason::OwnerChanged));
    assert_eq!(service.takeovers, []);
}

#[test]
fn the_old_name_with_a_new_boot_does_not_get_its_sessions_back() {
    let (mut service, session) = opened();
    service.kill(0);
    assert_eq!(service.serve(&session, 1), Some(1));
    service.start(0);
    service.advance(5 * SEC);
    assert_eq!(service.serve(&session, 0), Some(1));
    assert_eq!(service.serve(&session, 2), Some(1));
}

/// The new process at the old address answers 421; nothing runs there under the old boot.
#[test]
fn a_restarted_owner_is_recognised_by_its_boot() {
    let (mut service, session) = opened();
    service.kill(0);
    service.start(0);
    service.advance(10 * MS);
    assert_eq!(service.serve(&session, 2), Some(2));
}

#[test]
fn a_released_session_is_taken_over_at_once() {
    let (mut service, session) = opened();
    service.shut_down(0);
    assert_eq!(service.serve(&session, 1), Some(1));
}

#[test]
fn without_the_store_owners_go_on_and_forwards_work() {
    let (mut service, session) = opened();
    service.store_up = false;
    service.advance(120 * SEC);
    assert_eq!(service.serve(&session, 0), Some(0));
    assert_eq!(service.serve(&session, 1), Some(0));
    service.kill(0);
    assert_eq!(
        reason(service.end_of(&session, 1)),
        Some(UnavailableReason::StoreUnreachable),
        "no replica can take it over"
    );
}

#[test]
fn after_an_outage_of_the_store_nothing_is_taken_over_that_is_alive() {
    for persistent in [true, false] {
        let (mut service, session) = opened();
        service.store_up = false;
        service.advance(60 * SEC);
        if !persistent {
            service.empty_store();
        }
        service.store_up = true;
        for _ in 0..100 {
            service.advance(200 * MS);
            assert_eq!(service.serve(&session, 1), Some(0));
            assert_eq!(service.serve(&session, 2), Some(0));
        }
        assert_eq!(service.takeovers, []);
    }
}

#[test]
fn an_emptied_store_does_not_make_a_replica_look_lost_before_it_has_reported() {
    let mut service = ServiceSimulation::settled();
    // Replica 0 sends its heartbeats between those of the others.
    service.kill(0);
    service.advance(service.spec.heartbeat() / 2);
    service.start(0);
    service.advance(service.spec.grace());
    let session = service.open_session(0).expect("replica 0 runs");
    for _ in 0..3 {
        service.empty_store();
        for _ in 0..40 {
            service.advance(50 * MS);
            assert_eq!(service.serve(&session, 1), Some(0));
            assert_eq!(service.serve(&session, 2), Some(0));
        }
    }
    assert_eq!(service.takeovers, []);
}

#[test]
fn after_an_outage_the_sessions_of_a_dead_replica_wait_for_the_grace_period() {
    let (mut service, session) = opened();
    service.store_up = false;
    service.advance(30 * SEC);
    service.kill(0);
    service.store_up = true;
    service.await_heartbeats();
    assert_eq!(reason(service.end_of(&session, 1)), Some(UnavailableReason::Grace));
    service.advance(service.spec.grace());
    assert_eq!(service.serve(&session, 1), Some(1));
}

#[test]
fn the_record_of_a_takeover_is_written_back_to_an_emptied_store() {
    let (mut service, session) = opened();
    service.kill(0);
    assert_eq!(service.serve(&session, 1), Some(1));
    service.empty_store();
    service.start(0);
    service.advance(60 * SEC);
    assert_eq!(service.serve(&session, 0), Some(1), "replica 0 learns it from the store");
    assert_eq!(service.serve(&session, 2), Some(1));
}

#[test]
fn a_takeover_that_a_failover_lost_is_written_back() {
    let (mut service, session) = opened();
    service.replicate();
    service.kill(0);
    assert_eq!(service.serve(&session, 1), Some(1));
    service.fail_over(0);
    service.advance(service.spec.heartbeat() * 2);
    assert_eq!(service.serve(&session, 2), Some(1));
}

/// Replica 1 takes the session of replica 0 over, and the reply is lost: the store names a replica that does not know it
/// yet.
fn taken_without_reply() -> (ServiceSimulation, SessionId) {
    let (mut service, session) = opened();
    service.replicate();
    service.kill(0);
    service.store_delay = 100 * MS;
    let request = service.request(&session, 1).expect("it runs");
    // The lookup takes 200 ms, the takeover reaches the store 100 ms later, its reply does not come back.
    service.advance(250 * MS);
    service.nodes[1].store_wire = Wire::Dropped;
    service.advance(3 * SEC);
    assert_eq!(reason(service.ends.get(&request).cloned()), Some(UnavailableReason::StoreUnreachable));
    assert_eq!(service.takeovers.len(), 1);
    service.nodes[1].store_wire = Wire::Ok;
    service.store_delay = MS;
    service.advance(5 * SEC);
    (service, session)
}

#[test]
fn a_takeover_without_reply_is_adopted_by_the_next_request() {
    let (mut service, session) = taken_without_reply();
    assert_eq!(service.serve(&session, 2), Some(1));
    assert_eq!(service.takeovers.len(), 1);
}

#[test]
fn a_takeover_without_reply_is_written_back_too() {
    for emptied in [true, false] {
        let (mut service, session) = taken_without_reply();
        assert_eq!(service.serve(&session, 2), Some(1));
        if emptied {
            service.empty_store()
        } else {
            service.fail_over(0)
        }
        service.advance(service.spec.heartbeat() * 2);
        // A replica that has not heard of the session.
        service.start(0);
        service.advance(service.spec.grace() + service.spec.heartbeat());
        assert_eq!(service.serve(&session, 0), Some(1), "emptied: {emptied}");
    }
}

#[test]
fn a_forward_that_is_lost_after_it_was_sent_is_not_sent_again() {
    let (mut service, session) = opened();
    service.pause(0);
    let request = service.request(&session, 1).expect("it runs");
    service.advance(6 * SEC);
    assert_eq!(service.ends.get(&request), Some(&Decision::OutcomeUnknown));
    service.resume(0);
    service.advance(SEC);
    assert!(service.runs.get(&request).is_none_or(|runs| runs.len() == 1));
}

#[test]
fn a_replica_that_is_cut_off_from_the_store_serves_its_sessions_and_converges() {
    let (mut service, session) = opened();
    service.nodes[0].store_wire = Wire::Dropped;
    service.advance(service.spec.lease + service.spec.heartbeat() * 2);
    assert_eq!(service.serve(&session, 0), Some(0));
    assert_eq!(service.serve(&session, 1), Some(1), "for the others it is gone");
    service.nodes[0].store_wire = Wire::Ok;
    service.advance(service.spec.heartbeat() * 2);
    for index in 0..3 {
        assert_eq!(service.serve(&session, index), Some(1));
    }
}

/// The other replicas learn of a new one by their next heartbeat. Until then they read its record.
#[test]
fn a_session_of_a_new_replica_is_served_before_the_next_heartbeat() {
    let mut service = ServiceSimulation::settled();
    service.kill(0);
    service.advance(20 * SEC);
    service.start(0);
    // Its own heartbeat has reached the store; those of the others are due later.
    service.advance(5 * MS);
    let session = service.open_session(0).expect("it runs");
    let boot = service.nodes[0].place.boot;
    assert!(service.nodes[1].router.replica(boot).is_none(), "not known yet");
    assert_eq!(service.serve(&session, 1), Some(0));
    assert_eq!(service.takeovers, []);
    service.advance(service.spec.heartbeat() * 2);
    assert_eq!(service.serve(&session, 1), Some(0), "it stays known");
}

/// The reply of a heartbeat that was sent before the record was read does not know the new replica.
#[test]
fn an_older_reply_does_not_remove_a_replica_whose_record_was_read() {
    let (mut service, session) = opened();
    let origin = session.origin.boot;
    let now = service.now_of(1);
    let later = LeaseNow { boottime: now.boottime + MS, ..now };
    let mut router = Router::new(service.nodes[1].place.clone(), service.spec);
    let live = service.nodes[1].router.replica(origin).expect("it is known").clone();
    let reply = HeartbeatReply {
        record_since: StoreTime::from_micros(1),
        last_takeover: OwnerEpoch::FIRST,
        lost: Vec::new(),
        taken: Vec::new(),
        replicas: Vec::new(),
        grace_left: Duration::ZERO,
        store_time: StoreTime::from_micros(1),
    };
    router.replica_read(later, live);
    router.heartbeat_succeeded(later, now, &reply);
    assert!(router.replica(origin).is_some());
    let next = LeaseNow { boottime: later.boottime + MS, ..later };
    router.heartbeat_succeeded(next, next, &reply);
    assert!(router.replica(origin).is_none(), "the next reply counts");
    let _ = service.serve(&session, 0);
}

/// The first heartbeat after a pause fails, and the store is reachable for others and for lookups.
#[test]
fn a_replica_that_was_stopped_asks_the_store_also_if_its_first_heartbeat_fails() {
    let (mut service, session) = opened();
    service.pause(0);
    service.advance(service.spec.lease + service.spec.heartbeat());
    assert_eq!(service.serve(&session, 1), Some(1));
    service.resume(0);
    let now = service.now_of(0);
    service.nodes[0].router.heartbeat_failed(now);
    let request = RoutedRequest::new(session.clone(), Arrival::Direct);
    assert_eq!(service.nodes[0].router.decide(now, &request), Decision::LookUp);
    assert_eq!(service.serve(&session, 0), Some(1));
}

/// Ownership of sessions does not depend on the store: a lookup that fails is enough, and it is not repeated.
#[test]
fn a_replica_that_was_stopped_goes_on_if_the_store_is_unreachable_for_it() {
    let (mut service, session) = opened();
    service.pause(0);
    service.advance(service.spec.lease + service.spec.heartbeat());
    service.resume(0);
    let now = service.now_of(0);
    let router = &mut service.nodes[0].router;
    router.heartbeat_failed(now);
    let mut first = RoutedRequest::new(session.clone(), Arrival::Direct);
    assert_eq!(router.decide(now, &first), Decision::LookUp);
    router.looked_up(&mut first, Err(StoreUnreachable));
    let serve = Decision::Serve { epoch: OwnerEpoch::FIRST };
    assert_eq!(router.decide(now, &first), serve);
    let second = RoutedRequest::new(session, Arrival::Direct);
    assert_eq!(router.decide(now, &second), serve, "it does not wait for the store again");
}

/// Nothing compares the wall clocks of two machines. A clock that is set forward looks like a pause: the replica asks.
#[test]
fn a_wall_clock_off_by_five_minutes_changes_nothing() {
    const FIVE_MINUTES: i64 = 300_000;
    for offset in [FIVE_MINUTES, -FIVE_MINUTES] {
        let mut service = ServiceSimulation::settled();
        service.nodes[0].wall_offset = offset;
        service.advance(service.spec.heartbeat() * 2);
        let session = service.open_session(0).expect("it runs");
        for index in 0..3 {
            assert_eq!(service.serve(&session, index), Some(0), "{offset}");
        }
        assert_eq!(service.takeovers, []);
        let other = service.open_session(1).expect("it runs");
        service.kill(1);
        assert_eq!(service.serve(&other, 0), Some(0), "it takes over as ever");
        assert_eq!(service.serve(&other, 2), Some(0));
        // It is set right again, while requests arrive.
        service.nodes[0].wall_offset = 0;
        assert_eq!(service.serve(&session, 0), Some(0));
        assert_eq!(service.serve(&session, 2), Some(0));
        service.advance(20 * SEC);
        assert_eq!(service.serve(&session, 2), Some(0), "{offset}");
    }
}

/// A session that was opened before the first heartbeat has an owner that the others do not know yet.
#[test]
fn a_session_of_a_replica_without_record_converges() {
    let mut service = ServiceSimulation::settled();
    service.kill(0);
    service.advance(20 * SEC);
    service.start(0);
    service.nodes[0].store_wire = Wire::Dropped;
    let session = service.open_session(0).expect("it runs");
    assert_eq!(service.serve(&session, 1), Some(1));
    service.nodes[0].store_wire = Wire::Ok;
    service.advance(service.spec.heartbeat() * 3);
    assert_eq!(service.serve(&session, 0), Some(1));
}

/// The heartbeat that brings the news is performed by the store, and its reply is lost: the next one brings them again.
#[test]
fn a_lost_reply_to_a_heartbeat_does_not_lose_a_takeover() {
    let (mut service, session) = opened();
    service.pause(0);
    service.advance(service.spec.lease + service.spec.heartbeat());
    assert_eq!(service.serve(&session, 1), Some(1));
    service.resume(0);
    // Its first heartbeat reaches the store 500 ms after it was sent.
    service.store_delay = 500 * MS;
    service.advance(300 * MS);
    service.nodes[0].store_wire = Wire::Dropped;
    service.advance(3 * SEC);
    service.nodes[0].store_wire = Wire::Ok;
    service.store_delay = MS;
    service.advance(service.spec.heartbeat() * 2 + SEC);
    assert_eq!(service.serve(&session, 0), Some(1));
    assert_eq!(service.serve(&session, 2), Some(1));
}

/// Late news about an earlier owner must not replace what a replica knows.
#[test]
fn an_owner_with_a_lower_epoch_is_not_learned() {
    let (mut service, session) = opened();
    let place = |index: usize| service.nodes[index].place.clone();
    let owner = |index: usize, epoch: u64| SessionOwner {
        place: place(index),
        epoch: OwnerEpoch::from_number(epoch),
    };
    let (later, earlier) = (owner(1, 9), owner(2, 5));
    let router = &mut service.nodes[2].router;
    let mut request = RoutedRequest::new(session.clone(), Arrival::Direct);
    router.looked_up(&mut request, Ok(Some(later.clone())));
    let by = later.place.boot;
    router.forward_ended(&mut request, by, ForwardEnd::Misdirected { by, owner: Some(earlier.clone()) });
    assert_eq!(router.owner_of(&session), later);
    let mut request = RoutedRequest::new(session.clone(), Arrival::Direct);
    router.looked_up(&mut request, Ok(Some(earlier)));
    assert_eq!(router.owner_of(&session), later);
}

#[test]
fn a_forward_to_an_earlier_boot_is_answered_with_421_and_no_owner() {
    let (mut service, session) = opened();
    let old = service.nodes[0].place.boot;
    service.kill(0);
    service.start(0);
    let now = service.now_of(0);
    let request = RoutedRequest::new(session, Arrival::Forwarded { to: old, epoch: OwnerEpoch::FIRST });
    let decision = service.nodes[0].router.decide(now, &request);
    assert_eq!(decision, Decision::Misdirected { owner: None });
}

/// The forwarder names the epoch that it knows. An owner under another one does nothing, and says which one it has.
#[test]
fn a_forward_with_another_epoch_is_answered_with_421_and_the_owner() {
    let (mut service, session) = opened();
    let place = service.nodes[0].place.clone();
    let now = service.now_of(0);
    let router = &mut service.nodes[0].router;
    let owner = SessionOwner { place: place.clone(), epoch: OwnerEpoch::from_number(9) };
    let mut earlier = RoutedRequest::new(session.clone(), Arrival::Direct);
    router.looked_up(&mut earlier, Ok(Some(owner.clone())));
    let at_epoch =
        |epoch: OwnerEpoch| RoutedRequest::new(session.clone(), Arrival::Forwarded { to: place.boot, epoch });
    assert_eq!(router.decide(now, &at_epoch(owner.epoch)), Decision::Serve { epoch: owner.epoch });
    let stale = router.decide(now, &at_epoch(OwnerEpoch::FIRST));
    assert_eq!(stale, Decision::Misdirected { owner: Some(owner) });
    let unknown = router.decide(now, &at_epoch(OwnerEpoch::from_number(12)));
    assert_eq!(unknown, Decision::LookUp, "the forwarder knows more");
}

/// Two replicas took the session from each other, and the store lost both records and the notice. The earlier owner is
/// the first to write its record back.
#[test]
fn the_earlier_owner_is_told_when_the_later_one_writes_its_record_back() {
    let (mut service, session) = opened();
    service.peer_wires.insert((0, 2), Wire::Refused);
    assert_eq!(service.serve(&session, 2), Some(2));
    service.advance(service.spec.heartbeat() + 100 * MS);
    service.pause(2);
    assert_eq!(service.serve(&session, 0), Some(0), "replica 0 takes it back");
    service.nodes[0].store_wire = Wire::Dropped;
    service.empty_store();
    service.resume(2);
    service.advance(service.spec.heartbeat() * 2);
    service.nodes[0].store_wire = Wire::Ok;
    service.peer_wires.clear();
    service.advance(service.spec.grace() + service.spec.heartbeat() * 2);
    for index in 0..3 {
        assert_eq!(service.serve(&session, index), Some(0));
    }
}

/// The old owner asks an emptied store before the new one has written its record back.
#[test]
fn an_owner_that_asked_an_emptied_store_too_early_is_told_later() {
    let (mut service, session) = opened();
    service.pause(0);
    service.advance(service.spec.lease + service.spec.heartbeat());
    assert_eq!(service.serve(&session, 1), Some(1));
    service.nodes[1].store_wire = Wire::Dropped;
    service.empty_store();
    service.resume(0);
    service.advance(service.spec.heartbeat());
    assert_eq!(service.serve(&session, 0), Some(0), "the store knows nothing better");
    service.nodes[1].store_wire = Wire::Ok;
    service.advance(service.spec.heartbeat() * 3);
    for index in 0..3 {
        assert_eq!(service.serve(&session, index), Some(1));
    }
}

/// The notice of the takeover has ended by then, so the owner asks the store about the sessions that it opened before.
#[test]
fn an_owner_that_was_paused_for_minutes_does_not_serve_what_others_took_over() {
    let (mut service, session) = opened();
    service.pause(0);
    service.advance(service.spec.lease + service.spec.heartbeat());
    assert_eq!(service.serve(&session, 1), Some(1));
    service.advance(service.spec.lease * 15);
    service.resume(0);
    service.await_heartbeats();
    assert_eq!(service.serve(&session, 0), Some(1));
}

/// The takeover after the failover overwrites the trace by which the loss of the one before shows.
#[test]
fn a_lost_takeover_is_noticed_by_the_next_one() {
    let (mut service, lost) = opened();
    let next = service.open_session(0).expect("replica 0 runs");
    service.replicate();
    service.kill(0);
    assert_eq!(service.serve(&lost, 1), Some(1));
    service.fail_over(0);
    assert_eq!(service.serve(&next, 1), Some(1));
    service.advance(service.spec.heartbeat() * 2);
    assert_eq!(service.serve(&lost, 2), Some(1));
}

/// The owner is back, and the other replica does not know it yet.
#[test]
fn an_owner_that_is_back_is_found_in_the_store() {
    let (mut service, session) = opened();
    service.pause(0);
    service.advance(service.spec.lease + service.spec.heartbeat() + 500 * MS);
    service.resume(0);
    service.advance(50 * MS);
    assert_eq!(service.serve(&session, 1), Some(0));
    assert_eq!(service.takeovers, []);
}

/// The owner came back between the lookup and the takeover.
#[test]
fn a_takeover_from_an_owner_that_is_back_ends_with_503() {
    let (mut service, session) = opened();
    service.kill(0);
    service.advance(service.spec.lease + service.spec.heartbeat() * 2);
    let now = service.now_of(1);
    let router = &mut service.nodes[1].router;
    let mut request = RoutedRequest::new(session, Arrival::Direct);
    assert_eq!(router.decide(now, &request), Decision::LookUp);
    router.looked_up(&mut request, Ok(None));
    assert!(matches!(router.decide(now, &request), Decision::TakeOver { .. }));
    router.takeover_ended(now, &mut request, Ok(TakeoverReply::OwnerIsLive));
    assert_eq!(reason(Some(router.decide(now, &request))), Some(UnavailableReason::OwnerChanged));
}

/// The second owner died and the store lost its record. The third one takes over from the second, and the first one, which
/// asked the emptied store, is told too.
#[test]
fn a_takeover_is_announced_to_the_owner_that_the_store_knows() {
    let (mut service, session) = opened();
    service.pause(0);
    service.advance(service.spec.lease + service.spec.heartbeat());
    assert_eq!(service.serve(&session, 1), Some(1));
    assert_eq!(service.serve(&session, 2), Some(1));
    service.kill(1);
    service.empty_store();
    service.resume(0);
    service.advance(service.spec.heartbeat() * 2);
    assert_eq!(service.serve(&session, 0), Some(0), "the store knows nothing better");
    service.advance(service.spec.grace());
    assert_eq!(service.serve(&session, 2), Some(2), "replica 2 knows of replica 1, which is dead");
    service.advance(service.spec.heartbeat() * 2);
    assert_eq!(service.serve(&session, 0), Some(2));
}

/// The record of the owner was there all the time, so only the notice tells it, and its first reply comes too late.
#[test]
fn a_notice_of_a_takeover_is_repeated_until_it_was_received() {
    let (mut service, session) = opened();
    service.peer_wires.insert((0, 1), Wire::Refused);
    assert_eq!(service.serve(&session, 1), Some(1));
    service.peer_wires.clear();
    service.reply_delay = Some(3 * SEC);
    service.advance(service.spec.heartbeat() + 200 * MS);
    assert_eq!(service.nodes[0].streams_ended, []);
    service.reply_delay = None;
    service.advance(service.spec.heartbeat() * 2 + SEC);
    assert_eq!(service.nodes[0].streams_ended, std::slice::from_ref(&session));
    assert_eq!(service.serve(&session, 0), Some(1));
}

/// Dedicated instances of clients without a session.
#[test]
fn the_loss_of_a_replica_moves_only_its_own_clients() {
    let mut service = ServiceSimulation::settled();
    let clients: Vec<String> = (0..300).map(|number| format!("client {number}")).collect();
    let homes_at = |service: &ServiceSimulation, index: usize| -> Vec<Vec<BootId>> {
        clients.iter().map(|client| service.nodes[index].router.homes(client)).collect()
    };
    let before = homes_at(&service, 0);
    assert_eq!(before, homes_at(&service, 1));
    assert_eq!(before, homes_at(&service, 2));
    let lost = service.nodes[2].place.boot;
    for index in 0..3 {
        let boot = service.nodes[index].place.boot;
        let share = before.iter().filter(|homes| homes[0] == boot).count();
        assert!((60..140).contains(&share), "{share} of 300");
    }
    service.kill(2);
    service.advance(service.spec.lease + service.spec.heartbeat() * 2);
    let without: Vec<Vec<BootId>> =
        before.iter().map(|homes| homes.iter().copied().filter(|boot| *boot != lost).collect()).collect();
    assert_eq!(homes_at(&service, 0), without);
    assert_eq!(homes_at(&service, 1), without);
}

#[test]
fn a_replica_that_has_released_its_sessions_is_no_home() {
    let mut service = ServiceSimulation::settled();
    let boot = service.nodes[0].place.boot;
    let router = &mut service.nodes[0].router;
    assert!(router.admits() && router.homes("client").contains(&boot));
    router.release();
    assert!(!router.admits() && !router.homes("client").contains(&boot));
    assert_eq!(router.homes("client").len(), 2);
}

/// The new owner has forgotten the takeover, because the session left its memory, and the store has lost the record. The
/// origin still remembers it.
#[test]
fn a_forgotten_takeover_is_known_again_from_the_replica_before() {
    let mut service = ServiceSimulation::settled();
    let session = service.open_session(0).expect("it runs");
    service.pause(0);
    service.advance(service.spec.lease + service.spec.heartbeat());
    assert_eq!(service.serve(&session, 1), Some(1));
    service.resume(0);
    service.advance(service.spec.heartbeat() * 2);
    assert_eq!(service.serve(&session, 0), Some(1), "the origin knows the new owner");
    service.nodes[1].router.retain_open(|_| false);
    service.empty_store();
    service.advance(service.spec.grace() + service.spec.heartbeat() * 2);
    assert_eq!(service.serve(&session, 0), Some(1));
    service.advance(service.spec.heartbeat() * 2);
    assert_eq!(service.serve(&session, 2), Some(1), "the record is in the store again");
}

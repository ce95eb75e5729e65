//! Exclusive leases: one holder, whatever happens to replicas, store and clocks.

use crate::service_simulation::{NODES, SINGLETON, ServiceSimulation, Wire};
use crate::{MS, SEC};
use std::time::Duration;

fn holder(service: &ServiceSimulation) -> usize {
    let working = service.working();
    assert_eq!(working.len(), 1, "{working:?}");
    working[0]
}

/// Waits for another holder. Returns it and the time it took.
fn await_other(service: &mut ServiceSimulation, than: usize) -> (usize, Duration) {
    let start = service.time;
    while service.working().iter().all(|index| *index == than) {
        assert!(service.time - start < 60 * SEC, "no other holder");
        service.advance(50 * MS);
    }
    let taken = service.working();
    (*taken.iter().find(|index| **index != than).expect("another"), service.time - start)
}

#[test]
fn one_of_three_replicas_holds_the_lease_after_the_first_grace_period() {
    let mut service = ServiceSimulation::new();
    service.advance(service.spec.grace() - SEC);
    assert!(service.working().is_empty(), "nothing is known about earlier holders");
    service.advance(service.spec.heartbeat() + SEC);
    holder(&service);
}

#[test]
fn after_a_kill_another_replica_holds_the_lease_within_lease_and_heartbeat() {
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    service.kill(first);
    let (_, took) = await_other(&mut service, first);
    assert!(took > service.spec.lease - service.spec.heartbeat() - SEC, "only after it ended: {took:?}");
    assert!(took <= service.spec.lease + service.spec.heartbeat(), "{took:?}");
}

#[test]
fn a_released_lease_is_claimed_within_one_heartbeat() {
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    service.shut_down(first);
    let (_, took) = await_other(&mut service, first);
    assert!(took <= service.spec.heartbeat() + 100 * MS, "{took:?}");
}

/// The gateway is stopped by SIGSTOP and its child is not: the watcher process ends the child in time.
#[test]
fn a_paused_holder_never_works_beside_its_successor() {
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    let epoch = service.nodes[first].work;
    service.pause(first);
    let (second, _) = await_other(&mut service, first);
    assert!(service.nodes[second].work > epoch, "the later epoch is higher");
    service.advance(8 * SEC);
    service.resume(first);
    service.advance(30 * SEC);
    assert_eq!(service.working(), [second], "the first one does not come back by itself");
}

#[test]
fn a_holder_without_the_store_stops_one_second_before_its_lease_ends() {
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    for node in &mut service.nodes {
        node.store_wire = Wire::Dropped;
    }
    service.advance(service.spec.lease - service.spec.heartbeat() - SEC - 200 * MS);
    assert_eq!(service.working(), [first]);
    service.advance(service.spec.heartbeat() + 800 * MS);
    assert!(service.working().is_empty(), "it stopped by its own clock");
    let now = service.now_of(first);
    assert_eq!(service.nodes[first].lease.may_act(now), None);
}

#[test]
fn a_short_outage_of_the_store_does_not_stop_the_holder() {
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    let epoch = service.nodes[first].work;
    service.store_up = false;
    service.advance(2 * SEC);
    service.store_up = true;
    service.advance(30 * SEC);
    assert_eq!((service.working(), service.nodes[first].work), (vec![first], epoch));
}

/// A store without persistence that restarts: the holder writes its lease back, and the others wait.
#[test]
fn an_emptied_store_does_not_change_the_holder() {
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    let epoch = service.nodes[first].work;
    service.store_up = false;
    service.advance(2 * SEC);
    service.empty_store();
    service.store_up = true;
    service.advance(60 * SEC);
    assert_eq!((service.working(), service.nodes[first].work), (vec![first], epoch));
    assert_eq!(service.store.current_epoch(SINGLETON), epoch);
}

#[test]
fn an_emptied_store_gives_nothing_away_while_the_paused_holder_may_work() {
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    let epoch = service.nodes[first].work;
    service.pause(first);
    service.empty_store();
    let (second, took) = await_other(&mut service, first);
    assert!(took >= service.spec.grace(), "{took:?}");
    assert!(service.nodes[second].work > epoch);
}

/// A failover lost the claim, and another replica claims: the first holder learns of it with its next heartbeat.
#[test]
fn after_a_failover_that_lost_a_claim_two_holders_last_one_heartbeat_at_most() {
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    service.shut_down(first);
    service.advance(10 * MS);
    service.replicate();
    let (second, _) = await_other(&mut service, first);
    service.fail_over(0);
    let third = (0..NODES).find(|index| *index != first && *index != second).expect("three");
    let mut both = Duration::ZERO;
    for _ in 0..300 {
        service.advance(20 * MS);
        if service.working().len() == 2 {
            both += 20 * MS;
        }
    }
    assert!(both <= service.spec.heartbeat() + 600 * MS, "{both:?}");
    let last = holder(&service);
    assert!(last == second || last == third);
    assert_eq!(service.store.current_epoch(SINGLETON), service.nodes[last].work);
}

#[test]
fn a_failover_to_a_slow_clock_does_not_move_epochs_back() {
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    let epoch = service.nodes[first].work;
    service.replicate();
    service.kill(first);
    service.fail_over(-3_600_000_000);
    let (second, _) = {
        // The store's clock is an hour late, so the record of the old holder lasts that much longer.
        service.advance(3_600 * SEC);
        await_other(&mut service, first)
    };
    assert!(service.nodes[second].work > epoch);
}

#[test]
fn a_wall_clock_that_jumps_ahead_ends_the_term_early() {
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    service.nodes[first].wall_offset += 60_000;
    let now = service.now_of(first);
    assert_eq!(service.nodes[first].lease.may_act(now), None);
    service.advance(60 * SEC);
    holder(&service);
}

#[test]
fn a_slow_store_keeps_the_holder() {
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    service.store_delay = 200 * MS;
    service.advance(120 * SEC);
    assert_eq!(service.working(), [first]);
}

#[test]
fn a_store_outage_of_a_minute_ends_with_one_holder_and_no_overlap() {
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    let epoch = service.nodes[first].work;
    service.store_up = false;
    service.advance(60 * SEC);
    assert!(service.working().is_empty());
    service.store_up = true;
    service.advance(service.spec.grace() + service.spec.heartbeat() * 2);
    let last = holder(&service);
    assert!(service.nodes[last].work > epoch);
}

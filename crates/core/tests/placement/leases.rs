//! Exclusive leases: one holder, whatever happens to replicas, store and clocks.

use crate::service_simulation::{ClaimFailover, NODES, SINGLETON, ServiceSimulation, Wire};
use crate::{MS, SEC};
use gripfast_core::placement::exclusive::{ClaimReply, ExclusiveLease, LeaseAction, LeaseInput, StopCause};
use gripfast_core::placement::place::OwnerEpoch;
use gripfast_core::placement::term::{LeaseNow, LeaseSpec};
use gripfast_core::time::Wall;
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

/// A heartbeat of the old holder reaches the store after its release. It must not bring the lease back.
#[test]
fn a_late_heartbeat_does_not_revive_a_released_lease() {
    for phase in 0..20 {
        let mut service = ServiceSimulation::settled();
        let first = holder(&service);
        service.store_delay = 900 * MS;
        service.advance(2 * SEC + 100 * MS * phase);
        service.store_delay = MS;
        service.shut_down(first);
        let (_, took) = await_other(&mut service, first);
        assert!(took <= service.spec.heartbeat() + 2 * SEC, "{took:?} in phase {phase}");
    }
}

fn at(millis: u64) -> LeaseNow {
    let time = Duration::from_millis(millis);
    LeaseNow { boottime: time, wall: Wall::from_unix_epoch(Duration::from_secs(1_800_000_000) + time) }
}

/// A lease of 10 s that was claimed at 1 s and confirmed at 2.9 s.
fn slowly_claimed() -> (ExclusiveLease, OwnerEpoch) {
    let mut lease = ExclusiveLease::new(LeaseSpec::default(), at(0));
    lease.handle(at(1_000), LeaseInput::Wanted);
    assert!(matches!(lease.poll_action(), Some(LeaseAction::Claim { .. })));
    let epoch = OwnerEpoch::from_number(7);
    lease.handle(at(2_900), LeaseInput::ClaimEnded(Ok(ClaimReply::Claimed { epoch })));
    assert_eq!(lease.poll_action(), Some(LeaseAction::Start { epoch }));
    (lease, epoch)
}

#[test]
fn the_term_counts_from_before_the_claim_was_sent() {
    let (mut lease, epoch) = slowly_claimed();
    assert_eq!(lease.poll_timeout(at(2_900)), Some(7_100 * MS));
    assert_eq!(lease.may_act(at(9_999)), Some(epoch));
    assert_eq!(lease.may_act(at(10_000)), None);
    lease.handle_timeout(at(10_000));
    assert_eq!(lease.poll_action(), Some(LeaseAction::Stop { epoch, cause: StopCause::Ending }));
}

#[test]
fn a_renewal_counts_from_before_the_heartbeat_was_sent() {
    let (mut lease, epoch) = slowly_claimed();
    lease.handle(at(5_900), LeaseInput::Renewed { sent: at(4_000), epoch });
    assert_eq!(lease.may_act(at(12_999)), Some(epoch));
    assert_eq!(lease.may_act(at(13_000)), None);
    lease.handle(at(13_000), LeaseInput::Renewed { sent: at(12_000), epoch });
    assert_eq!(lease.may_act(at(13_000)), None, "a term that has ended stays ended");
}

#[test]
fn a_claim_that_is_confirmed_too_late_is_released() {
    let mut lease = ExclusiveLease::new(LeaseSpec::default(), at(0));
    lease.handle(at(1_000), LeaseInput::Wanted);
    assert!(matches!(lease.poll_action(), Some(LeaseAction::Claim { .. })));
    let epoch = OwnerEpoch::from_number(7);
    lease.handle(at(10_000), LeaseInput::ClaimEnded(Ok(ClaimReply::Claimed { epoch })));
    assert_eq!(lease.poll_action(), Some(LeaseAction::Release { epoch }));
}

#[test]
fn a_lost_lease_stops_the_holder_and_an_older_report_does_not() {
    let (mut lease, epoch) = slowly_claimed();
    lease.handle(at(4_000), LeaseInput::Lost { epoch: OwnerEpoch::from_number(6) });
    assert_eq!(lease.poll_action(), None);
    lease.handle(at(4_000), LeaseInput::Lost { epoch });
    assert_eq!(lease.poll_action(), Some(LeaseAction::Stop { epoch, cause: StopCause::Lost }));
    assert_eq!(lease.may_act(at(4_000)), None);
    lease.handle(at(4_500), LeaseInput::Stopped);
    assert_eq!(lease.poll_action(), Some(LeaseAction::Release { epoch }));
    lease.handle(at(4_600), LeaseInput::ReleaseEnded);
    assert_eq!(lease.poll_timeout(at(4_600)), Some(2 * SEC), "it claims again after one heartbeat");
    lease.handle_timeout(at(6_600));
    assert_eq!(lease.poll_action(), Some(LeaseAction::Claim { above: epoch }), "a later epoch is higher");
}

/// The holder is lost, and the store fails over right after the claim of the next one. Its replica lags by a moment.
fn failover_at_claim(moment: ClaimFailover) -> ServiceSimulation {
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    service.kill(first);
    service.advance(service.spec.lease - service.spec.heartbeat() - SEC);
    service.replicate();
    service.claim_failover = Some(moment);
    service.advance(60 * SEC);
    assert_eq!(service.claim_failover, None, "it happened");
    holder(&service);
    service
}

/// The simulation checks the length of an overlap: one heartbeat, its round trip and the end of the work.
#[test]
fn a_lost_confirmed_claim_leaves_two_holders_for_one_heartbeat_at_most() {
    let service = failover_at_claim(ClaimFailover::AfterConfirmation);
    assert!(service.longest_overlap > Duration::ZERO, "two replicas acted for a moment");
}

#[test]
fn a_claim_is_not_used_before_a_replica_of_the_store_has_confirmed_it() {
    let service = failover_at_claim(ClaimFailover::BeforeConfirmation);
    assert_eq!(service.longest_overlap, Duration::ZERO);
    let mut service = ServiceSimulation::settled();
    let first = holder(&service);
    service.is_confirming = false;
    service.kill(first);
    service.advance(60 * SEC);
    assert!(service.working().is_empty(), "each claim is given back");
    service.is_confirming = true;
    service.advance(service.spec.heartbeat() * 2);
    holder(&service);
}

/// A process that the kernel does not kill, such as one that waits for a device.
#[test]
fn a_lease_whose_work_cannot_be_ended_ends_by_time_and_is_not_claimed_meanwhile() {
    let (mut lease, epoch) = slowly_claimed();
    lease.handle(at(4_000), LeaseInput::Unwanted);
    assert_eq!(lease.poll_action(), Some(LeaseAction::Stop { epoch, cause: StopCause::LetGo }));
    assert_eq!(lease.renewal(), Some(epoch), "no other replica starts while the work is being ended");
    lease.handle(at(9_000), LeaseInput::StopOverdue);
    assert!(lease.is_stop_overdue());
    lease.handle(at(9_000), LeaseInput::Wanted);
    lease.handle_timeout(at(60_000));
    assert_eq!(lease.poll_action(), None, "neither released nor claimed");
    assert_eq!((lease.renewal(), lease.may_act(at(60_000))), (None, None));
    lease.handle(at(60_000), LeaseInput::Stopped);
    assert_eq!(lease.poll_action(), Some(LeaseAction::Release { epoch }), "it has ended after all");
    lease.handle(at(60_100), LeaseInput::ReleaseEnded);
    lease.handle_timeout(at(62_100));
    assert_eq!(lease.poll_action(), Some(LeaseAction::Claim { above: epoch }));
}

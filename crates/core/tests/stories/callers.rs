//! What a caller gets: time limits, waiting, the queue, at most once, cancelling.

use crate::common::*;
use crate::{BOTH, open_circuit, parked};
use gripfast_core::failure::Failure;
use gripfast_core::supervise::circuit::CircuitView;
use gripfast_core::supervise::spec::SupervisionSpec;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{
    Action, Admission, Ask, CallEnd, Input, LinkKind, Manner, ProbeAnswer, Reason, Refusal, WaitFor,
};

#[test]
fn c05_after_a_broken_connection_nobody_follows_it_before_the_server_has_answered() {
    let mut world = World::ready(LinkKind::Remote);
    world.fail_call(killed());
    assert_eq!((world.probes(), world.dials()), (1, 1), "the link is doubted, not given up");
    let replay = world.wait();
    world.probe_ended(ProbeAnswer::Alive);
    assert!(matches!(world.readmit(replay), Admission::Go(_)));

    world.fail_call(killed());
    let replay = world.wait();
    world.probe_ended(ProbeAnswer::Failed(refused()));
    assert_eq!(world.dials(), 2, "now it is");
    world.come_up();
    assert!(matches!(world.readmit(replay), Admission::Go(_)));
}

#[test]
fn c03_a_call_that_timed_out_has_the_link_probed_at_once_and_replaced_if_it_is_silent() {
    let mut world = World::ready(LinkKind::Process);
    let other = world.go();
    world.fail_call(timed_out());
    assert_eq!(world.probes(), 1, "although another call is in flight");
    let dials = world.dials();
    world.pass(30 * SEC);
    assert!(world.actions.contains(&Action::HangUp(Manner::AtOnce)));
    assert_eq!(world.dials(), dials + 1);
    world.end(other, CallEnd::Failed(killed()));
}

#[test]
fn c03_nobody_is_sent_into_the_silence_of_another_call() {
    for kind in BOTH {
        let mut world = World::ready(kind);
        let others: Vec<_> = (0..5).map(|_| world.go()).collect();
        world.fail_call(timed_out());
        let place = world.wait();
        for ticket in others {
            world.end(ticket, CallEnd::Failed(timed_out()));
        }
        assert_eq!(world.status().circuit, CircuitView::Closed, "what is known already does not count");
        world.pass(10 * SEC);
        assert_eq!(world.dials(), 2, "callers are held for 15 s: the probe has less than its usual 30");
        world.come_up();
        assert!(matches!(world.readmit(place), Admission::Go(_)), "the next link serves it");
    }
}

#[test]
fn c03_a_probe_that_is_answered_keeps_the_link() {
    let mut world = World::ready(LinkKind::Process);
    world.fail_call(timed_out());
    world.probe_ended(ProbeAnswer::Alive);
    let dials = world.dials();
    world.pass(MIN);
    assert_eq!(world.dials(), dials);
}

#[test]
fn c04_calls_are_held_while_a_link_is_on_its_way() {
    let mut world = World::ready(LinkKind::Remote);
    world.link_down(killed());
    let place = world.wait();
    world.link_down(refused());
    assert_eq!(world.wait().wait_for, WaitFor::Link, "held while waiting for the next attempt too");
    world.pass(SEC);
    world.come_up();
    assert!(matches!(world.readmit(place), Admission::Go(_)));
    assert_eq!(world.status().consecutive_failures, 0, "held calls do not count");
}

#[test]
fn c04_a_call_that_wakes_a_parked_server_is_held_once_and_later_ones_answer_at_once() {
    let mut world = parked();
    let place = world.wait();
    for _ in 0..10 {
        assert!(matches!(world.refused().reason, Reason::Parked { .. }), "the probe has not ended");
    }
    assert_eq!(world.machine.can_be_answered(), 0, "the one that is held has nothing to learn yet");
    let Admission::Wait(place) = world.readmit(place) else { panic!("it is held until the probe has ended") };
    world.pass(6 * SEC);
    world.link_down(refused());
    assert_eq!(world.machine.can_be_answered(), 1);
    assert!(matches!(world.readmit(place), Admission::Refuse(Refusal { reason: Reason::Parked { .. }, .. })));
    assert_eq!(world.state(), State::Parked);
    let place = world.wait();
    world.come_up();
    assert!(matches!(world.readmit(place), Admission::Go(_)), "the server is back");
}

/// B03: as for parked servers, once in five seconds.
#[test]
fn c04_a_held_call_pulls_the_next_attempt_forward_once_in_five_seconds() {
    let mut world = World::ready(LinkKind::Remote);
    world.link_down(killed());
    while world.status().next_attempt.is_none_or(|pause| pause < 10 * SEC) {
        world.link_down(refused());
        world.pass(world.status().next_attempt.unwrap_or_default().min(9 * SEC));
    }
    let dials = world.dials();
    let _held: Vec<_> = (0..20).map(|_| world.wait()).collect();
    assert_eq!(world.dials(), dials + 1, "twenty callers cost one attempt");
    world.link_down(refused());
    let _held = world.wait();
    assert_eq!(world.dials(), dials + 1);
    world.pass(5 * SEC);
    let _held = world.wait();
    assert_eq!(world.dials(), dials + 2);
}

/// B03: a caller that is held for 15 s is not failed by a backoff of half a minute.
#[test]
fn c04_a_server_is_tried_every_five_seconds_while_a_call_is_held() {
    let mut world = World::ready(LinkKind::Remote);
    world.link_down(killed());
    while world.status().next_attempt.is_none_or(|pause| pause < 10 * SEC) {
        world.link_down(refused());
        world.pass(world.status().next_attempt.unwrap_or_default().min(9 * SEC));
    }
    let dials = world.dials();
    let place = world.wait();
    for attempt in 1..=3 {
        assert_eq!(world.dials(), dials + attempt);
        world.link_down(refused());
        world.pass(4 * SEC);
        let _held = world.wait();
        assert_eq!(world.dials(), dials + attempt, "not more than once in five seconds");
        world.pass(SEC);
    }
    world.come_up();
    assert!(matches!(world.readmit(place), Admission::Go(_)));
}

#[test]
fn c04_blocked_stopped_and_open_answer_at_once() {
    let mut world = World::ready(LinkKind::Remote);
    world.ask(Ask::Stop);
    assert_eq!(world.refused().reason, Reason::Stopped);
    let mut world = open_circuit();
    assert!(matches!(world.refused().reason, Reason::CircuitOpen { .. }));
}

#[test]
fn c04_those_who_wait_are_woken_when_waiting_became_pointless() {
    let mut world = World::ready(LinkKind::Remote);
    world.link_down(killed());
    let place = world.wait();
    assert_eq!(world.machine.can_be_answered(), 0);
    world.ask(Ask::Stop);
    assert_eq!(world.machine.can_be_answered(), 1);
    assert!(matches!(world.readmit(place), Admission::Refuse(refusal) if refusal.reason == Reason::Stopped));
}

#[test]
fn c04_a_link_that_comes_up_has_room_for_as_many_as_may_go_at_once() {
    let spec = SupervisionSpec { max_in_flight: 2, ..SupervisionSpec::default() };
    let mut world = World::ready_with(LinkKind::Remote, spec);
    world.link_down(killed());
    let mut places: Vec<_> = (0..3).map(|_| world.wait()).collect();
    assert_eq!(world.machine.can_be_answered(), 0);
    world.come_up();
    assert_eq!(world.machine.can_be_answered(), 2);
    assert!(matches!(world.readmit(places.remove(0)), Admission::Go(_)));
    assert_eq!(world.machine.can_be_answered(), 1);
}

/// B18, D05
#[test]
fn b18_calls_that_hang_on_a_link_that_is_gone_take_nothing_from_the_next_one() {
    let spec = SupervisionSpec { max_in_flight: 2, ..SupervisionSpec::default() };
    let mut world = World::ready_with(LinkKind::Remote, spec);
    let hanging = [world.go(), world.go()];
    let queued = world.wait();
    world.ask(Ask::Reconnect);
    world.come_up();
    assert_eq!(world.machine.can_be_answered(), 1);
    let Admission::Go(served) = world.readmit(queued) else { panic!("it waits for a slot of the old link") };
    world.end(served, CallEnd::Answered);
    let probes = world.probes();
    world.pass(MIN * 3);
    assert_eq!(world.probes(), probes + 1, "an idle link is asked");
    world.probe_ended(ProbeAnswer::Alive);
    for ticket in hanging {
        world.end(ticket, CallEnd::Failed(timed_out()));
    }
    let (_one, _other) = (world.go(), world.go());
    assert_eq!(world.wait().wait_for, WaitFor::Slot);
}

#[test]
fn c06_calls_run_side_by_side_up_to_the_limit_then_queue_then_are_refused() {
    let spec = SupervisionSpec { max_in_flight: 2, max_waiting: 1, ..SupervisionSpec::default() };
    let mut world = World::ready_with(LinkKind::Process, spec);
    let first = world.go();
    let second = world.go();
    let queued = world.wait();
    assert_eq!(queued.wait_for, WaitFor::Slot);
    assert_eq!(world.refused().reason, Reason::Overloaded);
    world.end(first, CallEnd::Answered);
    assert_eq!(world.machine.can_be_answered(), 1);
    let overtaking = world.refused();
    assert_eq!(overtaking.reason, Reason::Overloaded, "nobody overtakes the queue");
    assert!(matches!(world.readmit(queued), Admission::Go(_)));
    world.end(second, CallEnd::Answered);
}

/// C04
#[test]
fn c06_who_waits_for_a_slot_of_a_link_that_goes_is_told_to_wait_for_the_next_link() {
    let spec = SupervisionSpec { max_in_flight: 1, ..SupervisionSpec::default() };
    let mut world = World::ready_with(LinkKind::Remote, spec);
    let _first = world.go();
    let queue = [world.wait(), world.wait()];
    assert_eq!(world.machine.take_stranded(), 0);
    world.link_down(killed());
    assert_eq!((world.machine.take_stranded(), world.machine.take_stranded()), (2, 0), "said once");
    for place in queue {
        let Admission::Wait(place) = world.readmit(place) else { panic!("there is no link") };
        assert_eq!(place.wait_for, WaitFor::Link);
    }
    assert_eq!(world.status().waiting, 2);
    world.link_down(refused());
    assert_eq!(world.machine.take_stranded(), 0, "there is nothing else to tell them");
}

/// C04
#[test]
fn c06_who_waits_while_a_link_is_in_doubt_queues_again_when_it_proves_good() {
    let spec = SupervisionSpec { max_in_flight: 2, ..SupervisionSpec::default() };
    let mut world = World::ready_with(LinkKind::Remote, spec);
    let (_long, broken) = (world.go(), world.go());
    let queue = [world.wait(), world.wait()];
    world.end(broken, CallEnd::Failed(killed()));
    assert_eq!(world.machine.take_stranded(), 2);
    let held = queue.map(|place| match world.readmit(place) {
        Admission::Wait(place) if place.wait_for == WaitFor::Link => place,
        other => panic!("nobody uses a link in doubt: {other:?}"),
    });
    world.probe_ended(ProbeAnswer::Alive);
    assert_eq!((world.machine.take_stranded(), world.machine.take_stranded()), (2, 0), "said once");
    let [first, second] = held;
    assert!(matches!(world.readmit(first), Admission::Go(_)));
    let Admission::Wait(second) = world.readmit(second) else { panic!("both slots are taken") };
    assert_eq!(second.wait_for, WaitFor::Slot, "a busy server is not one that is being reconnected");
}

#[test]
fn c08_a_cancelled_call_never_triggers_a_reconnect() {
    let mut world = World::ready(LinkKind::Remote);
    let dials = world.dials();
    for _ in 0..100 {
        let ticket = world.go();
        world.pass(10 * MS);
        world.end(ticket, CallEnd::Abandoned);
        world.probe_ended(ProbeAnswer::Alive);
    }
    assert_eq!((world.dials(), world.state()), (dials, State::Ready));
    assert!(!world.actions.iter().any(|action| matches!(action, Action::HangUp(_))));
}

/// D05: overlapping callers that give up one after another hid a hung child for ever.
#[test]
fn d05_a_hung_server_is_found_though_callers_overlap_and_give_up() {
    let mut world = World::ready(LinkKind::Process);
    let mut waiting = world.go();
    world.pass(10 * SEC);
    let mut rounds = 0;
    while world.state() == State::Ready || world.state() == State::Degraded {
        // Somebody is always in flight, until nobody is admitted any more.
        let next = match world.admit() {
            Admission::Go(ticket) => Some(ticket),
            Admission::Wait(place) => {
                world.machine.leave(world.now(), place);
                None
            }
            Admission::Refuse(_) => None,
        };
        match next {
            Some(next) => world.end(std::mem::replace(&mut waiting, next), CallEnd::Abandoned),
            None => {
                world.end(waiting, CallEnd::Abandoned);
                world.pass(MIN);
                break;
            }
        }
        world.pass(5 * SEC);
        rounds += 1;
        assert!(rounds < 20, "it is never found");
    }
    assert_eq!(world.state(), State::Reconnecting);
}

/// D05: a server that does one thing at a time answers no probe while it works.
#[test]
fn d05_an_unanswered_probe_costs_the_link_only_when_the_calls_before_it_have_ended() {
    let mut spec = SupervisionSpec::default();
    spec.keepalive.interval = Some(5 * SEC);
    spec.keepalive.timeout = 5 * SEC;
    let mut world = World::ready_with(LinkKind::Process, spec.clone());
    let working = world.go();
    world.pass(250 * SEC);
    assert_eq!(world.state(), State::Degraded);
    assert!(
        world.status().cause.is_some_and(|cause| cause.contains("1 earlier calls")),
        "{:?}",
        world.status()
    );
    let _held = world.wait();
    let probes = world.probes();
    world.end(working, CallEnd::Answered);
    assert_eq!(
        (world.state(), world.probes()),
        (State::Ready, probes + 1),
        "it has answered: it is asked once more"
    );
    world.pass(5 * SEC);
    assert_eq!(world.state(), State::Reconnecting, "and it does not answer that, with nothing to do");

    let mut world = World::ready_with(LinkKind::Process, spec.clone());
    let working = world.go();
    world.pass(250 * SEC);
    world.end(working, CallEnd::Failed(timed_out()));
    assert_eq!(world.state(), State::Reconnecting, "its call has ended, and nothing was ever answered");

    let mut world = World::ready_with(LinkKind::Process, spec);
    let working = world.go();
    world.pass(20 * SEC);
    world.probe_ended(ProbeAnswer::Alive);
    assert_eq!((world.state(), world.status().cause), (State::Ready, None), "an answer ends the doubt");
    world.end(working, CallEnd::Answered);
    assert_eq!(world.state(), State::Ready);
}

#[test]
fn c05_fifty_calls_with_outdated_headers_are_answers_and_have_the_catalog_listed_anew() {
    let mut world = World::ready(LinkKind::Remote);
    let outdated = || CallEnd::Failed(Failure::Outdated("Mcp-Param-Region is missing".to_owned()));
    let listings = |world: &World| {
        world.actions.iter().filter(|action| matches!(action, Action::ListCatalog { .. })).count()
    };
    let (before, epoch) = (listings(&world), world.epoch());
    assert!(!world.machine.is_listing(epoch));
    let tickets: Vec<_> = (0..50).map(|_| world.go()).collect();
    for ticket in tickets {
        world.end(ticket, outdated());
    }
    assert_eq!(listings(&world), before + 1);
    assert!(world.machine.is_listing(epoch));
    // Some were refused while it was being listed: that listing may be older than their refusal.
    world.tell(Input::CatalogListed { epoch });
    assert_eq!(listings(&world), before + 2);
    world.tell(Input::CatalogListed { epoch });
    assert!(!world.machine.is_listing(epoch));
    assert_eq!((world.state(), world.status().consecutive_failures), (State::Ready, 0));
    let straggler = world.go();
    world.link_down(killed());
    world.come_up();
    let before = listings(&world);
    world.end(straggler, outdated());
    assert_eq!(listings(&world), before, "a straggler of an older link changes nothing");
}

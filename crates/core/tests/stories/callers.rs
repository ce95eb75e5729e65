//! Calls: time limits, waiting, the queue, at most once, cancellation.

use crate::common::*;
use crate::{BOTH, open_circuit, parked};
use gripfast_core::failure::Failure;
use gripfast_core::supervise::circuit::CircuitView;
use gripfast_core::supervise::spec::SupervisionSpec;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{
    Action, Admission, CallEnd, CloseMode, Command, Input, LinkKind, ProbeAnswer, Refusal, RefusalReason,
    WaitFor,
};

#[test]
fn c05_after_a_broken_connection_calls_wait_for_a_probe() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.fail_call(killed());
    assert_eq!((sim.probes(), sim.connects()), (1, 1), "the link is doubted, not given up");
    let replay = sim.wait();
    sim.probe_ended(ProbeAnswer::Alive);
    assert!(matches!(sim.readmit(replay), Admission::Go(_)));

    sim.fail_call(killed());
    let replay = sim.wait();
    sim.probe_ended(ProbeAnswer::Failed(refused()));
    assert_eq!(sim.connects(), 2, "now it is");
    sim.come_up();
    assert!(matches!(sim.readmit(replay), Admission::Go(_)));
}

#[test]
fn c03_a_timeout_probes_the_link_and_replaces_a_silent_one() {
    let mut sim = Simulation::ready(LinkKind::Process);
    let other = sim.go();
    sim.fail_call(timed_out());
    assert_eq!(sim.probes(), 1, "although another call is in flight");
    let connects = sim.connects();
    sim.advance(30 * SEC);
    assert!(sim.actions.contains(&Action::Close(CloseMode::Immediate)));
    assert_eq!(sim.connects(), connects + 1);
    sim.end(other, CallEnd::Failed(killed()));
}

#[test]
fn c03_no_call_is_sent_while_a_timed_out_link_is_probed() {
    for kind in BOTH {
        let mut sim = Simulation::ready(kind);
        let others: Vec<_> = (0..5).map(|_| sim.go()).collect();
        sim.fail_call(timed_out());
        let place = sim.wait();
        for ticket in others {
            sim.end(ticket, CallEnd::Failed(timed_out()));
        }
        assert_eq!(sim.status().circuit, CircuitView::Closed, "what is known already does not count");
        sim.advance(10 * SEC);
        assert_eq!(sim.connects(), 2, "callers are held for 15 s: the probe has less than its usual 30");
        sim.come_up();
        assert!(matches!(sim.readmit(place), Admission::Go(_)), "the next link serves it");
    }
}

#[test]
fn c03_an_answered_probe_keeps_the_link() {
    let mut sim = Simulation::ready(LinkKind::Process);
    sim.fail_call(timed_out());
    sim.probe_ended(ProbeAnswer::Alive);
    let connects = sim.connects();
    sim.advance(MIN);
    assert_eq!(sim.connects(), connects);
}

#[test]
fn c04_calls_wait_while_a_link_is_being_made() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.link_down(killed());
    let place = sim.wait();
    sim.link_down(refused());
    assert_eq!(sim.wait().wait_for, WaitFor::Link, "held while waiting for the next attempt too");
    sim.advance(SEC);
    sim.come_up();
    assert!(matches!(sim.readmit(place), Admission::Go(_)));
    assert_eq!(sim.status().consecutive_failures, 0, "held calls do not count");
}

#[test]
fn c04_a_call_that_wakes_a_parked_server_waits_and_later_ones_do_not() {
    let mut sim = parked();
    let place = sim.wait();
    for _ in 0..10 {
        assert!(matches!(sim.refused().reason, RefusalReason::Parked { .. }), "the probe has not ended");
    }
    assert_eq!(sim.machine.can_be_answered(), 0, "the one that is held has nothing to learn yet");
    let Admission::Wait(place) = sim.readmit(place) else { panic!("it is held until the probe has ended") };
    sim.advance(6 * SEC);
    sim.link_down(refused());
    assert_eq!(sim.machine.can_be_answered(), 1);
    assert!(matches!(
        sim.readmit(place),
        Admission::Refuse(Refusal { reason: RefusalReason::Parked { .. }, .. })
    ));
    assert_eq!(sim.state(), State::Parked);
    let place = sim.wait();
    sim.come_up();
    assert!(matches!(sim.readmit(place), Admission::Go(_)), "the server is back");
}

/// B03: as for parked servers, once in five seconds.
#[test]
fn c04_a_waiting_call_starts_an_attempt_once_in_five_seconds() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.link_down(killed());
    while sim.status().next_attempt.is_none_or(|pause| pause < 10 * SEC) {
        sim.link_down(refused());
        sim.advance(sim.status().next_attempt.unwrap_or_default().min(9 * SEC));
    }
    let connects = sim.connects();
    let _held: Vec<_> = (0..20).map(|_| sim.wait()).collect();
    assert_eq!(sim.connects(), connects + 1, "twenty callers cost one attempt");
    sim.link_down(refused());
    let _held = sim.wait();
    assert_eq!(sim.connects(), connects + 1);
    sim.advance(5 * SEC);
    let _held = sim.wait();
    assert_eq!(sim.connects(), connects + 2);
}

/// B03: a call that waits for 15 s does not fail because of a backoff of half a minute.
#[test]
fn c04_attempts_run_every_five_seconds_while_a_call_waits() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.link_down(killed());
    while sim.status().next_attempt.is_none_or(|pause| pause < 10 * SEC) {
        sim.link_down(refused());
        sim.advance(sim.status().next_attempt.unwrap_or_default().min(9 * SEC));
    }
    let connects = sim.connects();
    let place = sim.wait();
    for attempt in 1..=3 {
        assert_eq!(sim.connects(), connects + attempt);
        sim.link_down(refused());
        sim.advance(4 * SEC);
        let _held = sim.wait();
        assert_eq!(sim.connects(), connects + attempt, "not more than once in five seconds");
        sim.advance(SEC);
    }
    sim.come_up();
    assert!(matches!(sim.readmit(place), Admission::Go(_)));
}

#[test]
fn c04_blocked_stopped_and_open_circuit_refuse_at_once() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.command(Command::Stop);
    assert_eq!(sim.refused().reason, RefusalReason::Stopped);
    let mut sim = open_circuit();
    assert!(matches!(sim.refused().reason, RefusalReason::CircuitOpen { .. }));
}

#[test]
fn c04_waiting_calls_are_woken_when_waiting_is_pointless() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.link_down(killed());
    let place = sim.wait();
    assert_eq!(sim.machine.can_be_answered(), 0);
    sim.command(Command::Stop);
    assert_eq!(sim.machine.can_be_answered(), 1);
    assert!(
        matches!(sim.readmit(place), Admission::Refuse(refusal) if refusal.reason == RefusalReason::Stopped)
    );
}

#[test]
fn c04_a_new_link_admits_as_many_waiting_calls_as_it_has_slots() {
    let spec = SupervisionSpec { max_in_flight: 2, ..SupervisionSpec::default() };
    let mut sim = Simulation::ready_with(LinkKind::Remote, spec);
    sim.link_down(killed());
    let mut places: Vec<_> = (0..3).map(|_| sim.wait()).collect();
    assert_eq!(sim.machine.can_be_answered(), 0);
    sim.come_up();
    assert_eq!(sim.machine.can_be_answered(), 2);
    assert!(matches!(sim.readmit(places.remove(0)), Admission::Go(_)));
    assert_eq!(sim.machine.can_be_answered(), 1);
}

/// B18, D05
#[test]
fn b18_calls_on_a_lost_link_use_no_slots_of_the_next_one() {
    let spec = SupervisionSpec { max_in_flight: 2, ..SupervisionSpec::default() };
    let mut sim = Simulation::ready_with(LinkKind::Remote, spec);
    let hanging = [sim.go(), sim.go()];
    let queued = sim.wait();
    sim.command(Command::Reconnect);
    sim.come_up();
    assert_eq!(sim.machine.can_be_answered(), 1);
    let Admission::Go(served) = sim.readmit(queued) else { panic!("it waits for a slot of the old link") };
    sim.end(served, CallEnd::Answered);
    let probes = sim.probes();
    sim.advance(MIN * 3);
    assert_eq!(sim.probes(), probes + 1, "an idle link is asked");
    sim.probe_ended(ProbeAnswer::Alive);
    for ticket in hanging {
        sim.end(ticket, CallEnd::Failed(timed_out()));
    }
    let (_one, _other) = (sim.go(), sim.go());
    assert_eq!(sim.wait().wait_for, WaitFor::Slot);
}

#[test]
fn c06_calls_run_side_by_side_up_to_the_limit_then_queue_then_are_refused() {
    let spec = SupervisionSpec { max_in_flight: 2, max_waiting: 1, ..SupervisionSpec::default() };
    let mut sim = Simulation::ready_with(LinkKind::Process, spec);
    let first = sim.go();
    let second = sim.go();
    let queued = sim.wait();
    assert_eq!(queued.wait_for, WaitFor::Slot);
    assert_eq!(sim.refused().reason, RefusalReason::Overloaded);
    sim.end(first, CallEnd::Answered);
    assert_eq!(sim.machine.can_be_answered(), 1);
    let overtaking = sim.refused();
    assert_eq!(overtaking.reason, RefusalReason::Overloaded, "no call overtakes the queue");
    assert!(matches!(sim.readmit(queued), Admission::Go(_)));
    sim.end(second, CallEnd::Answered);
}

/// C04
#[test]
fn c06_calls_that_wait_for_a_slot_wait_for_the_next_link_when_it_is_lost() {
    let spec = SupervisionSpec { max_in_flight: 1, ..SupervisionSpec::default() };
    let mut sim = Simulation::ready_with(LinkKind::Remote, spec);
    let _first = sim.go();
    let queue = [sim.wait(), sim.wait()];
    assert_eq!(sim.machine.take_stranded(), 0);
    sim.link_down(killed());
    assert_eq!((sim.machine.take_stranded(), sim.machine.take_stranded()), (2, 0), "said once");
    for place in queue {
        let Admission::Wait(place) = sim.readmit(place) else { panic!("there is no link") };
        assert_eq!(place.wait_for, WaitFor::Link);
    }
    assert_eq!(sim.status().waiting, 2);
    sim.link_down(refused());
    assert_eq!(sim.machine.take_stranded(), 0, "there is nothing else to tell them");
}

/// C04
#[test]
fn c06_calls_that_wait_during_a_doubt_queue_again_when_it_is_settled() {
    let spec = SupervisionSpec { max_in_flight: 2, ..SupervisionSpec::default() };
    let mut sim = Simulation::ready_with(LinkKind::Remote, spec);
    let (_long, broken) = (sim.go(), sim.go());
    let queue = [sim.wait(), sim.wait()];
    sim.end(broken, CallEnd::Failed(killed()));
    assert_eq!(sim.machine.take_stranded(), 2);
    let held = queue.map(|place| match sim.readmit(place) {
        Admission::Wait(place) if place.wait_for == WaitFor::Link => place,
        other => panic!("no call uses a link in doubt: {other:?}"),
    });
    sim.probe_ended(ProbeAnswer::Alive);
    assert_eq!((sim.machine.take_stranded(), sim.machine.take_stranded()), (2, 0), "said once");
    let [first, second] = held;
    assert!(matches!(sim.readmit(first), Admission::Go(_)));
    let Admission::Wait(second) = sim.readmit(second) else { panic!("both slots are taken") };
    assert_eq!(second.wait_for, WaitFor::Slot, "a busy server is not one that is being reconnected");
}

#[test]
fn c08_a_cancelled_call_never_triggers_a_reconnect() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    let connects = sim.connects();
    for _ in 0..100 {
        let ticket = sim.go();
        sim.advance(10 * MS);
        sim.end(ticket, CallEnd::Abandoned);
        sim.probe_ended(ProbeAnswer::Alive);
    }
    assert_eq!((sim.connects(), sim.state()), (connects, State::Ready));
    assert!(!sim.actions.iter().any(|action| matches!(action, Action::Close(_))));
}

/// D05: overlapping calls that are cancelled one after another must not hide a hung process for ever.
#[test]
fn d05_a_hung_server_is_detected_while_calls_overlap_and_are_cancelled() {
    let mut sim = Simulation::ready(LinkKind::Process);
    let mut waiting = sim.go();
    sim.advance(10 * SEC);
    let mut rounds = 0;
    while sim.state() == State::Ready || sim.state() == State::Degraded {
        // A call is always in flight, until no call is admitted any more.
        let next = match sim.admit() {
            Admission::Go(ticket) => Some(ticket),
            Admission::Wait(place) => {
                sim.machine.leave_queue(sim.now(), place);
                None
            }
            Admission::Refuse(_) => None,
        };
        match next {
            Some(next) => sim.end(std::mem::replace(&mut waiting, next), CallEnd::Abandoned),
            None => {
                sim.end(waiting, CallEnd::Abandoned);
                sim.advance(MIN);
                break;
            }
        }
        sim.advance(5 * SEC);
        rounds += 1;
        assert!(rounds < 20, "it is never found");
    }
    assert_eq!(sim.state(), State::Reconnecting);
}

/// D05: a server that does one thing at a time answers no probe while it works.
#[test]
fn d05_an_unanswered_probe_loses_the_link_after_earlier_calls_ended() {
    let mut spec = SupervisionSpec::default();
    spec.keepalive.interval = Some(5 * SEC);
    spec.keepalive.timeout = 5 * SEC;
    let mut sim = Simulation::ready_with(LinkKind::Process, spec.clone());
    let working = sim.go();
    sim.advance(250 * SEC);
    assert_eq!(sim.state(), State::Degraded);
    assert!(sim.status().cause.is_some_and(|cause| cause.contains("1 earlier calls")), "{:?}", sim.status());
    let _held = sim.wait();
    let probes = sim.probes();
    sim.end(working, CallEnd::Answered);
    assert_eq!(
        (sim.state(), sim.probes()),
        (State::Ready, probes + 1),
        "it has answered: it is asked once more"
    );
    sim.advance(5 * SEC);
    assert_eq!(sim.state(), State::Reconnecting, "and it does not answer that, with nothing to do");

    let mut sim = Simulation::ready_with(LinkKind::Process, spec.clone());
    let working = sim.go();
    sim.advance(250 * SEC);
    sim.end(working, CallEnd::Failed(timed_out()));
    assert_eq!(sim.state(), State::Reconnecting, "its call has ended, and nothing was ever answered");

    let mut sim = Simulation::ready_with(LinkKind::Process, spec);
    let working = sim.go();
    sim.advance(20 * SEC);
    sim.probe_ended(ProbeAnswer::Alive);
    assert_eq!((sim.state(), sim.status().cause), (State::Ready, None), "an answer ends the doubt");
    sim.end(working, CallEnd::Answered);
    assert_eq!(sim.state(), State::Ready);
}

#[test]
fn c05_header_mismatches_count_as_answers_and_relist_the_catalog() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    let outdated = || CallEnd::Failed(Failure::HeaderMismatch("Mcp-Param-Region is missing".to_owned()));
    let listings = |sim: &Simulation| {
        sim.actions.iter().filter(|action| matches!(action, Action::ListCatalog { .. })).count()
    };
    let (before, epoch) = (listings(&sim), sim.epoch());
    assert!(!sim.machine.is_listing(epoch));
    let tickets: Vec<_> = (0..50).map(|_| sim.go()).collect();
    for ticket in tickets {
        sim.end(ticket, outdated());
    }
    assert_eq!(listings(&sim), before + 1);
    assert!(sim.machine.is_listing(epoch));
    // Some were refused during the listing, which may be older than their refusal.
    sim.handle(Input::CatalogListed { epoch });
    assert_eq!(listings(&sim), before + 2);
    sim.handle(Input::CatalogListed { epoch });
    assert!(!sim.machine.is_listing(epoch));
    assert_eq!((sim.state(), sim.status().consecutive_failures), (State::Ready, 0));
    let straggler = sim.go();
    sim.link_down(killed());
    sim.come_up();
    let before = listings(&sim);
    sim.end(straggler, outdated());
    assert_eq!(listings(&sim), before, "a straggler of an older link changes nothing");
}

//! Several principals at one server: none of them takes the slots, the queue or the server itself from the others.

use crate::common::*;
use gripfast_core::event::Event;
use gripfast_core::failure::Failure;
use gripfast_core::ids::PrincipalName;
use gripfast_core::supervise::circuit::CircuitView;
use gripfast_core::supervise::spec::SupervisionSpec;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{
    Admission, Ask, CallEnd, LinkKind, Place, ProbeAnswer, Reason, Refusal, Ticket, WaitFor,
};
use std::time::Duration;

const GREEDY: &str = "greedy";
const MODEST: &str = "modest";

impl World {
    fn admit_for(&mut self, principal: &str) -> Admission {
        let admission = self.machine.admit_for(self.now(), &PrincipalName::new(principal));
        self.drain();
        admission
    }

    fn go_for(&mut self, principal: &str) -> Ticket {
        match self.admit_for(principal) {
            Admission::Go(ticket) => ticket,
            other => panic!("expected to be admitted, got {other:?} in {:?}", self.state()),
        }
    }

    fn wait_for(&mut self, principal: &str) -> Place {
        match self.admit_for(principal) {
            Admission::Wait(place) => place,
            other => panic!("expected to wait, got {other:?} in {:?}", self.state()),
        }
    }

    fn refused_for(&mut self, principal: &str) -> Refusal {
        match self.admit_for(principal) {
            Admission::Refuse(refusal) => refusal,
            other => panic!("expected to be refused, got {other:?} in {:?}", self.state()),
        }
    }

    fn answered_for(&mut self, principal: &str) {
        let ticket = self.go_for(principal);
        self.end(ticket, CallEnd::Answered);
    }

    /// The call of this principal kills the process, which comes up again as soon as it is tried.
    fn crash_by(&mut self, principal: &str) {
        let ticket = self.go_for(principal);
        self.die_with(vec![ticket]);
    }

    fn die_with(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            self.end(ticket, CallEnd::Failed(killed()));
        }
        self.pass(self.status().next_attempt.unwrap_or_default());
        if self.state() == State::Reconnecting {
            self.come_up();
        }
    }
}

fn spec(max_in_flight: u32, max_waiting: u32) -> SupervisionSpec {
    SupervisionSpec { max_in_flight, max_waiting, ..SupervisionSpec::default() }
}

#[test]
fn c06_a_free_slot_goes_to_the_waiting_principal_with_the_fewest_slots() {
    let mut world = World::ready_with(LinkKind::Process, spec(4, 100));
    let mut busy: Vec<_> = (0..4).map(|_| world.go_for(GREEDY)).collect();
    let mut greedy: Vec<_> = (0..10).map(|_| world.wait_for(GREEDY)).collect();
    let mut modest: Vec<_> = (0..10).map(|_| world.wait_for(MODEST)).collect();
    let mut served = Vec::new();
    for _ in 0..6 {
        world.end(busy.remove(0), CallEnd::Answered);
        let next = world.machine.next_in_turn().unwrap();
        let (who, place) = match modest.iter().position(|place| place.number == next) {
            Some(at) => (MODEST, modest.remove(at)),
            None => (GREEDY, greedy.remove(0)),
        };
        assert_eq!(place.number, next);
        let Admission::Go(ticket) = world.readmit(place) else { panic!("it is its turn") };
        busy.push(ticket);
        served.push(who);
    }
    assert_eq!(served, [MODEST, MODEST, GREEDY, GREEDY, MODEST, MODEST], "two slots for each, then in turn");
}

#[test]
fn c06_who_asks_again_out_of_turn_waits_on_and_keeps_its_turn() {
    let mut world = World::ready_with(LinkKind::Process, spec(2, 100));
    let mut busy = vec![world.go_for(GREEDY), world.go_for(GREEDY)];
    let (greedy, modest) = (world.wait_for(GREEDY), world.wait_for(MODEST));
    let later = world.wait_for(GREEDY);
    world.end(busy.remove(0), CallEnd::Answered);
    let Admission::Wait(greedy) = world.readmit(greedy) else {
        panic!("the slot is for the other principal")
    };
    assert_eq!(greedy.wait_for, WaitFor::Slot);
    assert!(matches!(world.readmit(modest), Admission::Go(_)));
    world.end(busy.remove(0), CallEnd::Answered);
    assert_eq!(world.machine.next_in_turn(), Some(greedy.number), "and not the one that came later");
    assert!(matches!(world.readmit(greedy), Admission::Go(_)));
    world.machine.leave(world.now(), later);
    assert_eq!((world.status().waiting, world.machine.next_in_turn()), (0, None));
}

#[test]
fn c06_one_principal_alone_may_use_all_slots_and_the_whole_queue() {
    let mut world = World::ready_with(LinkKind::Process, spec(4, 10));
    let _busy: Vec<_> = (0..4).map(|_| world.go_for(GREEDY)).collect();
    let places: Vec<_> = (0..10).map(|_| world.wait_for(GREEDY)).collect();
    assert_eq!(world.refused_for(GREEDY).reason, Reason::Overloaded);
    assert_eq!(world.status().waiting as usize, places.len());
    assert!(world.machine.take_displaced().is_empty());
}

/// The queue has ten places: at its edge the principal with the most gives up its newest, down to equal shares.
#[test]
fn c06_a_full_queue_makes_room_for_a_principal_with_fewer_places() {
    for link_is_there in [true, false] {
        let mut world = World::ready_with(LinkKind::Remote, spec(1, 10));
        let _busy = world.go_for(GREEDY);
        if !link_is_there {
            world.link_down(killed());
        }
        let mut greedy: Vec<_> = (0..10).map(|_| world.wait_for(GREEDY)).collect();
        for _ in 0..5 {
            let modest = world.wait_for(MODEST);
            let newest = greedy.pop().unwrap();
            assert_eq!(world.machine.take_displaced(), [newest.number]);
            let Admission::Refuse(refusal) = world.readmit(newest) else { panic!("its place is gone") };
            assert_eq!((refusal.reason, refusal.retry_after), (Reason::MadeRoom, Some(SEC)));
            assert_ne!(modest.number, greedy[0].number);
        }
        assert_eq!(world.refused_for(MODEST).reason, Reason::Overloaded, "each has its half");
        assert_eq!(world.refused_for(GREEDY).reason, Reason::Overloaded);
        let _third = world.wait_for("third");
        assert_eq!(world.machine.take_displaced().len(), 1);
        assert_eq!(world.status().waiting, 10);
    }
}

#[test]
fn c06_a_call_that_made_room_and_gives_up_takes_nothing_along() {
    let mut world = World::ready_with(LinkKind::Remote, spec(1, 3));
    let busy = world.go_for(GREEDY);
    let mut greedy: Vec<_> = (0..3).map(|_| world.wait_for(GREEDY)).collect();
    let modest = world.wait_for(MODEST);
    world.machine.leave(world.now(), greedy.pop().unwrap());
    assert_eq!(world.status().waiting, 3);
    world.end(busy, CallEnd::Answered);
    assert_eq!(world.machine.next_in_turn(), Some(greedy[0].number), "nobody has a slot: the first one");
    world.machine.leave(world.now(), modest);
    greedy.into_iter().for_each(|place| world.machine.leave(world.now(), place));
    assert_eq!(world.status().waiting, 0);
}

#[test]
fn c06_a_call_that_waits_for_a_person_is_no_slot_of_its_principal() {
    let mut world = World::ready_with(LinkKind::Process, spec(2, 10));
    let (asking, busy) = (world.go_for(GREEDY), world.go_for(MODEST));
    let slot = world.machine.pause(&asking);
    let _second = world.go_for(MODEST);
    let (_modest, greedy) = (world.wait_for(MODEST), world.wait_for(GREEDY));
    world.end(busy, CallEnd::Answered);
    assert_eq!(world.machine.next_in_turn(), Some(greedy.number));
    world.machine.resume(slot);
    world.end(asking, CallEnd::Answered);
}

#[test]
fn b11_timeouts_of_one_principal_open_no_circuit_while_another_is_answered() {
    for failure in [timed_out(), Failure::ServerFault("HTTP 500".into())] {
        let mut world = World::ready(LinkKind::Remote);
        for _ in 0..20 {
            world.answered_for(MODEST);
            for _ in 0..5 {
                let ticket = world.go_for(GREEDY);
                world.end(ticket, CallEnd::Failed(failure.clone()));
                world.probe_ended(ProbeAnswer::Alive);
            }
            assert_eq!(world.status().circuit, CircuitView::Closed);
        }
        for who in [MODEST, "third"] {
            let ticket = world.go_for(who);
            world.end(ticket, CallEnd::Failed(failure.clone()));
            world.probe_ended(ProbeAnswer::Alive);
        }
        assert_eq!(world.status().circuit, CircuitView::Open, "three principals fail in a row");
    }
}

#[test]
fn b14_a_principal_whose_trial_failed_leaves_the_next_one_to_others() {
    let opened = || {
        let mut world = World::ready(LinkKind::Remote);
        for _ in 0..3 {
            let ticket = world.go_for(GREEDY);
            world.end(ticket, CallEnd::Failed(timed_out()));
            world.probe_ended(ProbeAnswer::Alive);
        }
        assert_eq!(world.status().circuit, CircuitView::Open);
        world.pass(MIN);
        let trial = world.go_for(GREEDY);
        world.end(trial, CallEnd::Failed(timed_out()));
        world.probe_ended(ProbeAnswer::Alive);
        world
    };
    let mut world = opened();
    world.refused_for(MODEST);
    world.pass(MIN);
    let Refusal { reason, retry_after } = world.refused_for(GREEDY);
    assert!(matches!(reason, Reason::CircuitOpen { .. }));
    assert_eq!(retry_after, Some(MIN), "it is not refused for ever");
    world.answered_for(MODEST);
    world.answered_for(GREEDY);

    let mut world = opened();
    world.pass(MIN);
    world.answered_for(GREEDY);
}

fn refused(world: &World) -> Vec<(String, Duration)> {
    let of = |event: &Event| match event {
        Event::PrincipalRefused { principal, wait, .. } => Some((principal.clone(), *wait)),
        _ => None,
    };
    world.events.iter().filter_map(of).collect()
}

#[test]
fn c05_a_principal_that_kills_the_server_three_times_is_refused_for_a_minute() {
    let mut world = World::ready(LinkKind::Process);
    world.answered_for(MODEST);
    for _ in 0..3 {
        world.crash_by(GREEDY);
    }
    let Refusal { reason, retry_after } = world.refused_for(GREEDY);
    assert_eq!(reason, Reason::Crashed { deaths: 3, within: 10 * MIN });
    assert!(retry_after.is_some_and(|wait| wait <= MIN && wait > 50 * SEC), "{retry_after:?}");
    assert_eq!(refused(&world), [(GREEDY.to_owned(), MIN)]);
    assert_eq!(world.status().restarts_in_window, 0, "its deaths are taken off the restart budget");
    world.answered_for(MODEST);
    world.pass(MIN);
    world.answered_for(GREEDY);
}

#[test]
fn c05_one_hostile_principal_never_has_the_server_parked() {
    let mut spec = SupervisionSpec::default();
    spec.keepalive.interval = None;
    let mut world = World::ready_with(LinkKind::Process, spec);
    world.answered_for(MODEST);
    let mut deaths = 0;
    for _ in 0..60 * 60 {
        match world.admit_for(GREEDY) {
            Admission::Go(ticket) => {
                deaths += 1;
                world.die_with(vec![ticket]);
            }
            Admission::Wait(place) => world.machine.leave(world.now(), place),
            Admission::Refuse(_) => {}
        }
        assert_ne!(world.state(), State::Parked, "after {deaths} deaths");
        // The other one is there, and is never answered: that would clear the restart budget.
        let other = world.go_for(MODEST);
        world.end(other, CallEnd::Unused);
        world.pass(SEC);
    }
    assert!(deaths > 30, "{deaths}");
}

#[test]
fn c05_a_server_that_dies_of_itself_is_parked_whoever_calls() {
    let one_after_another: &[&str] = &[GREEDY, MODEST, "third", "fourth"];
    let each_until_it_is_refused: &[&str] = &[GREEDY, GREEDY, GREEDY, MODEST, MODEST, MODEST];
    for callers in [one_after_another, each_until_it_is_refused] {
        let mut world = World::ready(LinkKind::Process);
        world.answered_for(GREEDY);
        world.answered_for(MODEST);
        let mut deaths = 0;
        while world.state() != State::Parked {
            for who in callers {
                match world.admit_for(who) {
                    Admission::Go(ticket) => {
                        deaths += 1;
                        world.die_with(vec![ticket]);
                    }
                    Admission::Wait(place) => world.machine.leave(world.now(), place),
                    Admission::Refuse(_) => {}
                }
            }
            world.pass(SEC);
            assert!(deaths < 20, "it is never parked");
        }
    }
}

#[test]
fn c05_with_one_principal_every_death_counts_and_nobody_is_refused() {
    for who in [PrincipalName::LOCAL, GREEDY] {
        let mut world = World::ready(LinkKind::Process);
        for _ in 0..6 {
            world.crash_by(who);
        }
        assert_eq!((world.state(), refused(&world)), (State::Parked, Vec::new()));
    }
}

#[test]
fn c05_a_death_with_calls_of_two_principals_is_on_nobodys_record() {
    let mut world = World::ready(LinkKind::Process);
    world.answered_for(MODEST);
    for _ in 0..5 {
        let tickets = vec![world.go_for(GREEDY), world.go_for(MODEST)];
        world.die_with(tickets);
    }
    assert_eq!((refused(&world), world.status().restarts_in_window), (Vec::new(), 5));
}

/// A client that gives up the call that kills the server does not put the blame on the next one.
#[test]
fn c05_a_call_that_was_given_up_may_still_be_what_kills_the_server() {
    let mut world = World::ready(LinkKind::Process);
    for _ in 0..4 {
        let poison = world.go_for(GREEDY);
        world.end(poison, CallEnd::Abandoned);
        let innocent = world.go_for(MODEST);
        world.die_with(vec![innocent]);
    }
    assert_eq!(refused(&world), Vec::new());
    world.answered_for(MODEST);
    for _ in 0..3 {
        let unused = world.go_for(MODEST);
        world.end(unused, CallEnd::Unused);
        let poison = [world.go_for(GREEDY), world.go_for(GREEDY)];
        let [given_up, waits] = poison;
        world.end(given_up, CallEnd::Abandoned);
        world.die_with(vec![waits]);
    }
    assert_eq!(refused(&world), [(GREEDY.to_owned(), MIN)]);
}

#[test]
fn c05_a_principal_that_gives_up_the_calls_that_kill_the_server_is_refused_too() {
    let mut world = World::ready(LinkKind::Process);
    for _ in 0..3 {
        world.answered_for(MODEST);
        let poison = world.go_for(GREEDY);
        world.end(poison, CallEnd::Abandoned);
        world.link_down(killed());
        world.die_with(Vec::new());
    }
    assert_eq!(refused(&world), [(GREEDY.to_owned(), MIN)]);
    let mut world = World::ready(LinkKind::Process);
    for _ in 0..3 {
        world.answered_for(MODEST);
        let long_ago = world.go_for(GREEDY);
        world.end(long_ago, CallEnd::Abandoned);
        world.answered_for(MODEST);
        world.pass(11 * SEC);
        world.link_down(killed());
        world.die_with(Vec::new());
    }
    assert_eq!(refused(&world), Vec::new(), "a death long after the call is not its work");
}

#[test]
fn c05_a_principal_whose_calls_hang_the_server_is_refused_too() {
    let mut world = World::ready(LinkKind::Process);
    for _ in 0..3 {
        world.answered_for(MODEST);
        let hangs = world.go_for(GREEDY);
        world.pass(SEC);
        world.end(hangs, CallEnd::Failed(timed_out()));
        world.pass(30 * SEC);
        world.come_up();
    }
    assert_eq!(refused(&world), [(GREEDY.to_owned(), MIN)]);
}

#[test]
fn c05_a_reload_forgets_who_killed_the_server() {
    let mut world = World::ready(LinkKind::Process);
    world.answered_for(MODEST);
    for _ in 0..3 {
        world.crash_by(GREEDY);
    }
    world.refused_for(GREEDY);
    world.ask(Ask::Reload);
    world.answered_for(GREEDY);
}

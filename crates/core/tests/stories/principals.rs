//! Several principals at one server: none takes the slots, the queue or the server from the others.

use crate::common::*;
use gripfast_core::event::Event;
use gripfast_core::failure::Failure;
use gripfast_core::ids::PrincipalName;
use gripfast_core::supervise::circuit::CircuitView;
use gripfast_core::supervise::spec::SupervisionSpec;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{
    Admission, CallEnd, Command, LinkKind, ProbeAnswer, QueuePlace, Refusal, RefusalReason, Ticket, WaitFor,
};
use std::time::Duration;

const GREEDY: &str = "greedy";
const MODEST: &str = "modest";

impl Simulation {
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

    fn wait_for(&mut self, principal: &str) -> QueuePlace {
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

    /// A call of this principal kills the process, which restarts at the next attempt.
    fn crash_by(&mut self, principal: &str) {
        let ticket = self.go_for(principal);
        self.die_with(vec![ticket]);
    }

    fn die_with(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            self.end(ticket, CallEnd::Failed(killed()));
        }
        self.advance(self.status().next_attempt.unwrap_or_default());
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
    let mut sim = Simulation::ready_with(LinkKind::Process, spec(4, 100));
    let mut busy: Vec<_> = (0..4).map(|_| sim.go_for(GREEDY)).collect();
    let mut greedy: Vec<_> = (0..10).map(|_| sim.wait_for(GREEDY)).collect();
    let mut modest: Vec<_> = (0..10).map(|_| sim.wait_for(MODEST)).collect();
    let mut served = Vec::new();
    for _ in 0..6 {
        sim.end(busy.remove(0), CallEnd::Answered);
        let next = sim.machine.next_in_turn().unwrap();
        let (who, place) = match modest.iter().position(|place| place.number == next) {
            Some(at) => (MODEST, modest.remove(at)),
            None => (GREEDY, greedy.remove(0)),
        };
        assert_eq!(place.number, next);
        let Admission::Go(ticket) = sim.readmit(place) else { panic!("it is its turn") };
        busy.push(ticket);
        served.push(who);
    }
    assert_eq!(served, [MODEST, MODEST, GREEDY, GREEDY, MODEST, MODEST], "two slots for each, then in turn");
}

#[test]
fn c06_a_call_that_asks_out_of_turn_keeps_its_turn() {
    let mut sim = Simulation::ready_with(LinkKind::Process, spec(2, 100));
    let mut busy = vec![sim.go_for(GREEDY), sim.go_for(GREEDY)];
    let (greedy, modest) = (sim.wait_for(GREEDY), sim.wait_for(MODEST));
    let later = sim.wait_for(GREEDY);
    sim.end(busy.remove(0), CallEnd::Answered);
    let Admission::Wait(greedy) = sim.readmit(greedy) else { panic!("the slot is for the other principal") };
    assert_eq!(greedy.wait_for, WaitFor::Slot);
    assert!(matches!(sim.readmit(modest), Admission::Go(_)));
    sim.end(busy.remove(0), CallEnd::Answered);
    assert_eq!(sim.machine.next_in_turn(), Some(greedy.number), "and not the one that came later");
    assert!(matches!(sim.readmit(greedy), Admission::Go(_)));
    sim.machine.leave_queue(sim.now(), later);
    assert_eq!((sim.status().waiting, sim.machine.next_in_turn()), (0, None));
}

#[test]
fn c06_one_principal_alone_may_use_all_slots_and_the_whole_queue() {
    let mut sim = Simulation::ready_with(LinkKind::Process, spec(4, 10));
    let _busy: Vec<_> = (0..4).map(|_| sim.go_for(GREEDY)).collect();
    let places: Vec<_> = (0..10).map(|_| sim.wait_for(GREEDY)).collect();
    assert_eq!(sim.refused_for(GREEDY).reason, RefusalReason::Overloaded);
    assert_eq!(sim.status().waiting as usize, places.len());
    assert!(sim.machine.take_displaced().is_empty());
}

/// The queue has ten places: when it is full, the principal with the most gives up its newest, down to equal shares.
#[test]
fn c06_a_full_queue_makes_room_for_a_principal_with_fewer_places() {
    for link_is_there in [true, false] {
        let mut sim = Simulation::ready_with(LinkKind::Remote, spec(1, 10));
        let _busy = sim.go_for(GREEDY);
        if !link_is_there {
            sim.link_down(killed());
        }
        let mut greedy: Vec<_> = (0..10).map(|_| sim.wait_for(GREEDY)).collect();
        for _ in 0..5 {
            let modest = sim.wait_for(MODEST);
            let newest = greedy.pop().unwrap();
            assert_eq!(sim.machine.take_displaced(), [newest.number]);
            let Admission::Refuse(refusal) = sim.readmit(newest) else { panic!("its place is gone") };
            assert_eq!((refusal.reason, refusal.retry_after), (RefusalReason::Displaced, Some(SEC)));
            assert_ne!(modest.number, greedy[0].number);
        }
        assert_eq!(sim.refused_for(MODEST).reason, RefusalReason::Overloaded, "each has its half");
        assert_eq!(sim.refused_for(GREEDY).reason, RefusalReason::Overloaded);
        let _third = sim.wait_for("third");
        assert_eq!(sim.machine.take_displaced().len(), 1);
        assert_eq!(sim.status().waiting, 10);
    }
}

#[test]
fn c06_a_displaced_call_that_gives_up_changes_no_counts() {
    let mut sim = Simulation::ready_with(LinkKind::Remote, spec(1, 3));
    let busy = sim.go_for(GREEDY);
    let mut greedy: Vec<_> = (0..3).map(|_| sim.wait_for(GREEDY)).collect();
    let modest = sim.wait_for(MODEST);
    sim.machine.leave_queue(sim.now(), greedy.pop().unwrap());
    assert_eq!(sim.status().waiting, 3);
    sim.end(busy, CallEnd::Answered);
    assert_eq!(sim.machine.next_in_turn(), Some(greedy[0].number), "no principal has a slot: the first one");
    sim.machine.leave_queue(sim.now(), modest);
    greedy.into_iter().for_each(|place| sim.machine.leave_queue(sim.now(), place));
    assert_eq!(sim.status().waiting, 0);
}

#[test]
fn c06_a_call_that_waits_for_a_person_uses_no_slot() {
    let mut sim = Simulation::ready_with(LinkKind::Process, spec(2, 10));
    let (asking, busy) = (sim.go_for(GREEDY), sim.go_for(MODEST));
    let slot = sim.machine.pause(&asking);
    let _second = sim.go_for(MODEST);
    let (_modest, greedy) = (sim.wait_for(MODEST), sim.wait_for(GREEDY));
    sim.end(busy, CallEnd::Answered);
    assert_eq!(sim.machine.next_in_turn(), Some(greedy.number));
    sim.machine.resume(slot);
    sim.end(asking, CallEnd::Answered);
}

#[test]
fn b11_timeouts_of_one_principal_do_not_open_the_circuit_for_others() {
    for failure in [timed_out(), Failure::ServerFault("HTTP 500".into())] {
        let mut sim = Simulation::ready(LinkKind::Remote);
        for _ in 0..20 {
            sim.answered_for(MODEST);
            for _ in 0..5 {
                let ticket = sim.go_for(GREEDY);
                sim.end(ticket, CallEnd::Failed(failure.clone()));
                sim.probe_ended(ProbeAnswer::Alive);
            }
            assert_eq!(sim.status().circuit, CircuitView::Closed);
        }
        for who in [MODEST, "third"] {
            let ticket = sim.go_for(who);
            sim.end(ticket, CallEnd::Failed(failure.clone()));
            sim.probe_ended(ProbeAnswer::Alive);
        }
        assert_eq!(sim.status().circuit, CircuitView::Open, "three principals fail in a row");
    }
}

#[test]
fn b14_a_principal_whose_trial_failed_leaves_the_next_one_to_others() {
    let opened = || {
        let mut sim = Simulation::ready(LinkKind::Remote);
        for _ in 0..3 {
            let ticket = sim.go_for(GREEDY);
            sim.end(ticket, CallEnd::Failed(timed_out()));
            sim.probe_ended(ProbeAnswer::Alive);
        }
        assert_eq!(sim.status().circuit, CircuitView::Open);
        sim.advance(MIN);
        let trial = sim.go_for(GREEDY);
        sim.end(trial, CallEnd::Failed(timed_out()));
        sim.probe_ended(ProbeAnswer::Alive);
        sim
    };
    let mut sim = opened();
    sim.refused_for(MODEST);
    sim.advance(MIN);
    let Refusal { reason, retry_after } = sim.refused_for(GREEDY);
    assert!(matches!(reason, RefusalReason::CircuitOpen { .. }));
    assert_eq!(retry_after, Some(MIN), "it is not refused for ever");
    sim.answered_for(MODEST);
    sim.answered_for(GREEDY);

    let mut sim = opened();
    sim.advance(MIN);
    sim.answered_for(GREEDY);
}

fn refused(sim: &Simulation) -> Vec<(String, Duration)> {
    let of = |event: &Event| match event {
        Event::PrincipalRefused { principal, wait, .. } => Some((principal.clone(), *wait)),
        _ => None,
    };
    sim.events.iter().filter_map(of).collect()
}

#[test]
fn c05_a_principal_that_kills_the_server_three_times_is_refused_for_a_minute() {
    let mut sim = Simulation::ready(LinkKind::Process);
    sim.answered_for(MODEST);
    for _ in 0..3 {
        sim.crash_by(GREEDY);
    }
    let Refusal { reason, retry_after } = sim.refused_for(GREEDY);
    assert_eq!(reason, RefusalReason::Crashed { deaths: 3, within: 10 * MIN });
    assert!(retry_after.is_some_and(|wait| wait <= MIN && wait > 50 * SEC), "{retry_after:?}");
    assert_eq!(refused(&sim), [(GREEDY.to_owned(), MIN)]);
    assert_eq!(sim.status().restarts_in_window, 0, "its deaths are taken off the restart budget");
    sim.answered_for(MODEST);
    sim.advance(MIN);
    sim.answered_for(GREEDY);
}

#[test]
fn c05_one_hostile_principal_never_gets_the_server_parked() {
    let mut spec = SupervisionSpec::default();
    spec.keepalive.interval = None;
    let mut sim = Simulation::ready_with(LinkKind::Process, spec);
    sim.answered_for(MODEST);
    let mut deaths = 0;
    for _ in 0..60 * 60 {
        match sim.admit_for(GREEDY) {
            Admission::Go(ticket) => {
                deaths += 1;
                sim.die_with(vec![ticket]);
            }
            Admission::Wait(place) => sim.machine.leave_queue(sim.now(), place),
            Admission::Refuse(_) => {}
        }
        assert_ne!(sim.state(), State::Parked, "after {deaths} deaths");
        // The other one is present but never answered, which would clear the restart budget.
        let other = sim.go_for(MODEST);
        sim.end(other, CallEnd::Unused);
        sim.advance(SEC);
    }
    assert!(deaths > 30, "{deaths}");
}

#[test]
fn c05_a_server_that_dies_for_every_principal_is_parked() {
    let one_after_another: &[&str] = &[GREEDY, MODEST, "third", "fourth"];
    let each_until_it_is_refused: &[&str] = &[GREEDY, GREEDY, GREEDY, MODEST, MODEST, MODEST];
    for callers in [one_after_another, each_until_it_is_refused] {
        let mut sim = Simulation::ready(LinkKind::Process);
        sim.answered_for(GREEDY);
        sim.answered_for(MODEST);
        let mut deaths = 0;
        while sim.state() != State::Parked {
            for who in callers {
                match sim.admit_for(who) {
                    Admission::Go(ticket) => {
                        deaths += 1;
                        sim.die_with(vec![ticket]);
                    }
                    Admission::Wait(place) => sim.machine.leave_queue(sim.now(), place),
                    Admission::Refuse(_) => {}
                }
            }
            sim.advance(SEC);
            assert!(deaths < 20, "it is never parked");
        }
    }
}

#[test]
fn c05_with_one_principal_deaths_count_and_it_is_not_refused() {
    for who in [PrincipalName::LOCAL, GREEDY] {
        let mut sim = Simulation::ready(LinkKind::Process);
        for _ in 0..6 {
            sim.crash_by(who);
        }
        assert_eq!((sim.state(), refused(&sim)), (State::Parked, Vec::new()));
    }
}

#[test]
fn c05_a_death_with_calls_of_two_principals_is_recorded_for_neither() {
    let mut sim = Simulation::ready(LinkKind::Process);
    sim.answered_for(MODEST);
    for _ in 0..5 {
        let tickets = vec![sim.go_for(GREEDY), sim.go_for(MODEST)];
        sim.die_with(tickets);
    }
    assert_eq!((refused(&sim), sim.status().restarts_in_window), (Vec::new(), 5));
}

/// A client that cancels the call which kills the server does not shift the blame to the next one.
#[test]
fn c05_a_cancelled_call_may_still_kill_the_server() {
    let mut sim = Simulation::ready(LinkKind::Process);
    for _ in 0..4 {
        let poison = sim.go_for(GREEDY);
        sim.end(poison, CallEnd::Abandoned);
        let innocent = sim.go_for(MODEST);
        sim.die_with(vec![innocent]);
    }
    assert_eq!(refused(&sim), Vec::new());
    sim.answered_for(MODEST);
    for _ in 0..3 {
        let unused = sim.go_for(MODEST);
        sim.end(unused, CallEnd::Unused);
        let poison = [sim.go_for(GREEDY), sim.go_for(GREEDY)];
        let [given_up, waits] = poison;
        sim.end(given_up, CallEnd::Abandoned);
        sim.die_with(vec![waits]);
    }
    assert_eq!(refused(&sim), [(GREEDY.to_owned(), MIN)]);
}

#[test]
fn c05_a_principal_that_cancels_its_killing_calls_is_refused_too() {
    let mut sim = Simulation::ready(LinkKind::Process);
    for _ in 0..3 {
        sim.answered_for(MODEST);
        let poison = sim.go_for(GREEDY);
        sim.end(poison, CallEnd::Abandoned);
        sim.link_down(killed());
        sim.die_with(Vec::new());
    }
    assert_eq!(refused(&sim), [(GREEDY.to_owned(), MIN)]);
    let mut sim = Simulation::ready(LinkKind::Process);
    for _ in 0..3 {
        sim.answered_for(MODEST);
        let long_ago = sim.go_for(GREEDY);
        sim.end(long_ago, CallEnd::Abandoned);
        sim.answered_for(MODEST);
        sim.advance(11 * SEC);
        sim.link_down(killed());
        sim.die_with(Vec::new());
    }
    assert_eq!(refused(&sim), Vec::new(), "a death long after the call is not its work");
}

#[test]
fn c05_a_principal_whose_calls_hang_the_server_is_refused_too() {
    let mut sim = Simulation::ready(LinkKind::Process);
    for _ in 0..3 {
        sim.answered_for(MODEST);
        let hangs = sim.go_for(GREEDY);
        sim.advance(SEC);
        sim.end(hangs, CallEnd::Failed(timed_out()));
        sim.advance(30 * SEC);
        sim.come_up();
    }
    assert_eq!(refused(&sim), [(GREEDY.to_owned(), MIN)]);
}

#[test]
fn c05_a_reload_clears_the_crash_record() {
    let mut sim = Simulation::ready(LinkKind::Process);
    sim.answered_for(MODEST);
    for _ in 0..3 {
        sim.crash_by(GREEDY);
    }
    sim.refused_for(GREEDY);
    sim.command(Command::Reload);
    sim.answered_for(GREEDY);
}

//! A second link beside the first: spares, replacements, recycling. Told in virtual time.

mod common;

use common::*;
use gripfast_core::event::{Event, ReplaceCause};
use gripfast_core::supervise::spec::{KeepaliveSpec, RecycleSpec, SupervisionSpec};
use gripfast_core::supervise::status::{SpareState, State};
use gripfast_core::supervise::upstream::{
    Action, Admission, Ask, CallEnd, Input, LinkKind, ProbeAnswer, Role,
};

/// Without probes, which nobody answers here.
fn quiet() -> SupervisionSpec {
    let keepalive = KeepaliveSpec { interval: None, ..KeepaliveSpec::default() };
    SupervisionSpec { keepalive, ..SupervisionSpec::default() }
}

fn with_spare() -> SupervisionSpec {
    SupervisionSpec { spare: true, ..quiet() }
}

fn a_spare_stands_by() -> World {
    let mut world = World::ready_with(LinkKind::Process, with_spare());
    world.spare_up();
    world
}

#[test]
fn a_spare_is_started_once_the_first_child_is_listed_and_not_before() {
    let mut world = World::new(LinkKind::Process, with_spare());
    world.ask(Ask::Start);
    world.link_up();
    assert_eq!(world.second(), None, "the first child comes first");
    assert_eq!(world.status().spare, Some(SpareState::Missing));
    world.tell(Input::CatalogListed { epoch: world.epoch() });
    assert_eq!(world.second().map(|(_, role)| role), Some(Role::Spare));
    assert_eq!(world.status().spare, Some(SpareState::Starting));
    world.spare_up();
    assert_eq!(world.status().spare, Some(SpareState::Ready));
}

#[test]
fn a_server_without_a_spare_has_none_and_neither_has_a_remote_one() {
    let world = World::ready(LinkKind::Process);
    assert_eq!((world.second(), world.status().spare), (None, None));
    let world = World::ready_with(LinkKind::Remote, with_spare());
    assert_eq!((world.second(), world.status().spare), (None, None));
}

#[test]
fn b02_when_the_first_child_dies_its_spare_takes_over_without_a_start_and_a_new_spare_is_made() {
    let mut world = a_spare_stands_by();
    world.good_call();
    let (id, _) = world.second().unwrap();
    let dials = world.dials();
    world.link_down(killed());
    assert_eq!(world.dials(), dials, "nothing has to be started");
    assert_eq!(world.did(Action::UseSpare { id, epoch: world.epoch() }), 1);
    world.come_up();
    assert_eq!(world.state(), State::Ready);
    world.good_call();
    assert!(world.second().is_some_and(|(newer, role)| newer != id && role == Role::Spare));
    assert!(world.events.contains(&Event::SpareUsed));
}

#[test]
fn b04_a_server_that_keeps_dying_is_parked_although_it_has_spares_and_keeps_none_then() {
    let mut world = World::ready_with(LinkKind::Process, with_spare());
    for _ in 0..20 {
        if world.status().spare == Some(SpareState::Starting) {
            world.spare_up();
        }
        world.link_down(killed());
        if world.state() == State::Parked {
            break;
        }
        world.come_up();
        world.pass(SEC);
    }
    assert_eq!(world.state(), State::Parked);
    assert_ne!(world.status().spare, Some(SpareState::Ready));
}

#[test]
fn a_spare_that_does_not_last_is_made_again_ever_more_patiently_and_costs_the_first_child_nothing() {
    let mut world = World::ready_with(LinkKind::Process, with_spare());
    let mut pauses = Vec::new();
    for _ in 0..10 {
        let (failed, _) = world.second().unwrap();
        world.second_down(refused());
        assert_eq!((world.state(), world.status().restarts), (State::Ready, 0));
        let since = world.mono;
        while world.second().unwrap().0 == failed {
            world.pass(100 * MS);
        }
        pauses.push(world.mono - since);
    }
    assert!(pauses[0] <= 2 * SEC, "{pauses:?}");
    assert!(pauses[9] >= 40 * SEC && pauses[9] <= 80 * SEC, "{pauses:?}");
}

#[test]
fn a_spare_that_is_never_up_is_given_up_after_the_time_of_a_dial() {
    let mut world = World::ready_with(LinkKind::Process, with_spare());
    world.pass(31 * SEC);
    assert_eq!(world.did(Action::DropSecond), 1);
    assert!(matches!(world.events.last(), Some(Event::SpareLost { .. })), "{:?}", world.events.last());
}

#[test]
fn stopping_drops_the_spare_and_so_does_falling_asleep() {
    let mut world = a_spare_stands_by();
    world.ask(Ask::Stop);
    assert_eq!(world.did(Action::DropSecond), 1);
    let lazy = SupervisionSpec { lazy: true, ..with_spare() };
    let mut world = World::new(LinkKind::Process, lazy);
    world.ask(Ask::Start);
    let place = world.wait();
    world.come_up();
    world.machine.leave(world.now(), place);
    world.spare_up();
    world.pass(11 * MIN);
    assert_eq!((world.state(), world.did(Action::DropSecond)), (State::Idle, 1));
}

#[test]
fn f01_reload_makes_the_new_link_first_and_calls_under_way_finish_on_the_old_one() {
    for kind in [LinkKind::Process, LinkKind::Remote] {
        let mut world = World::ready(kind);
        let slow = world.go();
        let old = world.epoch();
        world.ask(Ask::Reload);
        assert_eq!(world.second().map(|(_, role)| role), Some(Role::Replacement));
        assert_eq!(world.state(), State::Ready, "the old one serves meanwhile");
        world.good_call();
        assert!(world.take_over());
        assert_eq!(world.state(), State::Ready);
        let fresh = world.go();
        assert_eq!(fresh.epoch(), world.epoch());
        assert_ne!(fresh.epoch(), old);
        world.pass(MIN);
        assert_eq!(world.did(Action::HangUpRetired { epoch: old }), 0, "a call is still under way on it");
        world.end(slow, CallEnd::Answered);
        assert_eq!(world.did(Action::HangUpRetired { epoch: old }), 1);
        assert_eq!(world.status().restarts, 0, "what somebody asked for is no restart");
        world.end(fresh, CallEnd::Answered);
    }
}

#[test]
fn f01_a_reload_whose_new_link_cannot_be_made_keeps_the_old_one_and_says_so() {
    let mut world = World::ready(LinkKind::Process);
    world.ask(Ask::Reload);
    world.second_down(refused());
    assert_eq!(world.state(), State::Ready);
    world.good_call();
    assert!(matches!(world.events.last(), Some(Event::ReplacementFailed { .. })));
}

#[test]
fn f01_a_reload_of_a_link_in_trouble_does_not_wait_for_a_better_one() {
    let mut world = World::ready(LinkKind::Remote);
    for _ in 0..3 {
        world.fail_call(timed_out());
        world.probe_ended(ProbeAnswer::Alive);
    }
    let dials = world.dials();
    world.ask(Ask::Reload);
    assert_eq!((world.dials(), world.second()), (dials + 1, None));
}

#[test]
fn a_link_that_is_lost_while_its_replacement_is_made_is_dialed_as_ever() {
    let mut world = World::ready(LinkKind::Process);
    world.ask(Ask::Reload);
    let dials = world.dials();
    world.link_down(killed());
    assert_eq!((world.dials(), world.did(Action::DropSecond)), (dials + 1, 1));
    assert!(!world.take_over(), "it is not wanted any more");
    world.come_up();
    world.good_call();
}

#[test]
fn no_call_on_a_replaced_link_keeps_it_longer_than_a_call_may_last() {
    let mut world = World::ready(LinkKind::Process);
    let stuck = world.go();
    let old = world.epoch();
    world.ask(Ask::Reload);
    world.take_over();
    world.pass(301 * SEC);
    assert_eq!(world.did(Action::HangUpRetired { epoch: old }), 1);
    world.end(stuck, CallEnd::Failed(killed()));
    assert_eq!(world.did(Action::HangUpRetired { epoch: old }), 1, "once");
    assert_eq!(world.status().consecutive_failures, 0, "a straggler says nothing about the new one");
}

#[test]
fn links_that_were_replaced_are_few() {
    let mut world = World::ready(LinkKind::Process);
    let mut calls = Vec::new();
    for _ in 0..10 {
        calls.push(world.go());
        world.ask(Ask::Reload);
        assert!(world.take_over());
    }
    let dropped =
        world.actions.iter().filter(|action| matches!(action, Action::HangUpRetired { .. })).count();
    assert_eq!(dropped, 6, "the four newest are kept");
    world.ask(Ask::Stop);
    world.pass(MIN);
    let dropped =
        world.actions.iter().filter(|action| matches!(action, Action::HangUpRetired { .. })).count();
    assert_eq!(dropped, 10, "stopping leaves nothing");
}

#[test]
fn a_link_is_replaced_at_its_age_and_again_when_that_failed() {
    let recycle = RecycleSpec { max_lifetime: Some(60 * MIN), max_rss: None };
    let mut world = World::ready_with(LinkKind::Process, SupervisionSpec { recycle, ..quiet() });
    let up_at = world.mono;
    while world.second().is_none() {
        world.pass(SEC);
    }
    let age = world.mono - up_at;
    assert!(age >= 47 * MIN && age <= 61 * MIN, "{age:?}");
    let (first, role) = world.second().unwrap();
    assert_eq!(role, Role::Replacement);
    assert!(world.events.contains(&Event::Replacing { why: ReplaceCause::Age }));
    world.second_down(refused());
    assert_eq!(world.state(), State::Ready);
    while world.second().unwrap().0 == first {
        world.pass(SEC);
    }
    assert!(world.take_over());
    let (last, _) = world.second().unwrap();
    world.pass(45 * MIN);
    assert_eq!(world.second().unwrap().0, last, "the new one has a life of its own");
}

#[test]
fn a_child_that_grows_too_large_is_replaced_and_its_memory_is_only_looked_at_where_that_matters() {
    let recycle = RecycleSpec { max_lifetime: None, max_rss: Some(1000) };
    let mut world = World::ready_with(LinkKind::Process, SupervisionSpec { recycle, ..quiet() });
    world.pass(10 * SEC);
    let epoch = world.epoch();
    assert_eq!(world.did(Action::Measure { epoch }), 1);
    world.tell(Input::Measured { epoch, resident: 1000 });
    assert_eq!(world.second(), None);
    world.tell(Input::Measured { epoch, resident: 1001 });
    assert_eq!(world.second().map(|(_, role)| role), Some(Role::Replacement));
    world.tell(Input::Measured { epoch, resident: 1002 });
    let asked = world.actions.iter().filter(|action| matches!(action, Action::DialSecond { .. })).count();
    assert_eq!(asked, 1, "one replacement at a time");
    assert!(world.take_over());
    world.tell(Input::Measured { epoch, resident: 5000 });
    assert_eq!(world.second().map(|(_, role)| role), Some(Role::Replacement), "old news");
    let mut plain = World::ready_with(LinkKind::Process, quiet());
    plain.pass(60 * MIN);
    assert!(!plain.actions.iter().any(|action| matches!(action, Action::Measure { .. })));
}

#[test]
fn a_replacement_that_is_ready_while_the_session_is_renewed_takes_over_and_nobody_waits() {
    let mut world = World::ready(LinkKind::Remote);
    let straggler = world.go();
    world.ask(Ask::Reload);
    world.fail_call(expired());
    let (renewed, place) = (world.epoch(), world.wait());
    assert!(world.is_renewing() && world.take_over());
    assert!(matches!(world.readmit(place), Admission::Go(_)));
    assert!(!world.status().replacing);
    let (actions, epoch) = (world.actions.len(), world.epoch());
    world.tell(Input::RenewalEnded { epoch: renewed, failure: Some(refused()) });
    assert_eq!((world.actions.len(), world.epoch()), (actions, epoch), "that is of no interest any more");
    world.end(straggler, CallEnd::Answered);
    assert!(matches!(world.actions.last(), Some(Action::HangUpRetired { .. })), "the old link is let go");
}

//! A config that changes while its server is in use. Told in virtual time.

mod common;

use common::*;
use gripfast_core::event::{Event, ReplaceCause};
use gripfast_core::supervise::spec::{KeepaliveSpec, SupervisionSpec};
use gripfast_core::supervise::status::{SpareState, State};
use gripfast_core::supervise::upstream::{Action, Ask, CallEnd, LinkKind, Revision, Role};

/// Without probes, which nobody answers here.
fn quiet() -> SupervisionSpec {
    let keepalive = KeepaliveSpec { interval: None, ..KeepaliveSpec::default() };
    SupervisionSpec { keepalive, ..SupervisionSpec::default() }
}

#[test]
fn a_changed_link_is_made_before_the_old_one_is_let_go_and_its_calls_finish_there() {
    let mut world = World::ready_with(LinkKind::Process, quiet());
    let (old, call) = (world.epoch(), world.go());
    world.revise(quiet(), LinkKind::Remote, Revision::Link);
    assert!(world.events.contains(&Event::Replacing { why: ReplaceCause::Changed }));
    assert_eq!((world.state(), world.status().outdated), (State::Ready, true));
    world.good_call();
    assert!(world.take_over());
    assert!(!world.status().outdated);
    assert_eq!(world.did(Action::HangUpRetired { epoch: old }), 0, "a call is under way there");
    world.end(call, CallEnd::Answered);
    assert_eq!(world.did(Action::HangUpRetired { epoch: old }), 1);
}

#[test]
fn a_changed_link_that_cannot_be_made_is_tried_again_and_the_old_one_serves_meanwhile() {
    let mut world = World::ready_with(LinkKind::Process, SupervisionSpec { spare: true, ..quiet() });
    world.revise(SupervisionSpec { spare: true, ..quiet() }, LinkKind::Process, Revision::Link);
    let (first, _) = world.second().unwrap();
    world.second_down(refused());
    assert_eq!((world.state(), world.status().outdated), (State::Ready, true));
    assert_eq!(
        world.status().spare,
        Some(SpareState::Missing),
        "a spare waits for what it is to stand in for"
    );
    world.pass(59 * SEC);
    assert_eq!(world.second().unwrap().0, first);
    world.pass(SEC);
    let (again, role) = world.second().unwrap();
    assert_ne!(again, first);
    assert_eq!(role, Role::Replacement);
    world.good_call();
    assert!(world.take_over());
    world.pass(10 * MIN);
    assert!(!world.status().outdated);
}

#[test]
fn a_link_of_the_old_config_that_is_lost_is_not_replaced_once_more_when_its_successor_is_up() {
    let mut world = World::ready_with(LinkKind::Process, quiet());
    world.revise(quiet(), LinkKind::Process, Revision::Link);
    world.second_down(refused());
    world.good_call();
    world.link_down(killed());
    world.come_up();
    let seconds = world.actions.iter().filter(|done| matches!(done, Action::DialSecond { .. })).count();
    world.pass(10 * MIN);
    let later = world.actions.iter().filter(|done| matches!(done, Action::DialSecond { .. })).count();
    assert_eq!((seconds, later), (1, 1));
    assert!(!world.status().outdated);
}

#[test]
fn b03_a_changed_config_wakes_what_is_parked_and_leaves_stopped_what_was_stopped() {
    for revision in [Revision::Rules, Revision::Link] {
        let mut world = World::ready(LinkKind::Process);
        while world.state() != State::Parked {
            world.link_down(killed());
            if world.state() != State::Parked {
                world.link_up();
            }
            world.pass(MS);
        }
        let dials = world.dials();
        world.revise(quiet(), LinkKind::Process, revision);
        assert_eq!(world.dials(), dials + 1);
        world.come_up();
        assert_eq!(world.state(), State::Ready);
        world.ask(Ask::Stop);
        let dials = world.dials();
        world.revise(quiet(), LinkKind::Process, revision);
        world.pass(10 * MIN);
        assert_eq!((world.state(), world.dials()), (State::Stopped, dials));
    }
}

#[test]
fn changed_rules_hold_at_once_and_the_link_stays() {
    let mut world = World::ready_with(LinkKind::Process, quiet());
    let epoch = world.epoch();
    let mut strict = SupervisionSpec { max_in_flight: 1, max_waiting: 0, spare: true, ..quiet() };
    strict.circuit.threshold = 1;
    world.revise(strict.clone(), LinkKind::Process, Revision::Rules);
    assert_eq!(world.second().map(|(_, role)| role), Some(Role::Spare));
    let call = world.go();
    world.refused();
    world.end(call, CallEnd::Failed(timed_out()));
    assert_eq!((world.status().consecutive_failures, world.status().circuit.word()), (1, "open"));
    strict.spare = false;
    world.spare_up();
    world.revise(strict, LinkKind::Process, Revision::Rules);
    assert_eq!((world.did(Action::DropSecond), world.epoch()), (1, epoch));
    assert_eq!(world.status().spare, None);
}

#[test]
fn a_server_that_is_lazy_no_more_is_started_and_one_that_becomes_lazy_may_sleep() {
    let lazy = SupervisionSpec { lazy: true, ..quiet() };
    let mut world = World::new(LinkKind::Process, lazy.clone());
    world.ask(Ask::Start);
    assert_eq!((world.state(), world.dials()), (State::Idle, 0));
    world.revise(quiet(), LinkKind::Process, Revision::Rules);
    world.come_up();
    world.revise(lazy, LinkKind::Process, Revision::Rules);
    world.pass(11 * MIN);
    assert_eq!(world.state(), State::Idle);
}

#[test]
fn a_call_that_began_by_longer_limits_keeps_its_time_on_the_replaced_link() {
    let mut world = World::ready_with(LinkKind::Process, quiet());
    let (old, _call) = (world.epoch(), world.go());
    let mut brief = quiet();
    brief.timeouts.call = SEC;
    world.revise(brief, LinkKind::Process, Revision::Link);
    assert!(world.take_over());
    world.pass(4 * MIN);
    assert_eq!(world.did(Action::HangUpRetired { epoch: old }), 0);
    world.pass(2 * MIN);
    assert_eq!(world.did(Action::HangUpRetired { epoch: old }), 1);
}

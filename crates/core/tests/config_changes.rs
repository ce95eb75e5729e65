//! Config changes while a server is in use, in virtual time.

mod common;

use common::*;
use gripfast_core::event::{Event, ReplaceCause};
use gripfast_core::supervise::spec::{KeepaliveSpec, SupervisionSpec};
use gripfast_core::supervise::status::{SpareState, State};
use gripfast_core::supervise::upstream::{Action, CallEnd, Command, LinkKind, Revision, StandbyRole};

/// Without probes, which are not answered here.
fn quiet() -> SupervisionSpec {
    let keepalive = KeepaliveSpec { interval: None, ..KeepaliveSpec::default() };
    SupervisionSpec { keepalive, ..SupervisionSpec::default() }
}

#[test]
fn a_changed_link_is_made_first_and_calls_finish_on_the_old_one() {
    let mut sim = Simulation::ready_with(LinkKind::Process, quiet());
    let (old, call) = (sim.epoch(), sim.go());
    sim.reconfigure(quiet(), LinkKind::Remote, Revision::Link);
    assert!(sim.events.contains(&Event::Replacing { cause: ReplaceCause::ConfigChanged }));
    assert_eq!((sim.state(), sim.status().outdated), (State::Ready, true));
    sim.good_call();
    assert!(sim.take_over());
    assert!(!sim.status().outdated);
    assert_eq!(sim.count_of(Action::CloseRetired { epoch: old }), 0, "a call is under way there");
    sim.end(call, CallEnd::Answered);
    assert_eq!(sim.count_of(Action::CloseRetired { epoch: old }), 1);
}

#[test]
fn a_failed_replacement_is_retried_while_the_old_link_serves() {
    let mut sim = Simulation::ready_with(LinkKind::Process, SupervisionSpec { spare: true, ..quiet() });
    sim.reconfigure(SupervisionSpec { spare: true, ..quiet() }, LinkKind::Process, Revision::Link);
    let (first, _) = sim.standby().unwrap();
    sim.standby_down(refused());
    assert_eq!((sim.state(), sim.status().outdated), (State::Ready, true));
    assert_eq!(sim.status().spare, Some(SpareState::Missing), "a spare waits for what it is to stand in for");
    sim.advance(59 * SEC);
    assert_eq!(sim.standby().unwrap().0, first);
    sim.advance(SEC);
    let (again, role) = sim.standby().unwrap();
    assert_ne!(again, first);
    assert_eq!(role, StandbyRole::Replacement);
    sim.good_call();
    assert!(sim.take_over());
    sim.advance(10 * MIN);
    assert!(!sim.status().outdated);
}

#[test]
fn a_lost_outdated_link_is_not_replaced_twice() {
    let mut sim = Simulation::ready_with(LinkKind::Process, quiet());
    sim.reconfigure(quiet(), LinkKind::Process, Revision::Link);
    sim.standby_down(refused());
    sim.good_call();
    sim.link_down(killed());
    sim.come_up();
    let seconds = sim.actions.iter().filter(|done| matches!(done, Action::ConnectStandby { .. })).count();
    sim.advance(10 * MIN);
    let later = sim.actions.iter().filter(|done| matches!(done, Action::ConnectStandby { .. })).count();
    assert_eq!((seconds, later), (1, 1));
    assert!(!sim.status().outdated);
}

#[test]
fn b03_a_changed_config_wakes_a_parked_server_but_not_a_stopped_one() {
    for revision in [Revision::Rules, Revision::Link] {
        let mut sim = Simulation::ready(LinkKind::Process);
        while sim.state() != State::Parked {
            sim.link_down(killed());
            if sim.state() != State::Parked {
                sim.link_up();
            }
            sim.advance(MS);
        }
        let connects = sim.connects();
        sim.reconfigure(quiet(), LinkKind::Process, revision);
        assert_eq!(sim.connects(), connects + 1);
        sim.come_up();
        assert_eq!(sim.state(), State::Ready);
        sim.command(Command::Stop);
        let connects = sim.connects();
        sim.reconfigure(quiet(), LinkKind::Process, revision);
        sim.advance(10 * MIN);
        assert_eq!((sim.state(), sim.connects()), (State::Stopped, connects));
    }
}

#[test]
fn changed_rules_apply_at_once_and_the_link_stays() {
    let mut sim = Simulation::ready_with(LinkKind::Process, quiet());
    let epoch = sim.epoch();
    let mut strict = SupervisionSpec { max_in_flight: 1, max_waiting: 0, spare: true, ..quiet() };
    strict.circuit.threshold = 1;
    sim.reconfigure(strict.clone(), LinkKind::Process, Revision::Rules);
    assert_eq!(sim.standby().map(|(_, role)| role), Some(StandbyRole::Spare));
    let call = sim.go();
    sim.refused();
    sim.end(call, CallEnd::Failed(timed_out()));
    assert_eq!((sim.status().consecutive_failures, sim.status().circuit.as_str()), (1, "open"));
    strict.spare = false;
    sim.spare_up();
    sim.reconfigure(strict, LinkKind::Process, Revision::Rules);
    assert_eq!((sim.count_of(Action::DropStandby), sim.epoch()), (1, epoch));
    assert_eq!(sim.status().spare, None);
}

#[test]
fn a_server_that_is_not_lazy_any_more_is_started() {
    let lazy = SupervisionSpec { lazy: true, ..quiet() };
    let mut sim = Simulation::new(LinkKind::Process, lazy.clone());
    sim.command(Command::Start);
    assert_eq!((sim.state(), sim.connects()), (State::Idle, 0));
    sim.reconfigure(quiet(), LinkKind::Process, Revision::Rules);
    sim.come_up();
    sim.reconfigure(lazy, LinkKind::Process, Revision::Rules);
    sim.advance(11 * MIN);
    assert_eq!(sim.state(), State::Idle);
}

#[test]
fn a_call_keeps_its_longer_timeout_on_the_replaced_link() {
    let mut sim = Simulation::ready_with(LinkKind::Process, quiet());
    let (old, _call) = (sim.epoch(), sim.go());
    let mut brief = quiet();
    brief.timeouts.call = SEC;
    sim.reconfigure(brief, LinkKind::Process, Revision::Link);
    assert!(sim.take_over());
    sim.advance(4 * MIN);
    assert_eq!(sim.count_of(Action::CloseRetired { epoch: old }), 0);
    sim.advance(2 * MIN);
    assert_eq!(sim.count_of(Action::CloseRetired { epoch: old }), 1);
}

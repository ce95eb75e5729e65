//! Standby links in virtual time: spares, replacements, recycling.

mod common;

use common::*;
use gripfast_core::event::{Event, ReplaceCause};
use gripfast_core::supervise::spec::{KeepaliveSpec, RecycleSpec, SupervisionSpec};
use gripfast_core::supervise::status::{SpareState, State};
use gripfast_core::supervise::upstream::{
    Action, Admission, CallEnd, Command, Input, LinkKind, ProbeAnswer, StandbyRole,
};

/// Without probes, which are not answered here.
fn quiet() -> SupervisionSpec {
    let keepalive = KeepaliveSpec { interval: None, ..KeepaliveSpec::default() };
    SupervisionSpec { keepalive, ..SupervisionSpec::default() }
}

fn with_spare() -> SupervisionSpec {
    SupervisionSpec { spare: true, ..quiet() }
}

fn a_spare_stands_by() -> Simulation {
    let mut sim = Simulation::ready_with(LinkKind::Process, with_spare());
    sim.spare_up();
    sim
}

#[test]
fn a_spare_is_started_after_the_first_process_was_listed() {
    let mut sim = Simulation::new(LinkKind::Process, with_spare());
    sim.command(Command::Start);
    sim.link_up();
    assert_eq!(sim.standby(), None, "the first child comes first");
    assert_eq!(sim.status().spare, Some(SpareState::Missing));
    sim.handle(Input::CatalogListed { epoch: sim.epoch() });
    assert_eq!(sim.standby().map(|(_, role)| role), Some(StandbyRole::Spare));
    assert_eq!(sim.status().spare, Some(SpareState::Starting));
    sim.spare_up();
    assert_eq!(sim.status().spare, Some(SpareState::Ready));
}

#[test]
fn servers_without_spare_and_remote_servers_have_none() {
    let sim = Simulation::ready(LinkKind::Process);
    assert_eq!((sim.standby(), sim.status().spare), (None, None));
    let sim = Simulation::ready_with(LinkKind::Remote, with_spare());
    assert_eq!((sim.standby(), sim.status().spare), (None, None));
}

#[test]
fn b02_the_spare_takes_over_when_the_process_dies() {
    let mut sim = a_spare_stands_by();
    sim.good_call();
    let (id, _) = sim.standby().unwrap();
    let connects = sim.connects();
    sim.link_down(killed());
    assert_eq!(sim.connects(), connects, "nothing has to be started");
    assert_eq!(sim.count_of(Action::UseSpare { id, epoch: sim.epoch() }), 1);
    sim.come_up();
    assert_eq!(sim.state(), State::Ready);
    sim.good_call();
    assert!(sim.standby().is_some_and(|(newer, role)| newer != id && role == StandbyRole::Spare));
    assert!(sim.events.contains(&Event::SpareUsed));
}

#[test]
fn b04_a_server_that_keeps_dying_is_parked_despite_spares() {
    let mut sim = Simulation::ready_with(LinkKind::Process, with_spare());
    for _ in 0..20 {
        if sim.status().spare == Some(SpareState::Starting) {
            sim.spare_up();
        }
        sim.link_down(killed());
        if sim.state() == State::Parked {
            break;
        }
        sim.come_up();
        sim.advance(SEC);
    }
    assert_eq!(sim.state(), State::Parked);
    assert_ne!(sim.status().spare, Some(SpareState::Ready));
}

#[test]
fn a_dying_spare_is_made_again_with_backoff() {
    let mut sim = Simulation::ready_with(LinkKind::Process, with_spare());
    let mut pauses = Vec::new();
    for _ in 0..10 {
        let (failed, _) = sim.standby().unwrap();
        sim.standby_down(refused());
        assert_eq!((sim.state(), sim.status().restarts), (State::Ready, 0));
        let since = sim.mono;
        while sim.standby().unwrap().0 == failed {
            sim.advance(100 * MS);
        }
        pauses.push(sim.mono - since);
    }
    assert!(pauses[0] <= 2 * SEC, "{pauses:?}");
    assert!(pauses[9] >= 40 * SEC && pauses[9] <= 80 * SEC, "{pauses:?}");
}

#[test]
fn a_spare_that_never_starts_is_given_up_after_the_connect_limit() {
    let mut sim = Simulation::ready_with(LinkKind::Process, with_spare());
    sim.advance(31 * SEC);
    assert_eq!(sim.count_of(Action::DropStandby), 1);
    assert!(matches!(sim.events.last(), Some(Event::SpareLost { .. })), "{:?}", sim.events.last());
}

#[test]
fn stop_and_idle_stop_drop_the_spare() {
    let mut sim = a_spare_stands_by();
    sim.command(Command::Stop);
    assert_eq!(sim.count_of(Action::DropStandby), 1);
    let lazy = SupervisionSpec { lazy: true, ..with_spare() };
    let mut sim = Simulation::new(LinkKind::Process, lazy);
    sim.command(Command::Start);
    let place = sim.wait();
    sim.come_up();
    sim.machine.leave_queue(sim.now(), place);
    sim.spare_up();
    sim.advance(11 * MIN);
    assert_eq!((sim.state(), sim.count_of(Action::DropStandby)), (State::Idle, 1));
}

#[test]
fn f01_reload_makes_the_new_link_first_and_calls_finish_on_the_old_one() {
    for kind in [LinkKind::Process, LinkKind::Remote] {
        let mut sim = Simulation::ready(kind);
        let slow = sim.go();
        let old = sim.epoch();
        sim.command(Command::Reload);
        assert_eq!(sim.standby().map(|(_, role)| role), Some(StandbyRole::Replacement));
        assert_eq!(sim.state(), State::Ready, "the old one serves meanwhile");
        sim.good_call();
        assert!(sim.take_over());
        assert_eq!(sim.state(), State::Ready);
        let fresh = sim.go();
        assert_eq!(fresh.epoch(), sim.epoch());
        assert_ne!(fresh.epoch(), old);
        sim.advance(MIN);
        assert_eq!(sim.count_of(Action::CloseRetired { epoch: old }), 0, "a call is still under way on it");
        sim.end(slow, CallEnd::Answered);
        assert_eq!(sim.count_of(Action::CloseRetired { epoch: old }), 1);
        assert_eq!(sim.status().restarts, 0, "a requested replacement does not count as a restart");
        sim.end(fresh, CallEnd::Answered);
    }
}

#[test]
fn f01_a_failed_reload_keeps_the_old_link_and_reports_it() {
    let mut sim = Simulation::ready(LinkKind::Process);
    sim.command(Command::Reload);
    sim.standby_down(refused());
    assert_eq!(sim.state(), State::Ready);
    sim.good_call();
    assert!(matches!(sim.events.last(), Some(Event::ReplacementFailed { .. })));
}

#[test]
fn f01_a_reload_of_a_suspect_link_replaces_it_at_once() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    for _ in 0..3 {
        sim.fail_call(timed_out());
        sim.probe_ended(ProbeAnswer::Alive);
    }
    let connects = sim.connects();
    sim.command(Command::Reload);
    assert_eq!((sim.connects(), sim.standby()), (connects + 1, None));
}

#[test]
fn a_link_lost_during_its_replacement_is_reconnected_as_usual() {
    let mut sim = Simulation::ready(LinkKind::Process);
    sim.command(Command::Reload);
    let connects = sim.connects();
    sim.link_down(killed());
    assert_eq!((sim.connects(), sim.count_of(Action::DropStandby)), (connects + 1, 1));
    assert!(!sim.take_over(), "it is not wanted any more");
    sim.come_up();
    sim.good_call();
}

#[test]
fn a_replaced_link_ends_after_the_longest_call() {
    let mut sim = Simulation::ready(LinkKind::Process);
    let stuck = sim.go();
    let old = sim.epoch();
    sim.command(Command::Reload);
    sim.take_over();
    sim.advance(301 * SEC);
    assert_eq!(sim.count_of(Action::CloseRetired { epoch: old }), 1);
    sim.end(stuck, CallEnd::Failed(killed()));
    assert_eq!(sim.count_of(Action::CloseRetired { epoch: old }), 1, "once");
    assert_eq!(sim.status().consecutive_failures, 0, "a straggler says nothing about the new one");
}

#[test]
fn replaced_links_are_bounded() {
    let mut sim = Simulation::ready(LinkKind::Process);
    let mut calls = Vec::new();
    for _ in 0..10 {
        calls.push(sim.go());
        sim.command(Command::Reload);
        assert!(sim.take_over());
    }
    let dropped = sim.actions.iter().filter(|action| matches!(action, Action::CloseRetired { .. })).count();
    assert_eq!(dropped, 6, "the four newest are kept");
    sim.command(Command::Stop);
    sim.advance(MIN);
    let dropped = sim.actions.iter().filter(|action| matches!(action, Action::CloseRetired { .. })).count();
    assert_eq!(dropped, 10, "stopping leaves nothing");
}

#[test]
fn a_link_is_replaced_at_max_lifetime_and_retried_after_a_failure() {
    let recycle = RecycleSpec { max_lifetime: Some(60 * MIN), max_rss: None };
    let mut sim = Simulation::ready_with(LinkKind::Process, SupervisionSpec { recycle, ..quiet() });
    let up_at = sim.mono;
    while sim.standby().is_none() {
        sim.advance(SEC);
    }
    let age = sim.mono - up_at;
    assert!(age >= 47 * MIN && age <= 61 * MIN, "{age:?}");
    let (first, role) = sim.standby().unwrap();
    assert_eq!(role, StandbyRole::Replacement);
    assert!(sim.events.contains(&Event::Replacing { cause: ReplaceCause::Age }));
    sim.standby_down(refused());
    assert_eq!(sim.state(), State::Ready);
    while sim.standby().unwrap().0 == first {
        sim.advance(SEC);
    }
    assert!(sim.take_over());
    let (last, _) = sim.standby().unwrap();
    sim.advance(45 * MIN);
    assert_eq!(sim.standby().unwrap().0, last, "the new one has a life of its own");
}

#[test]
fn a_process_over_max_rss_is_replaced() {
    let recycle = RecycleSpec { max_lifetime: None, max_rss: Some(1000) };
    let mut sim = Simulation::ready_with(LinkKind::Process, SupervisionSpec { recycle, ..quiet() });
    sim.advance(10 * SEC);
    let epoch = sim.epoch();
    assert_eq!(sim.count_of(Action::MeasureMemory { epoch }), 1);
    sim.handle(Input::MemoryMeasured { epoch, resident: 1000 });
    assert_eq!(sim.standby(), None);
    sim.handle(Input::MemoryMeasured { epoch, resident: 1001 });
    assert_eq!(sim.standby().map(|(_, role)| role), Some(StandbyRole::Replacement));
    sim.handle(Input::MemoryMeasured { epoch, resident: 1002 });
    let asked = sim.actions.iter().filter(|action| matches!(action, Action::ConnectStandby { .. })).count();
    assert_eq!(asked, 1, "one replacement at a time");
    assert!(sim.take_over());
    sim.handle(Input::MemoryMeasured { epoch, resident: 5000 });
    assert_eq!(sim.standby().map(|(_, role)| role), Some(StandbyRole::Replacement), "old news");
    let mut plain = Simulation::ready_with(LinkKind::Process, quiet());
    plain.advance(60 * MIN);
    assert!(!plain.actions.iter().any(|action| matches!(action, Action::MeasureMemory { .. })));
}

#[test]
fn a_replacement_takes_over_during_a_session_renewal() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    let straggler = sim.go();
    sim.command(Command::Reload);
    sim.fail_call(expired());
    let (renewed, place) = (sim.epoch(), sim.wait());
    assert!(sim.is_renewing() && sim.take_over());
    assert!(matches!(sim.readmit(place), Admission::Go(_)));
    assert!(!sim.status().replacing);
    let (actions, epoch) = (sim.actions.len(), sim.epoch());
    sim.handle(Input::RenewalEnded { epoch: renewed, failure: Some(refused()) });
    assert_eq!((sim.actions.len(), sim.epoch()), (actions, epoch), "that is of no interest any more");
    sim.end(straggler, CallEnd::Answered);
    assert!(matches!(sim.actions.last(), Some(Action::CloseRetired { .. })), "the old link is let go");
}

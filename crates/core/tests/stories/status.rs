//! Lazy servers, and the status and events of an upstream.

use crate::common::*;
use gripfast_core::event::Event;
use gripfast_core::failure::Failure;
use gripfast_core::supervise::spec::{KeepaliveSpec, SupervisionSpec};
use gripfast_core::supervise::status::{NextAction, State};
use gripfast_core::supervise::upstream::{Action, Admission, CallEnd, CloseMode, Command, LinkKind};

#[test]
fn f02_a_lazy_upstream_starts_on_first_use_and_stops_when_unused() {
    let quiet = KeepaliveSpec { interval: None, ..KeepaliveSpec::default() };
    let spec = SupervisionSpec { lazy: true, keepalive: quiet, ..SupervisionSpec::default() };
    let mut sim = Simulation::new(LinkKind::Process, spec);
    sim.command(Command::Start);
    sim.advance(60 * MIN);
    assert_eq!((sim.state(), sim.connects()), (State::Idle, 0));
    let place = sim.wait();
    assert_eq!(sim.connects(), 1);
    sim.come_up();
    let Admission::Go(ticket) = sim.readmit(place) else { panic!("held, then admitted") };
    sim.advance(20 * MIN);
    assert_eq!(sim.state(), State::Ready, "something is in flight");
    sim.end(ticket, CallEnd::Answered);
    sim.advance(11 * MIN);
    assert_eq!(sim.state(), State::Idle);
    assert!(sim.actions.contains(&Action::Close(CloseMode::Graceful)));
}

#[test]
fn f02_a_lazy_upstream_stays_up_while_it_is_held() {
    let spec = SupervisionSpec {
        lazy: true,
        keepalive: KeepaliveSpec { interval: None, ..KeepaliveSpec::default() },
        ..SupervisionSpec::default()
    };
    let mut sim = Simulation::new(LinkKind::Process, spec);
    sim.command(Command::Reconnect);
    sim.come_up();
    sim.machine.hold();
    sim.machine.hold();
    sim.machine.release(sim.now());
    sim.advance(60 * MIN);
    assert_eq!(sim.state(), State::Ready);
    sim.machine.release(sim.now());
    sim.advance(11 * MIN);
    assert_eq!(sim.state(), State::Idle);
}

#[test]
fn f03_status_has_duration_cause_and_next_action() {
    let mut sim = Simulation::ready(LinkKind::Process);
    sim.advance(SEC);
    sim.link_down(killed());
    sim.link_down(Failure::Unreachable("exited with code 1".to_owned()));
    let status = sim.status();
    assert_eq!(status.state, State::Reconnecting);
    assert_eq!(status.cause.as_deref(), Some("exited with code 1"));
    assert!(status.next_attempt.is_some_and(|wait| wait <= 250 * MS));
    assert_eq!(status.next_action, Some(NextAction::Reconnect));
}

#[test]
fn f04_every_state_change_is_reported_once() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.events.clear();
    sim.link_down(killed());
    for _ in 0..50 {
        sim.link_down(refused());
        sim.advance(100 * MS);
    }
    let told = sim.events.iter().filter(|event| matches!(event, Event::StateChanged { .. })).count();
    assert_eq!(told, 1, "{:?}", sim.events);
}

#[test]
fn f04_a_server_that_was_never_up_is_reported_once() {
    let mut sim = Simulation::new(LinkKind::Remote, SupervisionSpec::default());
    sim.command(Command::Start);
    sim.events.clear();
    for _ in 0..50 {
        sim.link_down(refused());
        sim.advance(100 * MS);
    }
    let told = sim.events.iter().filter(|event| matches!(event, Event::StateChanged { .. })).count();
    assert_eq!(told, 1, "{:?}", sim.events);
}

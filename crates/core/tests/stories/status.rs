//! Lazy servers, and what is told of an upstream: its status and its events.

use crate::common::*;
use gripfast_core::event::Event;
use gripfast_core::failure::Failure;
use gripfast_core::supervise::spec::{KeepaliveSpec, SupervisionSpec};
use gripfast_core::supervise::status::{NextAction, State};
use gripfast_core::supervise::upstream::{Action, Admission, Ask, CallEnd, LinkKind, Manner};

#[test]
fn f02_a_lazy_upstream_starts_on_first_use_and_stops_when_unused() {
    let quiet = KeepaliveSpec { interval: None, ..KeepaliveSpec::default() };
    let spec = SupervisionSpec { lazy: true, keepalive: quiet, ..SupervisionSpec::default() };
    let mut world = World::new(LinkKind::Process, spec);
    world.ask(Ask::Start);
    world.pass(60 * MIN);
    assert_eq!((world.state(), world.dials()), (State::Idle, 0));
    let place = world.wait();
    assert_eq!(world.dials(), 1);
    world.come_up();
    let Admission::Go(ticket) = world.readmit(place) else { panic!("held, then admitted") };
    world.pass(20 * MIN);
    assert_eq!(world.state(), State::Ready, "something is in flight");
    world.end(ticket, CallEnd::Answered);
    world.pass(11 * MIN);
    assert_eq!(world.state(), State::Idle);
    assert!(world.actions.contains(&Action::HangUp(Manner::Politely)));
}

#[test]
fn f02_a_lazy_upstream_stays_while_somebody_holds_it() {
    let spec = SupervisionSpec {
        lazy: true,
        keepalive: KeepaliveSpec { interval: None, ..KeepaliveSpec::default() },
        ..SupervisionSpec::default()
    };
    let mut world = World::new(LinkKind::Process, spec);
    world.ask(Ask::Reconnect);
    world.come_up();
    world.machine.hold();
    world.machine.hold();
    world.machine.release(world.now());
    world.pass(60 * MIN);
    assert_eq!(world.state(), State::Ready);
    world.machine.release(world.now());
    world.pass(11 * MIN);
    assert_eq!(world.state(), State::Idle);
}

#[test]
fn f03_status_tells_since_when_why_and_what_next() {
    let mut world = World::ready(LinkKind::Process);
    world.pass(SEC);
    world.link_down(killed());
    world.link_down(Failure::Unreachable("exited with code 1".to_owned()));
    let status = world.status();
    assert_eq!(status.state, State::Reconnecting);
    assert_eq!(status.cause.as_deref(), Some("exited with code 1"));
    assert!(status.next_attempt.is_some_and(|wait| wait <= 250 * MS));
    assert_eq!(status.next_action, Some(NextAction::Reconnect));
}

#[test]
fn f04_every_state_change_is_told_once() {
    let mut world = World::ready(LinkKind::Remote);
    world.events.clear();
    world.link_down(killed());
    for _ in 0..50 {
        world.link_down(refused());
        world.pass(100 * MS);
    }
    let told = world.events.iter().filter(|event| matches!(event, Event::StateChanged { .. })).count();
    assert_eq!(told, 1, "{:?}", world.events);
}

#[test]
fn f04_a_server_that_was_never_up_is_told_of_once_however_often_it_is_dialed() {
    let mut world = World::new(LinkKind::Remote, SupervisionSpec::default());
    world.ask(Ask::Start);
    world.events.clear();
    for _ in 0..50 {
        world.link_down(refused());
        world.pass(100 * MS);
    }
    let told = world.events.iter().filter(|event| matches!(event, Event::StateChanged { .. })).count();
    assert_eq!(told, 1, "{:?}", world.events);
}

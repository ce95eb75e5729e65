//! Sessions and liveness: one renewal for all who hit it, keepalive that fits the server.

use crate::common::*;
use gripfast_core::supervise::keepalive::Probe;
use gripfast_core::supervise::spec::SupervisionSpec;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{Action, Admission, CallEnd, Input, LinkKind, ProbeAnswer, Renewal};
use std::time::Duration;

#[test]
fn d02_fifty_calls_that_hit_an_expired_session_cause_one_renewal() {
    let mut world = World::ready(LinkKind::Remote);
    let tickets: Vec<_> = (0..50).map(|_| world.go()).collect();
    for ticket in tickets {
        world.end(ticket, CallEnd::Failed(expired()));
    }
    let renewals =
        |world: &World| world.actions.iter().filter(|action| matches!(action, Action::Renew { .. })).count();
    assert_eq!(renewals(&world), 1);
    assert!(world.actions.iter().any(|a| matches!(a, Action::Renew { renewal: Renewal::Session, .. })));
    let place = world.wait();
    let epoch = world.epoch();
    world.tell(Input::RenewalEnded { epoch, failure: None });
    assert!(matches!(world.readmit(place), Admission::Go(_)));
    assert_eq!(world.status().consecutive_failures, 0);
    assert!(matches!(world.actions.last(), Some(Action::ListCatalog { .. })), "a new session is listed anew");
}

#[test]
fn d02_a_renewal_that_fails_becomes_a_reconnect() {
    let mut world = World::ready(LinkKind::Remote);
    world.fail_call(expired());
    let (epoch, dials) = (world.epoch(), world.dials());
    world.tell(Input::RenewalEnded { epoch, failure: Some(refused()) });
    assert_eq!(world.dials(), dials + 1);
}

#[test]
fn d05_a_silent_link_is_probed_after_the_interval_also_while_a_call_is_in_flight() {
    let mut world = World::ready(LinkKind::Remote);
    world.pass(179 * SEC);
    assert_eq!(world.probes(), 0);
    world.pass(SEC);
    assert_eq!(world.probes(), 1);
    world.probe_ended(ProbeAnswer::Alive);
    let ticket = world.go();
    world.pass(180 * SEC);
    assert_eq!(world.probes(), 2);
    world.probe_ended(ProbeAnswer::Alive);
    world.end(ticket, CallEnd::Answered);
    world.pass(180 * SEC);
    assert_eq!(world.probes(), 3);
}

/// D01 (b): a doubt costs one probe in five seconds, and the session only if the probe says so too.
#[test]
fn d01_a_doubted_session_is_probed_once_in_five_seconds_and_renewed_only_if_the_probe_is_refused() {
    let mut world = World::ready(LinkKind::Remote);
    world.good_call();
    let doubt = |world: &mut World| {
        let epoch = world.epoch();
        world.tell(Input::SessionDoubted { epoch });
    };
    for _ in 0..10 {
        doubt(&mut world);
        world.probe_ended(ProbeAnswer::Alive);
        world.pass(100 * MS);
    }
    assert_eq!((world.probes(), world.state()), (1, State::Ready));
    let ticket = world.go();
    world.end(ticket, CallEnd::Answered);
    world.pass(5 * SEC);
    doubt(&mut world);
    assert_eq!(world.probes(), 2);
    assert!(matches!(world.admit(), Admission::Go(_)), "nobody is held for a doubt");
    world.probe_ended(ProbeAnswer::Failed(expired()));
    assert!(world.is_renewing());
}

#[test]
fn d05_an_interval_of_zero_turns_it_off() {
    let mut spec = SupervisionSpec::default();
    spec.keepalive.interval = None;
    let mut world = World::ready_with(LinkKind::Remote, spec);
    world.pass(24 * 60 * MIN);
    assert_eq!(world.probes(), 0);
}

#[test]
fn d05_a_server_that_does_not_know_ping_is_asked_for_its_tools_and_that_is_remembered() {
    let mut world = World::ready(LinkKind::Remote);
    world.pass(180 * SEC);
    world.probe_ended(ProbeAnswer::Unsupported);
    world.probe_ended(ProbeAnswer::Alive);
    world.pass(180 * SEC);
    let asked: Vec<Probe> = world
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Probe { probe, .. } => Some(*probe),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [Probe::Ping, Probe::ListTools, Probe::ListTools]);
}

#[test]
fn d06_after_twelve_idle_hours_the_first_call_works() {
    let mut world = World::ready(LinkKind::Remote);
    let end = world.mono + Duration::from_secs(12 * 3600);
    let (mut silent_from, mut answered) = (0, 0);
    while world.mono < end {
        let probes = world.probes();
        world.pass(SEC);
        if world.probes() > probes {
            answered += 1;
            // In the sixth hour the server forgets us without a word.
            if answered == 120 {
                silent_from = world.dials();
                world.pass(30 * SEC);
                assert_eq!(world.dials(), silent_from + 1, "the failed probe reconnects");
                world.come_up();
            } else {
                world.probe_ended(ProbeAnswer::Alive);
            }
        }
    }
    assert!(answered > 200 && silent_from > 0);
    world.good_call();
    assert_eq!(world.status().restarts, 1);
}

#[test]
fn d06_a_failed_probe_fails_nobodys_call_and_counts_for_no_circuit() {
    let mut world = World::ready(LinkKind::Remote);
    world.pass(180 * SEC);
    world.probe_ended(ProbeAnswer::Failed(refused()));
    assert_eq!(world.status().consecutive_failures, 0);
    let place = world.wait();
    world.come_up();
    assert!(matches!(world.readmit(place), Admission::Go(_)));
}

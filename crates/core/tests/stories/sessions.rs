//! Sessions and liveness: one renewal for all affected calls, and a keepalive that fits the server.

use crate::common::*;
use gripfast_core::supervise::keepalive::Probe;
use gripfast_core::supervise::spec::SupervisionSpec;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{Action, Admission, CallEnd, Input, LinkKind, ProbeAnswer, Renewal};
use std::time::Duration;

#[test]
fn d02_fifty_calls_that_hit_an_expired_session_cause_one_renewal() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    let tickets: Vec<_> = (0..50).map(|_| sim.go()).collect();
    for ticket in tickets {
        sim.end(ticket, CallEnd::Failed(expired()));
    }
    let renewals =
        |sim: &Simulation| sim.actions.iter().filter(|action| matches!(action, Action::Renew { .. })).count();
    assert_eq!(renewals(&sim), 1);
    assert!(sim.actions.iter().any(|a| matches!(a, Action::Renew { renewal: Renewal::Session, .. })));
    let place = sim.wait();
    let epoch = sim.epoch();
    sim.handle(Input::RenewalEnded { epoch, failure: None });
    assert!(matches!(sim.readmit(place), Admission::Go(_)));
    assert_eq!(sim.status().consecutive_failures, 0);
    assert!(matches!(sim.actions.last(), Some(Action::ListCatalog { .. })), "a new session is listed again");
}

#[test]
fn d02_a_renewal_that_fails_becomes_a_reconnect() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.fail_call(expired());
    let (epoch, connects) = (sim.epoch(), sim.connects());
    sim.handle(Input::RenewalEnded { epoch, failure: Some(refused()) });
    assert_eq!(sim.connects(), connects + 1);
}

#[test]
fn d05_a_silent_link_is_probed_after_the_interval_also_while_a_call_is_in_flight() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.advance(179 * SEC);
    assert_eq!(sim.probes(), 0);
    sim.advance(SEC);
    assert_eq!(sim.probes(), 1);
    sim.probe_ended(ProbeAnswer::Alive);
    let ticket = sim.go();
    sim.advance(180 * SEC);
    assert_eq!(sim.probes(), 2);
    sim.probe_ended(ProbeAnswer::Alive);
    sim.end(ticket, CallEnd::Answered);
    sim.advance(180 * SEC);
    assert_eq!(sim.probes(), 3);
}

/// D01 (b): a doubt costs one probe in five seconds, and the session only if the probe confirms it.
#[test]
fn d01_a_doubted_session_is_probed_and_renewed_only_if_refused() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.good_call();
    let doubt = |sim: &mut Simulation| {
        let epoch = sim.epoch();
        sim.handle(Input::SessionDoubted { epoch });
    };
    for _ in 0..10 {
        doubt(&mut sim);
        sim.probe_ended(ProbeAnswer::Alive);
        sim.advance(100 * MS);
    }
    assert_eq!((sim.probes(), sim.state()), (1, State::Ready));
    let ticket = sim.go();
    sim.end(ticket, CallEnd::Answered);
    sim.advance(5 * SEC);
    doubt(&mut sim);
    assert_eq!(sim.probes(), 2);
    assert!(matches!(sim.admit(), Admission::Go(_)), "calls are not held for a doubt");
    sim.probe_ended(ProbeAnswer::Failed(expired()));
    assert!(sim.is_renewing());
}

#[test]
fn d05_an_interval_of_zero_disables_keepalive() {
    let mut spec = SupervisionSpec::default();
    spec.keepalive.interval = None;
    let mut sim = Simulation::ready_with(LinkKind::Remote, spec);
    sim.advance(24 * 60 * MIN);
    assert_eq!(sim.probes(), 0);
}

#[test]
fn d05_a_server_without_ping_is_probed_with_tools_list() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.advance(180 * SEC);
    sim.probe_ended(ProbeAnswer::Unsupported);
    sim.probe_ended(ProbeAnswer::Alive);
    sim.advance(180 * SEC);
    let asked: Vec<Probe> = sim
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
    let mut sim = Simulation::ready(LinkKind::Remote);
    let end = sim.mono + Duration::from_secs(12 * 3600);
    let (mut silent_from, mut answered) = (0, 0);
    while sim.mono < end {
        let probes = sim.probes();
        sim.advance(SEC);
        if sim.probes() > probes {
            answered += 1;
            // In the sixth hour the server forgets the session silently.
            if answered == 120 {
                silent_from = sim.connects();
                sim.advance(30 * SEC);
                assert_eq!(sim.connects(), silent_from + 1, "the failed probe reconnects");
                sim.come_up();
            } else {
                sim.probe_ended(ProbeAnswer::Alive);
            }
        }
    }
    assert!(answered > 200 && silent_from > 0);
    sim.good_call();
    assert_eq!(sim.status().restarts, 1);
}

#[test]
fn d06_a_failed_probe_fails_no_call_and_does_not_count() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.advance(180 * SEC);
    sim.probe_ended(ProbeAnswer::Failed(refused()));
    assert_eq!(sim.status().consecutive_failures, 0);
    let place = sim.wait();
    sim.come_up();
    assert!(matches!(sim.readmit(place), Admission::Go(_)));
}

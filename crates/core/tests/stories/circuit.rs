//! The circuit breaker: what opens it, what is never counted, the trial, and what closes it.

use crate::common::*;
use crate::{BOTH, open_circuit};
use gripfast_core::failure::Failure;
use gripfast_core::supervise::circuit::CircuitView;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{CallEnd, Command, LinkKind, ProbeAnswer, RefusalReason, WaitFor};
use std::time::Duration;

#[test]
fn b12_calls_that_fail_together_count_once_and_the_next_one_waits() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    let tickets: Vec<_> = (0..10).map(|_| sim.go()).collect();
    for ticket in tickets {
        sim.end(ticket, CallEnd::Failed(killed()));
    }
    assert_eq!((sim.status().consecutive_failures, sim.status().circuit), (1, CircuitView::Closed));
    assert_eq!(sim.wait().wait_for, WaitFor::Link);
}

#[test]
fn b12_calls_in_flight_together_count_once_however_late_they_fail() {
    for failure in [timed_out(), killed(), Failure::ServerFault("HTTP 500".into())] {
        let mut sim = Simulation::ready(LinkKind::Remote);
        let mut tickets: Vec<_> = (0..64).map(|_| sim.go()).collect();
        let late = tickets.split_off(10);
        for ticket in tickets {
            sim.end(ticket, CallEnd::Failed(failure.clone()));
        }
        sim.probe_ended(ProbeAnswer::Alive);
        let (probes, connects) = (sim.probes(), sim.connects());
        // The outage is over. Calls that were lost in it fail later, and say nothing about the present.
        for ticket in late {
            sim.end(ticket, CallEnd::Failed(failure.clone()));
        }
        assert_eq!((sim.status().consecutive_failures, sim.status().circuit), (1, CircuitView::Closed));
        assert_eq!((sim.probes(), sim.connects()), (probes, connects));
        sim.good_call();
    }
}

#[test]
fn b15_a_trial_counts_even_during_a_doubt() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    let straggler = sim.go();
    for _ in 0..3 {
        sim.fail_call(timed_out());
        sim.probe_ended(ProbeAnswer::Alive);
    }
    sim.advance(60 * SEC);
    let trial = sim.go();
    sim.end(straggler, CallEnd::Failed(killed()));
    sim.end(trial, CallEnd::Failed(timed_out()));
    assert_eq!(sim.refused().retry_after, Some(60 * SEC));
}

#[test]
fn b13_an_open_circuit_refuses_at_once_even_during_a_doubt() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    for _ in 0..2 {
        sim.fail_call(timed_out());
        sim.probe_ended(ProbeAnswer::Alive);
    }
    sim.fail_call(killed());
    assert_eq!(sim.status().circuit, CircuitView::Open);
    assert!(matches!(sim.refused().reason, RefusalReason::CircuitOpen { .. }));
}

#[test]
fn b11_three_transport_failures_in_a_row_open_the_circuit() {
    for failure in [timed_out(), Failure::ServerFault("HTTP 500".into())] {
        let mut sim = Simulation::ready(LinkKind::Remote);
        for _ in 0..3 {
            assert_eq!(sim.status().circuit, CircuitView::Closed);
            sim.fail_call(failure.clone());
            sim.probe_ended(ProbeAnswer::Alive);
        }
        assert_eq!(sim.status().circuit, CircuitView::Open);
        assert_eq!(sim.state(), State::Degraded);
    }
}

#[test]
fn b12_only_transport_failures_are_counted() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    for _ in 0..20 {
        sim.fail_call(Failure::Declined("invalid params (-32602)".to_owned()));
        sim.fail_call(Failure::Busy { retry_after: None, text: "HTTP 429".to_owned() });
        // An answer that arrived but cannot be used.
        sim.fail_call(Failure::InvalidResponse("sent a message over the limit".to_owned()));
        sim.probe_ended(ProbeAnswer::Alive);
        let ticket = sim.go();
        sim.end(ticket, CallEnd::Abandoned);
    }
    assert_eq!(sim.status().consecutive_failures, 0);
}

#[test]
fn b12_calls_that_race_a_known_reconnect_are_not_counted() {
    let mut sim = Simulation::ready(LinkKind::Process);
    let tickets: Vec<_> = (0..10).map(|_| sim.go()).collect();
    sim.link_down(killed());
    for ticket in tickets {
        sim.end(ticket, CallEnd::Failed(killed()));
    }
    assert_eq!((sim.status().consecutive_failures, sim.status().circuit), (0, CircuitView::Closed));
}

#[test]
fn b13_an_open_circuit_refuses_without_touching_the_link_and_names_the_next_trial() {
    let mut sim = open_circuit();
    let actions = sim.actions.len();
    let refusal = sim.refused();
    assert_eq!(refusal.reason, RefusalReason::CircuitOpen { failures: 3 });
    assert_eq!(refusal.retry_after, Some(60 * SEC));
    assert_eq!(sim.actions.len(), actions);
}

#[test]
fn b14_after_the_cooldown_one_call_is_the_trial_and_others_are_refused() {
    let mut sim = open_circuit();
    sim.advance(60 * SEC);
    let trial = sim.go();
    assert!(matches!(sim.refused().reason, RefusalReason::CircuitOpen { .. }));
    sim.end(trial, CallEnd::Abandoned);
    let second = sim.go();
    sim.end(second, CallEnd::Answered);
    assert_eq!(sim.status().circuit, CircuitView::Closed);
}

#[test]
fn b15_a_failed_trial_opens_it_again_with_a_fresh_cooldown() {
    let mut sim = open_circuit();
    sim.advance(60 * SEC);
    let trial = sim.go();
    sim.tick(5 * SEC);
    sim.end(trial, CallEnd::Failed(timed_out()));
    assert_eq!(sim.refused().retry_after, Some(60 * SEC));
}

#[test]
fn b16_a_due_trial_without_a_link_reconnects_first() {
    let mut sim = open_circuit();
    sim.link_down(killed());
    for _ in 0..20 {
        sim.link_down(refused());
        sim.advance(100 * MS);
    }
    sim.advance(58 * SEC);
    sim.link_down(refused());
    while sim.state() != State::Reconnecting || sim.status().next_attempt == Some(Duration::ZERO) {
        sim.link_down(refused());
        sim.advance(10 * MS);
    }
    assert_eq!(sim.status().circuit, CircuitView::HalfOpen);
    let connects = sim.connects();
    assert!(matches!(sim.refused().reason, RefusalReason::Reconnecting { .. }));
    assert_eq!(sim.connects(), connects + 1, "the owner was asked for a reconnect");
}

#[test]
fn b17_a_completed_reconnect_closes_the_circuit_on_any_transport() {
    for kind in BOTH {
        let mut sim = Simulation::ready(kind);
        for _ in 0..3 {
            sim.fail_call(timed_out());
            sim.probe_ended(ProbeAnswer::Alive);
        }
        assert_eq!(sim.status().circuit, CircuitView::Open);
        sim.command(Command::Reconnect);
        sim.come_up();
        assert_eq!((sim.status().circuit, sim.status().consecutive_failures), (CircuitView::Closed, 0));
    }
}

#[test]
fn b18_the_next_call_after_recovery_is_admitted_at_once() {
    let mut sim = open_circuit();
    sim.link_down(killed());
    sim.come_up();
    sim.good_call();
}

//! The circuit: what opens it, what is never counted, who is the trial, what closes it.

use crate::common::*;
use crate::{BOTH, open_circuit};
use gripfast_core::failure::Failure;
use gripfast_core::supervise::circuit::CircuitView;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{Ask, CallEnd, LinkKind, ProbeAnswer, Reason, WaitFor};
use std::time::Duration;

#[test]
fn b12_calls_that_break_together_with_one_server_count_once_and_the_next_one_is_held() {
    let mut world = World::ready(LinkKind::Remote);
    let tickets: Vec<_> = (0..10).map(|_| world.go()).collect();
    for ticket in tickets {
        world.end(ticket, CallEnd::Failed(killed()));
    }
    assert_eq!((world.status().consecutive_failures, world.status().circuit), (1, CircuitView::Closed));
    assert_eq!(world.wait().wait_for, WaitFor::Link);
}

#[test]
fn b12_calls_that_were_under_way_together_count_once_however_late_they_fail() {
    for failure in [timed_out(), killed(), Failure::ServerFault("HTTP 500".into())] {
        let mut world = World::ready(LinkKind::Remote);
        let mut tickets: Vec<_> = (0..64).map(|_| world.go()).collect();
        let late = tickets.split_off(10);
        for ticket in tickets {
            world.end(ticket, CallEnd::Failed(failure.clone()));
        }
        world.probe_ended(ProbeAnswer::Alive);
        let (probes, dials) = (world.probes(), world.dials());
        // The hole is over. What fell into it has yet to notice, and has nothing to say about today.
        for ticket in late {
            world.end(ticket, CallEnd::Failed(failure.clone()));
        }
        assert_eq!((world.status().consecutive_failures, world.status().circuit), (1, CircuitView::Closed));
        assert_eq!((world.probes(), world.dials()), (probes, dials));
        world.good_call();
    }
}

#[test]
fn b15_a_trial_counts_whatever_else_is_in_doubt() {
    let mut world = World::ready(LinkKind::Remote);
    let straggler = world.go();
    for _ in 0..3 {
        world.fail_call(timed_out());
        world.probe_ended(ProbeAnswer::Alive);
    }
    world.pass(60 * SEC);
    let trial = world.go();
    world.end(straggler, CallEnd::Failed(killed()));
    world.end(trial, CallEnd::Failed(timed_out()));
    assert_eq!(world.refused().retry_after, Some(60 * SEC));
}

#[test]
fn b13_an_open_circuit_answers_at_once_even_while_the_link_is_doubted() {
    let mut world = World::ready(LinkKind::Remote);
    for _ in 0..2 {
        world.fail_call(timed_out());
        world.probe_ended(ProbeAnswer::Alive);
    }
    world.fail_call(killed());
    assert_eq!(world.status().circuit, CircuitView::Open);
    assert!(matches!(world.refused().reason, Reason::CircuitOpen { .. }));
}

#[test]
fn b11_three_transport_failures_in_a_row_open_the_circuit() {
    for failure in [timed_out(), Failure::ServerFault("HTTP 500".into())] {
        let mut world = World::ready(LinkKind::Remote);
        for _ in 0..3 {
            assert_eq!(world.status().circuit, CircuitView::Closed);
            world.fail_call(failure.clone());
            world.probe_ended(ProbeAnswer::Alive);
        }
        assert_eq!(world.status().circuit, CircuitView::Open);
        assert_eq!(world.state(), State::Degraded);
    }
}

#[test]
fn b12_what_is_no_transport_failure_is_never_counted() {
    let mut world = World::ready(LinkKind::Remote);
    for _ in 0..20 {
        world.fail_call(Failure::Declined("invalid params (-32602)".to_owned()));
        world.fail_call(Failure::Busy { retry_after: None, text: "HTTP 429".to_owned() });
        // An answer that arrived and cannot be used.
        world.fail_call(Failure::Nonsense("sent a message over the limit".to_owned()));
        world.probe_ended(ProbeAnswer::Alive);
        let ticket = world.go();
        world.end(ticket, CallEnd::Abandoned);
    }
    assert_eq!(world.status().consecutive_failures, 0);
}

#[test]
fn b12_calls_that_race_a_known_reconnect_are_not_counted() {
    let mut world = World::ready(LinkKind::Process);
    let tickets: Vec<_> = (0..10).map(|_| world.go()).collect();
    world.link_down(killed());
    for ticket in tickets {
        world.end(ticket, CallEnd::Failed(killed()));
    }
    assert_eq!((world.status().consecutive_failures, world.status().circuit), (0, CircuitView::Closed));
}

#[test]
fn b13_an_open_circuit_refuses_without_touching_the_link_and_names_the_next_trial() {
    let mut world = open_circuit();
    let actions = world.actions.len();
    let refusal = world.refused();
    assert_eq!(refusal.reason, Reason::CircuitOpen { failures: 3 });
    assert_eq!(refusal.retry_after, Some(60 * SEC));
    assert_eq!(world.actions.len(), actions);
}

#[test]
fn b14_after_the_cooldown_one_caller_is_the_trial_and_the_others_get_the_open_answer() {
    let mut world = open_circuit();
    world.pass(60 * SEC);
    let trial = world.go();
    assert!(matches!(world.refused().reason, Reason::CircuitOpen { .. }));
    world.end(trial, CallEnd::Abandoned);
    let second = world.go();
    world.end(second, CallEnd::Answered);
    assert_eq!(world.status().circuit, CircuitView::Closed);
}

#[test]
fn b15_a_failed_trial_opens_it_again_with_a_fresh_cooldown() {
    let mut world = open_circuit();
    world.pass(60 * SEC);
    let trial = world.go();
    world.tick(5 * SEC);
    world.end(trial, CallEnd::Failed(timed_out()));
    assert_eq!(world.refused().retry_after, Some(60 * SEC));
}

#[test]
fn b16_half_open_without_a_live_link_asks_for_a_reconnect_and_answers_reconnecting() {
    let mut world = open_circuit();
    world.link_down(killed());
    for _ in 0..20 {
        world.link_down(refused());
        world.pass(100 * MS);
    }
    world.pass(58 * SEC);
    world.link_down(refused());
    while world.state() != State::Reconnecting || world.status().next_attempt == Some(Duration::ZERO) {
        world.link_down(refused());
        world.pass(10 * MS);
    }
    assert_eq!(world.status().circuit, CircuitView::HalfOpen);
    let dials = world.dials();
    assert!(matches!(world.refused().reason, Reason::Reconnecting { .. }));
    assert_eq!(world.dials(), dials + 1, "the owner was asked for a reconnect");
}

#[test]
fn b17_a_completed_reconnect_closes_the_circuit_on_any_transport() {
    for kind in BOTH {
        let mut world = World::ready(kind);
        for _ in 0..3 {
            world.fail_call(timed_out());
            world.probe_ended(ProbeAnswer::Alive);
        }
        assert_eq!(world.status().circuit, CircuitView::Open);
        world.ask(Ask::Reconnect);
        world.come_up();
        assert_eq!((world.status().circuit, world.status().consecutive_failures), (CircuitView::Closed, 0));
    }
}

#[test]
fn b18_the_next_call_after_recovery_goes_straight_through() {
    let mut world = open_circuit();
    world.link_down(killed());
    world.come_up();
    world.good_call();
}

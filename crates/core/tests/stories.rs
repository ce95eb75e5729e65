//! The life of one upstream, told in virtual time. Each story is a promise.

mod common;

use common::*;
use gripfast_core::event::Event;
use gripfast_core::failure::{BlockCause, Failure};
use gripfast_core::supervise::circuit::CircuitView;
use gripfast_core::supervise::keepalive::Probe;
use gripfast_core::supervise::spec::{KeepaliveSpec, SupervisionSpec};
use gripfast_core::supervise::status::{NextAction, State};
use gripfast_core::supervise::upstream::{
    Action, Admission, Ask, CallEnd, Input, LinkKind, Manner, ProbeAnswer, Reason, Renewal, WaitFor,
};
use std::time::Duration;

const BOTH: [LinkKind; 2] = [LinkKind::Process, LinkKind::Remote];

// --- A. Never lose a server ---

#[test]
fn b01_only_stop_ends_an_upstream_and_start_resumes_it() {
    for kind in BOTH {
        let mut world = World::ready(kind);
        for _ in 0..50 {
            world.link_down(killed());
            world.pass(10 * MIN);
            assert_ne!(world.state(), State::Stopped);
            world.link_up();
        }
        world.ask(Ask::Stop);
        assert_eq!(world.state(), State::Stopped);
        world.ask(Ask::Reconnect);
        world.ask(Ask::CauseChanged);
        world.pass(24 * 60 * MIN);
        assert_eq!(world.state(), State::Stopped, "only start resumes");
        world.ask(Ask::Start);
        world.come_up();
        assert_eq!(world.state(), State::Ready);
    }
}

#[test]
fn b01_every_state_but_idle_and_stopped_shows_its_next_wake_up() {
    let mut world = World::new(LinkKind::Process, SupervisionSpec::default());
    world.ask(Ask::Start);
    let mut seen = Vec::new();
    for _ in 0..20 {
        let status = world.status();
        assert!(status.next_wake.is_some(), "{:?} has no wake-up", status.state);
        seen.push(status.state);
        world.link_down(refused());
        world.pass(SEC);
    }
    assert!(seen.contains(&State::Parked) && seen.contains(&State::Starting));
    let mut quiet = SupervisionSpec::default();
    quiet.keepalive.interval = None;
    let mut world = World::ready_with(LinkKind::Remote, quiet);
    world.pass(60 * MIN);
    assert!(world.status().next_wake.is_some(), "ready without keepalive still looks at the clocks");
}

#[test]
fn b02_a_dead_child_is_respawned_at_once_without_anybody_calling() {
    let mut world = World::ready(LinkKind::Process);
    world.good_call();
    let dials = world.dials();
    world.link_down(killed());
    assert_eq!(world.dials(), dials + 1, "no time passed, nobody called");
    world.come_up();
    assert_eq!(world.state(), State::Ready);
}

#[test]
fn b02_a_server_that_is_away_is_dialed_eagerly_for_two_seconds_then_ever_more_patiently() {
    let mut world = World::ready(LinkKind::Remote);
    let begin = world.mono;
    world.link_down(killed());
    let mut dialed_at = vec![world.mono - begin];
    while world.mono - begin < Duration::from_secs(120) {
        world.link_down(refused());
        let dials = world.dials();
        while world.dials() == dials {
            world.pass(MS);
        }
        dialed_at.push(world.mono - begin);
    }
    let pauses: Vec<_> = dialed_at.windows(2).map(|pair| (pair[0], pair[1] - pair[0])).collect();
    assert!(pauses.iter().filter(|(at, _)| *at < 2 * SEC).all(|(_, pause)| *pause <= 251 * MS), "{pauses:?}");
    assert!(pauses.iter().all(|(_, pause)| *pause <= 36 * SEC));
    assert!(pauses.last().is_some_and(|(_, pause)| *pause >= 10 * SEC), "{pauses:?}");
}

#[test]
fn b03_more_than_five_restarts_in_five_minutes_park_it_and_refused_dials_do_not_count() {
    let mut world = World::new(LinkKind::Process, SupervisionSpec::default());
    world.ask(Ask::Start);
    for _ in 0..10 {
        world.link_down(refused());
        world.pass(300 * MS);
    }
    assert_eq!((world.state(), world.status().restarts), (State::Parked, 5));

    let mut world = World::ready(LinkKind::Remote);
    world.link_down(killed());
    for _ in 0..10 {
        world.link_down(refused());
        world.pass(300 * MS);
    }
    assert_eq!((world.state(), world.status().restarts), (State::Reconnecting, 1));
}

#[test]
fn b03_away_for_the_whole_window_parks_it_and_it_probes_itself_slowly() {
    let mut world = World::ready(LinkKind::Remote);
    world.link_down(killed());
    for _ in 0..400 {
        world.link_down(refused());
        world.pass(SEC);
    }
    assert_eq!(world.state(), State::Parked);
    let dials = world.dials();
    for _ in 0..600 {
        world.link_down(refused());
        world.pass(SEC);
    }
    let probes = world.dials() - dials;
    assert!((8..=13).contains(&probes), "about one a minute in ten minutes, got {probes}");
}

#[test]
fn b03_a_parked_upstream_wakes_on_every_ask_and_on_a_call_once_in_five_seconds() {
    for ask in [Ask::Reconnect, Ask::Reload, Ask::CauseChanged] {
        let mut world = parked();
        let dials = world.dials();
        world.ask(ask);
        assert_eq!(world.dials(), dials + 1, "{ask:?}");
    }
    let mut world = parked();
    let dials = world.dials();
    for _ in 0..50 {
        assert!(matches!(world.refused().reason, Reason::Parked { .. }), "a call is answered at once");
        world.link_down(refused());
        world.pass(100 * MS);
    }
    assert_eq!(world.dials(), dials + 1, "fifty calls within five seconds wake it once");
    world.pass(SEC);
    let _ = world.refused();
    assert_eq!(world.dials(), dials + 2);
}

#[test]
fn b06_a_parked_upstream_that_tries_itself_is_still_parked_and_holds_nobody() {
    let mut world = parked();
    world.events.clear();
    let dials = world.dials();
    while world.dials() == dials {
        world.pass(SEC);
    }
    assert_eq!(world.state(), State::Parked, "while it tries");
    assert!(matches!(world.refused().reason, Reason::Parked { .. }));
    world.link_down(refused());
    assert!(!world.events.iter().any(|event| matches!(event, Event::StateChanged { .. })), "no flapping");
    world.ask(Ask::Reconnect);
    assert_eq!(world.wait().wait_for, WaitFor::Link, "whoever asks for it is waited for");
}

#[test]
fn b04_a_server_that_connects_and_dies_each_second_reaches_parked() {
    for kind in BOTH {
        let mut world = World::ready(kind);
        for _ in 0..10 {
            world.pass(SEC);
            world.link_down(killed());
            if world.state() == State::Parked {
                break;
            }
            world.come_up();
        }
        assert_eq!(world.state(), State::Parked, "{kind:?}: a handshake forgives nothing");
    }
}

#[test]
fn b04_one_good_call_forgives_the_restart_budget() {
    for kind in BOTH {
        let mut world = World::ready(kind);
        for _ in 0..50 {
            world.pass(SEC);
            world.good_call();
            world.link_down(killed());
            assert_ne!(world.state(), State::Parked);
            world.come_up();
        }
        assert_eq!((world.status().restarts, world.status().restarts_in_window > 1), (50, false));
    }
}

#[test]
fn b04_one_full_keepalive_interval_forgives_it_too() {
    let mut world = World::ready(LinkKind::Process);
    for _ in 0..5 {
        world.link_down(killed());
        world.come_up();
    }
    world.pass(179 * SEC);
    assert_eq!(world.status().restarts_in_window, 5);
    world.pass(2 * SEC);
    assert_eq!(world.status().restarts_in_window, 0);
}

#[test]
fn b04_five_minutes_of_flapping_cost_a_handful_of_spawns_not_thousands() {
    let mut world = World::new(LinkKind::Process, SupervisionSpec::default());
    world.ask(Ask::Start);
    for _ in 0..300 {
        world.link_up();
        world.pass(500 * MS);
        world.link_down(killed());
        world.pass(500 * MS);
    }
    assert!(world.dials() <= 14, "{} spawns in five minutes", world.dials());
}

#[test]
fn b05_revival_is_complete_only_when_the_catalog_was_listed_again() {
    let mut world = World::ready(LinkKind::Process);
    world.link_down(killed());
    world.pass(SEC);
    world.link_up();
    assert!(matches!(world.actions.last(), Some(Action::ListCatalog { .. })));
    assert_eq!(world.state(), State::Reconnecting, "connected is not revived");
    assert!(!world.events.iter().any(|event| matches!(event, Event::Revived { .. })));
    let epoch = world.epoch();
    world.tell(Input::CatalogListed { epoch });
    assert_eq!(world.state(), State::Ready);
    assert!(world.events.iter().any(|event| matches!(event, Event::Revived { away } if *away >= SEC)));
}

#[test]
fn b05_an_instance_whose_catalog_is_known_from_elsewhere_is_ready_unlisted_and_has_proven_nothing() {
    let mut world = World::new(LinkKind::Remote, SupervisionSpec::default());
    world.ask(Ask::Start);
    world.link_up();
    let epoch = world.epoch();
    world.tell(Input::CatalogKnown { epoch });
    assert_eq!(world.state(), State::Ready);
    // A session that never worked is not replaced by another of its kind.
    world.fail_call(expired());
    assert!(!world.actions.iter().any(|action| matches!(action, Action::Renew { .. })));
}

#[test]
fn b05_a_catalog_that_cannot_be_listed_is_tried_again_and_shows_as_degraded() {
    let mut world = World::ready(LinkKind::Remote);
    world.link_down(killed());
    world.link_up();
    let epoch = world.epoch();
    world.tell(Input::CatalogFailed { epoch, failure: Failure::Declined("not now (-32603)".to_owned()) });
    assert_eq!(world.state(), State::Degraded);
    let lists = |world: &World| {
        world.actions.iter().filter(|action| matches!(action, Action::ListCatalog { .. })).count()
    };
    let before = lists(&world);
    world.pass(2 * SEC);
    assert_eq!(lists(&world), before + 1);
    world.tell(Input::CatalogListed { epoch });
    assert_eq!(world.state(), State::Ready);
}

#[test]
fn b05_a_change_during_a_listing_is_listed_once_more() {
    let mut world = World::ready(LinkKind::Remote);
    let epoch = world.epoch();
    let lists = |world: &World| {
        world.actions.iter().filter(|action| matches!(action, Action::ListCatalog { .. })).count()
    };
    let before = lists(&world);
    for _ in 0..5 {
        world.tell(Input::CatalogChanged { epoch });
    }
    assert_eq!(lists(&world), before + 1);
    world.tell(Input::CatalogListed { epoch });
    assert_eq!(lists(&world), before + 2, "once more for everything that changed meanwhile");
    world.tell(Input::CatalogListed { epoch });
    assert_eq!((lists(&world), world.state()), (before + 2, State::Ready));
}

#[test]
fn b07_a_server_that_is_down_at_the_start_is_retried_like_any_other() {
    let mut world = World::new(LinkKind::Remote, SupervisionSpec::default());
    world.ask(Ask::Start);
    for _ in 0..30 {
        world.link_down(refused());
        world.pass(SEC);
    }
    assert!(world.dials() >= 8, "{} dials in half a minute", world.dials());
    while world.state() != State::Starting {
        world.pass(SEC);
    }
    world.come_up();
    assert_eq!(world.state(), State::Ready);
}

#[test]
fn b09_what_retrying_cannot_mend_gets_its_own_state_and_one_next_action() {
    let missing = BlockCause::MissingExecutable("`npx` was not found".to_owned());
    let login = BlockCause::NeedsLogin("HTTP 401".to_owned());
    for (cause, state, action) in
        [(missing, State::ConfigError, NextAction::Configure), (login, State::NeedsLogin, NextAction::Login)]
    {
        let mut world = World::new(LinkKind::Process, SupervisionSpec::default());
        world.ask(Ask::Start);
        world.link_down(Failure::Blocked(cause.clone()));
        assert_eq!((world.state(), world.status().next_action), (state, Some(action)));
        assert_eq!(world.refused().reason, Reason::Blocked(cause.clone()));
        for _ in 0..600 {
            world.link_down(Failure::Blocked(cause.clone()));
            world.pass(SEC);
            assert_eq!(world.state(), state, "a re-check does not flicker");
        }
        assert!(world.dials() <= 14, "{} spawns of a missing module in ten minutes", world.dials());
        world.ask(Ask::CauseChanged);
        world.come_up();
        assert_eq!(world.state(), State::Ready);
    }
}

#[test]
fn b10_after_a_suspend_the_link_is_probed_before_it_is_trusted() {
    let mut world = World::ready(LinkKind::Remote);
    world.wall += 8 * 60 * MIN;
    let place = world.wait();
    assert_eq!(place.wait_for, WaitFor::Link);
    assert_eq!(world.probes(), 1, "the call that noticed has it asked");
    assert!(world.events.contains(&Event::Slept));
    world.probe_ended(ProbeAnswer::Alive);
    assert!(matches!(world.readmit(place), Admission::Go(_)));
}

#[test]
fn b10_after_a_suspend_idle_links_are_probed_one_after_another() {
    let mut delays = Vec::new();
    for seed in 0..20 {
        let mut world = World::new(LinkKind::Remote, SupervisionSpec::default());
        world.machine = gripfast_core::supervise::upstream::Upstream::new(
            SupervisionSpec::default(),
            LinkKind::Remote,
            seed,
            world.now(),
        );
        world.ask(Ask::Start);
        world.come_up();
        world.wall += 60 * MIN;
        let woke = world.mono;
        while world.probes() == 0 {
            world.pass(10 * MS);
            assert!(world.mono - woke < 36 * SEC, "noticed within a glance and the stagger");
        }
        delays.push((world.mono - woke).as_millis() / 500);
    }
    delays.sort_unstable();
    delays.dedup();
    assert!(delays.len() >= 5, "staggered, not all at once: {delays:?}");
}

#[test]
fn c05_after_a_broken_connection_nobody_follows_it_before_the_server_has_answered() {
    let mut world = World::ready(LinkKind::Remote);
    world.fail_call(killed());
    assert_eq!((world.probes(), world.dials()), (1, 1), "the link is doubted, not given up");
    let replay = world.wait();
    world.probe_ended(ProbeAnswer::Alive);
    assert!(matches!(world.readmit(replay), Admission::Go(_)));

    world.fail_call(killed());
    let replay = world.wait();
    world.probe_ended(ProbeAnswer::Failed(refused()));
    assert_eq!(world.dials(), 2, "now it is");
    world.come_up();
    assert!(matches!(world.readmit(replay), Admission::Go(_)));
}

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
        world.fail_call(Failure::Nonsense("x".into()));
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

// --- B. Circuit breaker ---

#[test]
fn b11_three_transport_failures_in_a_row_open_the_circuit() {
    for failure in [timed_out(), Failure::Nonsense("x".into()), Failure::ServerFault("HTTP 500".into())] {
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

// --- C. What a caller gets ---

#[test]
fn c03_a_call_that_timed_out_has_the_link_probed_at_once_and_replaced_if_it_is_silent() {
    let mut world = World::ready(LinkKind::Process);
    let other = world.go();
    world.fail_call(timed_out());
    assert_eq!(world.probes(), 1, "although another call is in flight");
    let dials = world.dials();
    world.pass(30 * SEC);
    assert!(world.actions.contains(&Action::HangUp(Manner::AtOnce)));
    assert_eq!(world.dials(), dials + 1);
    world.end(other, CallEnd::Failed(killed()));
}

#[test]
fn c03_nobody_is_sent_into_the_silence_of_another_call() {
    for kind in BOTH {
        let mut world = World::ready(kind);
        let others: Vec<_> = (0..5).map(|_| world.go()).collect();
        world.fail_call(timed_out());
        let place = world.wait();
        for ticket in others {
            world.end(ticket, CallEnd::Failed(timed_out()));
        }
        assert_eq!(world.status().circuit, CircuitView::Closed, "what is known already does not count");
        world.pass(10 * SEC);
        assert_eq!(world.dials(), 2, "callers are held for 15 s: the probe has less than its usual 30");
        world.come_up();
        assert!(matches!(world.readmit(place), Admission::Go(_)), "the next link serves it");
    }
}

#[test]
fn c03_a_probe_that_is_answered_keeps_the_link() {
    let mut world = World::ready(LinkKind::Process);
    world.fail_call(timed_out());
    world.probe_ended(ProbeAnswer::Alive);
    let dials = world.dials();
    world.pass(MIN);
    assert_eq!(world.dials(), dials);
}

#[test]
fn c04_calls_are_held_while_a_link_is_on_its_way() {
    let mut world = World::ready(LinkKind::Remote);
    world.link_down(killed());
    let place = world.wait();
    world.link_down(refused());
    assert_eq!(world.wait().wait_for, WaitFor::Link, "held while waiting for the next attempt too");
    world.pass(SEC);
    world.come_up();
    assert!(matches!(world.readmit(place), Admission::Go(_)));
    assert_eq!(world.status().consecutive_failures, 0, "held calls do not count");
}

#[test]
fn c04_parked_blocked_stopped_and_open_answer_at_once() {
    let mut world = parked();
    assert!(matches!(world.refused().reason, Reason::Parked { .. }));
    let mut world = World::ready(LinkKind::Remote);
    world.ask(Ask::Stop);
    assert_eq!(world.refused().reason, Reason::Stopped);
    let mut world = open_circuit();
    assert!(matches!(world.refused().reason, Reason::CircuitOpen { .. }));
}

#[test]
fn c04_those_who_wait_are_woken_when_waiting_became_pointless() {
    let mut world = World::ready(LinkKind::Remote);
    world.link_down(killed());
    let place = world.wait();
    assert!(!world.machine.should_wake_one());
    world.ask(Ask::Stop);
    assert!(world.machine.should_wake_one());
    assert!(matches!(world.readmit(place), Admission::Refuse(refusal) if refusal.reason == Reason::Stopped));
}

#[test]
fn c06_calls_run_side_by_side_up_to_the_limit_then_queue_then_are_refused() {
    let spec = SupervisionSpec { max_in_flight: 2, max_waiting: 1, ..SupervisionSpec::default() };
    let mut world = World::ready_with(LinkKind::Process, spec);
    let first = world.go();
    let second = world.go();
    let queued = world.wait();
    assert_eq!(queued.wait_for, WaitFor::Slot);
    assert_eq!(world.refused().reason, Reason::Overloaded);
    world.end(first, CallEnd::Answered);
    assert!(world.machine.should_wake_one());
    let overtaking = world.refused();
    assert_eq!(overtaking.reason, Reason::Overloaded, "nobody overtakes the queue");
    assert!(matches!(world.readmit(queued), Admission::Go(_)));
    world.end(second, CallEnd::Answered);
}

#[test]
fn c08_a_cancelled_call_never_triggers_a_reconnect_or_a_probe() {
    let mut world = World::ready(LinkKind::Remote);
    let actions = world.actions.len();
    for _ in 0..100 {
        let ticket = world.go();
        world.end(ticket, CallEnd::Abandoned);
    }
    assert_eq!(world.actions.len(), actions);
}

// --- D. Sessions and liveness ---

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
fn c05_fifty_calls_with_outdated_headers_are_answers_and_have_the_catalog_listed_anew() {
    let mut world = World::ready(LinkKind::Remote);
    let outdated = || CallEnd::Failed(Failure::Outdated("Mcp-Param-Region is missing".to_owned()));
    let listings = |world: &World| {
        world.actions.iter().filter(|action| matches!(action, Action::ListCatalog { .. })).count()
    };
    let (before, epoch) = (listings(&world), world.epoch());
    assert!(!world.machine.is_listing(epoch));
    let tickets: Vec<_> = (0..50).map(|_| world.go()).collect();
    for ticket in tickets {
        world.end(ticket, outdated());
    }
    assert_eq!(listings(&world), before + 1);
    assert!(world.machine.is_listing(epoch));
    // Some were refused while it was being listed: that listing may be older than their refusal.
    world.tell(Input::CatalogListed { epoch });
    assert_eq!(listings(&world), before + 2);
    world.tell(Input::CatalogListed { epoch });
    assert!(!world.machine.is_listing(epoch));
    assert_eq!((world.state(), world.status().consecutive_failures), (State::Ready, 0));
    let straggler = world.go();
    world.link_down(killed());
    world.come_up();
    let before = listings(&world);
    world.end(straggler, outdated());
    assert_eq!(listings(&world), before, "a straggler of an older link changes nothing");
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
fn b09_a_refused_credential_leaves_no_link_behind() {
    let mut world = World::ready(LinkKind::Remote);
    world.fail_call(Failure::CredentialRefused("HTTP 401".to_owned()));
    let epoch = world.epoch();
    let failure = Some(Failure::CredentialRefused("HTTP 401".to_owned()));
    world.tell(Input::RenewalEnded { epoch, failure });
    assert_eq!(world.state(), State::NeedsLogin);
    assert_eq!(world.actions.last(), Some(&Action::HangUp(Manner::AtOnce)));
}

#[test]
fn d05_an_idle_link_is_probed_after_the_interval_and_never_while_a_call_is_in_flight() {
    let mut world = World::ready(LinkKind::Remote);
    world.pass(179 * SEC);
    assert_eq!(world.probes(), 0);
    world.pass(SEC);
    assert_eq!(world.probes(), 1);
    world.probe_ended(ProbeAnswer::Alive);
    let ticket = world.go();
    world.pass(60 * MIN);
    assert_eq!(world.probes(), 1);
    world.end(ticket, CallEnd::Answered);
    world.pass(180 * SEC);
    assert_eq!(world.probes(), 2);
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

// --- F. Lazy servers and status ---

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

#[test]
fn stop_lets_calls_in_flight_finish_and_then_hangs_up() {
    let mut world = World::ready(LinkKind::Process);
    let ticket = world.go();
    world.ask(Ask::Stop);
    assert_eq!(world.refused().reason, Reason::Stopped);
    assert!(!world.actions.contains(&Action::HangUp(Manner::Politely)));
    world.end(ticket, CallEnd::Answered);
    assert!(world.actions.contains(&Action::HangUp(Manner::Politely)));
    let mut world = World::ready(LinkKind::Process);
    let _stuck = world.go();
    world.ask(Ask::Stop);
    world.pass(10 * SEC);
    assert!(world.actions.contains(&Action::HangUp(Manner::Politely)), "not longer than the deadline");
}

#[test]
fn a_straggler_of_an_older_link_changes_nothing() {
    let mut world = World::ready(LinkKind::Remote);
    let stragglers: Vec<_> = (0..10).map(|_| world.go()).collect();
    let old = world.epoch();
    world.ask(Ask::Reconnect);
    world.come_up();
    let actions = world.actions.len();
    for (n, ticket) in stragglers.into_iter().enumerate() {
        world.end(ticket, CallEnd::Failed(if n % 2 == 0 { timed_out() } else { expired() }));
    }
    world.tell(Input::LinkDown { epoch: old, failure: killed() });
    world.tell(Input::ProbeEnded { epoch: old, answer: ProbeAnswer::Failed(killed()) });
    world.tell(Input::CatalogFailed { epoch: old, failure: killed() });
    assert_eq!((world.actions.len(), world.status().consecutive_failures), (actions, 0));
    assert_eq!(world.state(), State::Ready);
}

#[test]
fn a_dial_that_never_ends_is_given_up() {
    let mut world = World::new(LinkKind::Process, SupervisionSpec::default());
    world.ask(Ask::Start);
    world.pass(30 * SEC);
    assert!(world.actions.contains(&Action::HangUp(Manner::AtOnce)));
    assert_eq!(world.dials(), 2);
}

fn parked() -> World {
    let mut world = World::new(LinkKind::Process, SupervisionSpec::default());
    world.ask(Ask::Start);
    while world.state() != State::Parked {
        world.link_down(refused());
        world.pass(100 * MS);
    }
    world
}

fn open_circuit() -> World {
    let mut world = World::ready(LinkKind::Remote);
    for _ in 0..3 {
        world.fail_call(timed_out());
        world.probe_ended(ProbeAnswer::Alive);
    }
    world
}

//! One owner that only a person ends: restarts, their budget, revival, blocked servers, suspended machines.

use crate::common::*;
use crate::{BOTH, parked};
use gripfast_core::event::Event;
use gripfast_core::failure::{BlockCause, Failure};
use gripfast_core::supervise::spec::SupervisionSpec;
use gripfast_core::supervise::status::{NextAction, State};
use gripfast_core::supervise::upstream::{
    Action, Admission, Ask, CallEnd, Input, LinkKind, Manner, ProbeAnswer, Reason, WaitFor,
};
use std::time::Duration;

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
    // What is left of a quarter of a second is for the dial and the handshake.
    assert!(pauses.iter().filter(|(at, _)| *at < 2 * SEC).all(|(_, pause)| *pause <= 201 * MS), "{pauses:?}");
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
    let _held = world.wait();
    world.link_down(refused());
    for _ in 0..49 {
        assert!(matches!(world.refused().reason, Reason::Parked { .. }), "a call is answered at once");
        world.link_down(refused());
        world.pass(100 * MS);
    }
    assert_eq!(world.dials(), dials + 1, "fifty calls within five seconds wake it once");
    world.pass(SEC);
    let _held = world.wait();
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

/// B03
#[test]
fn b06_a_remote_server_that_was_parked_for_flapping_stays_parked_until_a_link_is_up() {
    let mut world = World::ready(LinkKind::Remote);
    while world.state() != State::Parked {
        world.link_down(killed());
        if world.state() != State::Parked {
            world.come_up();
        }
    }
    world.events.clear();
    let dials = world.dials();
    while world.dials() == dials {
        world.pass(SEC);
    }
    world.link_down(refused());
    assert_eq!((world.state(), world.dials()), (State::Parked, dials + 1), "its own attempt");
    assert!(!world.events.iter().any(|event| matches!(event, Event::StateChanged { .. })), "no flapping");
    world.pass(5 * SEC);
    let place = world.wait();
    world.link_down(refused());
    assert!(matches!(world.readmit(place), Admission::Refuse(_)));
    assert_eq!((world.state(), world.dials()), (State::Parked, dials + 2), "woken by a call");
    world.ask(Ask::Reconnect);
    world.come_up();
    world.good_call();
    world.link_down(killed());
    world.link_down(refused());
    assert_eq!(world.state(), State::Reconnecting, "the next outage is another one");
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
fn b05_a_server_that_says_so_whenever_it_is_listed_is_listed_twice_in_a_second_at_the_most() {
    let mut world = World::ready(LinkKind::Remote);
    let epoch = world.epoch();
    let lists = |world: &World| {
        world.actions.iter().filter(|action| matches!(action, Action::ListCatalog { .. })).count()
    };
    world.pass(MIN);
    let before = lists(&world);
    for _ in 0..100 {
        world.tell(Input::CatalogChanged { epoch });
        if world.machine.is_listing(epoch) {
            world.tell(Input::CatalogListed { epoch });
        }
        assert_eq!(world.state(), State::Ready);
        world.pass(100 * MS);
    }
    let listed = lists(&world) - before;
    assert!((10..=21).contains(&listed), "in ten seconds: {listed}");
    world.pass(SEC);
    let listed = lists(&world);
    world.tell(Input::CatalogListed { epoch });
    world.pass(SEC);
    assert_eq!(lists(&world), listed, "what changed last was listed, and that was it");
    assert!(!world.machine.is_listing(epoch));
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
fn b10_a_clock_that_is_set_back_moves_nothing_and_a_suspend_after_it_is_noticed() {
    let mut world = World::ready(LinkKind::Remote);
    let due = world.machine.poll_timeout();
    world.wall -= 8 * 60 * MIN;
    world.good_call();
    assert_eq!(world.probes(), 0, "nobody slept");
    assert!(world.machine.poll_timeout() >= due, "what is due is due by the other clock");
    world.wall += MIN;
    assert_eq!(world.wait().wait_for, WaitFor::Link);
    assert_eq!(world.probes(), 1, "though it is still hours behind where it was");
}

#[test]
fn b09_a_refused_credential_leaves_no_link_behind() {
    let mut world = World::ready(LinkKind::Remote);
    world.fail_call(Failure::CredentialRefused("HTTP 401".to_owned()));
    let epoch = world.epoch();
    let failure = Some(Failure::CredentialRefused("HTTP 401".to_owned()));
    let actions = world.actions.len();
    world.tell(Input::RenewalEnded { epoch, failure });
    assert!(world.actions[actions..].contains(&Action::HangUp(Manner::AtOnce)));
}

/// A server that has just worked is not taken for a mistake of the config because something in between answers for it.
#[test]
fn b09_what_looks_like_a_mistake_of_the_config_is_tried_again_while_the_server_may_come_back() {
    let not_mcp = || Failure::Blocked(BlockCause::NotMcp("no MCP server at this URL: HTTP 404".to_owned()));
    let missing = || Failure::Blocked(BlockCause::MissingExecutable("`npx` was not found".to_owned()));
    let refused_credential = || Failure::CredentialRefused("HTTP 401".to_owned());
    for (failure, kind, grace, blocked) in [
        (not_mcp(), LinkKind::Remote, 5 * MIN, State::ConfigError),
        (missing(), LinkKind::Process, 5 * MIN, State::ConfigError),
        (refused_credential(), LinkKind::Remote, 15 * SEC, State::NeedsLogin),
    ] {
        let mut world = World::ready(kind);
        world.link_down(killed());
        let mut spent = Duration::ZERO;
        loop {
            world.link_down(failure.clone());
            if world.state() == blocked {
                break;
            }
            assert_eq!(world.state(), State::Reconnecting, "{failure:?} after {spent:?}");
            assert_eq!(world.status().cause, Some(failure.to_string()), "the evidence is shown");
            let pause = world.status().next_attempt.unwrap();
            world.pass(pause);
            spent += pause;
        }
        assert!(grace - 2 * SEC < spent && spent <= grace, "{failure:?} blocks after {spent:?}");
        assert!(world.status().restarts <= 1, "looking a name up is no restart: {}", world.status().restarts);

        let mut world = World::ready(kind);
        world.link_down(killed());
        world.link_down(failure.clone());
        let _held = world.wait();
        world.come_up();
        assert_eq!(world.state(), State::Ready, "a blip costs a moment");

        let mut world = World::new(kind, SupervisionSpec::default());
        world.ask(Ask::Start);
        world.link_down(failure.clone());
        assert_eq!(world.state(), blocked, "a server that never worked is a mistake of the config");
    }
}

#[test]
fn b09_what_no_waiting_mends_blocks_a_server_at_once_though_it_has_worked() {
    for cause in [
        BlockCause::UnsetVariable("variable `TOKEN` is not set".to_owned()),
        BlockCause::BadConfig("`oauth` has it (invalid_client)".to_owned()),
        BlockCause::NeedsLogin("the login has ended".to_owned()),
    ] {
        let mut world = World::ready(LinkKind::Remote);
        world.link_down(killed());
        world.link_down(Failure::Blocked(cause.clone()));
        assert!(matches!(world.state(), State::ConfigError | State::NeedsLogin), "{cause:?}");
    }
}

/// E01: a server that shakes hands with anybody and takes no token.
#[test]
fn b09_a_new_credential_that_was_never_accepted_is_not_replaced_by_another() {
    let no = || Failure::CredentialRefused("HTTP 401".to_owned());
    let renewals =
        |world: &World| world.actions.iter().filter(|action| matches!(action, Action::Renew { .. })).count();
    let mut world = World::new(LinkKind::Remote, SupervisionSpec::default());
    world.ask(Ask::Start);
    for round in 1..=10 {
        let renewed = renewals(&world);
        world.link_up();
        let epoch = world.epoch();
        world.tell(Input::CatalogFailed { epoch, failure: no() });
        let epoch = world.epoch();
        world.tell(Input::RenewalEnded { epoch, failure: None });
        world.fail_call(no());
        assert_eq!(
            world.state(),
            State::Reconnecting,
            "a refused call alone does not condemn a new credential"
        );
        world.tell(Input::CatalogFailed { epoch, failure: no() });
        assert_eq!(world.state(), State::NeedsLogin);
        assert_eq!(world.actions.last(), Some(&Action::HangUp(Manner::AtOnce)));
        assert_eq!((renewals(&world), world.dials()), (renewed + 1, round), "one for each re-check");
        while world.dials() == round {
            world.pass(SEC);
        }
    }
    assert!(world.mono >= Duration::from_secs(1000) + 8 * MIN, "about a minute apart");
    world.come_up();
    world.fail_call(no());
    assert_eq!(renewals(&world), 11, "one that was accepted is replaced as ever");
}

/// E01: nothing is listed there, so nothing but its calls can tell.
#[test]
fn b09_an_unlisted_instance_whose_new_credential_is_refused_to_a_call_needs_a_login() {
    let no = || Failure::CredentialRefused("HTTP 401".to_owned());
    let mut world = World::new(LinkKind::Remote, SupervisionSpec::default());
    world.ask(Ask::Start);
    world.link_up();
    let epoch = world.epoch();
    world.tell(Input::CatalogKnown { epoch });
    world.fail_call(no());
    let epoch = world.epoch();
    world.tell(Input::RenewalEnded { epoch, failure: None });
    world.tell(Input::CatalogKnown { epoch });
    world.fail_call(no());
    assert_eq!(world.state(), State::NeedsLogin);
}

/// E03: each of two that share a login takes the token that the other has replaced for a new login.
#[test]
fn b09_a_cause_that_keeps_changing_wakes_a_blocked_upstream_once_in_five_seconds() {
    let mut world = World::new(LinkKind::Remote, SupervisionSpec::default());
    world.ask(Ask::Start);
    world.link_down(Failure::CredentialRefused("HTTP 401".to_owned()));
    let dials = world.dials();
    for _ in 0..99 {
        world.ask(Ask::CauseChanged);
        world.link_down(Failure::CredentialRefused("HTTP 401".to_owned()));
        world.pass(100 * MS);
    }
    assert_eq!(world.dials(), dials + 2, "in not quite ten seconds");
    world.pass(5 * SEC);
    assert_eq!(world.dials(), dials + 3, "the last change is not forgotten");
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

#[test]
fn an_attempt_that_was_not_made_is_taken_back_only_if_it_was_counted() {
    let mut lazy = SupervisionSpec { lazy: true, ..SupervisionSpec::default() };
    lazy.keepalive.interval = None;
    let mut world = World::new(LinkKind::Process, lazy.clone());
    let first = world.wait();
    world.come_up();
    let Admission::Go(ticket) = world.readmit(first) else { panic!("the server is up") };
    world.end(ticket, CallEnd::Answered);
    world.pass(lazy.idle_timeout + SEC);
    assert_eq!(world.state(), State::Idle);
    let waits = world.wait();
    world.link_down(Failure::LacksResources("no file descriptors".to_owned()));
    world.pass(SEC);
    let missing = BlockCause::MissingExecutable("an upgrade is under way".to_owned());
    world.link_down(Failure::Blocked(missing.clone()));
    assert_eq!(world.status().restarts, 1, "the next attempt has begun");
    world.link_down(Failure::Blocked(missing));
    assert_eq!(world.status().restarts, 0, "and was not made either");
    drop(waits);
}

#[test]
fn c03_a_server_that_needs_forty_seconds_is_up_at_the_second_attempt() {
    for kind in BOTH {
        let mut world = World::new(kind, SupervisionSpec::default());
        world.ask(Ask::Start);
        world.pass(30 * SEC);
        assert_eq!(world.dials(), 2, "the first attempt has ended, the second one has begun");
        let attempt = world.status().attempt.unwrap();
        assert_eq!((attempt.elapsed, attempt.limit), (Duration::ZERO, 60 * SEC));
        world.pass(40 * SEC);
        assert_eq!((world.dials(), world.status().attempt.unwrap().elapsed), (2, 40 * SEC));
        world.come_up();
        assert_eq!((world.state(), world.status().attempt), (State::Ready, None));
        world.link_down(killed());
        assert_eq!(world.status().attempt.unwrap().limit, 80 * SEC, "its last start is remembered");
    }
}

#[test]
fn c03_parking_cuts_no_attempt_and_parked_probes_keep_the_grown_limit() {
    let mut world = World::new(LinkKind::Process, SupervisionSpec::default());
    world.ask(Ask::Start);
    // 30 s, 60 s, 120 s; the fourth attempt goes on beyond the restart window of five minutes.
    world.pass(215 * SEC);
    assert_eq!((world.dials(), world.status().attempt.unwrap().limit), (4, 240 * SEC));
    world.pass(200 * SEC);
    assert_eq!((world.dials(), world.state()), (4, State::Starting));
    world.pass(60 * SEC);
    assert_eq!((world.dials(), world.state()), (4, State::Parked));
    world.pass(75 * SEC);
    assert_eq!((world.dials(), world.state()), (5, State::Parked));
    assert_eq!(world.status().attempt.unwrap().limit, 300 * SEC);
    world.pass(200 * SEC);
    world.come_up();
    assert_eq!((world.dials(), world.state()), (5, State::Ready));
}

#[test]
fn f03_reading_the_status_of_a_silent_remote_server_has_it_probed_once_in_ten_seconds() {
    let probes =
        |world: &World| world.actions.iter().filter(|action| matches!(action, Action::Probe { .. })).count();
    let mut world = World::ready(LinkKind::Remote);
    world.tell(Input::StatusRead);
    assert_eq!(probes(&world), 0, "it was heard of a moment ago");
    world.pass(11 * SEC);
    world.tell(Input::StatusRead);
    world.tell(Input::StatusRead);
    assert_eq!(probes(&world), 1);
    let epoch = world.epoch();
    world.tell(Input::ProbeEnded { epoch, answer: ProbeAnswer::Alive });
    world.pass(9 * SEC);
    world.tell(Input::StatusRead);
    assert_eq!(probes(&world), 1);
    world.pass(2 * SEC);
    world.tell(Input::StatusRead);
    assert_eq!(probes(&world), 2);
    world.tell(Input::ProbeEnded { epoch, answer: ProbeAnswer::Failed(killed()) });
    assert_ne!(world.state(), State::Ready);

    let mut child = World::ready(LinkKind::Process);
    child.pass(60 * SEC);
    child.tell(Input::StatusRead);
    assert_eq!(probes(&child), 0, "the death of a child is noticed at once");
}

/// A lack of file descriptors says nothing about a server: it is tried again all the time, and nothing is counted.
#[test]
fn b03_attempts_for_which_there_were_no_descriptors_count_for_nothing() {
    let lacks = || Failure::LacksResources("gripfast has no free file descriptors".to_owned());
    for kind in BOTH {
        let mut world = World::ready(kind);
        world.link_down(killed());
        world.pass(SEC);
        let restarts = world.status().restarts;
        // Longer than the window after which a server is parked.
        for _ in 0..4 * 600 {
            world.link_down(lacks());
            assert_eq!(world.state(), State::Reconnecting);
            assert!(world.status().cause.unwrap().contains("no free file descriptors"));
            world.pass(250 * MS);
        }
        assert_eq!(world.status().restarts, restarts, "no attempt was made");
        world.link_down(refused());
        assert_eq!(world.state(), State::Reconnecting, "the outage of the server itself begins here");
        world.pass(SEC);
        world.come_up();
        assert_eq!(world.state(), State::Ready);
    }
}

/// Calls over HTTP for which there was no socket cost neither the link nor the circuit.
#[test]
fn c04_calls_without_a_free_descriptor_cost_neither_link_nor_circuit() {
    let mut world = World::ready(LinkKind::Remote);
    for _ in 0..10 {
        world.fail_call(Failure::LacksResources("gripfast has no free file descriptors".to_owned()));
    }
    assert_eq!((world.state(), world.status().restarts), (State::Ready, 0));
    world.fail_call(timed_out());
    world.probe_ended(ProbeAnswer::Alive);
    assert_eq!(world.state(), State::Ready, "the circuit has counted one failure");
}

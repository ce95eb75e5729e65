//! Supervision: restarts, their budget, revival, blocked servers, suspended machines. Only an operator ends it.

use crate::common::*;
use crate::{BOTH, parked};
use gripfast_core::event::Event;
use gripfast_core::failure::{BlockCause, Failure};
use gripfast_core::supervise::spec::SupervisionSpec;
use gripfast_core::supervise::status::{NextAction, State};
use gripfast_core::supervise::upstream::{
    Action, Admission, CallEnd, CloseMode, Command, Input, LinkKind, ProbeAnswer, RefusalReason, WaitFor,
};
use std::time::Duration;

#[test]
fn b01_only_stop_ends_an_upstream_and_start_resumes_it() {
    for kind in BOTH {
        let mut sim = Simulation::ready(kind);
        for _ in 0..50 {
            sim.link_down(killed());
            sim.advance(10 * MIN);
            assert_ne!(sim.state(), State::Stopped);
            sim.link_up();
        }
        sim.command(Command::Stop);
        assert_eq!(sim.state(), State::Stopped);
        sim.command(Command::Reconnect);
        sim.command(Command::CauseChanged);
        sim.advance(24 * 60 * MIN);
        assert_eq!(sim.state(), State::Stopped, "only start resumes");
        sim.command(Command::Start);
        sim.come_up();
        assert_eq!(sim.state(), State::Ready);
    }
}

#[test]
fn b01_every_state_but_idle_and_stopped_has_a_next_timer() {
    let mut sim = Simulation::new(LinkKind::Process, SupervisionSpec::default());
    sim.command(Command::Start);
    let mut seen = Vec::new();
    for _ in 0..20 {
        let status = sim.status();
        assert!(status.next_wake.is_some(), "{:?} has no wake-up", status.state);
        seen.push(status.state);
        sim.link_down(refused());
        sim.advance(SEC);
    }
    assert!(seen.contains(&State::Parked) && seen.contains(&State::Starting));
    let mut quiet = SupervisionSpec::default();
    quiet.keepalive.interval = None;
    let mut sim = Simulation::ready_with(LinkKind::Remote, quiet);
    sim.advance(60 * MIN);
    assert!(sim.status().next_wake.is_some(), "ready without keepalive still looks at the clocks");
}

#[test]
fn b02_a_dead_process_is_respawned_at_once_without_a_call() {
    let mut sim = Simulation::ready(LinkKind::Process);
    sim.good_call();
    let connects = sim.connects();
    sim.link_down(killed());
    assert_eq!(sim.connects(), connects + 1, "at once, without a call");
    sim.come_up();
    assert_eq!(sim.state(), State::Ready);
}

#[test]
fn b02_attempts_are_quick_for_two_seconds_then_back_off() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    let begin = sim.mono;
    sim.link_down(killed());
    let mut dialed_at = vec![sim.mono - begin];
    while sim.mono - begin < Duration::from_secs(120) {
        sim.link_down(refused());
        let connects = sim.connects();
        while sim.connects() == connects {
            sim.advance(MS);
        }
        dialed_at.push(sim.mono - begin);
    }
    let pauses: Vec<_> = dialed_at.windows(2).map(|pair| (pair[0], pair[1] - pair[0])).collect();
    // The rest of 250 ms is for connecting and the handshake.
    assert!(pauses.iter().filter(|(at, _)| *at < 2 * SEC).all(|(_, pause)| *pause <= 201 * MS), "{pauses:?}");
    assert!(pauses.iter().all(|(_, pause)| *pause <= 36 * SEC));
    assert!(pauses.last().is_some_and(|(_, pause)| *pause >= 10 * SEC), "{pauses:?}");
}

#[test]
fn b03_more_than_five_restarts_in_five_minutes_park_an_upstream() {
    let mut sim = Simulation::new(LinkKind::Process, SupervisionSpec::default());
    sim.command(Command::Start);
    for _ in 0..10 {
        sim.link_down(refused());
        sim.advance(300 * MS);
    }
    assert_eq!((sim.state(), sim.status().restarts), (State::Parked, 5));

    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.link_down(killed());
    for _ in 0..10 {
        sim.link_down(refused());
        sim.advance(300 * MS);
    }
    assert_eq!((sim.state(), sim.status().restarts), (State::Reconnecting, 1));
}

#[test]
fn b03_an_outage_of_a_whole_window_parks_with_rare_attempts() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.link_down(killed());
    for _ in 0..400 {
        sim.link_down(refused());
        sim.advance(SEC);
    }
    assert_eq!(sim.state(), State::Parked);
    let connects = sim.connects();
    for _ in 0..600 {
        sim.link_down(refused());
        sim.advance(SEC);
    }
    let probes = sim.connects() - connects;
    assert!((8..=13).contains(&probes), "about one a minute in ten minutes, got {probes}");
}

#[test]
fn b03_commands_and_calls_wake_a_parked_upstream() {
    for command in [Command::Reconnect, Command::Reload, Command::CauseChanged] {
        let mut sim = parked();
        let connects = sim.connects();
        sim.command(command);
        assert_eq!(sim.connects(), connects + 1, "{command:?}");
    }
    let mut sim = parked();
    let connects = sim.connects();
    let _held = sim.wait();
    sim.link_down(refused());
    for _ in 0..49 {
        assert!(matches!(sim.refused().reason, RefusalReason::Parked { .. }), "a call is answered at once");
        sim.link_down(refused());
        sim.advance(100 * MS);
    }
    assert_eq!(sim.connects(), connects + 1, "fifty calls within five seconds wake it once");
    sim.advance(SEC);
    let _held = sim.wait();
    assert_eq!(sim.connects(), connects + 2);
}

#[test]
fn b06_a_parked_upstream_stays_parked_during_its_own_attempts() {
    let mut sim = parked();
    sim.events.clear();
    let connects = sim.connects();
    while sim.connects() == connects {
        sim.advance(SEC);
    }
    assert_eq!(sim.state(), State::Parked, "while it tries");
    assert!(matches!(sim.refused().reason, RefusalReason::Parked { .. }));
    sim.link_down(refused());
    assert!(!sim.events.iter().any(|event| matches!(event, Event::StateChanged { .. })), "no flapping");
    sim.command(Command::Reconnect);
    assert_eq!(sim.wait().wait_for, WaitFor::Link, "after `Reconnect` calls wait for the link");
}

/// B03
#[test]
fn b06_a_flapping_remote_server_stays_parked_until_a_link_is_up() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    while sim.state() != State::Parked {
        sim.link_down(killed());
        if sim.state() != State::Parked {
            sim.come_up();
        }
    }
    sim.events.clear();
    let connects = sim.connects();
    while sim.connects() == connects {
        sim.advance(SEC);
    }
    sim.link_down(refused());
    assert_eq!((sim.state(), sim.connects()), (State::Parked, connects + 1), "its own attempt");
    assert!(!sim.events.iter().any(|event| matches!(event, Event::StateChanged { .. })), "no flapping");
    sim.advance(5 * SEC);
    let place = sim.wait();
    sim.link_down(refused());
    assert!(matches!(sim.readmit(place), Admission::Refuse(_)));
    assert_eq!((sim.state(), sim.connects()), (State::Parked, connects + 2), "woken by a call");
    sim.command(Command::Reconnect);
    sim.come_up();
    sim.good_call();
    sim.link_down(killed());
    sim.link_down(refused());
    assert_eq!(sim.state(), State::Reconnecting, "the next outage is another one");
}

#[test]
fn b04_a_server_that_connects_and_dies_each_second_reaches_parked() {
    for kind in BOTH {
        let mut sim = Simulation::ready(kind);
        for _ in 0..10 {
            sim.advance(SEC);
            sim.link_down(killed());
            if sim.state() == State::Parked {
                break;
            }
            sim.come_up();
        }
        assert_eq!(sim.state(), State::Parked, "{kind:?}: a handshake forgives nothing");
    }
}

#[test]
fn b04_one_answered_call_clears_the_restart_budget() {
    for kind in BOTH {
        let mut sim = Simulation::ready(kind);
        for _ in 0..50 {
            sim.advance(SEC);
            sim.good_call();
            sim.link_down(killed());
            assert_ne!(sim.state(), State::Parked);
            sim.come_up();
        }
        assert_eq!((sim.status().restarts, sim.status().restarts_in_window > 1), (50, false));
    }
}

#[test]
fn b04_one_keepalive_interval_clears_the_restart_budget() {
    let mut sim = Simulation::ready(LinkKind::Process);
    for _ in 0..5 {
        sim.link_down(killed());
        sim.come_up();
    }
    sim.advance(179 * SEC);
    assert_eq!(sim.status().restarts_in_window, 5);
    sim.advance(2 * SEC);
    assert_eq!(sim.status().restarts_in_window, 0);
}

#[test]
fn b04_five_minutes_of_flapping_cost_a_handful_of_spawns_not_thousands() {
    let mut sim = Simulation::new(LinkKind::Process, SupervisionSpec::default());
    sim.command(Command::Start);
    for _ in 0..300 {
        sim.link_up();
        sim.advance(500 * MS);
        sim.link_down(killed());
        sim.advance(500 * MS);
    }
    assert!(sim.connects() <= 14, "{} spawns in five minutes", sim.connects());
}

#[test]
fn b05_revival_is_complete_only_when_the_catalog_was_listed_again() {
    let mut sim = Simulation::ready(LinkKind::Process);
    sim.link_down(killed());
    sim.advance(SEC);
    sim.link_up();
    assert!(matches!(sim.actions.last(), Some(Action::ListCatalog { .. })));
    assert_eq!(sim.state(), State::Reconnecting, "connected is not revived");
    assert!(!sim.events.iter().any(|event| matches!(event, Event::Revived { .. })));
    let epoch = sim.epoch();
    sim.handle(Input::CatalogListed { epoch });
    assert_eq!(sim.state(), State::Ready);
    assert!(sim.events.iter().any(|event| matches!(event, Event::Revived { away } if *away >= SEC)));
}

#[test]
fn b05_an_instance_with_a_known_catalog_is_ready_but_not_proven() {
    let mut sim = Simulation::new(LinkKind::Remote, SupervisionSpec::default());
    sim.command(Command::Start);
    sim.link_up();
    let epoch = sim.epoch();
    sim.handle(Input::CatalogKnown { epoch });
    assert_eq!(sim.state(), State::Ready);
    // A session that never worked is not renewed.
    sim.fail_call(expired());
    assert!(!sim.actions.iter().any(|action| matches!(action, Action::Renew { .. })));
}

#[test]
fn b05_a_failed_listing_is_retried_and_shows_as_degraded() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.link_down(killed());
    sim.link_up();
    let epoch = sim.epoch();
    sim.handle(Input::CatalogFailed { epoch, failure: Failure::Declined("not now (-32603)".to_owned()) });
    assert_eq!(sim.state(), State::Degraded);
    let lists = |sim: &Simulation| {
        sim.actions.iter().filter(|action| matches!(action, Action::ListCatalog { .. })).count()
    };
    let before = lists(&sim);
    sim.advance(2 * SEC);
    assert_eq!(lists(&sim), before + 1);
    sim.handle(Input::CatalogListed { epoch });
    assert_eq!(sim.state(), State::Ready);
}

#[test]
fn b05_a_change_during_a_listing_causes_another_listing() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    let epoch = sim.epoch();
    let lists = |sim: &Simulation| {
        sim.actions.iter().filter(|action| matches!(action, Action::ListCatalog { .. })).count()
    };
    let before = lists(&sim);
    for _ in 0..5 {
        sim.handle(Input::CatalogChanged { epoch });
    }
    assert_eq!(lists(&sim), before + 1);
    sim.handle(Input::CatalogListed { epoch });
    assert_eq!(lists(&sim), before + 2, "once more for everything that changed meanwhile");
    sim.handle(Input::CatalogListed { epoch });
    assert_eq!((lists(&sim), sim.state()), (before + 2, State::Ready));
}

#[test]
fn b05_change_notifications_cause_at_most_two_listings_per_second() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    let epoch = sim.epoch();
    let lists = |sim: &Simulation| {
        sim.actions.iter().filter(|action| matches!(action, Action::ListCatalog { .. })).count()
    };
    sim.advance(MIN);
    let before = lists(&sim);
    for _ in 0..100 {
        sim.handle(Input::CatalogChanged { epoch });
        if sim.machine.is_listing(epoch) {
            sim.handle(Input::CatalogListed { epoch });
        }
        assert_eq!(sim.state(), State::Ready);
        sim.advance(100 * MS);
    }
    let listed = lists(&sim) - before;
    assert!((10..=21).contains(&listed), "in ten seconds: {listed}");
    sim.advance(SEC);
    let listed = lists(&sim);
    sim.handle(Input::CatalogListed { epoch });
    sim.advance(SEC);
    assert_eq!(lists(&sim), listed, "what changed last was listed, and that was it");
    assert!(!sim.machine.is_listing(epoch));
}

#[test]
fn b07_a_server_that_is_down_at_the_start_is_retried_like_any_other() {
    let mut sim = Simulation::new(LinkKind::Remote, SupervisionSpec::default());
    sim.command(Command::Start);
    for _ in 0..30 {
        sim.link_down(refused());
        sim.advance(SEC);
    }
    assert!(sim.connects() >= 8, "{} connects in half a minute", sim.connects());
    while sim.state() != State::Starting {
        sim.advance(SEC);
    }
    sim.come_up();
    assert_eq!(sim.state(), State::Ready);
}

#[test]
fn b09_each_permanent_cause_has_a_state_and_a_next_action() {
    let missing = BlockCause::MissingExecutable("`npx` was not found".to_owned());
    let login = BlockCause::NeedsLogin("HTTP 401".to_owned());
    for (cause, state, action) in
        [(missing, State::ConfigError, NextAction::Configure), (login, State::NeedsLogin, NextAction::Login)]
    {
        let mut sim = Simulation::new(LinkKind::Process, SupervisionSpec::default());
        sim.command(Command::Start);
        sim.link_down(Failure::Blocked(cause.clone()));
        assert_eq!((sim.state(), sim.status().next_action), (state, Some(action)));
        assert_eq!(sim.refused().reason, RefusalReason::Blocked(cause.clone()));
        for _ in 0..600 {
            sim.link_down(Failure::Blocked(cause.clone()));
            sim.advance(SEC);
            assert_eq!(sim.state(), state, "a re-check does not flicker");
        }
        assert!(sim.connects() <= 14, "{} spawns of a missing module in ten minutes", sim.connects());
        sim.command(Command::CauseChanged);
        sim.come_up();
        assert_eq!(sim.state(), State::Ready);
    }
}

#[test]
fn b10_after_a_suspend_the_link_is_probed_before_use() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.wall += 8 * 60 * MIN;
    let place = sim.wait();
    assert_eq!(place.wait_for, WaitFor::Link);
    assert_eq!(sim.probes(), 1, "the call that noticed has it asked");
    assert!(sim.events.contains(&Event::MachineSlept));
    sim.probe_ended(ProbeAnswer::Alive);
    assert!(matches!(sim.readmit(place), Admission::Go(_)));
}

#[test]
fn b10_after_a_suspend_idle_links_are_probed_one_after_another() {
    let mut delays = Vec::new();
    for seed in 0..20 {
        let mut sim = Simulation::new(LinkKind::Remote, SupervisionSpec::default());
        sim.machine = gripfast_core::supervise::upstream::UpstreamMachine::new(
            SupervisionSpec::default(),
            LinkKind::Remote,
            seed,
            sim.now(),
        );
        sim.command(Command::Start);
        sim.come_up();
        sim.wall += 60 * MIN;
        let woke = sim.mono;
        while sim.probes() == 0 {
            sim.advance(10 * MS);
            assert!(sim.mono - woke < 36 * SEC, "noticed within a glance and the stagger");
        }
        delays.push((sim.mono - woke).as_millis() / 500);
    }
    delays.sort_unstable();
    delays.dedup();
    assert!(delays.len() >= 5, "staggered, not all at once: {delays:?}");
}

#[test]
fn b10_a_clock_that_is_set_back_moves_nothing_and_a_suspend_after_it_is_noticed() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    let due = sim.machine.poll_timeout();
    sim.wall -= 8 * 60 * MIN;
    sim.good_call();
    assert_eq!(sim.probes(), 0, "no suspend, so no probe");
    assert!(sim.machine.poll_timeout() >= due, "what is due is due by the other clock");
    sim.wall += MIN;
    assert_eq!(sim.wait().wait_for, WaitFor::Link);
    assert_eq!(sim.probes(), 1, "though it is still hours behind where it was");
}

#[test]
fn b09_a_refused_credential_leaves_no_link_behind() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.fail_call(Failure::CredentialRefused("HTTP 401".to_owned()));
    let epoch = sim.epoch();
    let failure = Some(Failure::CredentialRefused("HTTP 401".to_owned()));
    let actions = sim.actions.len();
    sim.handle(Input::RenewalEnded { epoch, failure });
    assert!(sim.actions[actions..].contains(&Action::Close(CloseMode::Immediate)));
}

/// A server that has just worked is not blocked for a config error because a proxy answers for it.
#[test]
fn b09_apparent_config_errors_of_a_working_server_are_retried() {
    let not_mcp = || Failure::Blocked(BlockCause::NotMcp("no MCP server at this URL: HTTP 404".to_owned()));
    let missing = || Failure::Blocked(BlockCause::MissingExecutable("`npx` was not found".to_owned()));
    let refused_credential = || Failure::CredentialRefused("HTTP 401".to_owned());
    for (failure, kind, grace, blocked) in [
        (not_mcp(), LinkKind::Remote, 5 * MIN, State::ConfigError),
        (missing(), LinkKind::Process, 5 * MIN, State::ConfigError),
        (refused_credential(), LinkKind::Remote, 15 * SEC, State::NeedsLogin),
    ] {
        let mut sim = Simulation::ready(kind);
        sim.link_down(killed());
        let mut spent = Duration::ZERO;
        loop {
            sim.link_down(failure.clone());
            if sim.state() == blocked {
                break;
            }
            assert_eq!(sim.state(), State::Reconnecting, "{failure:?} after {spent:?}");
            assert_eq!(sim.status().cause, Some(failure.to_string()), "the evidence is shown");
            let pause = sim.status().next_attempt.unwrap();
            sim.advance(pause);
            spent += pause;
        }
        assert!(grace - 2 * SEC < spent && spent <= grace, "{failure:?} blocks after {spent:?}");
        assert!(sim.status().restarts <= 1, "looking a name up is no restart: {}", sim.status().restarts);

        let mut sim = Simulation::ready(kind);
        sim.link_down(killed());
        sim.link_down(failure.clone());
        let _held = sim.wait();
        sim.come_up();
        assert_eq!(sim.state(), State::Ready, "a blip costs a moment");

        let mut sim = Simulation::new(kind, SupervisionSpec::default());
        sim.command(Command::Start);
        sim.link_down(failure.clone());
        assert_eq!(sim.state(), blocked, "a server that never worked is a mistake of the config");
    }
}

#[test]
fn b09_permanent_causes_block_a_working_server_at_once() {
    for cause in [
        BlockCause::UnsetVariable("variable `TOKEN` is not set".to_owned()),
        BlockCause::BadConfig("`oauth` has it (invalid_client)".to_owned()),
        BlockCause::NeedsLogin("the login has ended".to_owned()),
    ] {
        let mut sim = Simulation::ready(LinkKind::Remote);
        sim.link_down(killed());
        sim.link_down(Failure::Blocked(cause.clone()));
        assert!(matches!(sim.state(), State::ConfigError | State::NeedsLogin), "{cause:?}");
    }
}

/// E01: a server that completes any handshake and accepts no token.
#[test]
fn b09_a_new_credential_that_was_never_accepted_is_not_replaced_by_another() {
    let no = || Failure::CredentialRefused("HTTP 401".to_owned());
    let renewals =
        |sim: &Simulation| sim.actions.iter().filter(|action| matches!(action, Action::Renew { .. })).count();
    let mut sim = Simulation::new(LinkKind::Remote, SupervisionSpec::default());
    sim.command(Command::Start);
    for round in 1..=10 {
        let renewed = renewals(&sim);
        sim.link_up();
        let epoch = sim.epoch();
        sim.handle(Input::CatalogFailed { epoch, failure: no() });
        let epoch = sim.epoch();
        sim.handle(Input::RenewalEnded { epoch, failure: None });
        sim.fail_call(no());
        assert_eq!(
            sim.state(),
            State::Reconnecting,
            "a refused call alone does not condemn a new credential"
        );
        sim.handle(Input::CatalogFailed { epoch, failure: no() });
        assert_eq!(sim.state(), State::NeedsLogin);
        assert_eq!(sim.actions.last(), Some(&Action::Close(CloseMode::Immediate)));
        assert_eq!((renewals(&sim), sim.connects()), (renewed + 1, round), "one for each re-check");
        while sim.connects() == round {
            sim.advance(SEC);
        }
    }
    assert!(sim.mono >= Duration::from_secs(1000) + 8 * MIN, "about a minute apart");
    sim.come_up();
    sim.fail_call(no());
    assert_eq!(renewals(&sim), 11, "one that was accepted is replaced as ever");
}

/// E01: nothing is listed there, so only its calls show a refusal.
#[test]
fn b09_a_new_credential_refused_in_a_call_needs_a_login() {
    let no = || Failure::CredentialRefused("HTTP 401".to_owned());
    let mut sim = Simulation::new(LinkKind::Remote, SupervisionSpec::default());
    sim.command(Command::Start);
    sim.link_up();
    let epoch = sim.epoch();
    sim.handle(Input::CatalogKnown { epoch });
    sim.fail_call(no());
    let epoch = sim.epoch();
    sim.handle(Input::RenewalEnded { epoch, failure: None });
    sim.handle(Input::CatalogKnown { epoch });
    sim.fail_call(no());
    assert_eq!(sim.state(), State::NeedsLogin);
}

/// E03: each of two processes that share a login takes a token that the other refreshed for a new login.
#[test]
fn b09_cause_changes_wake_a_blocked_upstream_once_in_five_seconds() {
    let mut sim = Simulation::new(LinkKind::Remote, SupervisionSpec::default());
    sim.command(Command::Start);
    sim.link_down(Failure::CredentialRefused("HTTP 401".to_owned()));
    let connects = sim.connects();
    for _ in 0..99 {
        sim.command(Command::CauseChanged);
        sim.link_down(Failure::CredentialRefused("HTTP 401".to_owned()));
        sim.advance(100 * MS);
    }
    assert_eq!(sim.connects(), connects + 2, "in not quite ten seconds");
    sim.advance(5 * SEC);
    assert_eq!(sim.connects(), connects + 3, "the last change is not forgotten");
}

#[test]
fn stop_lets_calls_in_flight_finish_and_then_closes_the_link() {
    let mut sim = Simulation::ready(LinkKind::Process);
    let ticket = sim.go();
    sim.command(Command::Stop);
    assert_eq!(sim.refused().reason, RefusalReason::Stopped);
    assert!(!sim.actions.contains(&Action::Close(CloseMode::Graceful)));
    sim.end(ticket, CallEnd::Answered);
    assert!(sim.actions.contains(&Action::Close(CloseMode::Graceful)));
    let mut sim = Simulation::ready(LinkKind::Process);
    let _stuck = sim.go();
    sim.command(Command::Stop);
    sim.advance(10 * SEC);
    assert!(sim.actions.contains(&Action::Close(CloseMode::Graceful)), "not longer than the deadline");
}

#[test]
fn a_late_report_about_an_older_link_changes_nothing() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    let stragglers: Vec<_> = (0..10).map(|_| sim.go()).collect();
    let old = sim.epoch();
    sim.command(Command::Reconnect);
    sim.come_up();
    let actions = sim.actions.len();
    for (n, ticket) in stragglers.into_iter().enumerate() {
        sim.end(ticket, CallEnd::Failed(if n % 2 == 0 { timed_out() } else { expired() }));
    }
    sim.handle(Input::LinkDown { epoch: old, failure: killed() });
    sim.handle(Input::ProbeEnded { epoch: old, answer: ProbeAnswer::Failed(killed()) });
    sim.handle(Input::CatalogFailed { epoch: old, failure: killed() });
    assert_eq!((sim.actions.len(), sim.status().consecutive_failures), (actions, 0));
    assert_eq!(sim.state(), State::Ready);
}

#[test]
fn a_connection_attempt_that_never_ends_is_given_up() {
    let mut sim = Simulation::new(LinkKind::Process, SupervisionSpec::default());
    sim.command(Command::Start);
    sim.advance(30 * SEC);
    assert!(sim.actions.contains(&Action::Close(CloseMode::Immediate)));
    assert_eq!(sim.connects(), 2);
}

#[test]
fn an_attempt_that_was_not_made_is_uncounted() {
    let mut lazy = SupervisionSpec { lazy: true, ..SupervisionSpec::default() };
    lazy.keepalive.interval = None;
    let mut sim = Simulation::new(LinkKind::Process, lazy.clone());
    let first = sim.wait();
    sim.come_up();
    let Admission::Go(ticket) = sim.readmit(first) else { panic!("the server is up") };
    sim.end(ticket, CallEnd::Answered);
    sim.advance(lazy.idle_timeout + SEC);
    assert_eq!(sim.state(), State::Idle);
    let waits = sim.wait();
    sim.link_down(Failure::OutOfResources("no file descriptors".to_owned()));
    sim.advance(SEC);
    let missing = BlockCause::MissingExecutable("an upgrade is under way".to_owned());
    sim.link_down(Failure::Blocked(missing.clone()));
    assert_eq!(sim.status().restarts, 1, "the next attempt has begun");
    sim.link_down(Failure::Blocked(missing));
    assert_eq!(sim.status().restarts, 0, "and was not made either");
    drop(waits);
}

#[test]
fn c03_a_server_that_needs_forty_seconds_is_up_at_the_second_attempt() {
    for kind in BOTH {
        let mut sim = Simulation::new(kind, SupervisionSpec::default());
        sim.command(Command::Start);
        sim.advance(30 * SEC);
        assert_eq!(sim.connects(), 2, "the first attempt has ended, the second one has begun");
        let attempt = sim.status().attempt.unwrap();
        assert_eq!((attempt.elapsed, attempt.limit), (Duration::ZERO, 60 * SEC));
        sim.advance(40 * SEC);
        assert_eq!((sim.connects(), sim.status().attempt.unwrap().elapsed), (2, 40 * SEC));
        sim.come_up();
        assert_eq!((sim.state(), sim.status().attempt), (State::Ready, None));
        sim.link_down(killed());
        assert_eq!(sim.status().attempt.unwrap().limit, 80 * SEC, "its last start is remembered");
    }
}

#[test]
fn c03_parking_cuts_no_attempt_and_parked_probes_keep_the_grown_limit() {
    let mut sim = Simulation::new(LinkKind::Process, SupervisionSpec::default());
    sim.command(Command::Start);
    // 30 s, 60 s, 120 s; the fourth attempt outlasts the restart window of five minutes.
    sim.advance(215 * SEC);
    assert_eq!((sim.connects(), sim.status().attempt.unwrap().limit), (4, 240 * SEC));
    sim.advance(200 * SEC);
    assert_eq!((sim.connects(), sim.state()), (4, State::Starting));
    sim.advance(60 * SEC);
    assert_eq!((sim.connects(), sim.state()), (4, State::Parked));
    sim.advance(75 * SEC);
    assert_eq!((sim.connects(), sim.state()), (5, State::Parked));
    assert_eq!(sim.status().attempt.unwrap().limit, 300 * SEC);
    sim.advance(200 * SEC);
    sim.come_up();
    assert_eq!((sim.connects(), sim.state()), (5, State::Ready));
}

#[test]
fn f03_reading_the_status_probes_a_silent_remote_server() {
    let probes =
        |sim: &Simulation| sim.actions.iter().filter(|action| matches!(action, Action::Probe { .. })).count();
    let mut sim = Simulation::ready(LinkKind::Remote);
    sim.handle(Input::StatusRead);
    assert_eq!(probes(&sim), 0, "it was heard of a moment ago");
    sim.advance(11 * SEC);
    sim.handle(Input::StatusRead);
    sim.handle(Input::StatusRead);
    assert_eq!(probes(&sim), 1);
    let epoch = sim.epoch();
    sim.handle(Input::ProbeEnded { epoch, answer: ProbeAnswer::Alive });
    sim.advance(9 * SEC);
    sim.handle(Input::StatusRead);
    assert_eq!(probes(&sim), 1);
    sim.advance(2 * SEC);
    sim.handle(Input::StatusRead);
    assert_eq!(probes(&sim), 2);
    sim.handle(Input::ProbeEnded { epoch, answer: ProbeAnswer::Failed(killed()) });
    assert_ne!(sim.state(), State::Ready);

    let mut child = Simulation::ready(LinkKind::Process);
    child.advance(60 * SEC);
    child.handle(Input::StatusRead);
    assert_eq!(probes(&child), 0, "the death of a child is noticed at once");
}

/// A lack of file descriptors says nothing about a server: attempts continue, and nothing is counted.
#[test]
fn b03_attempts_without_file_descriptors_do_not_count() {
    let lacks = || Failure::OutOfResources("gripfast has no free file descriptors".to_owned());
    for kind in BOTH {
        let mut sim = Simulation::ready(kind);
        sim.link_down(killed());
        sim.advance(SEC);
        let restarts = sim.status().restarts;
        // Longer than the window after which a server is parked.
        for _ in 0..4 * 600 {
            sim.link_down(lacks());
            assert_eq!(sim.state(), State::Reconnecting);
            assert!(sim.status().cause.unwrap().contains("no free file descriptors"));
            sim.advance(250 * MS);
        }
        assert_eq!(sim.status().restarts, restarts, "no attempt was made");
        sim.link_down(refused());
        assert_eq!(sim.state(), State::Reconnecting, "the outage of the server itself begins here");
        sim.advance(SEC);
        sim.come_up();
        assert_eq!(sim.state(), State::Ready);
    }
}

/// HTTP calls without a free socket affect neither the link nor the circuit.
#[test]
fn c04_calls_without_a_file_descriptor_keep_link_and_circuit() {
    let mut sim = Simulation::ready(LinkKind::Remote);
    for _ in 0..10 {
        sim.fail_call(Failure::OutOfResources("gripfast has no free file descriptors".to_owned()));
    }
    assert_eq!((sim.state(), sim.status().restarts), (State::Ready, 0));
    sim.fail_call(timed_out());
    sim.probe_ended(ProbeAnswer::Alive);
    assert_eq!(sim.state(), State::Ready, "the circuit has counted one failure");
}

//! The same scenarios through gripfast. No scenario that passes directly fails here, unless an exception says why.

use crate::exceptions::EXCEPTIONS;
use crate::scene::{Company, Scene, Transport, Upstream};
use crate::set::{Loss, Set, losses};
use gripfast_testkit::conformance::{Form, Listening, Results, Suite, require};
use std::collections::BTreeSet;
use std::fmt::Write;

#[test]
fn the_older_suite_loses_nothing_in_front_of_a_legacy_child() {
    loses_nothing(Suite::V0_1, Set::Older, Form::Legacy, Transport::Stdio);
}

#[test]
fn the_older_suite_loses_nothing_in_front_of_a_legacy_server_over_http() {
    loses_nothing(Suite::V0_1, Set::Older, Form::Legacy, Transport::Http);
}

#[test]
fn the_older_suite_loses_nothing_in_front_of_a_modern_child() {
    loses_nothing(Suite::V0_1, Set::Older, Form::Modern, Transport::Stdio);
}

#[test]
fn the_older_suite_loses_nothing_in_front_of_a_modern_server_over_http() {
    loses_nothing(Suite::V0_1, Set::Older, Form::Modern, Transport::Http);
}

#[test]
fn a_legacy_client_loses_nothing_in_front_of_a_legacy_child() {
    loses_nothing(Suite::V0_2, Set::Legacy, Form::Legacy, Transport::Stdio);
}

#[test]
fn a_legacy_client_loses_nothing_in_front_of_a_legacy_server_over_http() {
    loses_nothing(Suite::V0_2, Set::Legacy, Form::Legacy, Transport::Http);
}

#[test]
fn a_legacy_client_loses_nothing_in_front_of_a_modern_child() {
    loses_nothing(Suite::V0_2, Set::Legacy, Form::Modern, Transport::Stdio);
}

#[test]
fn a_legacy_client_loses_nothing_in_front_of_a_modern_server_over_http() {
    loses_nothing(Suite::V0_2, Set::Legacy, Form::Modern, Transport::Http);
}

#[test]
fn a_modern_client_loses_nothing_in_front_of_a_legacy_child() {
    loses_nothing(Suite::V0_2, Set::Modern, Form::Legacy, Transport::Stdio);
}

#[test]
fn a_modern_client_loses_nothing_in_front_of_a_legacy_server_over_http() {
    loses_nothing(Suite::V0_2, Set::Modern, Form::Legacy, Transport::Http);
}

#[test]
fn a_modern_client_loses_nothing_in_front_of_a_modern_child() {
    loses_nothing(Suite::V0_2, Set::Modern, Form::Modern, Transport::Stdio);
}

#[test]
fn a_modern_client_loses_nothing_in_front_of_a_modern_server_over_http() {
    loses_nothing(Suite::V0_2, Set::Modern, Form::Modern, Transport::Http);
}

/// Directly, with the server alone behind gripfast, and among others: at the same time, since most of it is waiting.
fn loses_nothing(suite: Suite, set: Set, form: Form, transport: Transport) {
    if !require(suite) {
        return;
    }
    let through = |company| {
        let upstream = Upstream { form, transport, company };
        let scene = Scene::with(upstream);
        let results = set.run(scene.url());
        (upstream, scene, results)
    };
    let (direct, alone, among_others) = std::thread::scope(|scope| {
        let direct = scope.spawn(|| set.run(Listening::start(set.era()).url()));
        let alone = scope.spawn(|| through(Company::Alone));
        let among_others = scope.spawn(|| through(Company::AmongOthers));
        (direct.join().unwrap(), alone.join().unwrap(), among_others.join().unwrap())
    });
    let mut wrong = String::new();
    for (upstream, scene, mut results) in [alone, among_others] {
        let unexcused = |results: &Results| {
            let losses = losses(&direct, results);
            losses.into_iter().filter(|loss| !is_excused(set, upstream, loss)).collect::<Vec<_>>()
        };
        set.give_time(scene.url(), &mut results, |results| {
            unexcused(results).into_iter().map(|loss| loss.scenario).collect()
        });
        for Loss { scenario, check, how } in unexcused(&results) {
            writeln!(wrong, "{upstream:?}: {scenario}: {check}: {how}").unwrap();
        }
        let losses = losses(&direct, &results);
        for exception in EXCEPTIONS.iter().filter(|exception| exception.applies(set, upstream)) {
            for stale in exception.stale(&losses) {
                writeln!(wrong, "{upstream:?}: {stale}: holds, so it is no exception").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn is_excused(set: Set, upstream: Upstream, loss: &Loss) -> bool {
    EXCEPTIONS.iter().any(|exception| exception.applies(set, upstream) && exception.covers(loss))
}

#[test]
fn exceptions_name_scenarios_that_there_are() {
    for suite in [Suite::V0_1, Suite::V0_2] {
        if !require(suite) {
            return;
        }
    }
    let known: BTreeSet<String> =
        [Set::Older, Set::Legacy, Set::Modern].into_iter().flat_map(Set::scenarios).collect();
    for exception in EXCEPTIONS {
        assert!(!exception.why.is_empty(), "{:?} has no reason", exception.scenarios);
        for (scenario, _) in exception.scenarios {
            assert!(known.contains(*scenario), "there is no scenario {scenario}");
        }
    }
}

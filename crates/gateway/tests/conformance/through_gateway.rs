//! Server scenarios through gripfast. No check that passes directly fails here, unless an exception names it.

use crate::exceptions::EXCEPTIONS;
use crate::scenario_set::{Regression, ScenarioSet, regressions};
use crate::test_gateway::{Placement, TestGateway, Transport, Upstream};
use gripfast_testkit::conformance::{ConformanceServer, Results, ServerEra, Suite, require};
use std::collections::BTreeSet;
use std::fmt::Write;

#[test]
fn the_older_suite_loses_nothing_in_front_of_a_legacy_child() {
    assert_no_regression(Suite::V0_1, ScenarioSet::Older, ServerEra::Legacy, Transport::Stdio);
}

#[test]
fn the_older_suite_loses_nothing_in_front_of_a_legacy_server_over_http() {
    assert_no_regression(Suite::V0_1, ScenarioSet::Older, ServerEra::Legacy, Transport::Http);
}

#[test]
fn the_older_suite_loses_nothing_in_front_of_a_modern_child() {
    assert_no_regression(Suite::V0_1, ScenarioSet::Older, ServerEra::Modern, Transport::Stdio);
}

#[test]
fn the_older_suite_loses_nothing_in_front_of_a_modern_server_over_http() {
    assert_no_regression(Suite::V0_1, ScenarioSet::Older, ServerEra::Modern, Transport::Http);
}

#[test]
fn a_legacy_client_loses_nothing_in_front_of_a_legacy_child() {
    assert_no_regression(Suite::V0_2, ScenarioSet::Legacy, ServerEra::Legacy, Transport::Stdio);
}

#[test]
fn a_legacy_client_loses_nothing_in_front_of_a_legacy_server_over_http() {
    assert_no_regression(Suite::V0_2, ScenarioSet::Legacy, ServerEra::Legacy, Transport::Http);
}

#[test]
fn a_legacy_client_loses_nothing_in_front_of_a_modern_child() {
    assert_no_regression(Suite::V0_2, ScenarioSet::Legacy, ServerEra::Modern, Transport::Stdio);
}

#[test]
fn a_legacy_client_loses_nothing_in_front_of_a_modern_server_over_http() {
    assert_no_regression(Suite::V0_2, ScenarioSet::Legacy, ServerEra::Modern, Transport::Http);
}

#[test]
fn a_modern_client_loses_nothing_in_front_of_a_legacy_child() {
    assert_no_regression(Suite::V0_2, ScenarioSet::Modern, ServerEra::Legacy, Transport::Stdio);
}

#[test]
fn a_modern_client_loses_nothing_in_front_of_a_legacy_server_over_http() {
    assert_no_regression(Suite::V0_2, ScenarioSet::Modern, ServerEra::Legacy, Transport::Http);
}

#[test]
fn a_modern_client_loses_nothing_in_front_of_a_modern_child() {
    assert_no_regression(Suite::V0_2, ScenarioSet::Modern, ServerEra::Modern, Transport::Stdio);
}

#[test]
fn a_modern_client_loses_nothing_in_front_of_a_modern_server_over_http() {
    assert_no_regression(Suite::V0_2, ScenarioSet::Modern, ServerEra::Modern, Transport::Http);
}

/// Directly, with the server alone behind gripfast, and among others: at the same time, since most of it is waiting.
fn assert_no_regression(suite: Suite, set: ScenarioSet, form: ServerEra, transport: Transport) {
    if !require(suite) {
        return;
    }
    let through = |placement| {
        let upstream = Upstream { form, transport, placement };
        let gateway = TestGateway::with(upstream);
        let results = set.run(gateway.url());
        (upstream, gateway, results)
    };
    let (direct, alone, among_others) = std::thread::scope(|scope| {
        let direct = scope.spawn(|| set.run(ConformanceServer::start(set.era()).url()));
        let alone = scope.spawn(|| through(Placement::Alone));
        let among_others = scope.spawn(|| through(Placement::AmongOthers));
        (direct.join().unwrap(), alone.join().unwrap(), among_others.join().unwrap())
    });
    let mut wrong = String::new();
    for (upstream, gateway, mut results) in [alone, among_others] {
        let unexcused = |results: &Results| {
            let regressions = regressions(&direct, results);
            regressions.into_iter().filter(|loss| !is_excused(set, upstream, loss)).collect::<Vec<_>>()
        };
        set.give_time(gateway.url(), &mut results, |results| {
            unexcused(results).into_iter().map(|loss| loss.scenario).collect()
        });
        for Regression { scenario, check, how } in unexcused(&results) {
            writeln!(wrong, "{upstream:?}: {scenario}: {check}: {how}").unwrap();
        }
        let regressions = regressions(&direct, &results);
        for exception in EXCEPTIONS.iter().filter(|exception| exception.applies(set, upstream)) {
            for stale in exception.stale(&regressions) {
                writeln!(wrong, "{upstream:?}: {stale}: holds, so it is no exception").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

pub(crate) fn is_excused(set: ScenarioSet, upstream: Upstream, loss: &Regression) -> bool {
    EXCEPTIONS.iter().any(|exception| exception.applies(set, upstream) && exception.covers(loss))
}

#[test]
fn exceptions_name_existing_scenarios() {
    for suite in [Suite::V0_1, Suite::V0_2] {
        if !require(suite) {
            return;
        }
    }
    let known: BTreeSet<String> = [ScenarioSet::Older, ScenarioSet::Legacy, ScenarioSet::Modern]
        .into_iter()
        .flat_map(ScenarioSet::scenarios)
        .collect();
    for exception in EXCEPTIONS {
        assert!(!exception.why.is_empty(), "{:?} has no reason", exception.scenarios);
        for (scenario, _) in exception.scenarios {
            assert!(known.contains(*scenario), "there is no scenario {scenario}");
        }
    }
}

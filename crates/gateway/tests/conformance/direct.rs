//! Our conformance server without a gateway. It must pass everything, as the baseline of the other tests.

use crate::scenario_set::{ScenarioSet, imperfections};
use gripfast_testkit::conformance::{ConformanceServer, Suite, require};
use std::collections::BTreeSet;

#[test]
fn the_legacy_form_passes_every_scenario_of_the_older_suite() {
    passes(Suite::V0_1, ScenarioSet::Older);
}

#[test]
fn the_legacy_form_passes_every_legacy_scenario_of_the_newer_suite() {
    passes(Suite::V0_2, ScenarioSet::Legacy);
}

#[test]
fn the_modern_form_passes_every_modern_scenario_and_every_extension() {
    passes(Suite::V0_2, ScenarioSet::Modern);
}

fn passes(suite: Suite, set: ScenarioSet) {
    if !require(suite) {
        return;
    }
    let server = ConformanceServer::start(set.era());
    let mut results = set.run(server.url());
    let ran: BTreeSet<String> = results.keys().cloned().collect();
    assert_eq!(ran, set.scenarios(), "every scenario has to run");
    set.give_time(server.url(), &mut results, |results| {
        imperfections(results).into_iter().map(|(scenario, _)| scenario).collect()
    });
    let found = imperfections(&results);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_scenario_is_left_out() {
    for (suite, sets) in
        [(Suite::V0_1, &[ScenarioSet::Older][..]), (Suite::V0_2, &[ScenarioSet::Legacy, ScenarioSet::Modern])]
    {
        if !require(suite) {
            return;
        }
        for (scenario, of) in suite.scenarios("--server") {
            assert!(sets.iter().any(|set| set.has(&of)), "{scenario} of {} is in no set", suite.name());
        }
    }
}

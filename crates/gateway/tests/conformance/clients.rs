//! Client scenarios of the suite: its servers, with gripfast as their client. Every check passes, with the command line
//! and with a client of an official SDK through the gateway.
//!
//! Authorization scenarios are in `auth.rs`.

use crate::test_client::{ClientKind, TestClient};
use gripfast_testkit::clients::{Client, Mode};
use gripfast_testkit::conformance::{Check, ScenarioServer, Status, Suite, require};
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write;

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

const OLDER: &[&str] = &["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"];
const LEGACY_ONES: &[&str] = &[
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "json-schema-2020-12-preservation",
];
const MODERN_ONES: &[&str] = &[
    "tools_call",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
];

/// Scenarios about the client application, not about gripfast: it forwards skills and reads none.
const NOT_OURS: &[&str] = &[
    "sep-2640-client-no-prefetch",
    "sep-2640-client-verify-digest",
    "sep-2640-client-verify-size",
    "sep-2640-client-verify-frontmatter",
];

/// Scenarios in which the suite measures pauses of half a second, which a busy machine may exceed. They are repeated; a
/// real failure fails each time.
const TIMED: &[&str] = &["sse-retry"];
const ATTEMPTS: usize = 3;

#[test]
fn the_command_line_passes_every_scenario_of_the_older_suite() {
    passes(Suite::V0_1, None, OLDER, ClientKind::CommandLine);
}

#[test]
fn the_command_line_passes_every_legacy_scenario() {
    passes(Suite::V0_2, Some(LEGACY), LEGACY_ONES, ClientKind::CommandLine);
}

#[test]
fn the_command_line_passes_every_modern_scenario() {
    passes(Suite::V0_2, Some(MODERN), MODERN_ONES, ClientKind::CommandLine);
}

#[test]
fn an_older_sdk_client_passes_the_older_suite_through_the_gateway() {
    passes(Suite::V0_1, None, OLDER, ClientKind::Sdk(Client::TypeScriptV1, Mode::Legacy));
}

#[test]
fn a_legacy_client_passes_every_legacy_scenario_through_the_gateway() {
    passes(Suite::V0_2, Some(LEGACY), LEGACY_ONES, ClientKind::Sdk(Client::TypeScriptV2, Mode::Legacy));
}

#[test]
fn a_modern_client_passes_every_legacy_scenario_through_the_gateway() {
    passes(Suite::V0_2, Some(LEGACY), LEGACY_ONES, ClientKind::Sdk(Client::TypeScriptV2, Mode::Modern));
}

#[test]
fn a_legacy_client_passes_every_modern_scenario_through_the_gateway() {
    passes(Suite::V0_2, Some(MODERN), MODERN_ONES, ClientKind::Sdk(Client::TypeScriptV2, Mode::Legacy));
}

#[test]
fn a_modern_client_passes_every_modern_scenario_through_the_gateway() {
    passes(Suite::V0_2, Some(MODERN), MODERN_ONES, ClientKind::Sdk(Client::TypeScriptV2, Mode::Modern));
}

#[test]
fn no_scenario_for_clients_is_left_out() {
    for (suite, sets) in [(Suite::V0_1, &[OLDER][..]), (Suite::V0_2, &[LEGACY_ONES, MODERN_ONES, NOT_OURS])] {
        if !require(suite) {
            return;
        }
        let played: BTreeSet<&str> = sets.iter().copied().flatten().copied().collect();
        let listed = suite.scenarios("--client");
        let listed: BTreeSet<&str> =
            listed.keys().map(String::as_str).filter(|name| !name.starts_with("auth/")).collect();
        assert_eq!(played, listed, "{}", suite.name());
    }
}

fn passes(suite: Suite, version: Option<&str>, scenarios: &[&str], caller: ClientKind) {
    if !require(suite) {
        return;
    }
    if let ClientKind::Sdk(client, _) = caller
        && !client.require()
    {
        return;
    }
    let mut wrong = String::new();
    for scenario in scenarios {
        let attempts = if TIMED.contains(scenario) { ATTEMPTS } else { 1 };
        let mut found = String::new();
        for _ in 0..attempts {
            let checks = suite.run_client_scenario(scenario, version, |staged| {
                let mut player = caller.connect(&staged.url);
                act(scenario, staged, &mut player);
                player.close();
            });
            found = imperfections(scenario, &checks);
            if found.is_empty() {
                break;
            }
        }
        wrong += &found;
    }
    assert!(wrong.is_empty(), "{caller:?}:\n{wrong}");
}

/// Checks that do not pass. The suite reports actions that the client had no occasion for as skipped.
pub(crate) fn imperfections(scenario: &str, checks: &[Check]) -> String {
    let mut found = String::new();
    for check in checks.iter().filter(|check| matches!(check.status, Status::Failure | Status::Warning)) {
        writeln!(found, "  {scenario}: {check}").unwrap();
    }
    if !checks.iter().any(|check| check.status == Status::Success) {
        writeln!(found, "  {scenario}: nothing holds").unwrap();
    }
    found
}

/// Performs the client actions of a scenario.
fn act(scenario: &str, staged: &ScenarioServer, player: &mut TestClient) {
    let tools = player.tools();
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == name);
    match scenario {
        "initialize" | "request-metadata" | "json-schema-ref-no-deref" => {}
        "json-schema-2020-12-preservation" => {
            let schema = &named("json_schema_2020_12_tool").unwrap()["inputSchema"];
            player.call("json_schema_echo", &json!({ "schema": schema }));
        }
        "http-custom-headers" => {
            for call in staged.context["toolCalls"].as_array().unwrap() {
                player.call(call["name"].as_str().unwrap(), &call["arguments"]);
            }
        }
        "http-standard-headers" => {
            player.call("test_headers", &json!({}));
            player.read_everything();
        }
        // Those with bad annotations must not be there to be called.
        "http-invalid-tool-headers" => {
            for tool in &tools {
                player.call(tool["name"].as_str().unwrap(), &json!({ "region": "us-east1" }));
            }
        }
        "tools_call" => player.call("add_numbers", &json!({ "a": 5, "b": 3 })),
        _ => {
            for tool in &tools {
                player.call(tool["name"].as_str().unwrap(), &json!({}));
            }
        }
    }
}

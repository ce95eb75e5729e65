//! Authorization scenarios of the suite: its servers require tokens, and its authorization servers check how a client
//! gets them. gripfast is the client: its command line lists tools and makes a call, and logs in when a login is
//! needed.

use crate::clients::imperfections;
use crate::test_gateway::GRIPFAST;
use gripfast_testkit::authority::{complete_authorization, fetch};
use gripfast_testkit::conformance::{ScenarioServer, Suite, require};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Checks that do not pass, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("auth/cross-app-access-complete-flow", "no token is exchanged at an identity provider"),
    ("auth/enterprise-managed-authorization", "no token is exchanged at an identity provider"),
    ("auth/dpop", "tokens are not bound to a key"),
    ("auth/dpop-nonce", "tokens are not bound to a key"),
    ("auth/wif-jwt-bearer", "no workload identity is asked for"),
];

/// Exceptions that only the older suite has.
const EXCEPTIONS_OF_THE_OLDER: &[(&str, &str)] = &[(
    "auth/2025-03-26-oauth-metadata-backcompat",
    "its metadata names another issuer than the address at which it is found, which has to be refused: the newer suite \
     has mended it, and has a scenario for clients that do not",
)];

/// Maximum number of logins in one scenario.
const LOGINS: usize = 3;

#[test]
fn e04_every_authorization_scenario_of_the_older_suite_passes() {
    holds(Suite::V0_1, None, &["2025-11-25", "2025-03-26", "2025-06-18", "draft", "extension"]);
}

#[test]
fn e04_every_legacy_authorization_scenario_passes() {
    holds(Suite::V0_2, Some("2025-11-25"), &["2025-11-25"]);
}

#[test]
fn e04_every_modern_authorization_scenario_passes() {
    holds(Suite::V0_2, Some("2026-07-28"), &["2026-07-28"]);
}

#[test]
fn e04_authorization_scenarios_of_the_first_revision_and_extensions_pass() {
    holds(Suite::V0_2, None, &["2025-03-26", "extension"]);
}

#[test]
fn authorization_exceptions_name_existing_scenarios() {
    let mut known = BTreeSet::new();
    for suite in [Suite::V0_1, Suite::V0_2] {
        if !require(suite) {
            return;
        }
        known.extend(suite.scenarios("--client").into_keys());
    }
    for (scenario, _) in EXCEPTIONS.iter().chain(EXCEPTIONS_OF_THE_OLDER) {
        assert!(known.contains(*scenario), "there is no scenario {scenario}");
    }
}

/// Runs all authorization scenarios of the suite for these revisions.
fn holds(suite: Suite, version: Option<&str>, of: &[&str]) {
    if !require(suite) {
        return;
    }
    let mut wrong = String::new();
    for (scenario, revisions) in suite.scenarios("--client") {
        let wanted = revisions.iter().any(|revision| of.contains(&revision.as_str()));
        if !wanted || !scenario.starts_with("auth/") {
            continue;
        }
        let checks = suite.run_client_scenario(&scenario, version, |staged| use_it(&scenario, staged));
        let found = imperfections(&scenario, &checks);
        let of_the_older = EXCEPTIONS_OF_THE_OLDER.iter().filter(|_| suite == Suite::V0_1);
        let excused = EXCEPTIONS.iter().chain(of_the_older).any(|(exception, _)| *exception == scenario);
        match (excused, found.is_empty()) {
            (false, _) => wrong += &found,
            (true, false) => {}
            (true, true) => writeln!(wrong, "  {scenario}: holds, so it is no exception").unwrap(),
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Lists the tools, calls one, and logs in whenever gripfast reports that a login is needed.
fn use_it(scenario: &str, staged: &ScenarioServer) {
    let dir = tempfile::tempdir().unwrap();
    let told = |key: &str| staged.context[key].as_str().unwrap_or_default();
    let issuer = match scenario {
        "auth/pre-registration" | "auth/client-credentials-basic" | "auth/client-credentials-jwt" => {
            format!("issuer = {:?}", issuer_of(&staged.url))
        }
        _ => String::new(),
    };
    let client =
        format!("{issuer}, client_id = {:?}, client_secret = {:?}", told("client_id"), told("client_secret"));
    let oauth = match scenario {
        "auth/basic-cimd" => {
            "client_metadata_url = \"https://conformance-test.local/client-metadata.json\"".to_owned()
        }
        "auth/pre-registration" => client,
        "auth/client-credentials-basic" => format!("grant = \"client_credentials\", {client}"),
        "auth/client-credentials-jwt" => {
            let key = dir.path().join("key.pem");
            std::fs::write(&key, told("private_key_pem")).unwrap();
            let id = told("client_id");
            format!(
                "{issuer}, grant = \"client_credentials\", client_id = {id:?}, private_key = \"${{file:{}}}\"",
                key.display()
            )
        }
        _ => String::new(),
    };
    let config = format!("[servers.suite]\nurl = {:?}\noauth = {{ {oauth} }}\n", staged.url);
    std::fs::write(dir.path().join("gripfast.toml"), config).unwrap();
    let mut logins = 0;
    for asked in [&["tools", "suite"][..], &["call", "suite", "test-tool", "{}"]] {
        while needs_login(&dir, asked) {
            logins += 1;
            if logins > LOGINS || !log_in(&dir) {
                return;
            }
        }
    }
}

/// The authorization server that an operator would find in the server's documentation.
fn issuer_of(url: &str) -> String {
    let (host, path) = url.trim_start_matches("http://").split_once('/').unwrap();
    let address = format!("http://{host}/.well-known/oauth-protected-resource/{path}");
    let answer = Runtime::new().unwrap().block_on(fetch(&address));
    let document = &answer[answer.find('{').unwrap()..=answer.rfind('}').unwrap()];
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    document["authorization_servers"][0].as_str().unwrap().to_owned()
}

fn needs_login(dir: &TempDir, args: &[&str]) -> bool {
    let status = gripfast(dir, args).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    status.code() == Some(3)
}

/// Logs in with a browser that agrees to everything. Returns true on success.
fn log_in(dir: &TempDir) -> bool {
    let mut command = gripfast(dir, &["login", "suite", "--no-browser"]);
    let mut login = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(login.stdout.take().unwrap()).read_line(&mut url).unwrap();
    if !url.is_empty() {
        Runtime::new().unwrap().block_on(complete_authorization(url.trim()));
    }
    login.wait().unwrap().success()
}

fn gripfast(dir: &TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(GRIPFAST);
    command.args(args).arg("--config").arg(dir.path().join("gripfast.toml"));
    command.arg("--state-dir").arg(dir.path()).stdin(Stdio::null());
    command
}

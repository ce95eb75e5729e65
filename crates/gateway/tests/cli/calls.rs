//! `gripfast calls`: outcomes of calls, with a gateway, without one, and after a gateway was killed.

use crate::gateway_process::GatewayProcess;
use crate::sandbox::{CommandOutput, Sandbox, UNUSED_URL, stdio};
use gripfast_testkit::wait::until_some;
use insta::assert_snapshot;
use rustix::process::Signal;
use serde_json::{Value, json};

/// A sandbox whose config names the state directory `state`.
fn sandbox() -> Sandbox {
    Sandbox::with(&format!("[gateway]\nstate_dir = \"state\"\n{}", stdio("demo", &[])))
}

fn calls(sandbox: &Sandbox, words: &[&str]) -> CommandOutput {
    sandbox.run(&[&["calls"], words].concat())
}

fn rows(ran: &CommandOutput) -> Vec<Value> {
    assert_eq!(ran.code, Some(0), "{ran}");
    let told: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"));
    told["calls"].as_array().unwrap().clone()
}

/// The table without its times, which differ from run to run.
fn steady(ran: &CommandOutput) -> String {
    let lines = ran.to_string();
    let words = |line: &str| {
        let is_time = |word: &str| {
            let number = word.strip_suffix("ms").or_else(|| word.strip_suffix('s')).unwrap_or_default();
            !number.is_empty() && number.trim_start_matches('<').bytes().all(|byte| byte.is_ascii_digit())
        };
        let timeless = |word: &&str| !is_time(word);
        line.split_whitespace().filter(timeless).collect::<Vec<_>>().join(" ")
    };
    lines.lines().map(words).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_call_in_flight_in_a_killed_gateway_is_recorded_unknown_once() {
    let sandbox = sandbox();
    let serving = GatewayProcess::start(&sandbox, &[]);
    let client = serving.client();
    assert!(client.call("demo__echo", json!({ "text": "hello" })).contains("hello"));
    let _under_way = client.begin("demo__sleep", json!({ "ms": 600_000 }));
    let shown = until_some("the call is under way", || {
        let rows = rows(&calls(&sandbox, &["--url", &serving.url, "-o", "json"]));
        rows.iter().any(|row| row["tool"] == "sleep" && row["outcome"].is_null()).then_some(rows)
    });
    assert_eq!((shown.len(), &shown[1]["outcome"]), (2, &json!("done")));
    assert_eq!(rows(&calls(&sandbox, &["--url", &serving.url, "--unknown", "-o", "json"])), [Value::Null; 0]);
    serving.end(Signal::KILL);

    let unknown = rows(&calls(&sandbox, &["--state-dir", "state", "--unknown", "-o", "json"]));
    let [row] = unknown.as_slice() else { panic!("{unknown:?}") };
    assert_eq!(
        (&row["server"], &row["tool"], &row["code"]),
        (&json!("demo"), &json!("sleep"), &json!("outcome_unknown"))
    );
    assert!(row["hint"].as_str().is_some_and(|hint| hint.contains("before you call it again")), "{row}");
    let said = |stderr: &str| stderr.matches("was in flight when an earlier gripfast ended").count();
    for (start, signal) in [Signal::KILL, Signal::TERM, Signal::KILL].into_iter().enumerate() {
        let serving = GatewayProcess::start(&sandbox, &[]);
        let beside = GatewayProcess::start(&sandbox, &[]);
        for url in [&serving.url, &beside.url] {
            assert_eq!(rows(&calls(&sandbox, &["--url", url, "--unknown", "-o", "json"])), unknown);
        }
        let stderr = serving.end(signal) + &beside.end(signal);
        assert_eq!(said(&stderr), usize::from(start == 0), "{stderr}");
    }
    assert_eq!(rows(&calls(&sandbox, &["--state-dir", "state", "-o", "json"])).len(), 2);
}

#[test]
fn calls_are_listed_with_their_outcome() {
    let sandbox = sandbox();
    let serving = GatewayProcess::start(&sandbox, &[]);
    let client = serving.client();
    client.call("demo__echo", json!({ "text": "hello" }));
    client.call("demo__fail", json!({}));
    client.call("demo__crash", json!({}));
    assert_snapshot!(steady(&calls(&sandbox, &["--url", &serving.url])), @"
    exit 0
    --- stdout
    STARTED PRINCIPAL CLIENT SERVER TOOL OUTCOME TOOK WHAT HAPPENED
    ago local a-script 1.2 demo crash unknown sent, but the connection was lost before the answer (outcome_unknown)
    ago local a-script 1.2 demo fail failed the server answered that it failed
    ago local a-script 1.2 demo echo done answered
    --- stderr
    hint: a call with an unknown outcome may have been carried out: check its effect before you repeat it
    ");
    assert_snapshot!(steady(&calls(&sandbox, &["--url", &serving.url, "--limit", "1"])), @"
    exit 0
    --- stdout
    STARTED PRINCIPAL CLIENT SERVER TOOL OUTCOME TOOK WHAT HAPPENED
    ago local a-script 1.2 demo crash unknown sent, but the connection was lost before the answer (outcome_unknown)
    --- stderr
    2 older calls left out; `--limit` shows more
    hint: a call with an unknown outcome may have been carried out: check its effect before you repeat it
    ");
    assert_snapshot!(steady(&calls(&sandbox, &["--url", &serving.url, "--server", "dmeo"])), @"
    exit 0
    --- stderr
    no calls
    ");
    assert_eq!(rows(&calls(&sandbox, &["--url", &serving.url, "--since", "1h", "-o", "json"])).len(), 3);
    let (asked, read) = (["--url", &serving.url, "-o", "json"], ["--state-dir", "state", "-o", "json"]);
    assert_eq!(rows(&calls(&sandbox, &asked)), rows(&calls(&sandbox, &read)), "with and without a gateway");
    let row = &rows(&calls(&sandbox, &asked))[2];
    assert_eq!(
        (&row["arguments"], &row["outcome"], &row["attempts"]),
        (&Value::Null, &json!("done"), &json!(1))
    );
    assert_eq!(row["sha256"].as_str().map(str::len), Some(64));
}

#[test]
fn a_missing_ledger_is_reported() {
    let sandbox = Sandbox::with(&format!("[gateway]\nledger = \"off\"\n{}", stdio("demo", &[])));
    let serving = GatewayProcess::start(&sandbox, &["--state-dir", "state"]);
    serving.client().call("demo__echo", json!({ "text": "hello" }));
    assert_snapshot!(calls(&sandbox, &["--url", &serving.url]), @r#"
    exit 0
    --- stderr
    this gateway records no calls
      hint: `gateway.ledger` is "off", or the gateway has no state directory
    "#);
    assert!(!sandbox.path("state/ledger").exists());
}

#[test]
fn without_a_gateway_and_without_a_ledger() {
    let sandbox = Sandbox::empty();
    assert_snapshot!(calls(&sandbox, &["--url", UNUSED_URL]), @"
    exit 4
    --- stderr
    error: no gateway at http://127.0.0.1:[PORT]; start one with `gripfast serve`
      hint: `--url` names another gateway
    ");
    assert_snapshot!(calls(&sandbox, &["--state-dir", "nowhere", "--unknown"]), @"
    exit 0
    --- stderr
    no calls with an unknown outcome
    ");
    assert_snapshot!(calls(&sandbox, &["--state-dir", "nowhere", "-o", "json"]), @r#"
    exit 0
    --- stdout
    {"schema_version":1,"ledger":null,"calls":[],"left_out":0,"lost_replicas":null}
    "#);
    assert_snapshot!(calls(&sandbox, &["--limit", "1001"]), @"
    exit 1
    --- stderr
    error: invalid value '1001' for '--limit <NUMBER>': expected a number up to 1000

    For more information, try '--help'.
    ");
}

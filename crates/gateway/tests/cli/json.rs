//! `-o json`: the output of the commands compared with the reference page.

use crate::gateway_process::GatewayProcess;
use crate::in_process_gateway::{ask, demo_gateway};
use crate::sandbox::{Sandbox, WITHOUT_GATEWAY, stdio};
use gripfast_testkit::wait::until_some;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::Path;

fn reference(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(file);
    std::fs::read_to_string(path).unwrap()
}

/// Example under a heading of the page.
fn example(heading: &str) -> Value {
    let page = reference("json.md");
    let section = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}")).1;
    let block = section.split_once("```json\n").unwrap().1.split_once("```").unwrap().0;
    serde_json::from_str(block).unwrap_or_else(|error| panic!("{heading}: {error}"))
}

/// First object that a command prints.
fn printed(sandbox: &Sandbox, words: &[&str]) -> Map<String, Value> {
    let ran = sandbox.run(&[words, &["-o", "json"]].concat());
    let first = ran.stdout.lines().next().unwrap_or_else(|| panic!("{words:?} printed nothing: {ran}"));
    let Ok(Value::Object(object)) = serde_json::from_str(first) else { panic!("{words:?}: {first}") };
    assert_eq!(object.get("schema_version"), Some(&Value::from(1)), "{words:?}: {first}");
    assert!(first.starts_with("{\"schema_version\":1"), "{words:?} says it first: {first}");
    object
}

/// Checks that both values have the same keys at every level. `null` matches anything, and only
/// list items that both have are compared.
#[track_caller]
fn alike(path: &str, page: &Value, said: &Value) {
    match (page, said) {
        (Value::Object(page), Value::Object(said)) if !page.is_empty() => {
            let keys = |object: &Map<String, Value>| object.keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(keys(page), keys(said), "{path}");
            page.iter().for_each(|(key, page)| alike(&format!("{path}.{key}"), page, &said[key]));
        }
        (Value::Array(page), Value::Array(said)) => {
            for (page, said) in page.iter().zip(said) {
                alike(&format!("{path}[]"), page, said);
            }
        }
        (Value::Null, _) | (_, Value::Null) => {}
        _ => assert_eq!(
            std::mem::discriminant(page),
            std::mem::discriminant(said),
            "{path}: {page} on the page, {said} printed"
        ),
    }
}

/// Checks a value against this schema of the admin API.
fn fits(what: &str, schema: &str, said: &Map<String, Value>) {
    let page = reference("json.md");
    let row = page.lines().find(|line| line.starts_with("| `") && line.contains(&format!("`{what}`")));
    assert!(row.is_some_and(|row| row.contains(&format!("| `{schema}`"))), "{what}: {row:?}");
    let document: Value = serde_json::from_str(&reference("openapi.json")).unwrap();
    let schema = &document["components"]["schemas"][schema];
    let known = schema["properties"].as_object().unwrap_or_else(|| panic!("{what}: no such schema"));
    for key in said.keys().filter(|key| *key != "schema_version") {
        assert!(known.contains_key(key), "{what}: `{key}` is not in the document");
    }
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        assert!(said.contains_key(key), "{what}: `{key}` is missing");
    }
}

#[test]
fn json_output_from_the_gateway_matches_the_openapi_document() {
    let sandbox = Sandbox::with(&format!("{}tools = {{ deny = [\"crash\"] }}\n", stdio("demo", &[])));
    let serving = GatewayProcess::start(&sandbox, &["--state-dir", "state"]);
    let through = |words: &[&str]| {
        let asked = [words, &["--state-dir", "state", "--url", &serving.url]].concat();
        printed(&sandbox, &asked)
    };
    until_some("ready", || (through(&["status", "demo"])["state"] == "ready").then_some(()));
    serving.client().call("demo__echo", serde_json::json!({ "text": "hello" }));
    for (what, schema, words) in [
        ("status", "Fleet", &["status"][..]),
        ("status NAME", "UpstreamDetail", &["status", "demo"]),
        ("events", "Event", &["events"]),
        ("calls", "Calls", &["calls"]),
        ("pins ls", "Pins", &["pins", "ls"]),
        ("pins diff", "Pins", &["pins", "diff"]),
        ("reconnect NAME", "Upstream", &["reconnect", "demo"]),
        ("reload NAME", "Upstream", &["reload", "demo"]),
        ("stop NAME", "Upstream", &["stop", "demo"]),
        ("start NAME", "Upstream", &["start", "demo"]),
        ("reload", "ReloadOutcome", &["reload"]),
    ] {
        fits(what, schema, &through(words));
    }
    let decided = ["policy", "test", "anybody", "demo", "echo", "--state-dir", "state"];
    fits("policy test", "Decision", &printed(&sandbox, &decided));
}

#[test]
fn json_output_of_the_command_line_matches_its_page() {
    let dying = stdio("dying", &["--exit-at-start", "always"]);
    let config = format!("{}{dying}[servers.wrong]\ncommand = \"sh\"\nlasy = true\n", stdio("demo", &[]));
    let sandbox = Sandbox::with(&config).file(
        "home/.claude.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"sh\", \"env\": {\"API_KEY\": \"abcdefgh123\"}}}}",
    );
    sandbox.run(&["keys", "add", "laptop", "--state-dir", "state"]);
    for (heading, words) in [
        ("### `check`", &["check"][..]),
        ("### `doctor`", &["doctor", WITHOUT_GATEWAY, "dying", "--wait", "1s"]),
        ("### `import`", &["import"]),
        ("### `keys ls`", &["keys", "ls", "--state-dir", "state"]),
        ("## MCP results", &["call", WITHOUT_GATEWAY, "demo", "ecko"]),
    ] {
        alike(heading, &example(heading), &Value::Object(printed(&sandbox, words)));
    }
    let serving = GatewayProcess::start(&sandbox, &["--state-dir", "state"]);
    let words = ["logs", "dying", "--url", &serving.url];
    until_some("last words", || (!sandbox.run(&words).stdout.is_empty()).then_some(()));
    alike("logs", &example("### `logs`"), &Value::Object(printed(&sandbox, &words)));
    let words = ["tools", "demo", "echo", "--url", &serving.url];
    until_some("listed", || (sandbox.run(&words).code == Some(0)).then_some(()));
    let heading = "### `tools`, `resources`, `prompts`";
    alike(heading, &example(heading), &Value::Object(printed(&sandbox, &words)));
}

#[test]
fn a_failure_is_a_json_object_for_every_verb() {
    let (sandbox, running) = demo_gateway();
    for words in [&["logs", "dmeo"][..], &["stop", "dmeo"], &["events", "dmeo"], &["status", "dmeo"]] {
        let ran = ask(&sandbox, &running, &[words, &["-o", "json"]].concat());
        let told: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{words:?}: {ran}"));
        assert!(told["error"]["text"].as_str().is_some_and(|text| text.contains("dmeo")), "{words:?}: {ran}");
    }
    let no_gateway = sandbox.run(&["status", "-o", "json"]);
    let told: Value = serde_json::from_str(&no_gateway.stdout).unwrap();
    assert!(told["error"]["code"].is_null() && no_gateway.code == Some(4), "{no_gateway}");
    assert!(told["error"]["text"].as_str().unwrap().starts_with("no gateway at"), "{no_gateway}");
    assert!(sandbox.run(&["status"]).stdout.is_empty(), "people read it on stderr");
}

//! `gripfast audit verify`: detection of a changed audit log.

use crate::sandbox::Sandbox;
use std::fs;

/// Two audit lines as a gateway writes them.
const LINES: &str = concat!(
    "{\"at_ms\":1,\"event\":\"approved\",\"server\":\"s\",\"tools\":[\"a\"],",
    "\"prev\":\"0000000000000000000000000000000000000000000000000000000000000000\",",
    "\"chain\":\"FIRST\"}\n",
);

#[test]
fn g05_a_changed_audit_log_is_found_by_the_command() {
    let sandbox = Sandbox::empty();
    let verify = || sandbox.run(&["audit", "verify", "--state-dir", "state"]);
    let none = verify();
    assert!(none.code == Some(0) && none.stderr.contains("no audit log"), "{none}");
    let audit = sandbox.path("state").join("audit");
    fs::create_dir_all(&audit).unwrap();
    let file = audit.join("0000000000001-1-0001.jsonl");
    fs::write(&file, "{\"at_ms\":1}\n").unwrap();
    let old = verify();
    assert!(old.code == Some(0) && old.stdout.contains("no hash chain"), "{old}");
    let zeros = "0".repeat(64);
    fs::write(&file, LINES.replace("FIRST", &zeros)).unwrap();
    let broken = verify();
    assert_eq!(broken.code, Some(1), "{broken}");
    assert!(broken.stderr.contains("line 1 was changed"), "{broken}");
    let broken = sandbox.run(&["audit", "verify", "-o", "json", "--state-dir", "state"]);
    assert!(broken.stdout.contains("\"finding\":\"broken\"") && broken.code == Some(1), "{broken}");
}

/// The audit lines of the state directory `state`, without times, chain and user.
fn written(sandbox: &Sandbox) -> Vec<String> {
    let mut files: Vec<_> = fs::read_dir(sandbox.path("state").join("audit"))
        .into_iter()
        .flatten()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let texts: Vec<String> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["actor"].as_str().is_some_and(|actor| actor.starts_with("uid ")), "{line}");
        let word = |key: &str| line[key].as_str().unwrap_or("-").to_owned();
        format!("{} {}{} {}", word("event"), word("change"), word("decision"), line["names"])
    };
    texts.iter().flat_map(|text| text.lines()).map(line).collect()
}

#[test]
fn g05_commands_that_change_keys_or_trust_write_an_audit_line() {
    let config = "[gateway]\naudit = \"digest\"\nstate_dir = \"state\"\n";
    let sandbox = Sandbox::with(config);
    let mut expected = Vec::new();
    let mut run = |words: &[&str], line: &str| {
        let ran = sandbox.run(words);
        assert_eq!(ran.code, Some(0), "{ran}");
        expected.push(line.to_owned());
        assert_eq!(written(&sandbox), expected, "{words:?}");
    };
    run(&["keys", "add", "laptop"], "keys_changed added- [\"laptop\"]");
    run(&["keys", "rm", "laptop"], "keys_changed removed- [\"laptop\"]");
    run(&["token", "rotate"], "keys_changed admin_token- []");
    run(&["trust"], "trust_changed -trusted null");
    run(&["trust", "--remove"], "trust_changed -untrusted null");
    run(&["trust"], "trust_changed -trusted null");
    assert_eq!(sandbox.run(&["audit", "verify"]).code, Some(0));
    fs::write(sandbox.path("gripfast.toml"), "[gateway]\nstate_dir = \"state\"\n").unwrap();
    sandbox.trust();
    assert_eq!(sandbox.run(&["keys", "add", "laptop"]).code, Some(0));
    assert_eq!(written(&sandbox), expected, "without an audit log nothing is written");
}

//! `gripfast audit verify`: whether the audit log is as it was written.

use crate::sandbox::Sandbox;
use std::fs;

/// Two lines as a gateway writes them.
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

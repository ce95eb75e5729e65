//! Short runs of the parts that need only gripfast: checks that they work and that their counts are right. Times are
//! not checked.
#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

fn measured(part: &str) -> Value {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let gripfast =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(target).join("debug/gripfast");
    let run = Command::new(env!("CARGO_BIN_EXE_gripfast-bench"))
        .args([part, "--tiny", "-o", "json", "--gripfast"])
        .arg(&gripfast)
        .output()
        .expect("the bench can be run");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}\nhint: `cargo build -p gripfast-gateway` makes gripfast");
    let report: Value = serde_json::from_slice(&run.stdout).expect("it prints JSON");
    report["sections"][0][part].clone()
}

#[test]
fn a_list_of_lazy_servers_is_complete_without_starting_them() {
    // The run fails if the first list is incomplete.
    let startup = measured("startup");
    assert_eq!(startup["started"], 0, "{startup}");
    assert_eq!(startup["lazy_servers"], 5, "{startup}");
}

#[test]
fn growth_is_measured_for_servers_sessions_and_tools() {
    let scale = measured("scale");
    let over: Vec<&Value> =
        scale["growth"].as_array().expect("curves").iter().map(|curve| &curve["over"]).collect();
    assert_eq!(over, ["upstreams", "sessions", "tools"], "{scale}");
    assert_eq!(
        (&scale["sessions"]["count"], &scale["streams"]["count"]),
        (&Value::from(200), &Value::from(50))
    );
}

#[test]
fn calls_are_measured_with_and_without_the_ledger() {
    let observing = measured("observing");
    for way in ["on", "off"] {
        assert!(observing[way][0]["per_second"].as_f64().is_some_and(|calls| calls > 0.0), "{observing}");
    }
}

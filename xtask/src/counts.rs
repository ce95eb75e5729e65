//! `cargo xtask counts`: counts the instructions of the pure parts of a call, and the instructions and allocations of whole
//! calls, and compares them with stored bounds.
//!
//! Valgrind counts, so the load of the machine hardly matters. The bounds are in `crates/counts/bounds.txt`.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Mode;
use crate::workspace::{Workspace, read};

/// Repetitions of a part in two runs. The difference between the runs excludes start-up.
const TIMES: [u64; 2] = [200, 1_200];
/// The factor by which a part may exceed its bound.
const TOLERANCE: f64 = 1.05;

const RELEASE: [&str; 6] =
    ["build", "--release", "--package", "gripfast-counts", "--package", "gripfast-gateway"];

/// Builds with the lowest priority what [`run`] needs. [`run`] itself reports a failure.
pub(crate) fn build_in_background(workspace: &Workspace) {
    let cargo = workspace.cargo(&RELEASE);
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(cargo.get_program()).args(cargo.get_args()).arg("--quiet");
    nice.envs(cargo.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let _ = nice.current_dir(&workspace.root).stdin(Stdio::null()).stderr(Stdio::null()).status();
}

/// Whether valgrind runs on this machine.
pub(crate) fn can_run() -> bool {
    let status =
        Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Counts all parts. The result is a summary.
pub(crate) fn run(workspace: &Workspace, mode: Mode) -> Result<String, String> {
    if !can_run() {
        return Err("valgrind is missing\nhint: `apt install valgrind`".to_owned());
    }
    // Only the gateway is counted, so the program that calls it needs no release build.
    for build in [&RELEASE[..], &["build", "--package", "gripfast-bench"]] {
        let built = workspace.cargo(build).status().map_err(|error| format!("cannot run cargo: {error}"))?;
        if !built.success() {
            return Err("the build failed, see above".to_owned());
        }
    }
    let calls = count_calls(workspace)?;
    let file = workspace.root.join("crates/counts/bounds.txt");
    let bounds = parse(&read(&file)?)?;
    let mut counted = Vec::new();
    for (part, bound) in &bounds {
        let now = calls.get(part).copied().map_or_else(|| count(workspace, part), Ok)?;
        counted.push((part.clone(), *bound, now));
    }
    if mode == Mode::Write {
        let lines: String = counted.iter().map(|(part, _, now)| format!("{part} {now}\n")).collect();
        std::fs::write(&file, lines).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    let lines: Vec<String> = counted
        .iter()
        .map(|(part, bound, now)| format!("{part}: {now}, bound {bound}{}", verdict(*bound, *now)))
        .collect();
    let exceeding = counted.iter().filter(|(_, bound, now)| exceeds(*bound, *now)).count();
    if exceeding > 0 && mode == Mode::Check {
        let hint =
            "find the cause; if the increase is justified, `cargo xtask counts --write` stores the new bound";
        return Err(format!(
            "{}\n{exceeding} part(s) exceed the bound by more than 5 %\nhint: {hint}",
            lines.join("\n")
        ));
    }
    Ok(lines.join("\n"))
}

fn verdict(bound: u64, now: u64) -> String {
    let percent = (now as f64 / bound as f64 - 1.0) * 100.0;
    if percent.abs() < 0.1 { String::new() } else { format!(" ({percent:+.1} %)") }
}

fn exceeds(bound: u64, now: u64) -> bool {
    now as f64 > bound as f64 * TOLERANCE
}

/// Reads lines with the name of a part and its bound.
fn parse(text: &str) -> Result<Vec<(String, u64)>, String> {
    let line = |line: &str| {
        let (part, bound) = line.split_once(' ')?;
        Some((part.to_owned(), bound.trim().parse().ok()?))
    };
    let parsed: Option<Vec<_>> = text.lines().map(line).collect();
    parsed.ok_or_else(|| "crates/counts/bounds.txt has a line that is not a name and a number".to_owned())
}

/// The instructions and allocations of whole calls through a running gateway.
fn count_calls(workspace: &Workspace) -> Result<BTreeMap<String, u64>, String> {
    let mut bench = Command::new(workspace.target.join("debug/gripfast-bench"));
    bench.args(["instructions", "-o", "json", "--gripfast"]).arg(workspace.target.join("release/gripfast"));
    let output =
        bench.stdin(Stdio::null()).output().map_err(|error| format!("cannot run {bench:?}: {error}"))?;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    calls_in(&report)
        .ok_or_else(|| format!("{bench:?} counted nothing:\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// The counts in a report of the bench: `call-CASE` for instructions, `call-CASE-allocations`.
fn calls_in(report: &Value) -> Option<BTreeMap<String, u64>> {
    let mut calls = BTreeMap::new();
    for cost in report["sections"][0]["instructions"].as_array()? {
        let case = cost["case"].as_str()?;
        calls.insert(format!("call-{case}"), cost["instructions"].as_f64()? as u64);
        calls.insert(format!("call-{case}-allocations"), cost["allocations"].as_f64()? as u64);
    }
    Some(calls)
}

/// The instructions of one repetition of a part.
fn count(workspace: &Workspace, part: &str) -> Result<u64, String> {
    let binary = workspace.target.join("release").join("gripfast-counts");
    let total = |times: u64| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(&binary)
            .args([part, &times.to_string()])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot run valgrind: {error}"))?;
        let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
        let collected = output_text.lines().find_map(|line| line.split_once("Collected :"));
        let count = collected.and_then(|(_, count)| count.trim().parse::<u64>().ok());
        count
            .filter(|_| output.status.success())
            .ok_or_else(|| format!("valgrind did not count `{part}`:\n{output_text}"))
    };
    let [few, many] = TIMES;
    Ok(total(many)?.saturating_sub(total(few)?) / (many - few))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_percent_over_the_bound_passes_and_six_fail() {
        assert!(!exceeds(1000, 1050) && !exceeds(1000, 500));
        assert!(exceeds(1000, 1060));
    }

    #[test]
    fn whole_calls_have_two_counts_each() {
        let report = serde_json::json!({ "sections": [
            { "instructions": [{ "case": "stdio", "instructions": 90_000.4, "allocations": 68.0 }] }
        ]});
        let expected = [("call-stdio".to_owned(), 90_000), ("call-stdio-allocations".to_owned(), 68)];
        assert_eq!(calls_in(&report), Some(BTreeMap::from(expected)));
        assert_eq!(calls_in(&Value::Null), None);
    }

    #[test]
    fn bounds_are_names_and_numbers() {
        assert_eq!(
            parse("patch 12\nclassify 7\n"),
            Ok(vec![("patch".to_owned(), 12), ("classify".to_owned(), 7)])
        );
        assert!(parse("patch\n").is_err());
    }
}

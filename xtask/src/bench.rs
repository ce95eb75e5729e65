//! `cargo xtask bench`: builds release binaries of the gateway and of `gripfast-bench`, and runs the measurements.
//! `cargo xtask bench search` measures tool search with a program of its own.

use std::process::Command;

use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    match args.split_first() {
        Some((part, rest)) if part == "search" => search(workspace, rest),
        _ => workspace.run_release("bench", "gripfast-bench", args),
    }
}

/// Builds the program that asks the questions, the example that answers them with our index, and the gateway; then runs
/// the program.
fn search(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    let builds: [&[&str]; 3] = [
        &["build", "--release", "--package", "gripfast-core", "--example", "search"],
        &["build", "--release", "--package", "gripfast-bench", "--bin", "gripfast-bench-search"],
        &["build", "--release", "--package", "gripfast-gateway", "--bin", "gripfast"],
    ];
    for build in builds {
        let built = workspace.cargo(build).status().map_err(|error| format!("cannot run cargo: {error}"))?;
        if !built.success() {
            return Err("cargo xtask bench search: the build failed, see above".to_owned());
        }
    }
    let release = workspace.target.join("release");
    let mut command = Command::new(release.join("gripfast-bench-search"));
    command.arg("--index").arg(release.join("examples/search"));
    command.arg("--gripfast").arg(release.join("gripfast"));
    command.arg("--dir").arg(workspace.target.join("search"));
    command.args(args).current_dir(&workspace.root);
    let status = command.status().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo xtask bench search: {status}")) }
}

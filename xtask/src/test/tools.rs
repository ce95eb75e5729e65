//! Tools that are not part of cargo: used from the machine if it has them, otherwise built once.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::Install;
use crate::counts;
use crate::workspace::Workspace;

struct Tool {
    name: &'static str,
    /// The version to install if the machine has none. A version that the machine already has is used as it is.
    version: &'static str,
}

const NEXTEST: Tool = Tool { name: "cargo-nextest", version: "0.9.143" };
const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
const MDBOOK: Tool = Tool { name: "mdbook", version: "0.5.4" };

/// Installs `cargo nextest` if necessary and returns its version.
pub(super) fn nextest(workspace: &Workspace, install: Install) -> Result<String, String> {
    let version = |workspace: &Workspace| {
        let output = workspace.cargo(&["nextest", "--version"]).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
    };
    if let Some(version) = version(workspace) {
        return Ok(version);
    }
    must_install(install, NEXTEST.name)?;
    // Cargo looks for subcommands in its own directory, so the default install location is right.
    let mut command = workspace.cargo(&["install", NEXTEST.name, "--version", NEXTEST.version, "--locked"]);
    run_install(&mut command, workspace, &NEXTEST)?;
    version(workspace)
        .ok_or_else(|| "cargo-nextest was installed, but `cargo nextest` does not run".to_owned())
}

/// The path of a working `cargo-deny`.
pub(crate) fn cargo_deny(workspace: &Workspace, install: Install) -> Result<PathBuf, String> {
    // An optimized build takes minutes longer than it saves.
    program(workspace, &DENY, &["--debug"], install)
}

/// The path of a working `mdbook`.
pub(crate) fn mdbook(workspace: &Workspace) -> Result<PathBuf, String> {
    // Without the web server and the file watcher, which are not used here.
    program(workspace, &MDBOOK, &["--no-default-features", "--features", "search"], Install::Yes)
}

/// The path of a program in `PATH` or in `target/tools`, where it is installed if there is none.
fn program(
    workspace: &Workspace,
    tool: &Tool,
    options: &[&str],
    install: Install,
) -> Result<PathBuf, String> {
    let root = workspace.target.join("tools");
    let ours = root.join("bin").join(format!("{}{}", tool.name, std::env::consts::EXE_SUFFIX));
    let runs = |path: &PathBuf| {
        let status = Command::new(path).arg("--version").stdout(Stdio::null()).stdin(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if let Some(found) = [PathBuf::from(tool.name), ours.clone()].into_iter().find(runs) {
        return Ok(found);
    }
    must_install(install, tool.name)?;
    let mut command =
        workspace.cargo(&["install", tool.name, "--version", tool.version, "--locked", "--root"]);
    run_install(command.arg(&root).args(options), workspace, tool)?;
    Ok(ours)
}

/// Installs valgrind if necessary. Only the package manager of the system has it.
pub(super) fn valgrind(install: Install) -> Result<(), String> {
    if counts::can_run() {
        return Ok(());
    }
    must_install(install, "valgrind")?;
    println!("installing valgrind");
    let _ = Command::new("apt-get").args(["install", "--yes", "valgrind"]).stdin(Stdio::null()).status();
    if counts::can_run() {
        Ok(())
    } else {
        Err("valgrind is missing and cannot be installed; run `apt install valgrind` as root".to_owned())
    }
}

/// An error if a missing program must not be installed.
pub(super) fn must_install(install: Install, name: &str) -> Result<(), String> {
    match install {
        Install::Yes => Ok(()),
        Install::No => Err(format!("{name} is missing, and `--no-install` was given")),
    }
}

/// Runs a `cargo install` command with a target directory that is deleted afterwards.
fn run_install(command: &mut Command, workspace: &Workspace, tool: &Tool) -> Result<(), String> {
    println!("installing {} {}; this happens once and takes a few minutes", tool.name, tool.version);
    let build = workspace.target.join("tools").join("build");
    let status = command.env("CARGO_TARGET_DIR", &build).status();
    // A directory that cannot be deleted only costs disk space.
    let _ = std::fs::remove_dir_all(&build);
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cannot install {} ({status}); its output is above", tool.name)),
        Err(error) => Err(format!("cannot run `cargo install {}`: {error}", tool.name)),
    }
}

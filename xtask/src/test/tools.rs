//! The tools that cargo does not bring: taken from the machine if they are there, else built once into the target
//! directory.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::counts;
use crate::workspace::Workspace;

struct Tool {
    name: &'static str,
    /// What is installed when the machine has none; a machine's own version is taken as it is.
    version: &'static str,
}

const NEXTEST: Tool = Tool { name: "cargo-nextest", version: "0.9.143" };
const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

/// Makes `cargo nextest` work; answers its version.
pub(super) fn nextest(workspace: &Workspace) -> Result<String, String> {
    let version = |workspace: &Workspace| {
        let output = workspace.cargo(&["nextest", "--version"]).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
    };
    if let Some(version) = version(workspace) {
        return Ok(version);
    }
    // Cargo finds subcommands beside itself, so this one goes where `cargo install` puts it.
    let mut command = workspace.cargo(&["install", NEXTEST.name, "--version", NEXTEST.version, "--locked"]);
    install(&mut command, workspace, &NEXTEST)?;
    version(workspace)
        .ok_or_else(|| "cargo-nextest was installed, but `cargo nextest` does not run".to_owned())
}

/// The path of a `cargo-deny` that runs.
pub(crate) fn cargo_deny(workspace: &Workspace) -> Result<PathBuf, String> {
    let root = workspace.target.join("tools");
    let ours = root.join("bin").join(format!("{}{}", DENY.name, std::env::consts::EXE_SUFFIX));
    let runs = |path: &PathBuf| {
        let status = Command::new(path).arg("--version").stdout(Stdio::null()).stdin(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if let Some(found) = [PathBuf::from(DENY.name), ours.clone()].into_iter().find(runs) {
        return Ok(found);
    }
    let mut command =
        workspace.cargo(&["install", DENY.name, "--version", DENY.version, "--locked", "--root"]);
    install(command.arg(&root), workspace, &DENY)?;
    Ok(ours)
}

/// Makes valgrind work, which only a system's own packages bring.
pub(super) fn valgrind() -> Result<(), String> {
    if counts::can_run() {
        return Ok(());
    }
    println!("installing valgrind");
    let _ = Command::new("apt-get").args(["install", "--yes", "valgrind"]).stdin(Stdio::null()).status();
    if counts::can_run() {
        Ok(())
    } else {
        Err("valgrind is not there and cannot be installed; `apt install valgrind` as root".to_owned())
    }
}

/// Compiles in a directory of its own, which is of no use afterwards.
fn install(command: &mut Command, workspace: &Workspace, tool: &Tool) -> Result<(), String> {
    println!("installing {} {}; this is done once and takes some minutes", tool.name, tool.version);
    let build = workspace.target.join("tools").join("build");
    let status = command.env("CARGO_TARGET_DIR", &build).status();
    // Only disk space is lost if it stays.
    let _ = std::fs::remove_dir_all(&build);
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cannot install {} ({status}); its output is above", tool.name)),
        Err(error) => Err(format!("cannot run `cargo install {}`: {error}", tool.name)),
    }
}

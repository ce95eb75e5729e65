//! The wheel. maturin also builds the binary that all packages contain.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Build, TARGET, cannot, output, profile, run_shown};
use crate::workspace::Workspace;

/// The tools from the Python package index.
const TOOLS: [&str; 3] = ["maturin==1.16.0", "ziglang==0.17.0", "uv==0.13.8"];
/// Their virtual environment below `target`.
const VENV: &str = "tools/packages";
/// The file in it that names the installed tools.
const STAMP: &str = "installed";

pub(super) fn build(
    workspace: &Workspace,
    build: Build,
    sources: &Path,
    out: &Path,
) -> Result<PathBuf, String> {
    let mut command = match build {
        Build::Portable => {
            let profile = profile::record(workspace)?;
            let mut command = maturin(workspace, sources, out)?;
            command.args([
                "--profile",
                "dist",
                "--target",
                TARGET,
                "--zig",
                "--compatibility",
                "manylinux2014",
            ]);
            // Unlike `RUSTFLAGS`, it allows paths with spaces.
            command.env("CARGO_ENCODED_RUSTFLAGS", profile::use_flag(&profile));
            command
        }
        Build::Plain => {
            let mut command = maturin(workspace, sources, out)?;
            command.args(["--profile", "release", "--compatibility", "linux", "--auditwheel", "skip"]);
            command
        }
    };
    println!("building the binary and the wheel");
    run_shown(&mut command)?;
    if build == Build::Portable {
        profile::verify(workspace)?;
    }
    let entries = std::fs::read_dir(out).map_err(|error| cannot("list", out, &error))?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| format!("maturin left no wheel in {}", out.display()))
}

fn maturin(workspace: &Workspace, sources: &Path, out: &Path) -> Result<Command, String> {
    let tools = tools(workspace)?;
    let mut command = Command::new(tools.join("maturin"));
    command.args(["build", "--locked", "--out"]).arg(out).current_dir(sources.join("wheel"));
    command.env("CARGO_TARGET_DIR", &workspace.target).env("PATH", path_with(&tools)?);
    Ok(command)
}

/// Tests if the tools are installed.
pub(super) fn has_tools(workspace: &Workspace) -> bool {
    let stamp = workspace.target.join(VENV).join(STAMP);
    std::fs::read_to_string(stamp).is_ok_and(|found| found == TOOLS.join(" "))
}

/// The directory of the tools, which are installed if they are missing.
pub(super) fn tools(workspace: &Workspace) -> Result<PathBuf, String> {
    let venv = workspace.target.join(VENV);
    if has_tools(workspace) {
        return Ok(venv.join("bin"));
    }
    let wanted = TOOLS.join(" ");
    println!("installing {wanted}");
    output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let mut pip = Command::new(venv.join("bin/pip"));
    output(pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(TOOLS))?;
    super::write(&venv.join(STAMP), &wanted)?;
    Ok(venv.join("bin"))
}

/// `PATH` with the tools first: maturin looks for the zig of the Python that it finds there.
fn path_with(tools: &Path) -> Result<std::ffi::OsString, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(tools.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(all)
        .map_err(|error| format!("the path of the target directory cannot be used: {error}"))
}

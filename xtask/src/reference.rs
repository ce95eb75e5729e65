//! `cargo xtask reference`: the pages under `docs/reference`, which the code describes itself on. The tests that hold
//! them against the code also write them, if they are told to.

use crate::workspace::Workspace;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Check,
    Write,
}

pub(crate) fn run(workspace: &Workspace, mode: Mode) -> Result<(), String> {
    let mut command = workspace.cargo(&["test", "--quiet", "-p", "gripfast-gateway", "--test", "reference"]);
    if mode == Mode::Write {
        command.env("GRIPFAST_WRITE_REFERENCE", "1");
    }
    let status = command.status().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err("the reference is not up to date; see above".to_owned()) }
}

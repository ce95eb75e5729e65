//! `cargo xtask reference`: checks or writes the pages under `docs/reference` that are generated from the code. Tests of
//! the gateway compare these pages with the code, and write them if `GRIPFAST_WRITE_REFERENCE` is set.

use crate::Mode;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, mode: Mode) -> Result<(), String> {
    let mut command = workspace.cargo(&["test", "--quiet", "-p", "gripfast-gateway", "--test", "reference"]);
    if mode == Mode::Write {
        command.env("GRIPFAST_WRITE_REFERENCE", "1");
    }
    let status = command.status().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err("the reference is out of date; see above".to_owned()) }
}

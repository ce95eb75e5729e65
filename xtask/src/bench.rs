//! `cargo xtask bench`: builds release binaries of the gateway and of `gripfast-bench`, and runs the measurements.

use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    workspace.run_release("bench", "gripfast-bench", args)
}

//! `cargo xtask chaos`: builds release binaries of the gateway and of `gripfast-chaos`, and runs the faults.

use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    workspace.run_release("chaos", "gripfast-chaos", args)
}

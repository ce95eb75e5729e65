//! `cargo xtask bench`: builds the gateway as users would run it, and measures it.

use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    workspace.run_release("bench", "gripfast-bench", args)
}

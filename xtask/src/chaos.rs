//! `cargo xtask chaos`: builds the gateway and its tormentor as users would run them, and lets the latter loose.

use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    workspace.run_release("chaos", "gripfast-chaos", args)
}

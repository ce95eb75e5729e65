//! `cargo xtask chaos`: builds the gateway and its tormentor as users would run them, and lets the latter loose.

use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    let build =
        ["build", "--release", "--package", "gripfast-gateway", "--package", "gripfast-chaos", "--bins"];
    let built = workspace.cargo(&build).status().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !built.success() {
        return Err("cargo xtask chaos: the build failed, see above".to_owned());
    }
    let binary = |name: &str| {
        let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        workspace.target.join("release").join(name)
    };
    let mut command = std::process::Command::new(binary("gripfast-chaos"));
    command.arg("--gripfast").arg(binary("gripfast")).args(args).current_dir(&workspace.root);
    let status = command.status().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo xtask chaos: {status}")) }
}

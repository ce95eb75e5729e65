//! The container images, built by `buildah` on the clean Debian of the package check.

use std::path::Path;
use std::process::Command;

use super::check::expect;
use super::deb_root::{DebianRoot, last_line};
use super::{output, runs};
use crate::workspace::Workspace;

/// Builds and runs the slim image. Returns the parts that this machine cannot do.
pub(super) fn check(
    workspace: &Workspace,
    root: &DebianRoot,
    packages: &Path,
) -> Result<Vec<String>, String> {
    if !runs("buildah", "--version") {
        return Ok(vec!["container images: this machine has no `buildah`".to_owned()]);
    }
    let base = match import(root) {
        Ok(base) => base,
        Err(why) => {
            return Ok(vec![format!("container images: `buildah` cannot work here: {}", last_line(&why))]);
        }
    };
    println!("building the slim container image");
    let mut build = buildah(&["build", "--isolation", "chroot", "--tag", "gripfast:slim"]);
    build.args(["--build-arg", &format!("BASE={base}"), "--file"]);
    output(build.arg(workspace.root.join("packages/container/Containerfile.slim")).arg(packages))?;
    let container = output(buildah(&["from", "gripfast:slim"]))?;
    let run = ["run", "--isolation", "chroot", container.trim(), "--", "gripfast", "--version"];
    let version = output(buildah(&run));
    output(buildah(&["rm", container.trim()]))?;
    output(buildah(&["rmi", "gripfast:slim", &base]))?;
    let version = version?;
    expect("the version in the container", version.starts_with("gripfast "), &version)?;
    Ok(vec!["the container image with node, python and uv: built by a release only".to_owned()])
}

/// Makes an image of the clean Debian.
fn import(root: &DebianRoot) -> Result<String, String> {
    let container = output(buildah(&["from", "scratch"]))?;
    output(buildah(&["add", "--quiet", container.trim()]).arg(&root.path).arg("/"))?;
    output(buildah(&["commit", "--quiet", "--rm", container.trim(), "gripfast-debian"]))?;
    Ok("localhost/gripfast-debian".to_owned())
}

fn buildah(words: &[&str]) -> Command {
    let mut command = Command::new("buildah");
    command.args(["--storage-driver", "vfs"]).args(words);
    command
}

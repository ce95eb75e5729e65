//! The slim container image, built and run by `buildah` on the clean Debian of the package check.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::check::{expect, fresh};
use super::clean_system::{apt_install, last_line};
use super::{output, runs};
use crate::workspace::Workspace;

/// The image that is not part of the check.
const FULL_IMAGE: &str =
    "the container image with node, python and uv: its packages take minutes to download";

/// The images of one check, in a directory of their own.
struct Images {
    storage: PathBuf,
}

/// Builds and runs the slim image on the Debian in `base`. Returns the parts that this machine cannot do.
pub(super) fn check(workspace: &Workspace, base: &Path, place: &Path) -> Result<Vec<String>, String> {
    if !runs("buildah", "--version") && !apt_install("buildah") {
        return Ok(vec!["container images: `buildah` is missing and cannot be installed".to_owned()]);
    }
    println!("building the slim container image");
    let images = Images { storage: fresh(place, "containers")? };
    let checked = match images.import(base) {
        Ok(()) => images.check_slim(workspace, &place.join("packages")).map(|()| vec![FULL_IMAGE.to_owned()]),
        Err(why) => Ok(vec![format!("container images: `buildah` cannot work here: {}", last_line(&why))]),
    };
    output(Command::new("rm").arg("-rf").arg(&images.storage))?;
    checked
}

impl Images {
    fn buildah(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new("buildah");
        command.arg("--root").arg(self.storage.join("images")).arg("--runroot").arg(self.storage.join("run"));
        output(command.args(["--storage-driver", "vfs"]).args(words))
    }

    /// Makes the image `localhost/debian`.
    fn import(&self, base: &Path) -> Result<(), String> {
        let container = self.buildah(&["from", "scratch"])?;
        self.buildah(&["add", "--quiet", container.trim(), &base.display().to_string(), "/"])?;
        self.buildah(&["commit", "--quiet", "--rm", container.trim(), "localhost/debian"]).map(drop)
    }

    fn check_slim(&self, workspace: &Workspace, packages: &Path) -> Result<(), String> {
        let file = workspace.root.join("packages/container/Containerfile.slim").display().to_string();
        let context = packages.display().to_string();
        let build =
            ["build", "--isolation", "chroot", "--build-arg", "BASE=localhost/debian", "--tag", "slim"];
        self.buildah(&[&build[..], &["--file", &file, &context]].concat())?;
        let container = self.buildah(&["from", "localhost/slim"])?;
        let gripfast = |words: &[&str]| {
            let run = ["run", "--isolation", "chroot", container.trim(), "--", "/usr/bin/gripfast"];
            self.buildah(&[&run[..], words].concat())
        };
        let version = gripfast(&["--version"])?;
        expect("the version in the container", version.starts_with("gripfast "), &version)?;
        let config = "--config=/etc/gripfast/gripfast.toml";
        let answer = gripfast(&["call", config, "demo", "echo", "text=hello"])?;
        expect("the answer in the container", answer.trim() == "hello", &answer)
    }
}

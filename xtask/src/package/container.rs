//! The container images, built and run by `buildah` on the clean Debian of the package check.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::check::{expect, fresh};
use super::clean_system::{apt_install, last_line};
use super::{output, runs};
use crate::workspace::Workspace;

/// The images of one check, in a directory of their own.
struct Images {
    storage: PathBuf,
}

/// Builds and runs both images on the Debian in `base`. Returns the parts that this machine cannot do.
pub(super) fn check(workspace: &Workspace, base: &Path, place: &Path) -> Result<Vec<String>, String> {
    if !runs("buildah", "--version") && !apt_install("buildah") {
        return Ok(vec!["container images: `buildah` is missing and cannot be installed".to_owned()]);
    }
    println!("building the container images");
    let images = Images { storage: fresh(place, "containers")? };
    let checked = match images.import(base) {
        Ok(()) => images.check(workspace, &place.join("packages")).map(|()| Vec::new()),
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

    fn check(&self, workspace: &Workspace, packages: &Path) -> Result<(), String> {
        self.build(workspace, "Containerfile.slim", packages)?.use_gripfast()?;
        let full = self.build(workspace, "Containerfile", packages)?;
        full.use_gripfast()?;
        // The user of the service can start servers with these.
        for (program, version) in [("node", "v"), ("npx", ""), ("uvx", "uvx "), ("python3", "Python ")] {
            let found = full.run(&[program, "--version"])?;
            expect(program, !found.trim().is_empty() && found.starts_with(version), &found)?;
        }
        Ok(())
    }

    /// Builds an image, and a container from it.
    fn build(&self, workspace: &Workspace, name: &str, packages: &Path) -> Result<Container<'_>, String> {
        let file = workspace.root.join("packages/container").join(name).display().to_string();
        let context = packages.display().to_string();
        let mut build = vec!["build", "--isolation", "chroot", "--build-arg", "BASE=localhost/debian"];
        if Path::new("/etc/ssl/certs/ca-certificates.crt").exists() {
            build.extend(["--volume", "/etc/ssl/certs:/certs:ro"]);
            build.extend(["--build-arg", "PIP_CERT=/certs/ca-certificates.crt"]);
        }
        let tag = name.to_lowercase();
        build.extend(["--tag", &tag, "--file", &file, &context]);
        self.buildah(&build)?;
        let name = self.buildah(&["from", &format!("localhost/{tag}")])?.trim().to_owned();
        Ok(Container { images: self, name })
    }
}

/// A container from one of the images.
struct Container<'a> {
    images: &'a Images,
    name: String,
}

impl Container<'_> {
    fn run(&self, words: &[&str]) -> Result<String, String> {
        let run = ["run", "--isolation", "chroot", &self.name, "--"];
        self.images.buildah(&[&run[..], words].concat())
    }

    fn use_gripfast(&self) -> Result<(), String> {
        let version = self.run(&["/usr/bin/gripfast", "--version"])?;
        expect("the version in the container", version.starts_with("gripfast "), &version)?;
        let call = ["call", "--config=/etc/gripfast/gripfast.toml", "demo", "echo", "text=hello"];
        let answer = self.run(&[&["/usr/bin/gripfast"][..], &call].concat())?;
        expect("the answer in the container", answer.trim() == "hello", &answer)
    }
}

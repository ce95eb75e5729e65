//! A clean Debian, in which the Debian package is installed, used and purged.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::check::{InstalledPackage, expect, fresh};
use super::{install, output, runs};
use crate::workspace::Workspace;

/// Enters the root with its own mounts, which end with the command.
const ENTER: &str = r#"mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@""#;
/// Files that every installation of any package changes, and backups of the user database.
const IGNORED: &str = r"^(var/log|var/cache|var/lib/dpkg|var/lib/apt|tmp|etc/\.pwd\.lock|etc/[a-z]*-$)";

/// The root of a minimal Debian.
pub(super) struct CleanSystem {
    /// The root without any change.
    pub(super) base: PathBuf,
    /// The copy in which packages are installed.
    path: PathBuf,
}

impl CleanSystem {
    /// Makes the root once with `debootstrap`, and a copy of it for this check. The error is the reason for which this
    /// machine cannot have one.
    pub(super) fn create(place: &Path) -> Result<Self, String> {
        if output(Command::new("id").arg("-u"))?.trim() != "0" {
            return Err("only root can make a clean Debian".to_owned());
        }
        if !runs("debootstrap", "--version") && !apt_install("debootstrap") {
            return Err("`debootstrap` is missing and cannot be installed".to_owned());
        }
        let base = place.join("debian");
        if !base.join("made").exists() {
            println!("making a clean Debian");
            let unfinished = fresh(place, "debian-unfinished")?;
            let mut debootstrap = Command::new("debootstrap");
            output(debootstrap.args(["--variant=minbase", "bookworm"]).arg(&unfinished))
                .map_err(|why| format!("`debootstrap` fails here: {}", last_line(&why)))?;
            std::fs::write(unfinished.join("made"), "").map_err(|error| error.to_string())?;
            std::fs::rename(&unfinished, &base).map_err(|error| error.to_string())?;
        }
        let path = place.join("root");
        output(Command::new("rm").args(["-rf", "--one-file-system"]).arg(&path))?;
        output(Command::new("cp").args(["--archive", "--reflink=auto"]).arg(&base).arg(&path))?;
        let root = Self { base, path };
        output(&mut root.command(&["true"]))
            .map_err(|why| format!("chroot fails here: {}", last_line(&why)))?;
        Ok(root)
    }

    fn words(&self) -> Vec<String> {
        let root = self.path.display().to_string();
        ["unshare", "--mount", "sh", "-c", ENTER, &root].map(str::to_owned).to_vec()
    }

    fn command(&self, words: &[&str]) -> Command {
        let prefix = self.words();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args(words).env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Installs the package with apt, uses it, and purges it; then the root is as it was.
    pub(super) fn check(&self, workspace: &Workspace, package: &Path) -> Result<(), String> {
        let before = self.content()?;
        install(package, &self.path.join("tmp/gripfast.deb"), 0o644)?;
        let apt = ["apt-get", "install", "--yes", "--no-install-recommends", "/tmp/gripfast.deb"];
        output(&mut self.command(&apt))?;
        for file in [
            "usr/share/man/man1/gripfast.1.gz",
            "usr/share/bash-completion/completions/gripfast",
            "usr/share/zsh/vendor-completions/_gripfast",
            "usr/share/fish/vendor_completions.d/gripfast.fish",
            "usr/lib/systemd/system/gripfast.service",
            "usr/lib/systemd/system/gripfast.socket",
        ] {
            expect("the content of the Debian package", self.path.join(file).exists(), file)?;
        }
        let as_service = ["setpriv", "--reuid=gripfast", "--regid=gripfast", "--clear-groups", "gripfast"];
        // The user of the service can read the config that the package brings.
        output(&mut self.command(&[&as_service[..], &["check", "/etc/gripfast/gripfast.toml"]].concat()))?;
        let scratch = (fresh(&self.path, "tmp/scratch")?, "/tmp/scratch".to_owned());
        let program = "/usr/bin/gripfast".to_owned();
        let words = [self.words(), vec![program.clone()]].concat();
        InstalledPackage { workspace, name: "Debian package", words, program, scratch }.use_all()?;
        output(&mut self.command(&["apt-get", "purge", "--yes", "gripfast"]))?;
        let after = self.content()?;
        let left: Vec<&str> =
            after.lines().filter(|line| !before.lines().any(|known| known == *line)).collect();
        expect("purge", before == after, &format!("it leaves {left:?}"))
    }

    /// All files and users.
    fn content(&self) -> Result<String, String> {
        let script =
            r#"cd "$0" && find . -xdev -printf '%P\n' | grep -vE "$1" | sort && cat etc/passwd etc/group"#;
        output(Command::new("sh").args(["-c", script]).arg(&self.path).arg(IGNORED))
    }
}

/// Installs a package of the system. Returns whether that worked.
pub(super) fn apt_install(package: &str) -> bool {
    println!("installing {package}");
    let apt =
        |words: &[&str]| output(Command::new("apt-get").args(words).env("DEBIAN_FRONTEND", "noninteractive"));
    let install = ["install", "--yes", "--no-install-recommends", package];
    // The usual cause of a failure is a missing or old package index.
    apt(&install).or_else(|_| apt(&["update"]).and_then(|_| apt(&install))).is_ok()
}

pub(super) fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.is_empty()).unwrap_or_default()
}

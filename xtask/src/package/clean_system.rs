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

/// Arguments of `debootstrap`, and the content of the file that marks a finished root.
const DEBIAN: &str = "--variant=minbase --include=systemd,systemd-sysv,dbus bookworm";
/// The package inside the root.
pub(super) const NEW: &str = "/var/cache/new.deb";
/// The same package with an older version.
pub(super) const OLD: &str = "/var/cache/old.deb";

/// The root of a minimal Debian.
pub(super) struct CleanSystem {
    /// The root without any change.
    pub(super) base: PathBuf,
    /// The copy in which packages are installed.
    pub(super) path: PathBuf,
}

impl CleanSystem {
    /// Makes a copy of the [`base`] for this check. The error is the reason for which this machine cannot have one.
    pub(super) fn create(place: &Path) -> Result<Self, String> {
        let base = base(place)?;
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

    /// Installs an older package and upgrades it, uses the package, goes back to the older one, and purges that; then
    /// the root is as it was.
    pub(super) fn check(&self, workspace: &Workspace, package: &Path) -> Result<(), String> {
        let before = self.content()?;
        let config = self.path.join("etc/gripfast/gripfast.toml");
        install(package, &self.path.join(&NEW[1..]), 0o644)?;
        self.make_older()?;
        self.install(OLD)?;
        let changed = std::fs::read_to_string(&config).map(|text| text + "# changed by the administrator\n");
        let changed = changed.and_then(|text| std::fs::write(&config, &text).map(|()| text));
        let changed = changed.map_err(|error| super::cannot("change", &config, &error))?;
        self.install(NEW)?;
        let kept = std::fs::read_to_string(&config).unwrap_or_default();
        expect("the config after an upgrade", kept == changed, &kept)?;
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
        // Without a config, every change of the version still works.
        std::fs::remove_file(&config).map_err(|error| super::cannot("remove", &config, &error))?;
        self.install(OLD)?;
        output(&mut self.command(&["apt-get", "purge", "--yes", "gripfast"]))?;
        let after = self.content()?;
        let left: Vec<&str> =
            after.lines().filter(|line| !before.lines().any(|known| known == *line)).collect();
        expect("purge", before == after, &format!("it leaves {left:?}"))
    }

    /// Installs a package file with apt, and expects that its version is the installed one.
    fn install(&self, package: &str) -> Result<(), String> {
        let apt = ["apt-get", "install", "--yes", "--no-install-recommends", "--allow-downgrades", package];
        output(&mut self.command(&apt))?;
        let of_file = output(&mut self.command(&["dpkg-deb", "--showformat=${Version}", "--show", package]))?;
        let query = ["dpkg-query", "--showformat=${db:Status-Abbrev}${Version}", "--show", "gripfast"];
        let installed = output(&mut self.command(&query))?;
        expect("the installed version", installed == format!("ii {of_file}"), &installed)
    }

    /// Makes the same package with a version before all others.
    fn make_older(&self) -> Result<(), String> {
        let script = r#"dpkg-deb --raw-extract "$0" /tmp/unpacked && sed -i 's/^Version: /Version: 0~/' /tmp/unpacked/DEBIAN/control \
            && dpkg-deb --root-owner-group -Zgzip --build /tmp/unpacked "$1" && rm -r /tmp/unpacked"#;
        output(&mut self.command(&["sh", "-c", script, NEW, OLD])).map(drop)
    }

    /// All files and users.
    fn content(&self) -> Result<String, String> {
        let script =
            r#"cd "$0" && find . -xdev -printf '%P\n' | grep -vE "$1" | sort && cat etc/passwd etc/group"#;
        output(Command::new("sh").args(["-c", script]).arg(&self.path).arg(IGNORED))
    }
}

/// Makes a minimal Debian with systemd once. The error is the reason for which this machine cannot have one.
pub(super) fn base(place: &Path) -> Result<PathBuf, String> {
    if output(Command::new("id").arg("-u"))?.trim() != "0" {
        return Err("only root can make a clean Debian".to_owned());
    }
    if !runs("debootstrap", "--version") && !apt_install("debootstrap") {
        return Err("`debootstrap` is missing and cannot be installed".to_owned());
    }
    let base = place.join("debian");
    if std::fs::read_to_string(base.join("made")).is_ok_and(|made| made == DEBIAN) {
        return Ok(base);
    }
    println!("making a clean Debian");
    let unfinished = fresh(place, "debian-unfinished")?;
    output(Command::new("debootstrap").args(DEBIAN.split(' ')).arg(&unfinished))
        .map_err(|why| format!("`debootstrap` fails here: {}", last_line(&why)))?;
    output(Command::new("rm").args(["-rf", "--one-file-system"]).arg(&base))?;
    let made = std::fs::write(unfinished.join("made"), DEBIAN);
    made.and_then(|()| std::fs::rename(&unfinished, &base))
        .map_err(|error| super::cannot("make", &base, &error))?;
    Ok(base)
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
